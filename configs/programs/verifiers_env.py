"""An environment of the ``verifiers`` library (before 0.4), multi-turn ones included, as the
program of a discussion. Its own client asks agent_0, and its rubric is the reward::

    python verifiers_env.py ENV --questions > questions.jsonl
    data.train=questions.jsonl  verification.verifiers.reasoning=math_verify
    reward.scheme=program  interaction.criticism=none
    interaction.program={command: [/venv/bin/python, configs/programs/verifiers_env.py, ENV]}
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
    return {"agent_0": played["reward"]}


env = vf.load_environment(sys.argv[1])
rows = [dict(row) for row in env.get_dataset()]
if sys.argv[2:] == ["--questions"]:
    for number, row in enumerate(rows):
        question = {"id": f"{sys.argv[1]}/{number}", "task": "reasoning", "source": sys.argv[1]}
        answer = str(row.get("answer") or "(the rubric knows)")
        print(json.dumps(question | {"prompt": text_of(row["prompt"]), "answer": answer}))
else:
    asked = sys.stdin.read()
    row = next(row for row in rows if text_of(row["prompt"]) == asked)
    print(json.dumps(asyncio.run(play(env, row))))
