"""What crosses between the checker and the program, and how the two work together."""

from __future__ import annotations

import datetime as dt
import json
import math
import textwrap
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comas.verification.sandbox import Sandbox
from comas.verification.sandbox.inside.references import References
from comas.verification.sandbox.inside.remote import OPERATIONS, Remote

# ---------------------------------------------------------------- forms


def never(*request):
    raise AssertionError("decoding asked the other side")


def cross(value):
    """``value`` as it arrives on the other side."""
    form = json.loads(json.dumps(References(never, of_checker=True).encode(value)))
    return References(never, of_checker=False).decode(form)


VALUES = [
    *(None, True, 0, -(2**63), 2**63, -(10**5000), 1.5, -0.0, math.inf, "", "aé\ud800", b"\0a"),
    *((1, (2,)), [1, [2.0]], {1, 2}, frozenset({"a"}), {1: [2], (3,): {4: 5}}, bytearray(b"ab")),
    *(1 - 2j, range(9, 3, -2), slice(1, None), Fraction(-1, 3), Decimal("1.50"), int, ValueError),
    *(dt.date(2020, 2, 29), dt.time(1, 2, 3, 4), dt.timedelta(-1, 2, 3)),
    dt.datetime(2020, 2, 29, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3))),
    *(deque([1, 2], maxlen=2), OrderedDict(b=1, a=2), Counter("aab"), defaultdict(int, a=1)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_crosses_with_its_exact_type(value):
    arrived = cross(value)
    assert arrived == value
    assert type(arrived) is type(value)
    assert isinstance(value, int) or repr(arrived) == repr(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
        max_leaves=10,
    )
)
def test_any_plain_value_crosses(value):
    assert repr(cross(value)) == repr(value)


def test_containers_keep_their_aliases_and_cycles():
    row = [0]
    grid = [row, row]
    grid.append(grid)
    first, second, whole = arrived = cross(grid)
    assert first is second
    assert whole is arrived
    point = namedtuple("point", "x y")
    a, b = cross([point(1, 2), point(3, 4)])
    assert (a.x, a.y, a) == (1, 2, (1, 2))
    assert type(a) is type(b)


class Zone(dt.tzinfo):
    pass


@pytest.mark.parametrize("base", [int, float, str, list, dict, set, tuple, bytes, Counter, deque])
def test_an_instance_of_a_subclass_stays_with_its_owner(base):
    instance = type("Subclass", (base,), {})()
    assert type(cross(instance)) is Remote
    assert type(cross([instance])[0]) is Remote
    assert type(cross(dt.datetime(2020, 1, 1, tzinfo=Zone()))) is Remote


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        *("int", "tuple", "frozenset", "bytes", "complex", "range", "slice", "Fraction"),
        *("Decimal", "date", "time", "datetime", "timedelta", "list", "set", "dict"),
        *("OrderedDict", "Counter", "defaultdict", "deque", "bytearray", "same", "mine"),
        *("yours", "standard", "error", "error class", "namedtuple", "eval"),
    ]
)
PLACES = st.tuples(
    st.sampled_from(["standard", "error class"]),
    st.sampled_from(["builtins", "os", "subprocess", "solution", 0]),
    st.sampled_from(["int", "eval", "exec", "type", "__loader__", "system", "Popen", "error"]),
).map(list)
FORMS = st.recursive(
    JSON
    | PLACES
    | st.builds(lambda name, parts: [name, *parts], NAMES, st.lists(JSON, max_size=4)),
    lambda inner: st.builds(lambda n, parts: [n, *parts], NAMES, st.lists(inner | JSON)),
    max_leaves=8,
)


@pytest.mark.parametrize("num_forms", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_no_form_becomes_anything_but_data(num_forms):
    decoded = []
    settings(max_examples=num_forms)(given(FORMS)(lambda form: decoded.append(decode(form))))()
    assert len(decoded) >= num_forms


def decode(form):
    def ask(operation, *operands):  # e.g. the hash of a key that is the other side's
        assert operation in OPERATIONS
        raise TypeError

    references = References(ask, of_checker=True)
    references.give_number(decode)
    try:
        value = references.decode(form)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError):
        return
    if callable(value) and type(value) is not Remote:
        is_given = value is decode
        is_harmless = isinstance(value, type) and value.__module__ != "subprocess"
        assert is_given or is_harmless, "a function that was not given"


# ---------------------------------------------------------------- two processes as if one

