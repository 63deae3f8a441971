"""Families of numbers."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial, pi, sqrt
from random import Random

from scripts.benchmarks._spelled_items import (
    Item,
    Table,
    dec,
    family,
    frac,
    grouped,
    item,
    pick,
    poly,
    ratio,
    repeating,
)

THINGS = ("apples", "students", "ways", "hours", "miles", "eggs", "minutes", "books")


@family
def integer(rng: Random) -> Item:
    n, a = pick(rng, -60, 990, 1, -1), rng.randint(2, 30)
    up, thing, flip = n > 0, rng.choice(THINGS), int(str(abs(n))[::-1]) * (1 if n > 0 else -1)
    right: Table = {
        "trailing zeros": f"{n}." + rng.choice(["0", "00"]),
        "plus sign": up and f"+{n}",
        "computation ending in the value": f"{n - a} + {a} = {n}",
        "counted things": up and rf"{n} \text{{ {thing}}}",
        "counted things, plain": up and f"{n} {thing}",
        "counted things, mathrm": up and rf"{n}~\mathrm{{{thing}}}",
    }
    wrong: Table = {
        "off by one": str(rng.choice([n + 1, n - 1])),
        "sign": str(-n),
        "ten times": str(10 * n),
        "digits reversed": flip != n and str(flip),
        "last digit dropped": abs(n) > 19 and str(int(n / 10)),
        "reciprocal": frac(Fraction(1, n)),
        "and a half": f"{n}.5",
        "digits doubled": up and f"{n}{n}",
        "tenth": n % 10 != 0 and dec(Fraction(n, 10)),
        "dozen": up and rf"{n} \text{{ dozen}}",
        "hundred": up and rf"{n} \text{{ hundred}}",
        "thousand": up and f"{n} thousand",
        "times pi": rf"{n}\pi",
        "as an index": up and rf"x_{{{n}}}",
        "times x": f"{n}x",
    }
    return item("integer", "num", str(n), right, wrong)


@family
def large_integer(rng: Random) -> Item:
    n = rng.choice(
        [rng.randint(1000, 99999), rng.randint(10**5, 10**7), rng.randint(11, 99) * 10**4]
    )
    gold = grouped(n, rng.choice(["", ",", r",\!", "{,}"]))
    head, tail = divmod(n, 1000)
    right: Table = {
        f"separator {s or 'none'}": grouped(n, s) for s in ("", ",", "{,}", r"\,", r",\!", r"\ ")
    }
    right["scientific"] = n % 1000 == 0 and rf"{dec(Fraction(n, 10**4))} \times 10^4"
    wrong: Table = {
        "off by one": str(n + 1),
        "off by a thousand": grouped(n + 1000, ","),
        "cut into a pair": f"({head}, {tail})",
        "leading group only": str(head),
        "extra zero": grouped(n * 10, ","),
        "first digits swapped": str(n)[0] != str(n)[1]
        and str(n)[1] != "0"
        and str(n)[1::-1] + str(n)[2:],
        "million": rf"{n} \text{{ million}}",
    }
    return item("large integer", "num", gold, right, wrong)


@family
def decimal(rng: Random) -> Item:
    k = rng.choice([3, 4, 6, 7, 8, 9, 11, 12]) + 10 * rng.randint(0, 240)
    k += k % 10 == 0
    q, places = Fraction(k, rng.choice([100, 1000])) * rng.choice([1, 1, -1]), 0
    text = dec(q)
    places = len(text.split(".")[-1])
    right: Table = {
        "leading zero dropped": abs(q) < 1 and text.replace("0.", ".", 1),
        "trailing zero": text + "0",
        "fraction": frac(q),
        "fraction, slash": f"{q.numerator}/{q.denominator}",
        "scientific": Fraction(1, 10) <= abs(q) < 1 and rf"{dec(q * 10)} \times 10^{{-1}}",
        "over a power of ten": f"{'-' * (q < 0)}\\frac{{{abs(q) * 10**places}}}{{{10**places}}}",
    }
    wrong: Table = {
        "last digit": dec(q + Fraction(1, 10**places)),
        "sign": dec(-q),
        "point moved right": dec(q * 10),
        "point moved left": dec(q / 10),
        "one place rounded away": f"{float(q):.{places - 1}f}",
        "point lost": dec(q * 10**places),
        "inverted fraction": frac(1 / q),
    }
    gold = text.replace("0.", ".", 1) if abs(q) < 1 and rng.random() < 0.4 else text
    return item("decimal", "num", gold, right, wrong)


@family
def fraction(rng: Random) -> Item:
    short = Fraction(rng.randint(1, 20), rng.choice([3, 6, 9, 11, 12]))
    q = rng.choice([ratio(rng, 40, 30), short, ratio(rng, 9, 9)])
    q = (q if q.denominator > 1 else q + Fraction(1, 3)) * rng.choice([1, 1, -1])
    a, b, m, minus = q.numerator, q.denominator, rng.randint(2, 6), "-" * (q < 0)
    right: Table = {
        "slash": f"{a}/{b}",
        "decimal": dec(q),
        "repeating decimal, bar": repeating(q, r"\overline"),
        "repeating decimal, short bar": repeating(q, r"\bar"),
        "unreduced": f"{minus}\\frac{{{abs(a) * m}}}{{{b * m}}}",
        "minus in the numerator": q < 0 and rf"\frac{{{a}}}{{{b}}}",
        "minus in the denominator": q < 0 and rf"\frac{{{-a}}}{{-{b}}}",
        "mixed number": q > 1 and f"{a // b}{frac(q % 1)}",
        "old over": f"{minus}{{{abs(a)} \\over {b}}}",
        "integer times unit fraction": abs(a) > 1 and rf"{a} \cdot \frac{{1}}{{{b}}}",
    }
    wrong: Table = {
        "numerator off": f"\\frac{{{a + 1}}}{{{b}}}" if a != -1 else "0",
        "denominator off": f"{minus}\\frac{{{abs(a)}}}{{{b + 1}}}",
        "inverted": abs(a) != b and frac(1 / q),
        "sign": frac(-q),
        "rounded to two places": not dec(q) and f"{float(q):.2f}",
        "numerator only": str(a),
        "whole part added": q > 0 and f"1{frac(q)}" if q < 1 else frac(q + 1),
        "complement": frac(1 - q) if q != Fraction(1, 2) else "2",
        "bar line lost": q > 0 and f"{a}{b}",
    }
    return item("fraction", "num", rng.choice([frac(q), frac(q), frac(q, r"\dfrac")]), right, wrong)


@family
def mixed(rng: Random) -> Item:
    part = Fraction(*rng.choice([(1, 2), (1, 3), (2, 3), (3, 4), (2, 5), (5, 8), (7, 10)]))
    w, q = rng.randint(2, 30), Fraction(0)
    q = w + part
    right: Table = {
        "improper": frac(q),
        "decimal": dec(q),
        "sum": f"{w} + {frac(part)}",
        "tfrac": rf"{w}\tfrac{{{part.numerator}}}{{{part.denominator}}}",
        "space inside": rf"{w} \, {frac(part)}",
    }
    wrong: Table = {
        "whole part off": f"{w + 1}{frac(part)}",
        "read as a product": frac(w * part),
        "fraction inverted": f"{w} + {frac(1 / part)}",
        "fraction lost": str(w),
        "subtracted": f"{w} - {frac(part)}",
    }
    return item("mixed number", "num", f"{w}{frac(part)}", right, wrong)


@family
def root(rng: Random) -> Item:
    a, b = rng.randint(2, 15), rng.choice([2, 3, 5, 6, 7, 10, 11, 13])
    right: Table = {
        "under one root": rf"\sqrt{{{a * a * b}}}",
        "cdot": rf"{a} \cdot \sqrt{{{b}}}",
        "root first": rf"\sqrt{{{b}}} \cdot {a}",
        "half power": rf"{a} \cdot {b}^{{1/2}}",
        "explicit index": rf"{a}\sqrt[2]{{{b}}}",
        "unrationalised": rf"\frac{{{a * b}}}{{\sqrt{{{b}}}}}",
        "times": rf"{a} \times \sqrt{{{b}}}",
    }
    wrong: Table = {
        "coefficient off": rf"{a + 1}\sqrt{{{b}}}",
        "radicand off": rf"{a}\sqrt{{{b + 1}}}",
        "coefficient and radicand swapped": a != b and rf"{b}\sqrt{{{a}}}",
        "coefficient moved in unsquared": rf"\sqrt{{{a * b}}}",
        "root lost": str(a * b),
        "cube root": rf"{a}\sqrt[3]{{{b}}}",
        "rounded": f"{a * sqrt(b):.2f}",
        "sum for product": rf"{a} + \sqrt{{{b}}}",
        "both signs": rf"\pm {a}\sqrt{{{b}}}",
    }
    return item("root", "num", rf"{a}\sqrt{{{b}}}", right, wrong)


@family
def surd_fraction(rng: Random) -> Item:
    b = rng.choice([2, 3, 5, 6, 7, 10])
    q = ratio(rng, 9, 12)
    a, c, un = q.numerator, q.denominator, q * b
    right: Table = {
        "coefficient in front": rf"{frac(q)}\sqrt{{{b}}}",
        "slash": rf"{a}\sqrt{{{b}}}/{c}",
        "under one root": rf"\sqrt{{{frac(q * q * b)}}}",
        "unrationalised": rf"\frac{{{un.numerator}}}{{{un.denominator}\sqrt{{{b}}}}}"
        if un.denominator > 1
        else rf"\frac{{{un.numerator}}}{{\sqrt{{{b}}}}}",
    }
    wrong: Table = {
        "denominator off": rf"\frac{{{a}\sqrt{{{b}}}}}{{{c + 1}}}",
        "root lost": rf"\frac{{{a * b}}}{{{c}}}",
        "root moved below": rf"\frac{{{a}}}{{{c}\sqrt{{{b}}}}}",
        "inverted": rf"\frac{{{c}}}{{{a}\sqrt{{{b}}}}}",
        "rounded": f"{float(q) * sqrt(b):.2f}",
        "sign": rf"-\frac{{{a}\sqrt{{{b}}}}}{{{c}}}",
    }
    return item("surd fraction", "num", rf"\frac{{{a}\sqrt{{{b}}}}}{{{c}}}", right, wrong)


@family
def surd_sum(rng: Random) -> Item:
    a, b, c = rng.randint(2, 12), rng.randint(2, 7), rng.choice([2, 3, 5, 6, 7])
    norm = a * a - b * b * c
    right: Table = {
        "terms swapped": rf"{b}\sqrt{{{c}}} + {a}",
        "root multiplied out": rf"{a} + \sqrt{{{b * b * c}}}",
        "over the conjugate": rf"\frac{{{norm}}}{{{a} - {b}\sqrt{{{c}}}}}",
        "no spaces": rf"{a}+{b}\sqrt{{{c}}}",
    }
    wrong: Table = {
        "first term off": rf"{a + 1} + {b}\sqrt{{{c}}}",
        "conjugate": rf"{a} - {b}\sqrt{{{c}}}",
        "product for sum": rf"{a}\cdot {b}\sqrt{{{c}}}",
        "numbers swapped": a != b and rf"{b} + {a}\sqrt{{{c}}}",
        "terms added up": rf"{a + b}\sqrt{{{c}}}",
        "both conjugates": rf"{a} \pm {b}\sqrt{{{c}}}",
        "rounded": f"{a + b * sqrt(c):.2f}",
    }
    return item("surd sum", "num", rf"{a} + {b}\sqrt{{{c}}}", right, wrong)


@family
def pi_multiple(rng: Random) -> Item:
    q = ratio(rng, 40, 12)
    a, b = q.numerator, q.denominator
    right: Table = {
        "coefficient in front": rf"{frac(q)}\pi",
        "slash": rf"{a}\pi/{b}",
        "pi first": rf"\pi \cdot {frac(q)}",
        "space before pi": rf"\frac{{{a} \pi}}{{{b}}}",
        "unicode pi": f"{a}π/{b}",
        "decimal coefficient": dec(q) and rf"{dec(q)}\pi",
    }
    wrong: Table = {
        "numerator off": rf"\frac{{{a + 1}\pi}}{{{b}}}",
        "pi lost": frac(q),
        "pi below": rf"\frac{{{a}}}{{{b}\pi}}",
        "pi squared": rf"\frac{{{a}\pi^2}}{{{b}}}",
        "rounded": f"{float(q) * pi:.2f}",
        "denominator lost": rf"{a}\pi",
        "sign": rf"-\frac{{{a}\pi}}{{{b}}}",
    }
    return item("pi multiple", "num", rf"\frac{{{a}\pi}}{{{b}}}", right, wrong)


@family
def complex_number(rng: Random) -> Item:
    a = pick(rng, -12, 12)
    b = pick(rng, -12, 12, 1, -1, a, -a)
    right: Table = {
        "imaginary part first": poly((b, "i"), (a, "")),
        "space before i": poly((a, ""), (b, r" i")),
        "cdot i": poly((a, ""), (b, r"\cdot i")),
        "bracketed": rf"{a} + ({b})i",
        "upright i": poly((a, ""), (b, r"\mathrm{i}")),
    }
    wrong: Table = {
        "real part off": poly((a + 1 or 2, ""), (b, "i")),
        "conjugate": poly((a, ""), (-b, "i")),
        "parts swapped": poly((b, ""), (a, "i")),
        "negated": poly((-a, ""), (-b, "i")),
        "i lost": str(a + b),
        "as a pair of different parts": f"({b}, {a})",
    }
    return item("complex", "num", poly((a, ""), (b, "i")), right, wrong)


@family
def power_and_binomial(rng: Random) -> Item:
    if rng.random() < 0.5:
        b, e = rng.choice([2, 3, 5, 7]), rng.randint(5, 11)
        right: Table = {"written out": str(b**e), "split": rf"{b} \cdot {b}^{{{e - 1}}}"}
        wrong: Table = {
            "exponent off": f"{b}^{{{e + 1}}}",
            "base and exponent swapped": b != e and f"{e}^{{{b}}}",
            "exponent multiplied": rf"{b} \cdot {e}",
            "last digit off": str(b**e + 1),
            "exponent negated": f"{b}^{{-{e}}}",
        }
        return item("power", "num", f"{b}^{{{e}}}", right, wrong)
    n = rng.randint(7, 14)
    k = rng.randint(2, (n - 1) // 2)
    right = {
        "written out": str(comb(n, k)),
        "dbinom": rf"\dbinom{{{n}}}{{{k}}}",
        "choose": rf"{{{n} \choose {k}}}",
        "mirror": rf"\binom{{{n}}}{{{n - k}}}",
        "factorials": rf"\frac{{{n}!}}{{{k}!{n - k}!}}",
    }
    wrong = {
        "top off": rf"\binom{{{n + 1}}}{{{k}}}",
        "as a fraction": frac(Fraction(n, k)),
        "permutations": str(factorial(n) // factorial(n - k)),
        "off by one": str(comb(n, k) - 1),
        "one factorial lost": rf"\frac{{{n}!}}{{{k}!}}",
    }
    return item("binomial", "num", rf"\binom{{{n}}}{{{k}}}", right, wrong)


@family
def scientific(rng: Random) -> Item:
    m, e = Fraction(rng.randint(11, 98), 10), rng.choice([-6, -4, -3, 3, 4, 5, 6, 8])
    m += Fraction(1, 10) * (m.denominator == 1)
    right: Table = {
        "cdot": rf"{dec(m)} \cdot 10^{{{e}}}",
        "written out": dec(m * Fraction(10) ** e),
        "mantissa shifted": rf"{dec(m * 10)} \times 10^{{{e - 1}}}",
        "exponent 10^{+}": e > 0 and rf"{dec(m)} \times 10^{{+{e}}}",
        "trailing zero": rf"{dec(m)}0 \times 10^{{{e}}}",
    }
    wrong: Table = {
        "mantissa off": rf"{dec(m + Fraction(1, 10))} \times 10^{{{e}}}",
        "exponent off": rf"{dec(m)} \times 10^{{{e + 1}}}",
        "exponent negated": rf"{dec(m)} \times 10^{{{-e}}}",
        "power lost": dec(m),
        "ten lost": rf"{dec(m)} \times {abs(e)}",
    }
    return item("scientific", "num", rf"{dec(m)} \times 10^{{{e}}}", right, wrong)


@family
def logarithm(rng: Random) -> Item:
    a, b = rng.sample([2, 3, 5, 7, 11], 2)
    right: Table = {
        "parentheses": rf"\ln({a * b})",
        "sum": rf"\ln {a} + \ln {b}",
        "log base e": rf"\log_e {a * b}",
        "minus log of the reciprocal": rf"-\ln\left(\frac{{1}}{{{a * b}}}\right)",
    }
    wrong: Table = {
        "argument off": rf"\ln {a * b + 1}",
        "product of logs": rf"\ln {a} \cdot \ln {b}",
        "sum inside": rf"\ln({a} + {b})",
        "exponential for logarithm": f"e^{{{a * b}}}",
        "base two": rf"\log_2 {a * b}",
        "sign": rf"-\ln {a * b}",
    }
    return item("logarithm", "num", rf"\ln {a * b}", right, wrong)
