"""Reward functions written for other libraries: ``reward.scheme=trl:path/to/file.py:function``, or
``verl:...``.

They reward only solutions, whose text excludes thinking, and read the columns of the questions,
which include labels.
"""

import asyncio
import inspect
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from types import SimpleNamespace
from typing import Any, ClassVar

from comas.config.plugins import check_call
from comas.types import Discussion, Question, RewardedDiscussion, Rewards, Turn
from comas.utils.interrupts import run

log = logging.getLogger(__name__)

Solution = tuple[Question, Turn]
LogMetric = Callable[[str, Any], None]


@dataclass(frozen=True)
class ForeignReward:
    """Adapts a function of another library to discussions."""

    function: Callable[..., Any]
    wanted: ClassVar[str]
    """Describes the required function in errors."""

    def __post_init__(self) -> None:
        """Raise TypeError if the function is not callable."""
        if not callable(self.function):
            raise TypeError(f"it is of type {type(self.function).__name__}")

    def __call__(self, discussions: Sequence[Discussion], *, step: int) -> Rewards:
        """Reward the solutions of a batch. Raises ValueError if the function returns no numbers."""
        solutions = [(d.question, turn) for d in discussions for turn in d.solutions()]
        logged: dict[str, list[float]] = defaultdict(list)

        def log_metric(name: str, value: Any) -> None:
            logged[name].append(float(value))

        found = self.call(solutions, step=step, log_metric=log_metric) if solutions else []
        rewards = iter(list(map(self._number, found)))
        rewarded = [
            RewardedDiscussion.by_turn(d, {turn.turn_id: next(rewards) for turn in d.solutions()})
            for d in discussions
        ]
        return Rewards(rewarded, {name: fmean(values) for name, values in logged.items()})

    def call(
        self, solutions: Sequence[Solution], *, step: int, log_metric: LogMetric
    ) -> Sequence[Any]:
        """Return the function's reward of each solution."""
        raise NotImplementedError

    def fault(self, what: str) -> ValueError:
        """Return an error about the function."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return ValueError(f"reward.scheme: {name} {what}; make it {self.wanted}")

    def _number(self, value: Any) -> float | None:
        try:
            reward = None if value is None else float(value)
        except (TypeError, ValueError):
            reward = math.nan
        if reward is not None and not math.isfinite(reward):
            raise self.fault(f"returned {value!r} for a solution")
        return reward


class TrlReward(ForeignReward):
    """TRL's ``f(completions, **columns)``, called once; each argument is a list with an entry for
    each solution of the batch.

    ``prompts`` and ``completions`` are lists of messages if the column ``prompt`` is one, else
    texts; ``gold`` is the answer that verifiers use. The function receives the columns that its
    signature names, or all with ``**kwargs``. It may be a coroutine function, and may return a
    numpy array or a tensor; a None is not trained. ``trainer_state.global_step`` is the number of
    finished steps, ``log_metric(name, value)`` adds a metric, and ``log_extra`` logs as DEBUG.
    """

    wanted = (
        "a function f(completions, **columns) -> list[float | None], whose further arguments are "
        "prompts, completion_ids, trainer_state, log_metric, log_extra, or columns of data.train "
        "and data.validation"
    )

    def call(
        self, solutions: Sequence[Solution], *, step: int, log_metric: LogMetric
    ) -> Sequence[Any]:
        """Call the function. Raises ValueError if arguments or values are missing."""
        names = dict.fromkeys(name for question, _ in solutions for name in question.columns)
        given: dict[str, Any] = {
            name: [q.columns.get(name) for q, _ in solutions] for name in names
        }
        prompts = given.pop("prompt", [None] * len(solutions))
        pairs = list(zip(prompts, solutions, strict=True))
        given["prompts"] = [p if isinstance(p, list) else q.text for p, (q, _) in pairs]
        given["completions"] = [
            [{"role": "assistant", "content": t.text}] if isinstance(p, list) else t.text
            for p, (_, t) in pairs
        ]
        given["completion_ids"] = [list(t.generation.response_token_ids) for _, t in solutions]
        given["trainer_state"] = SimpleNamespace(global_step=max(0, step - 1))
        given |= {"log_metric": log_metric, "log_extra": partial(log.debug, "%s: %s")}
        there, signature = ", ".join(sorted(given)), inspect.signature(self.function)
        takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        if not takes_all:
            given = {name: given[name] for name in given if name in signature.parameters}
        try:
            signature.bind(**given)
        except TypeError as error:
            raise self.fault(f"can be given {there}: {error}") from error
        try:
            found = self.function(**given)
            found = run(found) if inspect.iscoroutine(found) else found
        except KeyError as error:
            if not takes_all:  # not a missing column
                raise
            raise self.fault(f"can be given {there}, and looks up {error}") from error
        found = found.tolist() if hasattr(found, "tolist") else found
        if not isinstance(found, Sequence) or len(found) != len(solutions):
            what = f"{len(found)} values" if isinstance(found, Sequence) else type(found).__name__
            raise self.fault(f"returned {what} for {len(solutions)} completions")
        return found


class VerlReward(ForeignReward):
    """verl's ``compute_score(data_source, solution_str, ground_truth, extra_info)``, called with
    these names for each solution. It returns a number, or a mapping with a number as ``score``;
    coroutines are awaited together.

    ``ground_truth`` is the answer (``data.columns.answer``); ``data_source`` and ``extra_info`` are
    columns, by default the question's source and {}.
    """

    NAMES = ("data_source", "solution_str", "ground_truth", "extra_info")
    wanted = f"a function f({', '.join(NAMES)}) -> float, or a mapping with a float as 'score'"

    def __post_init__(self) -> None:
        """Raise TypeError if the function does not take these names."""
        super().__post_init__()
        check_call(self.function, named=self.NAMES)

    def call(
        self, solutions: Sequence[Solution], *, step: int, log_metric: LogMetric
    ) -> Sequence[Any]:
        """Call the function. Raises ValueError for a mapping without a score."""
        found = [self._judge(question.columns, turn.text) for question, turn in solutions]
        if found and inspect.iscoroutine(found[0]):
            found = run(_all(found))
        return [self._score(each) for each in found]

    def _judge(self, columns: Mapping[str, Any], text: str) -> Any:
        source, info = columns.get("data_source", columns["source"]), columns.get("extra_info", {})
        values = (source, text, columns["gold"], info)
        return self.function(**dict(zip(self.NAMES, values, strict=True)))

    def _score(self, found: Any) -> Any:
        score = found.get("score") if isinstance(found, Mapping) else found
        if score is None:
            raise self.fault(f"returned {found!r}, which has no score")
        return score


async def _all(scores: Sequence[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*scores)


FOREIGN: dict[str, type[ForeignReward]] = {"trl": TrlReward, "verl": VerlReward}
"""Prefix in ``reward.scheme`` -> adapter."""
