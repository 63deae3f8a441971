"""Reward functions written for TRL or verl: ``reward.scheme=trl:path/to/file.py:function``, or
``verl:...``.

They reward only solutions, whose text excludes thinking, and read the columns of the questions,
which include labels.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from comas.config.plugins import check_call
from comas.reward_formulation.checks import listed
from comas.types import Discussion, Question, RewardedDiscussion, Rewards, Turn

Solutions = Sequence[tuple[Question, Turn]]
Formulate = Callable[[Sequence[Discussion]], Rewards]

VERL_NAMES = ("data_source", "solution_str", "ground_truth", "extra_info")


def by_trl(function: Any) -> Formulate:
    """Adapt TRL's ``f(completions, **columns) -> list[float | None]``, called once; each argument
    is a list with an entry for each solution of the batch.

    Arguments are ``completions``, ``prompts``, ``completion_ids``, ``gold`` (the answer that
    verifiers use) and the questions' columns: those that the signature names, or all with
    ``**kwargs``. Prompts and completions are lists of messages if the column ``prompt`` is one,
    else texts. A None is not trained.
    """
    if not callable(function):
        raise TypeError(f"it is of type {type(function).__name__}, not a function of completions")
    return partial(_reward, partial(_call_trl, function))


def by_verl(function: Any) -> Formulate:
    """Adapt verl's ``compute_score(data_source, solution_str, ground_truth, extra_info)``, called
    with these names for each solution. It returns a number, or a mapping with a number as
    ``score``.

    ``ground_truth`` is the answer; ``data_source`` and ``extra_info`` are columns, by default the
    question's source and {}.
    """
    check_call(function, named=VERL_NAMES)
    return partial(_reward, partial(_call_verl, function))


def _reward(
    call: Callable[[Solutions], Sequence[Any]], discussions: Sequence[Discussion]
) -> Rewards:
    solutions = [(d.question, turn) for d in discussions for turn in d.solutions()]
    rewards = iter(call(solutions) if solutions else ())
    return Rewards(
        [
            RewardedDiscussion.by_turn(d, {turn.turn_id: next(rewards) for turn in d.solutions()})
            for d in discussions
        ]
    )


def _call_trl(function: Callable[..., Any], solutions: Solutions) -> Sequence[Any]:
    names = dict.fromkeys(name for question, _ in solutions for name in question.columns)
    given: dict[str, Any] = {name: [q.columns.get(name) for q, _ in solutions] for name in names}
    pairs = list(zip(given.pop("prompt", [None] * len(solutions)), solutions, strict=True))
    given["prompts"] = [chat if isinstance(chat, list) else q.text for chat, (q, _) in pairs]
    given["completions"] = [
        [{"role": "assistant", "content": turn.text}] if isinstance(chat, list) else turn.text
        for chat, (_, turn) in pairs
    ]
    given["completion_ids"] = [list(turn.generation.response_token_ids) for _, turn in solutions]
    there, signature = ", ".join(sorted(given)), inspect.signature(function)
    if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        given = {name: given[name] for name in given if name in signature.parameters}
    try:
        signature.bind(**given)
    except TypeError as error:
        raise ValueError(f"reward.scheme: a TRL reward can be given {there}: {error}") from error
    found = function(**given)
    rewards = listed(found)
    if len(rewards) != len(solutions):
        raise ValueError(
            f"reward.scheme returned {found!r} for {len(solutions)} completions; let it return a "
            "list with a number or None for each"
        )
    return rewards


def _call_verl(function: Callable[..., Any], solutions: Solutions) -> Sequence[Any]:
    scores = []
    for question, turn in solutions:
        columns = question.columns
        source, info = columns.get("data_source", columns["source"]), columns.get("extra_info", {})
        values = (source, turn.text, columns["gold"], info)
        found = function(**dict(zip(VERL_NAMES, values, strict=True)))
        scores.append(found.get("score", found) if isinstance(found, Mapping) else found)
    return scores
