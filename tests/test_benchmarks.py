"""Made-up rows with the columns of the hub's datasets become records."""

import re
from pathlib import Path
from typing import Any

from tables import case_file, cases

from comas.data.preparation import Item, LeftOut
from comas.data.preparation.build import TRAINING_SETS
from comas.verification.verifiers import verify
from evaluation.benchmarks import BENCHMARKS

ALL_SETS = [*TRAINING_SETS.values(), *BENCHMARKS.values()]

ROWS: dict[str, dict[str, Any]] = case_file("benchmarks")["ROWS"]


def item(name: str, **changes: object) -> Item:
    result = BENCHMARKS[name].convert(ROWS[name] | changes)
    assert isinstance(result, Item), result
    return result


def test_the_benchmarks_are_the_columns_of_the_papers_table_at_pinned_commits():
    paper = ["gsm8k", "math-500", "humaneval", "mbpp", "scibench", "gpqa", "mmlu"]
    assert [benchmark.name for benchmark in BENCHMARKS.values()] == list(BENCHMARKS) == paper
    assert {benchmark.limit for benchmark in BENCHMARKS.values()} == {500}
    assert all(re.fullmatch(r"[0-9a-f]{40}", one.source.revision) for one in ALL_SETS)


def test_the_table_in_the_readme_is_that_of_the_code():
    readme = (Path(__file__).parents[1] / "data/README.md").read_text()
    row_of = {
        row[1]: row[0]
        for row in re.finditer(r"^\| [\w, /()-]+ \| `([^`]+/[^`]+)` .*$", readme, re.M)
    }
    known = {one.source.hub_name: one for one in ALL_SETS}
    assert row_of.keys() == known.keys()
    for hub_name, line in row_of.items():
        one = known[hub_name]
        assert one.source.revision in line, one.name
        assert (one.source.licence or "none stated") in line, one.name


@cases("name, changes, prompt, answer")
def test_a_row_becomes_a_prompt_and_its_answer(name, changes, prompt, answer):
    found = item(name, **changes)
    assert (found.prompt, found.answer) == (prompt, answer)


@cases("name, changes")
def test_a_row_that_cannot_be_asked_or_judged_is_left_out(name, changes):
    assert isinstance(BENCHMARKS[name].convert(ROWS[name] | changes), LeftOut)


def test_gpqa_shuffles_by_the_id_so_that_every_build_agrees_and_no_letter_wins():
    """The dataset lists the right answer first. Literal values, because another Python must not
    change the benchmark."""
    found = item("gpqa")
    assert f"({found.answer}) hydrogen" in found.details
    assert sorted(found.details.split("\n"), key=lambda line: line[1]) == found.details.split("\n")
    letters = [item("gpqa", **{"Record ID": f"rec{n}"}).answer for n in range(400)]
    assert letters[:8] == ["C", "B", "C", "C", "D", "A", "D", "B"]
    assert all(70 <= letters.count(letter) <= 130 for letter in "ABCD")


CODER = 'def encode(s):\n    return s[::-1] + \'!\'\n\n\ndef decode(s):\n    """Undo encode."""\n'
JOIN = 'from typing import List\n\n\ndef join(strings: List[str]) -> str:\n    """Join."""\n'


@cases(
    "prompt, test, program, verdict",
    (CODER, "encode('abc')) == 'abc'", "def decode(s):\n    return s[:-1][::-1]", "correct"),
    (CODER, "encode('abc')) == 'abc'", "def decode(s):\n    return s[::-1]", "wrong"),
    # As SmolLM2 answers: without the import that its signature needs.
    (JOIN, "['a', 'b']) == 'ab'", "def join(s: List[str]): return ''.join(s)", "correct"),
    (JOIN, "['a', 'b']) == 'ab'", "def join(s: Set[str]): return ''.join(s)", "wrong"),
)
def test_a_program_and_its_test_may_use_what_the_prompt_defines(prompt, test, program, verdict):
    check = f"def check(candidate):\n    assert candidate({test}\n"
    row = {"prompt": prompt, "test": check, "entry_point": prompt.split("def ")[-1].split("(")[0]}
    checker = item("humaneval", **row).answer
    assert verify("coding", f"```python\n{program}\n```", checker) == verdict
