"""One question, discussed while somebody watches."""

from collections.abc import Callable, Sequence

from comas.reward_formulation.interaction_reward import parse_score
from comas.types import Domain
from comas.verification.boxed import last_boxed
from evaluation.client import Client, Endpoint, RequestOptions
from evaluation.runner import answer_task
from evaluation.setups.discussion import DISCUSSION
from evaluation.types import BenchmarkTask, Call, role_of

INDENT = "    "


async def discuss_question(
    question: str,
    *,
    domain: Domain,
    models: Sequence[Endpoint],
    options: RequestOptions,
    seed: int,
    show: Callable[[str], None],
) -> str:
    """Let ``models`` discuss as in the setup ``discussion``; a single one plays four agents.

    ``show`` gets each turn as soon as it is sampled, ready for a terminal. Returns the solution
    with the best score.

    Raises RequestError when a model gives no reply.
    """
    task = BenchmarkTask("question", domain, question, question, gold="")

    def on_call(call: Call) -> None:
        show(turn_text(call.label, call.speaker, call.response))

    async with Client(models, options) as client:
        answer = await answer_task(
            task, seed=seed, setup=DISCUSSION, client=client, on_call=on_call
        )
    return answer.response


def turn_text(turn_id: str, agent: int, text: str) -> str:
    """A turn for the terminal.

    Example: ``turn_text("r0.s1.e0.t0", 0, "It holds. <score>1</score>")`` gives
    ``"round 0, agent 0: scoring of solution 1, score 1\\n    It holds. <score>1</score>"``
    """
    round_, solution, *_ = turn_id.split(".")
    role = role_of(turn_id)
    what = f"solution {solution[1:]}"
    if role != "solution":
        what = f"{role} of {what}"  # one evaluation of each, and one scoring of that
    if role == "scoring":
        what += f", score {parse_score(text) or 'unreadable'}"
    heading = f"round {round_[1:]}, agent {agent}: {what}"
    return "\n".join([heading, *(INDENT + line for line in text.splitlines())])


def final_answer(solution: str, domain: Domain) -> str:
    """What a solution answers: what it boxes, or the whole of a program and of one without a
    box."""
    boxed = None if domain == "coding" else last_boxed(solution)
    return solution if boxed is None else boxed
