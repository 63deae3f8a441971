"""The verifiers of code: the block that counts, the names in checkers, and both graders."""

import time
from textwrap import indent

import pytest
from tables import cases

from comas.verification import coding
from comas.verification.sandbox import LiteralsError

SQUARE = "def f(x):\n    return x * x\n"
CHECKER = "def test_f():\n    assert f(2) == 4\n    assert f(-3) == 9\n\ntest_f()\n"
GRADERS = [coding.verify_coding, coding.verify_coding_published]


def in_block(code: str) -> str:
    return f"The plan.\n```python\n{code}\n```\nDone."


@pytest.mark.parametrize("grade", GRADERS)
def test_code_is_run_with_its_checker(grade):
    assert grade(in_block(SQUARE), CHECKER) == "correct"
    assert grade(in_block(SQUARE.replace("*", "+")), CHECKER) == "wrong"
    assert grade(in_block("def f(x"), CHECKER) == "wrong"
    assert grade("def f(x): return x * x", CHECKER) == "unanswered"
    assert grade("```python\ndef f(x): return", CHECKER) == "unanswered"


@pytest.mark.parametrize("grade", GRADERS)
@cases("right, wrong, checker", ids=["check(candidate)", "test functions"])
def test_checkers_in_the_manner_of_the_benchmarks(grade, right, wrong, checker):
    if "solution" in checker and grade is coding.verify_coding_published:
        pytest.skip("there is no module in one namespace")
    assert grade(in_block(right), checker) == "correct"
    assert grade(in_block(wrong), checker) == "wrong"


def test_of_several_blocks_the_last_counts_and_as_published_any():
    wrong = in_block("def f(x): return 4")
    right = in_block(SQUARE)
    assert coding.verify_coding(f"{wrong}\nBetter:\n{right}", CHECKER) == "correct"
    assert coding.verify_coding(f"{right}\nBetter:\n{wrong}", CHECKER) == "wrong"
    assert coding.verify_coding_published(f"{right}\nBetter:\n{wrong}", CHECKER) == "correct"
    assert coding.verify_coding_published(f"{wrong}\nWorse:\n{wrong}", CHECKER) == "wrong"


@cases("response, code")
def test_the_last_closed_python_block_is_the_program(response, code):
    assert coding.last_python_block(response) == code


@pytest.mark.parametrize("before", ["", "So:\n", "So:\n\n", "- So:\n", "10. So:\n\n"])
@pytest.mark.parametrize("indentation", [*(" " * n for n in range(1, 9)), "\t", "\t\t"])
def test_a_block_may_be_indented_as_a_list_or_a_model_indents_it(before, indentation):
    code = 'def f(x):\n    """As in\n\n    ```\n    f(1)\n    ```\n    """\n    return x\n'
    block = f"```python\n{code}```\n"
    assert coding.last_python_block(f"{before}{indent(block, indentation)}Done.") == code
    assert coding.last_python_block(indent(f"{before}{block}Done.", indentation)) == code


@pytest.mark.parametrize("unit", ["```python\n", "```", "```python\na\n```\n", "- ", "> "])
def test_a_block_is_found_in_linear_time(unit):
    started = time.process_time()
    coding.last_python_block("```" + unit * 20_000)
    assert time.process_time() - started < 2


def test_a_forgery_passes_as_published_only():
    forged = in_block("class A:\n    def __eq__(self, other): return True\ndef f(x): return A()")
    assert coding.verify_coding_published(forged, CHECKER) == "correct"
    with pytest.raises(LiteralsError, match="gives its checker a value of type A, and only"):
        coding.verify_coding(forged, CHECKER)


@pytest.mark.parametrize("grade", GRADERS)
@cases("checker, reason")
def test_a_checker_that_cannot_run_is_an_error(grade, checker, reason):
    with pytest.raises(ValueError, match=f"the checker code {reason}"):
        grade(in_block(SQUARE), checker)


@cases("checker, may_shadow")
def test_whose_name_is_meant(checker, may_shadow):
    assert coding.examine_checker(checker) is may_shadow


def test_a_function_with_the_name_of_a_builtin_can_be_checked():
    program = "def sum(a, b): return a * b"
    assert coding.verify_coding(in_block(program), "assert sum(10, 15) == 150") == "correct"
    assert coding.verify_coding(in_block(program), "assert sum(10, 15) == 25") == "wrong"
    assert coding.verify_coding(in_block(SQUARE), "assert sum([f(1), f(2)]) == 5") == "correct"