CONVERSATIONS = {
    "arguments are changed in place": (
        """
        def sort(a): a.sort()
        def rotate(m): m[:] = [list(row) for row in zip(*m[::-1])]
        def mark(m): m[0][1] = 9; m.append(m[0])
        def same(a): return a
        def add(s, d): s.add(3); d['k'] = [1]
        """,
        """
        a = [3, 1, 2]; sort(a); assert a == [1, 2, 3]
        m = [[1, 2], [3, 4]]; rotate(m); assert m == [[3, 1], [4, 2]]
        m = [[1, 2], [3, 4]]; row = m[0]; mark(m)
        assert m == [[1, 9], [3, 4], [1, 9]] and m[0] is row and m[2] is row
        assert same(a) is a and same([a])[0] is a and same(a=a) is a
        s, d = set(), {}; add(s, d); assert s == {3} and d == {'k': [1]}
        """,
    ),
    "objects of the program": (
        """
        class Stack:
            def __init__(self): self.items = []; self.top = None
            def push(self, x): self.items.append(x)
            def pop(self): return self.items.pop()
            def __len__(self): return len(self.items)
            def __iter__(self): return iter(self.items)
            def __getitem__(self, i): return self.items[i]
            def __eq__(self, other): return self.items == other.items
            def __lt__(self, other): return len(self) < len(other)
            def __add__(self, other):
                both = Stack(); both.items = self.items + other.items; return both
            def __hash__(self): return 5
            def __repr__(self): return f'Stack({self.items})'
            def __call__(self, *a, **k): return a, k
            @classmethod
            def of(cls, *items): s = cls(); s.items = list(items); return s
        """,
        """
        import solution
        from solution import Stack
        s = Stack(); s.push(1); s.push(2)
        assert len(s) == 2 and list(s) == [1, 2] and 2 in s and s[0] == 1 and s[0:1] == [1]
        assert s.pop() == 2 and s.items == [1] and s.top is None
        s.top = 7; assert s.top == 7
        del s.top; assert not hasattr(s, 'top') and hasattr(s, 'push')
        assert s == Stack.of(1) and s != Stack.of(2) and len({s, Stack.of(1)}) == 1
        assert s + s == Stack.of(1, 1) and sorted([s + s, s])[0] is s and not Stack()
        assert isinstance(s, Stack) and not isinstance(3, Stack) and solution.Stack is Stack
        assert str(s) == f'{s}' == 'Stack([1])' and s(1, k=2) == ((1,), {'k': 2})
        assert s != 1 and s != [1] and not s == [1]
        for compare in (lambda: s < 3, lambda: s + 1, lambda: 1 - s):
            try: compare()
            except TypeError: pass
            else: assert False
        """,
    ),
    "exceptions": (
        """
        class Refused(ValueError):
            def __init__(self, code): super().__init__(f'refused {code}'); self.code = code
        class Other(Refused):
            def __str__(self): return 'other!'
        def f(x):
            if x == 0: raise Other(0)
            if x < 0: raise Refused(x)
            return {}['missing']
        """,
        """
        import solution
        from solution import Refused
        def raised(x):
            try: f(x)
            except Exception as error: return error
        assert raised(-1).code == -1 and str(raised(-1)) == 'refused -1'
        assert isinstance(raised(0), Refused) and isinstance(raised(0), ValueError)
        assert str(raised(0)) == 'other!' and type(raised(0)) is solution.Other
        assert type(raised(1)) is KeyError and raised(1).args == ('missing',)
        try: f(-1)
        except solution.Other: assert False
        except solution.Refused: pass
        """,
    ),
    "functions and objects of the checker": (
        """
        import functools
        def apply(f, *a, **k): return f(*a, **k)
        def plus_one(f):
            @functools.wraps(f)
            def wrapper(*a): return f(*a) + 1
            return wrapper
        def memo(f):
            known = {}
            return lambda n: known[n] if n in known else known.setdefault(n, f(n))
        def depth(t): return 0 if t is None else 1 + max(depth(t.left), depth(t.right))
        def invert(t):
            if t: t.left, t.right = invert(t.right), invert(t.left)
            return t
        def in_threads(f):
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(3) as pool: return list(pool.map(f, range(5)))
        """,
        """
        assert apply(lambda x, y=1: x + y, 2, y=5) == 7 and apply(len, [1, 2]) == 2
        assert apply(int, '7') == 7 and apply(str.upper, 'a') == 'A'
        import json, operator
        assert apply(operator.add, 1, 2) == 3 and apply(getattr, 'x', 'upper')() == 'X'
        try: apply(json.loads, '{')
        except json.JSONDecodeError as error: assert error.args[0].startswith('Expecting')
        else: assert False
        @plus_one
        def double(n):
            'twice n'
            return 2 * n
        assert double(3) == 7 and double.__name__ == 'double'
        @memo
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        assert fib(80) == 23416728348467685
        class Node:
            def __init__(self, left=None, right=None): self.left = left; self.right = right
        leaf = Node(); tree = Node(Node(), Node(leaf))
        assert depth(tree) == 3 and invert(tree) is tree and tree.left.right is leaf
        class Mine(Exception): pass
        def fail(): raise Mine('x')
        try: apply(fail)
        except Mine as error: assert error.args == ('x',)
        else: assert False
        seen = []; apply(seen.append, 4); assert seen == [4]
        assert in_threads(lambda i: i * i) == [0, 1, 4, 9, 16]
        """,
    ),
    "iterators and context managers": (
        """
        import contextlib
        def count(n): yield from range(n)
        def texts(): return map(str, [1, 2])
        def keys(): return {2: 0, 1: 0}.keys()
        left = []
        @contextlib.contextmanager
        def inside():
            try: yield 5
            except KeyError: left.append('error')
            else: left.append('end')
        """,
        """
        assert list(count(3)) == [0, 1, 2] and next(count(1)) == 0 and sum(count(5)) == 10
        assert list(texts()) == ['1', '2'] and sorted(keys()) == [1, 2] and len(keys()) == 2
        with inside() as value: assert value == 5
        with inside(): raise KeyError
        assert left == ['end', 'error']
        """,
    ),
    "names": (
        """
        x = 1
        counter = 0
        def step():
            global counter
            counter += 1
        _hidden = 2
        def math(): return 'mine'
        """,
        """
        import solution as s
        from solution import _hidden, x as y, math as theirs
        from solution import *
        assert x == y == s.x == 1 and _hidden == 2
        step(); step(); assert counter == s.counter == 2
        assert math.sqrt(4) == 2 and theirs() == 'mine' and collections.Counter('a') == {'a': 1}
        for name in ('nothing', '__secret__'):
            assert not hasattr(s, name)
            try: eval(name)
            except NameError: pass
            else: assert False
        try: from solution import nothing
        except ImportError: pass
        else: assert False
        assert __name__ == '__main__'
        """,
    ),
    "a class with annotations": (
        """
        from __future__ import annotations
        from dataclasses import dataclass, field
        from enum import Enum
        @dataclass
        class Point:
            x: int
            tags: list[str] = field(default_factory=list)
        class Colour(Enum):
            RED = 1
        """,
        """
        assert Point(2) == Point(2) and Point(1).tags == [] and Point(2).x == 2
        assert Colour.RED is Colour.RED and Colour(1) == Colour.RED and Colour.RED.value == 1
        assert repr(Point(1)) == "Point(x=1, tags=[])"
        """,
    ),
    "containers are shared as long as both sides hold them": (
        """
        class Box:
            def __init__(self, items=None): self.items = [] if items is None else items
            def add(self, x): self.items.append(x)
            def total(self): return sum(self.items)
            def give(self): return self.items
            def __len__(self): return len(self.items)
            def call(self, f): self.items.append(0); f(); return self.items[-1]
        store = {}
        def put(k, v): store[k] = v
        def look(): return store
        def grid(n): return [[0] * n for _ in range(n)]
        """,
        """
        b = Box(); b.items.append(1); assert b.items == [1] and b.total() == 1
        given = [1, 2]; b = Box(given); given.append(3); assert b.total() == 6
        b.add(4); assert given == [1, 2, 3, 4] and b.items is given and b.give() is given
        kept = b.give(); del kept[:]; assert len(b) == 0 and b.items == []
        kept.append(5); assert len(b) == 1; kept.append(6); assert len(b) == 2
        assert b.call(lambda: b.items.append(7)) == 7 and given == [5, 6, 0, 7]
        row = [1]; put('a', {'rows': [row]}); row.append(2)
        assert look() == {'a': {'rows': [[1, 2]]}} and look()['a']['rows'][0] is row
        look()['b'] = {3}; put('c', look()['b']); look()['c'].add(4)
        assert look()['b'] == {3, 4} and look()['b'] is look()['c']
        boxes = [Box([i]) for i in range(50)]
        for i in range(50): boxes[i].items.append(i)
        assert [box.total() for box in boxes] == [2 * i for i in range(50)]
        g = grid(3); g[1][1] = 5; assert g == [[0, 0, 0], [0, 5, 0], [0, 0, 0]] and grid(1) == [[0]]
        many = Box(list(range(30_000))); many.items[0] = 9; assert many.items[0] in (0, 9)
        import sys
        try: given.append(deep := []); [deep := [deep] for _ in range(10**5)]; put('d', [deep])
        except RecursionError: given.pop()
        assert look()['a']['rows'] == [[1, 2]] and 'd' not in look()
        """,
    ),
    "subclasses of what crosses are compared by what they hold": (
        """
        import enum, collections
        class Colour(enum.IntEnum): RED = 1; BLUE = 2
        class Kind(str, enum.Enum): A = 'a'
        class Flag(enum.IntFlag): X = 4
        class Money(int):
            def __repr__(self): return f'{int(self)} $'
        class Name(str): pass
        class Rows(list):
            def first(self): return self[0]
        class Table(dict):
            def __missing__(self, key): return 0
        class Point(collections.namedtuple('Point', 'x y')): pass
        def keys(): return {1: 2}.keys()
        def items(): return {1: 2}.items()
        def f(c):
            '''What f does.'''
            return c == 2, c + 1
        class Plain:
            '''Of Plain.'''
        """,
        """
        assert Colour.RED == 1 and 1 == Colour.RED and Colour.RED != 2 and Colour(2) is Colour.BLUE
        assert Colour.RED < 2 < Colour.BLUE + 1 and 3 - Colour.RED == 2 and {Colour.RED: 0}[1] == 0
        assert sorted([Colour.BLUE, Colour.RED]) == [1, 2] and [Colour.RED] == [1]
        assert Kind.A == 'a' and Flag.X | 1 == 5 and Kind.A.name == 'A' and Kind.A.value == 'a'
        assert Money(3) == 3 and str(Money(3)) == '3 $' and 2 * Money(3) == 6 and Name('n') == 'n'
        assert Rows([1, 2]) == [1, 2] and Rows([1]).first() == 1 and Rows() != [0]
        assert Table(a=1) == {'a': 1} and Table()['z'] == 0
        assert Point(1, 2) == (1, 2) and Point(1, 2).x == 1
        assert keys() == {1} and {1} == keys() and keys() | {2} == {1, 2} and items() == {(1, 2)}
        import enum
        class Mine(enum.IntEnum): TWO = 2
        assert f(Mine.TWO) == (True, 3) and f.__doc__ == 'What f does.' == Plain().__class__.f() \
            if hasattr(Plain, 'f') else f.__doc__ == 'What f does.'
        assert Plain.__doc__ == Plain().__doc__ == 'Of Plain.' and f.__module__ == 'solution'
        assert Plain().__class__ is Plain and Plain().__class__.__name__ == 'Plain'
        """,
    ),
    "exceptions that a checker names steer it": (
        """
        import sys
        class Count:
            def __init__(self): self.n = 0
            def __iter__(self): return self
            def __next__(self):
                self.n += 1
                if self.n > 2: raise StopIteration
                return self.n
        def leave(): sys.exit(3)
        """,
        """
        it = Count(); assert list(it) == [1, 2]
        try: it.__next__()
        except StopIteration: pass
        else: assert False
        try: leave()
        except SystemExit as error: assert error.code == 3
        else: assert False
        """,
    ),
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_checker_and_program_work_as_in_one_process(sandbox, name):
    program, checker = map(textwrap.dedent, CONVERSATIONS[name])
    assert sandbox.run(program, checker=checker)
    assert not sandbox.run(program, checker=f"{checker}\nassert False")
    assert not sandbox.run("", checker=checker)


def test_large_values_cross(sandbox):
    program = "def f(x): return sorted(x)"
    assert sandbox.run(program, checker="assert f(range(10**5, 0, -1))[0] == 1")
    assert sandbox.run("def f(): return 'x' * 10**7", checker="assert len(f()) == 10**7")
    assert sandbox.run("def f(): return 2 ** 100_000", checker="assert f() == 1 << 100_000")
    too_large = "try:\n    f(b'x' * (20 << 20))\nexcept OverflowError:\n    pass\nelse:\n    1 / 0"
    assert sandbox.run(program, checker=too_large)


UNIT_TEST = (
    "import unittest\nclass T(unittest.TestCase):\n    def test(self): assert f(2) == 4\n"
    "r = unittest.TestResult(); T('test').run(r); assert r.wasSuccessful()"
)
SWAYED = {
    "a map that ends early": (
        "def f(x): raise StopIteration",
        "assert all(map(lambda n: f(n) == n * n, [2, 3]))\nassert list(map(f, [2])) == []",
    ),
    "a zip that ends early": (
        "class Stop(StopIteration): pass\ndef f(x): raise Stop",
        "for got, want in zip(map(f, [2, 3]), [4, 9]): assert got == want",
    ),
    "a generator that is closed": (
        "def f(x): raise GeneratorExit",
        "g = (f(n) for n in [2]); next(g)",
    ),
    "a skipped test": (
        "import unittest\ndef f(x): raise unittest.SkipTest('no')",
        UNIT_TEST,
    ),
    "a test that stops": (
        "import unittest.case\ndef f(x): raise unittest.case._ShouldStop",
        UNIT_TEST,
    ),
    "a method of the checker's": (
        "def f(node): node.same = lambda other: True",
        "class Node:\n    def __init__(self, v): self.v = v\n"
        "    def same(self, other): return self.v == other\n"
        "node = Node(1)\ntry: f(node)\nexcept AttributeError: pass\nassert node.same(4)",
    ),
    "a cached property of the checker's": (
        "def f(node): node.total = 4",
        "import functools\nclass Node:\n    @functools.cached_property\n"
        "    def total(self): return 1\n"
        "node = Node()\ntry: f(node)\nexcept AttributeError: pass\nassert node.total == 4",
    ),
    "a number that differs from call to call": (
        "import itertools\nclass Root:\n    turns = itertools.cycle([1, 0])\n"
        "    def __float__(self): return float(next(self.turns))\n    __index__ = None\n"
        "def f(): return Root()",
        "import math\nx = f()\n"  # no x has x ** 2 = 1 and x ** 3 = 0
        "assert math.fabs(math.pow(x, 2) - 1) + math.fabs(math.pow(x, 3)) < 1e-6",
    ),
    "an index that differs from call to call": (
        "class Index:\n    n = -1\n    def __index__(self): self.n += 1; return self.n\n"
        "def f(): return Index()",
        "x = f()\nassert ['a', 'b', 'c'][x] == 'a' and ['a', 'b', 'c'][x] == 'b'",
    ),
}


@pytest.mark.parametrize("name", SWAYED)
def test_no_program_sways_its_checker_by(sandbox, name):
    program, checker = SWAYED[name]
    assert not sandbox.run(program, checker=checker)


def test_what_a_program_may_change_of_an_object_of_the_checker(sandbox):
    program = "def f(node): node.left = node.right; node.v += 1; node.new = 5; node.held = f\n"
    checker = (
        "import dataclasses\n@dataclasses.dataclass\nclass Node:\n    v: int = 0\n"
        "    left: object = None\n    right: object = 3\n    held: object = None\n"
        "    @property\n    def double(self): return 2 * self.v\n"
        "node = Node()\nf(node)\n"
        "assert (node.left, node.v, node.new, node.double) == (3, 1, 5, 2)\n"
        "f(node); assert node.held is f"
    )
    assert sandbox.run(program, checker=checker)


def test_what_one_side_alone_holds_is_no_longer_watched():
    codec, other = References(never, of_checker=True), References(never, of_checker=False)

    def send(value, sender, receiver, may_forget=False):
        news = sender.news(may_forget=may_forget)
        form = sender.encode(value)
        sender.sent()
        receiver.receive(json.loads(json.dumps(news)))
        return receiver.decode(form)

    def num_watched():
        return len(codec._containers), len(other._containers)

    held = [[1], [2]]
    theirs = send(held, codec, other)
    assert num_watched() == (3, 3)
    theirs[0].append(3)
    send(None, other, codec)
    assert held == [[1, 3], [2]]
    del theirs
    for _ in range(2):  # the inner lists end with the outer one
        send([0], other, codec)
    send(None, codec, other)
    send(None, other, codec)
    assert num_watched() == (0, 0)
    held = list(range(5000))
    theirs = send(held, codec, other)
    send(None, codec, other, may_forget=True)
    assert num_watched() == (0, 0) and theirs == held
    codec.news(may_forget=False)
    codec.encode([1])
    codec.unsent()
    assert send([[4]], codec, other) == [[4]]


def test_a_pool_of_processes_works():
    program = (
        "import multiprocessing\ndef square(x): return x * x\n"
        "def f(n):\n    with multiprocessing.Pool(2) as pool: return pool.map(square, range(n))"
    )
    with Sandbox() as sandbox:
        if not sandbox.start():
            pytest.skip("without namespaces there is no memory for its locks")
        assert sandbox.run(program, checker="assert f(4) == [0, 1, 4, 9]")
