"""``comas check-data NAME ... [key=value ...]``.

Finds all errors in your own questions before a run, and shows how they will be asked.
"""

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from comas.config import load
from comas.config.paths import names_file, whole
from comas.config.schema import Config, Data
from comas.data import DataError, Invalid, Record, reasoning_gym
from comas.data.preparation.record_set import is_decimal_number
from comas.data.records import grouped, load_questions, read_questions
from comas.interaction.prompts import SOLUTION, fill
from comas.interaction.wording import wording_of
from comas.types import Domain
from comas.utils.chat import chat_messages
from comas.utils.invocation import CommandParser, start_of
from comas.utils.terminal import EXIT_ERROR, command
from comas.verification import Verdict, Verifier
from comas.verification.coding import examine_checker, wrong_programs
from comas.verification.reasoning_gym import Gold

NUM_SHOWN = 2
"""Questions shown as they will be asked."""
NUM_OF_A_STREAM = 100
"""Questions checked of an endless source."""


class Report(NamedTuple):
    """Errors by location ("line 17" or "record 17"), and the sound records."""

    errors: dict[str, str]
    sound: list[Record]


def check_questions(name: str, rules: Data, *, verifier: Verifier) -> Report:
    """Check every record of a file or dataset, including its gold answer. Raises DataError if it
    cannot be read at all, or holds no record."""
    read = dict(read_questions(name, rules))
    if not read:
        load_questions(name, rules)  # for its error
    records = {location: one for location, one in read.items() if not isinstance(one, Invalid)}
    reasons = {location: one.reason for location, one in read.items() if isinstance(one, Invalid)}
    reasons |= _errors_of_answers(records, verifier)
    errors = {location: reasons[location] for location in read if location in reasons}
    return Report(errors, [one for location, one in records.items() if location not in errors])


def _errors_of_answers(records: dict[str, Record], verifier: Verifier) -> dict[str, str]:
    """Return location -> why its gold answer cannot judge a response."""
    errors: dict[str, str] = {}
    asked: dict[str, tuple[str, str]] = {}
    for location, record in records.items():
        if error := _error_in_text(record.task, record.answer):
            errors[location] = error
        elif responses := _responses(record):
            asked[location] = responses
    items = [
        (records[location].task, response, records[location].gold_with_columns)
        for location, responses in asked.items()
        for response in responses
    ]
    verdicts = iter(verifier.verify_batch(items))
    for location in asked:
        record = records[location]
        if error := _error_in_verdicts(record.task, record.gold, next(verdicts), next(verdicts)):
            errors[location] = error
    return errors


def _responses(record: Record) -> tuple[str, str] | None:
    """Return two responses to test the answer: one that boxes it, and an empty one; for coding, two
    wrong programs. None if any answer may be right."""
    if record.task == "coding":
        return wrong_programs(record.answer)
    answer = Gold.read(record.answer).own_answer if record.task == "reasoning" else record.answer
    return None if answer is None else (f"\\boxed{{{answer}}}", "")


def _error_in_text(domain: Domain, answer: str) -> str | None:
    try:
        if domain == "coding":
            examine_checker(answer)
        if domain == "reasoning":
            Gold.read(answer)
    except ValueError as error:
        return str(error)
    if domain == "science" and not is_decimal_number(answer):
        return f"the answer {answer!r} is not a decimal number; leave its unit to the prompt"
    if domain == "math" and "\\boxed" in answer:
        return f"the answer {answer!r} must be written without \\boxed{{}}"
    return None


def _error_in_verdicts(domain: Domain, answer: str, verdict: Verdict, other: Verdict) -> str | None:
    """Return why an answer cannot judge, by the verdicts on ``_responses``; None if it can."""
    if domain == "coding":
        if "failed" in (verdict, other):
            return "the checker cannot be run, or needs more of the program than literals"
        if (verdict, other) == ("correct", "correct"):
            return (
                "the checker passes functions that always return None, and others that always "
                "return 'wrong': does it call its tests? Can its assertions fail?"
            )
        return None
    # Even an unreadable answer equals itself; the empty response fails if the gold is unreadable.
    if verdict == "correct" and other != "failed":
        return None
    if domain == "reasoning":
        return f"the task's own answer in a box is judged {verdict}: agents could not get it right"
    because = f"\\boxed{{{answer}}} is judged {verdict}"
    if verdict == "correct":
        because = "nothing but the same letters would be correct"
    return f"the answer {answer!r} is not read as {domain}: {because}"


@command()
def main(arguments: Sequence[str]) -> int:
    """Check the named files and datasets; returns 1 if there is an error."""
    parser = CommandParser("check-data")
    parser.add_argument("arguments", nargs="+")
    given = parser.parse_args(arguments).arguments
    settings = [a for a in given if "=" in a and not names_file(a)]
    try:
        names = [whole(a, "file", None) for a in given if a not in settings]
        config = load(Config, None, settings)
        wording_of(config.interaction.prompts)
    except ValueError as error:
        sys.stdout.write(f"{error}\n")
        return EXIT_ERROR
    if not names:
        parser.error("name a FILE, or hub:OWNER/NAME/CONFIG/SPLIT: there are only settings")
    num_invalid = 0
    rules = reasoning_gym.endless_rules(config.data, num_questions=NUM_OF_A_STREAM)
    with Verifier(chosen=config.verifiers, isolation=config.verification.sandbox) as verifier:
        for name in names:
            try:
                report = check_questions(name, rules, verifier=verifier)
            except DataError as error:
                sys.stdout.write(f"{error}\n")
                num_invalid += 1
                continue
            sys.stdout.write("\n".join(_lines_of(name, report, settings, config)) + "\n")
            num_invalid += bool(report.errors)
    return EXIT_ERROR if num_invalid else 0


def _lines_of(name: str, report: Report, settings: Sequence[str], config: Config) -> Iterator[str]:
    num_records = len(report.errors) + len(report.sound)
    yield f"{name}: {num_records} records, {len(report.errors)} of them invalid"
    yield from (f"  {error}" for error in grouped(report.errors))
    counts = Counter((record.task, record.source) for record in report.sound)
    for (domain, source), count in sorted(counts.items()):
        yield f"  {count:>7} {domain}, source {source}"
    for record in report.sound[:NUM_SHOWN]:
        yield from _as_asked(record, config)
    if not report.errors and report.sound:
        words = ["configs/comas.yaml", f"data.train={name}"]
        is_own = config.data.columns or config.data.answer_after  # of the held-out file, too
        if is_own and not any(s.startswith("data.validation=") for s in settings):
            words.append("data.validation=HELD_OUT")
        words += settings
        yield "to train on it:"
        yield f"  {start_of('train')} {shlex.join(words)}"


def _as_asked(record: Record, config: Config) -> Iterator[str]:
    """Yield the question as the first agent will read it, and its answer."""
    yield f"{record.id}, as the first agent will read it:"
    wording = wording_of(config.interaction.prompts)
    prompt = fill(SOLUTION, record.task, question=record.prompt, wording=wording)
    for message in chat_messages(prompt, system_prompt=config.rollout.system_prompt):
        yield f"  {message['role']}:"
        yield from _indented(message["content"])
    yield "  and its answer, which no agent sees:"
    answer = record.answer
    if record.task == "reasoning":
        answer = Gold.read(answer).own_answer or "(whatever the task's score_answer takes)"
    yield from _indented(answer)


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}" for line in text.splitlines())
