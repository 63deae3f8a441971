"""An environment of the ``verifiers`` library (before 0.4), multi-turn ones included, as the
program of a discussion. Its own client asks agent_0, and its rubric is the reward of all turns::

    python verifiers_env.py ENV --questions > questions.jsonl
    data.train=questions.jsonl  verification.verifiers.reasoning=math_verify
    reward.scheme=program  interaction.criticism=none
    interaction.program={command: [/venv/bin/python, configs/programs/verifiers_env.py, ENV]}

After ENV, such as ``taxi`` (beside this file), its arguments may stand as JSON.
"""

import asyncio
import json
import os
import sys

import verifiers as vf


def text_of(prompt):
    texts = [prompt] if isinstance(prompt, str) else [each["content"] for each in prompt]
    return "\n\n".join(texts)


async def play(env, row):
    client = vf.ClientConfig(
        api_key_var="OPENAI_API_KEY", api_base_url=os.environ["OPENAI_BASE_URL"]
    )
    played = await env.run_rollout(vf.RolloutInput(**row), client, "agent_0", {})
    if played.get("error"):
        raise SystemExit(str(played["error"]))
    return {"*": played["reward"]}


name, *options = sys.argv[1:]
arguments = json.loads(options[0]) if options and options[0].startswith("{") else {}
env = vf.load_environment(name, **arguments)
rows = [dict(row) for row in env.get_dataset()]
if "--questions" in options:
    for number, row in enumerate(rows):
        question = {"id": f"{name}/{number}", "task": "reasoning", "source": name}
        answer = str(row.get("answer") or "(the rubric knows)")
        print(json.dumps(question | {"prompt": text_of(row["prompt"]), "answer": answer}))
else:
    row = rows[int(os.environ["COMAS_QUESTION_ID"].rpartition("/")[2])]
    print(json.dumps(asyncio.run(play(env, row))))
