"""A team of three plain ``openai`` calls: a planner, a coder, and a tester who is asked where the
coder's program fails in the sandbox. ``team.yaml`` trains it."""

from openai import OpenAI

from comas.interaction.prompts import EVALUATION, SOLUTION, HistoryItem, fill
from comas.verification.coding import last_python_block, process_sandbox
from comas.verification.sandbox import ProgramError

CLIENT = OpenAI(api_key="none is needed")  # one for all discussions: to make one takes 50 ms of CPU
PLANNER, CODER, TESTER = "agent_0", "agent_1", "agent_2"


def solve(question, base_url):
    client = CLIENT.with_options(base_url=base_url)

    def ask(agent, role, template, **quoted):
        # The tiny agents only know the shipped wording.
        prompt = fill(template, question.domain, question=question.text, **quoted)
        chat = [{"role": "user", "content": prompt}]
        reply = client.chat.completions.create(model=agent, messages=chat, metadata={"role": role})
        return reply.choices[0].message.content

    plan = ask(PLANNER, "plan", SOLUTION)
    answer = ask(CODER, "solution", SOLUTION, history=[HistoryItem(plan, None)])
    if question.domain == "coding" and (failure := what_fails(answer)):
        remark = ask(TESTER, "test", EVALUATION, solution=f"{answer}\n{failure}")
    else:
        remark = ask(TESTER, "test", EVALUATION, solution=answer)
    return ask(CODER, "solution", SOLUTION, history=[HistoryItem(answer, remark)])


def what_fails(answer):
    """What the sandbox says of an answer's program; empty where it runs."""
    try:
        process_sandbox().output_of(last_python_block(answer) or "")
    except ProgramError as error:
        return str(error)[-100:]
    return ""
