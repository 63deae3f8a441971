"""Families of tuples, lists, sets, intervals and matrices."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from scripts.benchmarks._spelled_items import Item, Table, dec, ends, family, frac, item, pick

OO = r"\infty"


@family
def point(rng: Random) -> Item:
    a = b = Fraction(pick(rng, -20, 20), rng.choice([1, 1, 2, 4]))
    while a == b:
        b = Fraction(pick(rng, -20, 200), rng.choice([1, 1, 5]))
    x, y = frac(a), frac(b)
    whole = a.denominator == b.denominator == 1
    right: Table = {
        "no space": f"({x},{y})",
        "decimal entries": not whole and f"({dec(a)}, {dec(b)})",
        "slash entries": not whole and f"({a}, {b})",
    }
    wrong: Table = {
        "second entry off": f"({x}, {frac(b + 1)})",
        "entries swapped": f"({y}, {x})",
        "first sign": f"({frac(-a)}, {y})",
        "second sign": f"({x}, {frac(-b)})",
        "entry missing": x,
        "extra entry": f"({x}, {y}, {rng.randint(0, 9)})",
        "concatenated": whole and b > 0 and f"{x}{y}",
        "inequality": f"{frac(min(a, b))} < {frac(max(a, b))}",
        "sum of the entries": frac(a + b),
    }
    return item("point", "pair", f"({x}, {y})", right, wrong)


@family
def triple(rng: Random) -> Item:
    a, b, c = rng.sample([k for k in range(-15, 30) if k], 3)
    right: Table = {"no spaces": f"({a},{b},{c})", "decimal entries": f"({a}.0, {b}.0, {c}.0)"}
    wrong: Table = {
        "last entry off": f"({a}, {b}, {c + 1})",
        "entries rotated": f"({b}, {c}, {a})",
        "outer entries swapped": f"({c}, {b}, {a})",
        "entry missing": f"({a}, {b})",
        "one sign": f"({a}, {-b}, {c})",
        "concatenated": b > 0 and c > 0 and f"{a}{b}{c}",
    }
    return item("triple", "triple", f"({a}, {b}, {c})", right, wrong)


@family
def polar(rng: Random) -> Item:
    d, n, k = rng.randint(2, 14), rng.choice([1, 2, 3, 5, 7]), rng.choice([4, 6, 8, 12])
    n += n % 2 == 0
    q = Fraction(n, k)
    n, k = q.numerator, q.denominator
    turn = rf"\frac{{{n if n > 1 else ''}\pi}}{{{k}}}"
    right: Table = {
        "slash": rf"({d}, {n if n > 1 else ''}\pi/{k})",
        "coefficient in front": rf"({d}, {frac(q)}\pi)",
        "tight": f"({d},{turn})",
    }
    wrong: Table = {
        "radius off": f"({d + 1}, {turn})",
        "entries swapped": f"({turn}, {d})",
        "angle off": rf"({d}, \frac{{{n + 1}\pi}}{{{k}}})",
        "angle negated": f"({d}, -{turn})",
        "pi lost": f"({d}, {frac(q)})",
        "radius only": str(d),
    }
    return item("polar", "polar", f"({d}, {turn})", right, wrong)


@family
def finite_set(rng: Random) -> Item:
    v = sorted(rng.sample(range(-12, 30), rng.randint(3, 5)))
    w = v[:]
    while w == v:
        rng.shuffle(w)

    def put(xs: list[int]) -> str:
        return r"\{" + ", ".join(map(str, xs)) + r"\}"

    right: Table = {
        "reordered": put(w),
        "lbrace": put(v).replace(r"\{", r"\lbrace ").replace(r"\}", r" \rbrace"),
        "no spaces": put(v).replace(" ", ""),
        "decimal entries": r"\{" + ", ".join(f"{k}.0" for k in v) + r"\}",
    }
    off = rng.randint(31, 60)
    wrong: Table = {
        "element off": put([*v[:-1], off]),
        "element missing": put(v[1:]),
        "extra element": put([*v, off]),
        "one element only": put(v[:1]),
        "one sign": v[-1] != 0 and -v[-1] not in v and put([*v[:-1], -v[-1]]),
        "number of elements": str(len(v)),
        "sum of the elements": str(sum(v)),
        "range of the elements": len(v) < v[-1] - v[0] and f"[{v[0]}, {v[-1]}]",
    }
    return item("set", "set", put(v), right, wrong)


@family
def solutions(rng: Random) -> Item:
    a = pick(rng, -30, 30)
    b = pick(rng, -30, 30, a, -a)
    right: Table = {
        "reordered": f"{b}, {a}",
        "and": rf"{a} \text{{ and }} {b}",
        "x = each": rf"x = {a}, x = {b}",
        "x = each, or": rf"x = {b} \text{{ or }} x = {a}",
        "subscripts": rf"x_1 = {a}, \quad x_2 = {b}",
        "as a set": rf"\{{{a}, {b}\}}",
        "tight": f"{a},{b}",
    }
    wrong: Table = {
        "one off": f"{a}, {b + 1 if b + 1 != a else b + 2}",
        "both signs": f"{-a}, {-b}",
        "one sign": f"{a}, {-b}",
        "one missing": str(a),
        "the other missing": f"x = {b}",
        "extra one": f"{a}, {b}, {rng.randint(31, 60)}",
        "product": str(a * b) if a * b not in (a, b) else "0",
        "concatenated": b > 0 and f"{a}{b}",
        "interval between": f"[{min(a, b)}, {max(a, b)}]",
    }
    return item(
        "solutions", "list", f"{a}, {b}" if rng.random() < 0.5 else f"{a},{b}", right, wrong
    )


@family
def plus_minus(rng: Random) -> Item:
    a, c = pick(rng, -12, 12), rng.choice([2, 3, 5, 6, 7, 10, 11])
    s = rf"\sqrt{{{c}}}"
    right: Table = {
        "two values": f"{a} + {s}, {a} - {s}",
        "two values, minus first": f"{a} - {s}, {a} + {s}",
        "x = two values, or": rf"x = {a} + {s} \text{{ or }} x = {a} - {s}",
        "root first": rf"\pm {s} {a:+d}",
        "as a set": rf"\{{{a} - {s}, {a} + {s}\}}",
    }
    wrong: Table = {
        "first term off": rf"{a + 1} \pm {s}",
        "plus only": f"{a} + {s}",
        "minus only": f"{a} - {s}",
        "first sign": rf"{-a} \pm {s}",
        "radicand off": rf"{a} \pm \sqrt{{{c + 1}}}",
        "root lost": rf"{a} \pm {c}",
        "product": f"{a}{s}",
    }
    return item("plus-minus", "list", rf"{a} \pm {s}", right, wrong)


@family
def interval(rng: Random) -> Item:
    lo, hi = ends(rng)
    left, right_ = rng.choice("(["), rng.choice(")]")
    a, b, flip = frac(lo), frac(hi), {"(": "[", "[": "(", ")": "]", "]": ")"}
    body, out = f"{a}, {b}", {"(": "]", "[": "[", ")": "[", "]": "]"}
    right: Table = {
        "no space": f"{left}{a},{b}{right_}",
        "outward brackets": left + right_ != "[]" and f"{out[left]}{body}{out[right_]}",
        "decimal ends": lo.denominator * hi.denominator > 1
        and f"{left}{dec(lo)}, {dec(hi)}{right_}",
        "membership": rf"x \in {left}{body}{right_}",
    }
    wrong: Table = {
        "right end off": f"{left}{a}, {frac(hi + 1)}{right_}",
        "left end opened or closed": f"{flip[left]}{body}{right_}",
        "right end opened or closed": f"{left}{body}{flip[right_]}",
        "both ends opened or closed": f"{flip[left]}{body}{flip[right_]}",
        "left end off": f"{left}{frac(lo - 1)}, {b}{right_}",
        "unbounded": rf"{left}{a}, \infty)",
        "ends only": rf"\{{{body}\}}",
        "length": frac(hi - lo),
        "ends swapped": f"{left}{b}, {a}{right_}",
    }
    return item("interval", "interval", f"{left}{body}{right_}", right, wrong)


@family
def half_line(rng: Random) -> Item:
    a, up, closed = pick(rng, -30, 30), rng.random() < 0.5, rng.random() < 0.5
    if up:
        gold, n = rf"{'[' if closed else '('}{a}, \infty)", f"[{a}, " if not closed else f"({a}, "
        right: Table = {
            "plus infinity": gold.replace(OO, "+" + OO),
            "outward brackets": rf"{'[' if closed else ']'}{a}, \infty[",
            "unicode infinity": gold.replace(OO, "∞"),
        }
        wrong: Table = {
            "end off": gold.replace(str(a), str(a + 1)),
            "end opened or closed": rf"{n}\infty)",
            "other half": rf"(-\infty, {a}{']' if closed else ')'}",
            "sign of the end": gold.replace(str(a), str(-a)),
            "everything": r"(-\infty, \infty)",
            "end only": str(a),
        }
    else:
        gold, n = rf"(-\infty, {a}{']' if closed else ')'}", f"{a})" if closed else f"{a}]"
        right = {
            "outward brackets": rf"]-\infty, {a}{']' if closed else '['}",
            "space after the minus": gold.replace("-" + OO, "- " + OO),
            "unicode infinity": gold.replace(OO, "∞"),
        }
        wrong = {
            "end off": gold.replace(str(a), str(a + 1)),
            "end opened or closed": rf"(-\infty, {n}",
            "other half": rf"{'[' if closed else '('}{a}, \infty)",
            "sign of the end": gold.replace(str(a), str(-a)),
            "everything": r"(-\infty, \infty)",
            "bounded": f"(0, {a})" if a > 0 else f"({a}, 0)",
        }
    return item("half-line", "interval", gold, right, wrong)


@family
def union(rng: Random) -> Item:
    a, b = sorted(rng.sample(range(-20, 25), 2))
    one, two = rf"(-\infty, {a})", rf"({b}, \infty)"
    right: Table = {
        "pieces swapped": rf"{two} \cup {one}",
        "outward brackets": rf"]-\infty, {a}[ \cup ]{b}, \infty[",
        "plus infinity": rf"{one} \cup ({b}, +\infty)",
        "unicode cup": f"{one} \u222a {two}",
        "complement": rf"\mathbb{{R}} \setminus [{a}, {b}]",
        "membership": rf"x \in {one} \cup {two}",
    }
    wrong: Table = {
        "one end off": rf"{one} \cup ({b + 1}, \infty)",
        "one end closed": rf"(-\infty, {a}] \cup {two}",
        "both ends closed": rf"(-\infty, {a}] \cup [{b}, \infty)",
        "left piece only": one,
        "right piece only": two,
        "cap": rf"{one} \cap {two}",
        "gap for the rest": f"({a}, {b})",
        "extra piece": a + 1 < b and rf"{one} \cup \{{{a + 1}\}} \cup {two}",
        "complement of the open gap": rf"\mathbb{{R}} \setminus ({a}, {b})",
    }
    return item("union", "interval", rf"{one} \cup {two}", right, wrong)


@family
def matrix(rng: Random) -> Item:
    a, b, c, d = rng.sample([k for k in range(-15, 16) if k], 4)

    def put(env: str, *rows: str) -> str:
        return rf"\begin{{{env}}} " + r" \\ ".join(rows) + rf" \end{{{env}}}"

    gold = put("pmatrix", f"{a} & {b}", f"{c} & {d}")
    right: Table = {
        "square brackets": put("bmatrix", f"{a} & {b}", f"{c} & {d}"),
        "tight": gold.replace(" ", ""),
        "line breaks": gold.replace(r" \\ ", " \\\\\n"),
        "array": rf"\left( \begin{{array}}{{cc}} {a} & {b} \\ {c} & {d} \end{{array}} \right)",
    }
    wrong: Table = {
        "entry off": put("pmatrix", f"{a} & {b}", f"{c} & {d + 1}"),
        "transposed": put("pmatrix", f"{a} & {c}", f"{b} & {d}"),
        "rows swapped": put("pmatrix", f"{c} & {d}", f"{a} & {b}"),
        "columns swapped": put("pmatrix", f"{b} & {a}", f"{d} & {c}"),
        "one sign": put("pmatrix", f"{a} & {-b}", f"{c} & {d}"),
        "row missing": put("pmatrix", f"{a} & {b}"),
        "determinant": str(a * d - b * c),
    }
    return item("matrix", "matrix", gold, right, wrong)


@family
def vector(rng: Random) -> Item:
    v = [str(k) for k in rng.sample([k for k in range(-15, 16) if k], 3)]
    gold = r"\begin{pmatrix} " + r" \\ ".join(v) + r" \end{pmatrix}"
    swap = gold.replace("pmatrix", "bmatrix")
    right: Table = {
        "square brackets": swap,
        "tight": gold.replace(" ", ""),
        "line breaks": gold.replace(r" \\ ", " \\\\\n"),
    }
    wrong: Table = {
        "entry off": gold.replace(f" {v[2]} ", f" {int(v[2]) + 40} "),
        "entries swapped": r"\begin{pmatrix} " + r" \\ ".join(v[::-1]) + r" \end{pmatrix}",
        "entry missing": r"\begin{pmatrix} " + r" \\ ".join(v[:2]) + r" \end{pmatrix}",
        "negated": r"\begin{pmatrix} " + r" \\ ".join(str(-int(k)) for k in v) + r" \end{pmatrix}",
    }
    return item("vector", "vector", gold, right, wrong)
