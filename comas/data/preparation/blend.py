"""Draws the blend: questions of every domain, proven, distinct, and apart from all benchmarks."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from comas.data.preparation.overlap import OverlapIndex
from comas.data.preparation.record_set import Converted, Item
from comas.data.records import Record
from comas.data.rows import DataError
from comas.types import DOMAINS, Domain
from comas.utils.progress import progress_bar
from comas.verification import Verdict

VerifiedItem = tuple[Domain, str, str]
"""(domain, response, gold answer)"""
Verify = Callable[[Sequence[VerifiedItem]], list[Verdict]]

CHUNK = 64
"""Candidates that are verified side by side."""


@dataclass(frozen=True)
class BlendSize:
    """How many questions of each domain."""

    train: Mapping[Domain, int]
    validation: Mapping[Domain, int]


PAPER_SIZE = BlendSize(
    train={"math": 600, "coding": 600, "science": 800},
    validation={"math": 150, "coding": 150, "science": 200},
)
"""2000 questions to train on and 500 held out: section 4 and appendix C of the paper."""


@dataclass(frozen=True)
class Blend:
    """The drawn records, and what was not taken."""

    train: list[Record]
    validation: list[Record]
    left_out: dict[Domain, Counter[str]]
    """domain -> reason -> candidates that were looked at and not taken"""


def draw_blend(
    pools: Mapping[Domain, Sequence[Converted]],
    *,
    size: BlendSize,
    seed: int,
    benchmarks: OverlapIndex,
    verify: Verify,
) -> Blend:
    """Draw the validation questions, then the training questions, without replacement.

    Candidates are looked at in the order of a hash of (seed, id), until there are enough. One is
    taken when it repeats no benchmark's question, its own reference answer is judged correct,
    and no question that was taken has the same words; to train, it must repeat no validation
    question either.

    Raises DataError when a pool has too few.
    """

    def rank(candidate: Converted) -> bytes:
        return hashlib.sha256(f"{seed}/{candidate.record.id}".encode()).digest()

    sorted_pools = {
        domain: _Pool(domain, sorted(pools[domain], key=rank), benchmarks, verify)
        for domain in DOMAINS
    }
    taken, held_out = OverlapIndex(), OverlapIndex()
    validation: list[Converted] = []
    for domain, pool in sorted_pools.items():
        drawn = pool.take(size.validation[domain], "validation", taken, held_out)
        for candidate in drawn:
            held_out.add(candidate.item.question)
        validation += drawn
    train: list[Converted] = []
    for domain, pool in sorted_pools.items():
        train += pool.take(size.train[domain], "train", taken, held_out)
    return Blend(
        train=[candidate.record for candidate in sorted(train, key=rank)],
        validation=[candidate.record for candidate in sorted(validation, key=rank)],
        left_out={domain: pool.left_out for domain, pool in sorted_pools.items()},
    )


class _Pool:
    """The candidates of a domain that were not looked at yet, and how many were left out."""

    def __init__(
        self,
        domain: Domain,
        candidates: Sequence[Converted],
        benchmarks: OverlapIndex,
        verify: Verify,
    ) -> None:
        self.left_out: Counter[str] = Counter()
        """reason -> candidates"""
        self._domain = domain
        self._proven = self._prove(candidates, benchmarks, verify)

    def take(
        self, number: int, what: str, taken: OverlapIndex, held_out: OverlapIndex
    ) -> list[Converted]:
        """The next ``number`` candidates that repeat nothing of ``taken``, where they are added."""
        drawn: list[Converted] = []
        with progress_bar(f"{what}: {self._domain}", unit="question", total=number) as bar:
            while len(drawn) < number:
                candidate = next(self._proven, None)
                if candidate is None:
                    raise DataError(self._shortage(len(drawn), number, what))
                question = candidate.item.question
                if taken.has_same(question):
                    self.left_out["it repeats a question of the blend"] += 1
                elif held_out.overlaps(question):
                    self.left_out["it repeats a question of the validation"] += 1
                else:
                    taken.add(question)
                    drawn.append(candidate)
                    bar.update()
        return drawn

    def _prove(
        self, candidates: Sequence[Converted], benchmarks: OverlapIndex, verify: Verify
    ) -> Iterator[Converted]:
        """Candidates apart from the benchmarks, whose reference answer is judged correct."""
        for start in range(0, len(candidates), CHUNK):
            chunk = candidates[start : start + CHUNK]
            apart = [one for one in chunk if not benchmarks.overlaps(one.item.question)]
            if num_repeated := len(chunk) - len(apart):
                self.left_out["it repeats a question of the benchmark"] += num_repeated
            verdicts = verify([self._reference(candidate.item) for candidate in apart])
            for candidate, verdict in zip(apart, verdicts, strict=True):
                if verdict == "correct":
                    yield candidate
                else:
                    self.left_out[f"its own reference answer is judged {verdict}"] += 1

    def _reference(self, item: Item) -> VerifiedItem:
        """The response that the dataset itself would give, and the gold answer to judge it by."""
        if self._domain == "coding":
            return self._domain, f"```python\n{item.solution}\n```", item.answer
        return self._domain, f"\\boxed{{{item.answer}}}", item.answer

    def _shortage(self, found: int, wanted: int, what: str) -> str:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in self.left_out.items())
        return (
            f"{self._domain}: {wanted} questions are wanted for {what}, but the dataset has only "
            f"{found} more (left out: {reasons or 'none'}). Ask for fewer with --{what}-size, or "
            "give the whole dataset"
        )
