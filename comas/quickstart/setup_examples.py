"""What the tiny agents learn for the setups of the evaluation: to answer there, with no new habits.

A solver errs there as anywhere, whatever others' answers say. AutoGen's user proxy is an evaluator:
it names a mistake, or ends the conversation.
"""

from random import Random

from comas.interaction.prompts import APPROVALS, SOLUTION, fill
from comas.interaction.setup_prompts import (
    CONSISTENCY_SAMPLES,
    DEBATE_AGENTS,
    TERMINATE,
    aggregation,
    assistant,
    debate_opening,
    debate_reply,
    to_assistant,
    to_user_proxy,
    user,
)
from comas.quickstart.questions import Problem
from comas.quickstart.worked import Example, evaluate, show, show_mistake, solve
from comas.quickstart.world import MISTAKES, Mixture
from comas.types import Message

NUM_AGGREGATED = (CONSISTENCY_SAMPLES, DEBATE_AGENTS)
MAX_PROXY_MESSAGES = 2


def setup_example(rng: Random, problem: Problem, mixture: Mixture, model: str) -> Example:
    """One turn of a random setup that is about ``problem``."""
    kind = rng.choice((_aggregation, _debate, _dialogue))
    return kind(rng, problem, mixture, model)


def _aggregation(rng: Random, problem: Problem, mixture: Mixture, model: str) -> Example:
    solutions = _texts(rng, problem, mixture, model, rng.choice(NUM_AGGREGATED))
    return _solved(rng, problem, mixture, model, aggregation(_query(problem), solutions))


def _debate(rng: Random, problem: Problem, mixture: Mixture, model: str) -> Example:
    """The first round or the second."""
    query = _query(problem)
    messages = debate_opening(query)
    if rng.random() < 0.5:
        own, *others = _texts(rng, problem, mixture, model, DEBATE_AGENTS)
        messages += debate_reply(query, own, others=others)
    return _solved(rng, problem, mixture, model, messages)


def _dialogue(rng: Random, problem: Problem, mixture: Mixture, model: str) -> Example:
    """AutoGen's assistant after up to two messages of the user proxy, or the proxy after these."""
    dialogue = [user(_query(problem))]
    for _ in range(rng.randint(0, MAX_PROXY_MESSAGES)):
        text, mistake = show_mistake(rng, problem, mixture)
        if mistake is not None:
            dialogue += [assistant(text), user(MISTAKES[problem.domain][mistake])]
    if rng.random() < 0.5:
        return _solved(rng, problem, mixture, model, to_assistant(dialogue))
    worked = show(rng, problem, mixture)
    evaluation = evaluate(rng, problem.domain, worked, model, mixture)
    said = TERMINATE if evaluation == APPROVALS[problem.domain] else evaluation
    return Example(tuple(to_user_proxy([*dialogue, assistant(worked.text)])), said)


def _query(problem: Problem) -> str:
    """The question as the evaluation asks it of the tiny agents."""
    return fill(SOLUTION, problem.domain, question=problem.text)


def _texts(rng: Random, problem: Problem, mixture: Mixture, model: str, count: int) -> list[str]:
    return [show(rng, problem, mixture).text for _ in range(count)]


def _solved(
    rng: Random, problem: Problem, mixture: Mixture, model: str, messages: list[Message]
) -> Example:
    worked = solve(rng, problem, model, mixture)
    return Example(tuple(messages), worked.text)
