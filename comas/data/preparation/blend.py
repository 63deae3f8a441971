"""Draws the blend: verified and distinct questions of every domain, apart from all benchmarks."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from comas.data.preparation.overlap import OverlapIndex
from comas.data.preparation.record_set import Converted, Item
from comas.data.records import Record
from comas.data.rows import DataError
from comas.types import DOMAINS, Domain
from comas.utils.progress import progress_bar
from comas.verification import Verdict

Split = Literal["train", "validation"]
Sizes = Mapping[Split, Mapping[Domain, int]]
VerifiedItem = tuple[Domain, str, str]
"""(domain, response, gold answer)"""
Verify = Callable[[Sequence[VerifiedItem]], list[Verdict]]

CHUNK = 64
"""Number of candidates that are verified at once."""
PAPER_SIZES: Sizes = {
    "train": {"math": 600, "coding": 600, "science": 800},
    "validation": {"math": 150, "coding": 150, "science": 200},
}
"""2000 questions to train on and 500 held out: section 4 and appendix C of the paper."""


class Blend(NamedTuple):
    """The drawn records, and the number of rejected candidates by domain and reason."""

    records: dict[Split, list[Record]]
    left_out: dict[Domain, Counter[str]]


def draw_blend(
    pools: Mapping[Domain, Sequence[Converted]],
    *,
    sizes: Sizes,
    seed: int,
    benchmarks: OverlapIndex,
    verify: Verify,
) -> Blend:
    """Draw the validation questions, then the training questions, without replacement.

    Candidates are tried in the order of a hash of (seed, id), until there are enough. One is taken
    if it repeats no benchmark's question, its own reference answer is judged correct, and no taken
    question has the same words; a training question must not repeat a validation question either.

    Raises DataError if a pool has too few.
    """

    def rank(candidate: Converted) -> bytes:
        return hashlib.sha256(f"{seed}/{candidate.record.id}".encode()).digest()

    left_out = {domain: Counter[str]() for domain in DOMAINS}
    taken, held_out = OverlapIndex(), OverlapIndex()

    def usable(domain: Domain) -> Iterator[Converted]:
        ranked, reasons = sorted(pools[domain], key=rank), left_out[domain]
        for candidate, verdict in _verified(domain, ranked, benchmarks, verify, reasons):
            question = candidate.item.question
            if verdict != "correct":
                reasons[f"its own reference answer is judged {verdict}"] += 1
            elif taken.has_same(question):
                reasons["it repeats a question of the blend"] += 1
            elif held_out.overlaps(question):
                reasons["it repeats a question of the validation"] += 1
            else:
                taken.add(question)
                yield candidate

    candidates = {domain: usable(domain) for domain in DOMAINS}
    records: dict[Split, list[Record]] = {}
    splits: tuple[Split, ...] = ("validation", "train")
    for split in splits:
        drawn: list[Converted] = []
        for domain, size in sizes[split].items():
            found = []
            with progress_bar(f"{split}: {domain}", unit="question", total=size) as bar:
                for candidate in islice(candidates[domain], size):
                    found.append(candidate)
                    bar.update()
            if len(found) < size:
                raise DataError(_shortage(domain, split, len(found), size, left_out[domain]))
            if split == "validation":
                held_out.add(*(candidate.item.question for candidate in found))
            drawn += found
        records[split] = [candidate.record for candidate in sorted(drawn, key=rank)]
    return Blend(records, left_out)


def _verified(
    domain: Domain,
    candidates: Sequence[Converted],
    benchmarks: OverlapIndex,
    verify: Verify,
    left_out: Counter[str],
) -> Iterator[tuple[Converted, Verdict]]:
    """Yield candidates that repeat no benchmark, with the verdict on their reference answer."""
    for start in range(0, len(candidates), CHUNK):
        chunk = candidates[start : start + CHUNK]
        apart = [one for one in chunk if not benchmarks.overlaps(one.item.question)]
        if num_repeated := len(chunk) - len(apart):
            left_out["it repeats a question of the benchmark"] += num_repeated
        verdicts = verify([_reference(domain, candidate.item) for candidate in apart])
        yield from zip(apart, verdicts, strict=True)


def _reference(domain: Domain, item: Item) -> VerifiedItem:
    """A response with the dataset's own answer or solution, and the gold answer to judge it."""
    is_coding = domain == "coding"
    response = f"```python\n{item.solution}\n```" if is_coding else f"\\boxed{{{item.answer}}}"
    return domain, response, item.answer


def _shortage(domain: Domain, split: str, found: int, size: int, left_out: Counter[str]) -> str:
    reasons = "; ".join(f"{count} x {reason}" for reason, count in left_out.items())
    return (
        f"{domain}: {size} questions are wanted for {split}, but the dataset has only {found} more "
        f"(left out: {reasons or 'none'}). Ask for fewer with --{split}-size, or give the whole "
        "dataset"
    )
