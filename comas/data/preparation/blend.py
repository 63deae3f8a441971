"""Draws the blend: questions of every domain, proven, distinct, and apart from all benchmarks."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from comas.data import Record
from comas.data.preparation.overlap import Overlap, OverlapIndex
from comas.data.preparation.record_set import Converted, DataPreparationError
from comas.types import DOMAINS, Domain
from comas.utils.progress import progress_bar
from comas.verification import AnswerForm, Verdict

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
class Repetition:
    """A line of decontamination.jsonl: a candidate that was not taken, and what it repeats."""

    id: str
    source: str
    repeats: str
    """The id of a question."""
    of: str
    """Where that question is: in a "benchmark", in "validation" or in the "blend"."""
    same_text: bool
    words: str
    """Words that both have."""


@dataclass(frozen=True)
class Blend:
    """The drawn records, and what was not taken."""

    train: list[Record[AnswerForm]]
    validation: list[Record[AnswerForm]]
    repetitions: list[Repetition]
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

    Raises DataPreparationError when a pool has too few.
    """
    drawing = _Drawing(seed=seed, benchmarks=benchmarks, verify=verify)
    candidates = {domain: drawing.proven(domain, pools[domain]) for domain in DOMAINS}
    validation: list[Converted] = []
    for domain in DOMAINS:
        taken = drawing.take(candidates[domain], domain, size.validation[domain], what="validation")
        for one in taken:
            drawing.held_out.add(one.record.id, one.item.question)
        validation += taken
    train: list[Converted] = []
    for domain in DOMAINS:
        train += drawing.take(candidates[domain], domain, size.train[domain], what="train")
    return Blend(
        train=drawing.in_order(train),
        validation=drawing.in_order(validation),
        repetitions=drawing.repetitions,
        left_out=drawing.left_out,
    )


class _Drawing:
    """Candidates taken so far, and those left out."""

    def __init__(self, *, seed: int, benchmarks: OverlapIndex, verify: Verify) -> None:
        self._seed = seed
        self._benchmarks = benchmarks
        self._verify = verify
        self._taken = OverlapIndex()
        self.held_out = OverlapIndex()
        self.repetitions: list[Repetition] = []
        self.left_out: dict[Domain, Counter[str]] = {domain: Counter() for domain in DOMAINS}

    def proven(self, domain: Domain, pool: Sequence[Converted]) -> Iterator[Converted]:
        """Candidates apart from the benchmarks, whose reference answer was judged correct."""
        in_order = iter(sorted(pool, key=self._rank))
        while chunk := list(islice(in_order, CHUNK)):
            found = [self._benchmarks.find(candidate.item.question) for candidate in chunk]
            apart = [
                candidate
                for candidate, overlap in zip(chunk, found, strict=True)
                if not self._repeats(domain, candidate, overlap, "benchmark")
            ]
            verdicts = self._verify([_reference(domain, candidate) for candidate in apart])
            for candidate, verdict in zip(apart, verdicts, strict=True):
                if verdict == "correct":
                    yield candidate
                else:
                    self.left_out[domain][f"its own reference answer is judged {verdict}"] += 1

    def take(
        self, candidates: Iterator[Converted], domain: Domain, number: int, *, what: str
    ) -> list[Converted]:
        """The first ``number`` candidates that repeat nothing taken before."""
        taken: list[Converted] = []
        with progress_bar(f"{what}: {domain}", unit="question", total=number) as bar:
            while len(taken) < number:
                candidate = next(candidates, None)
                if candidate is None:
                    raise DataPreparationError(self._shortage(domain, len(taken), number, what))
                question = candidate.item.question
                if self._repeats(domain, candidate, self._taken.find_same(question), "blend"):
                    continue
                if self._repeats(domain, candidate, self.held_out.find(question), "validation"):
                    continue
                self._taken.add(candidate.record.id, question)
                taken.append(candidate)
                bar.update()
        return taken

    def in_order(self, taken: Sequence[Converted]) -> list[Record[AnswerForm]]:
        """The records, the domains mixed."""
        return [candidate.record for candidate in sorted(taken, key=self._rank)]

    def _rank(self, candidate: Converted) -> bytes:
        return hashlib.sha256(f"{self._seed}/{candidate.record.id}".encode()).digest()

    def _repeats(
        self, domain: Domain, candidate: Converted, overlap: Overlap | None, of: str
    ) -> bool:
        if overlap is None:
            return False
        self.repetitions.append(
            Repetition(
                candidate.record.id,
                candidate.record.source,
                repeats=overlap.other_id,
                of=of,
                same_text=overlap.is_same,
                words=overlap.words,
            )
        )
        self.left_out[domain][f"it repeats a question of the {of}"] += 1
        return True

    def _shortage(self, domain: Domain, found: int, wanted: int, what: str) -> str:
        left_out = self.left_out[domain].items()
        reasons = "; ".join(f"{count} x {reason}" for reason, count in left_out)
        return (
            f"{domain}: {wanted} questions are wanted for {what}, but the dataset has only {found}"
            f"{f' more (left out: {reasons})' if reasons else ''}. Ask for fewer with "
            f"--{what}-size, or give the whole dataset"
        )


def _reference(domain: Domain, candidate: Converted) -> VerifiedItem:
    """The response that the dataset itself would give, and the gold answer to judge it by."""
    answer = candidate.item.answer
    if domain == "coding":
        return domain, f"```python\n{candidate.item.solution}\n```", answer
    return domain, f"\\boxed{{{answer}}}", answer
