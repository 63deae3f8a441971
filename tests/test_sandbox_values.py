"""The values that checker and program exchange, and how the two work together."""

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hostile_programs import passes
from hypothesis import example, given, settings
from hypothesis import strategies as st

from comas.verification.sandbox import LiteralsError, Sandbox
from comas.verification.sandbox.inside.literals import NotALiteralError, decode, encode


def cross(value):
    """``value`` as the other side receives it."""
    return decode(json.loads(json.dumps(encode(value))))


VALUES = [
    *(None, True, 0, -(2**63), 2**63, -(10**5000), 1.5, -0.0, math.inf, "", "aé\ud800", b"\0a"),
    *((1, (2,)), [1, [2.0]], {1, 2}, frozenset({"a"}), {1: [2], (3,): {4: 5}}, bytearray(b"ab")),
    *(1 - 2j, range(9, 3, -2), Fraction(-1, 3), Decimal("1.50"), int, deque),
    *(deque([1, 2], maxlen=2), OrderedDict(b=1, a=2), Counter("aab"), defaultdict(int, a=1)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_literal_crosses_with_its_exact_type(value):
    arrived = cross(value)
    assert arrived == value
    assert type(arrived) is type(value)
    assert isinstance(value, int) or repr(arrived) == repr(value)


@pytest.mark.parametrize("base", [int, float, str, list, dict, set, tuple, bytes, Counter, deque])
def test_nothing_else_crosses(base):
    subclass = type("Subclass", (base,), {"__eq__": lambda *_: True, "__hash__": lambda _: 0})
    for value in (subclass(), [subclass()], {1: subclass()}, subclass, len, Path, iter([])):
        with pytest.raises(NotALiteralError):
            encode(value)


NAMES = [
    *("int", "tuple", "frozenset", "bytes", "complex", "range", "Fraction", "Decimal", "list"),
    *("set", "dict", "Counter", "defaultdict", "deque", "bytearray", "OrderedDict", "type"),
    *("eval", "exec", "builtins", "os", "subprocess", "solution", "system", "Popen", "object"),
]
ATOMS = st.none() | st.integers(-2, 9) | st.floats() | st.sampled_from(NAMES)
FORMS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=5), max_leaves=12)


@settings(max_examples=100)
@given(st.builds(lambda name, parts: [name, *parts], st.sampled_from(NAMES), st.lists(FORMS)))
@example(["type", "eval"])
@example(["type", "Popen"])
@example(["defaultdict", ["type", "exec"]])
def test_no_form_becomes_anything_but_a_literal(form):
    try:
        value = decode(form)
    except (ValueError, TypeError, LookupError, ArithmeticError):
        return
    assert type(cross(value)) is type(value)  # encode refuses anything but a literal


def conversations(name: str) -> dict[str, tuple[str, str]]:
    """Heading -> a program and its checker, of a file in hostile/."""
    text = (Path(__file__).parent / f"hostile/{name}.txt").read_text(encoding="utf-8")
    parts = (part.partition("\n") for part in text.removeprefix("## ").split("\n## "))
    split = {heading: content.partition("--- checker\n") for heading, _, content in parts}
    return {heading: (program, checker) for heading, (program, _, checker) in split.items()}


CONVERSATIONS, SWAYED = conversations("conversations"), conversations("swayed")
OBJECTS = conversations("objects")


@pytest.fixture(scope="module", params=[True, False], ids=["as the machine allows", "bare"])
def sandbox(request):
    with Sandbox(isolated=request.param) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_checker_and_program_work_as_in_one_process(sandbox, name):
    program, checker = CONVERSATIONS[name]
    assert sandbox.run(program, checker=checker)
    assert not sandbox.run(program, checker=f"{checker}\nassert False")
    assert not sandbox.run("", checker=checker)


@pytest.mark.parametrize("name", OBJECTS)
def test_who_needs_more_than_literals_is_told_and_not_judged(sandbox, name):
    program, checker = OBJECTS[name]
    with pytest.raises(LiteralsError, match=f"^the (program|checker) {name.split(': ')[1]}"):
        sandbox.run(program, checker=checker)


def test_large_values_cross(sandbox):
    program = "def f(x): return sorted(x)"
    assert sandbox.run(program, checker="assert f(range(10**5, 0, -1))[0] == 1")
    assert sandbox.run("def f(): return 'x' * 10**7", checker="assert len(f()) == 10**7")
    assert sandbox.run("def f(): return 2 ** 100_000", checker="assert f() == 1 << 100_000")


@pytest.mark.parametrize("name", SWAYED)
def test_no_program_sways_its_checker_by(sandbox, name):
    program, checker = SWAYED[name]
    assert not passes(sandbox, program, checker)


def test_a_pool_of_processes_works():
    program = (
        "import multiprocessing\ndef square(x): return x * x\n"
        "def f(n):\n    with multiprocessing.Pool(2) as pool: return pool.map(square, range(n))"
    )
    with Sandbox() as sandbox:
        if not sandbox.start():
            pytest.skip("without namespaces there is no memory for its locks")
        assert sandbox.run(program, checker="assert f(4) == [0, 1, 4, 9]")
