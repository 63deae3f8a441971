"""``python -m comas.data_preparation.check FILE ...``: what scripts/check_data.sh starts.

Finds every fault of a file of one's own questions before a run does.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comas.data import QUESTION, DataError, Faulty, Record, read_records
from comas.data_preparation.record_set import is_decimal_number
from comas.types import Domain
from comas.verification import Verdict, Verifier
from comas.verification.coding import examine_checker

EMPTY_PROGRAM = "```python\npass\n```"


@dataclass(frozen=True)
class Report:
    """What a file holds."""

    num_records: int
    faults: dict[str, str]
    """"line 17" or "record 17" -> why the record there cannot be used."""
    counts: Counter[tuple[Domain, str]]
    """(domain, source) -> records without a fault"""


def check_file(path: Path, *, verifier: Verifier) -> Report:
    """Check every record of ``path``, its gold answer too.

    Raises DataError when the file cannot be read at all.
    """
    read = dict(read_records(path, QUESTION))
    records = {location: one for location, one in read.items() if not isinstance(one, Faulty)}
    reasons = {location: one.reason for location, one in read.items() if isinstance(one, Faulty)}
    reasons |= _faults_of_answers(records, verifier)
    faults = {location: reasons[location] for location in read if location in reasons}
    counts = Counter(
        (r.task, r.source) for location, r in records.items() if location not in reasons
    )
    return Report(len(read), faults, counts)


def _faults_of_answers(records: dict[str, Record[Domain]], verifier: Verifier) -> dict[str, str]:
    """location -> why the gold answer there cannot judge a response."""
    faults: dict[str, str] = {}
    items: dict[str, tuple[Domain, str, str]] = {}
    for location, record in records.items():
        domain, answer = record.task, record.answer
        if fault := _fault_of_text(domain, answer):
            faults[location] = fault
        else:
            response = EMPTY_PROGRAM if domain == "coding" else f"\\boxed{{{answer}}}"
            items[location] = (domain, response, answer)
    verdicts = verifier.verify_batch(list(items.values()))
    for (location, (domain, _, answer)), verdict in zip(items.items(), verdicts, strict=True):
        if fault := _fault_of_verdict(domain, answer, verdict):
            faults[location] = fault
    return faults


def _fault_of_text(domain: Domain, answer: str) -> str | None:
    if domain == "coding":
        try:
            examine_checker(answer)
        except ValueError as error:
            return str(error)
    if domain == "science" and not is_decimal_number(answer):
        return f"the answer {answer!r} is not a decimal number; leave its unit to the prompt"
    if domain == "math" and "\\boxed" in answer:
        return f"the answer {answer!r} must be what stands within \\boxed{{}}, without it"
    return None


def _fault_of_verdict(domain: Domain, answer: str, verdict: Verdict) -> str | None:
    if domain == "coding":
        return {
            "correct": "the checker passes a program that does nothing: does it call its tests?",
            "failed": "the checker cannot be run",
        }.get(verdict)
    if verdict == "correct":
        return None
    return f"the answer {answer!r} is not read as {domain}: \\boxed{{{answer}}} is judged {verdict}"


def main(arguments: Sequence[str]) -> int:
    """Check the files; returns 1 when one has a fault."""
    num_faulty_files = 0
    with Verifier() as verifier:
        for path in map(Path, arguments):
            try:
                report = check_file(path, verifier=verifier)
            except DataError as error:
                sys.stdout.write(f"{error}\n")
                num_faulty_files += 1
                continue
            sys.stdout.write(_text_of(path, report))
            num_faulty_files += bool(report.faults or not report.num_records)
    return 1 if num_faulty_files else 0


def _text_of(path: Path, report: Report) -> str:
    num_faults = len(report.faults)
    lines = [f"{path}: {report.num_records} records, {num_faults} of them faulty"]
    lines += [f"  {location}: {reason}" for location, reason in report.faults.items()]
    lines += [
        f"  {count:>7} {domain}, source {source}"
        for (domain, source), count in sorted(report.counts.items())
    ]
    if not report.faults and report.num_records:
        lines += [
            "to train on it:",
            f"  bash scripts/train_comas.sh configs/comas.yaml data.train={path}",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
