"""Families of quantities with a unit, words, and what stands for itself."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from scripts.benchmarks._spelled_items import Item, Table, dec, family, item, pick


@family
def degrees(rng: Random) -> Item:
    n = rng.choice([k for k in range(5, 176) if k != 90])
    gold = rf"{n}^\circ"
    right: Table = {
        "braces": rf"{n}^{{\circ}}",
        "unicode": f"{n}°",
        "word": rf"{n} \text{{ degrees}}",
        "textdegree": rf"{n}\textdegree",
        "bare number": str(n),
        "decimal": rf"{n}.0^\circ",
        "plain word": f"{n} degrees",
    }
    wrong: Table = {
        "off by one": rf"{n + 1}^\circ",
        "supplement": rf"{180 - n}^\circ",
        "radians": rf"{n} \text{{ radians}}",
        "negated": rf"-{n}^\circ",
        "halved": rf"{dec(Fraction(n, 2))}^\circ",
        "full turn less": rf"{360 - n}^\circ",
    }
    if rng.random() < 0.3:  # the prompt of a bare gold might ask for another unit
        wrong["radians"] = False
        return item("degrees", "deg", str(n), {"symbol": gold, **right}, wrong)
    return item("degrees", "deg", gold, right, wrong)


@family
def money(rng: Random) -> Item:
    whole, cents = rng.randint(2, 999), rng.choice([5, 10, 20, 25, 40, 50, 75, 99])
    t = f"{whole}.{cents:02d}"
    right: Table = {
        "word": rf"{t} \text{{ dollars}}",
        "bare": t,
        "dollar sign": rf"\${t}",
        "dollar sign in text": rf"\text{{\${t}}}",
        "dollar sign and space": rf"\$ {t}",
        "trailing zero dropped": cents % 10 == 0 and t[:-1],
        "USD": rf"{t} \text{{ USD}}",
        "word, plain": f"{t} dollars",
    }
    wrong: Table = {
        "cents off": rf"\${whole}.{cents - 1:02d}",
        "point lost": rf"\${whole}{cents:02d}",
        "cents": rf"{t} \text{{ cents}}",
        "cents dropped": rf"\${whole}",
        "dollar off": rf"\${whole + 1}.{cents:02d}",
        "debt": rf"-\${t}",
        "ten times": rf"\${dec(Fraction(whole * 100 + cents, 10))}0",
        "percent": rf"{t}\%",
    }
    if rng.random() < 0.5:
        return item("money", "money", rf"\${t}", right, wrong)
    return item("money", "money", t, right, {**wrong, "cents": False, "percent": False})


UNITS = (
    ("cm", "centimeters", "m"),
    ("km", "kilometers", "m"),
    ("kg", "kilograms", "g"),
    ("mm", "millimeters", "cm"),
    ("m", "meters", "km"),
)


@family
def unit(rng: Random) -> Item:
    short, word, other = rng.choice(UNITS)
    n, square = rng.randint(2, 400), short != "kg" and rng.random() < 0.4
    p = "^2" if square else ""
    right: Table = {
        "bare number": str(n),
        "mathrm": rf"{n} \mathrm{{~{short}}}{p}",
        "thin space": rf"{n}\,\text{{{short}}}{p}",
        "word": rf"{n} \text{{ {'square ' * square}{word}}}",
        "plain": f"{n} {short}{p}",
        "exponent in braces": square and rf"{n} \text{{ {short}}}^{{2}}",
        "exponent inside": square and rf"{n} \; \mathrm{{{short}^2}}",
        "unicode square": square and rf"{n} \text{{ {short}²}}",
        "decimal": rf"{n}.0 \text{{ {short}}}{p}",
    }
    wrong: Table = {
        "number off": rf"{n + 1} \text{{ {short}}}{p}",
        "scale of the unit": rf"{n} \text{{ {other}}}{p}",
        "percent for the unit": rf"{n}\%",
        "ten times": rf"{n * 10} \text{{ {short}}}{p}",
        "dozen": rf"{n} \text{{ dozen }} \text{{{short}}}{p}",
        "degrees for the unit": rf"{n}^\circ",
    }
    return item("unit", "unit", rf"{n} \text{{ {short}}}{p}", right, wrong)


@family
def percent(rng: Random) -> Item:
    n = rng.choice([k for k in range(3, 98) if k not in (50, 10, 11, 22, 33, 44, 55, 66, 77, 88)])
    right: Table = {
        "space": rf"{n} \, \%",
        "word": rf"{n} \text{{ percent}}",
        "bare sign": f"{n}%",
        "decimal": rf"{n}.0\%",
        "sign in text": rf"{n}\text{{\%}}",
    }
    wrong: Table = {
        "off by one": rf"{n + 1}\%",
        "point moved": rf"{dec(Fraction(n, 10))}\%",
        "complement": rf"{100 - n}\%",
        "fraction with percent": rf"{dec(Fraction(n, 100))}\%",
        "negative": rf"-{n}\%",
        "per mille": rf"{n} \text{{ per mille}}",
        "added to the whole": rf"{100 + n}\%",
    }
    return item("percent", "pct", rf"{n}\%", right, wrong)


NAMES = ("Evelyn", "Carla", "Briana", "Debra", "Angela", "Navin", "Tom", "Bethany", "Luis")
PAIRS = (
    ("even", "odd"),
    ("Yes", "No"),
    ("True", "False"),
    ("rational", "irrational"),
    ("increasing", "decreasing"),
    ("parallel", "perpendicular"),
)


@family
def word(rng: Random) -> Item:
    is_name = rng.random() < 0.5
    w, o = rng.sample(NAMES, 2) if is_name else rng.sample(rng.choice(PAIRS), 2)
    gold = rf"\text{{{w}}}" if rng.random() < 0.6 else w
    right: Table = {
        "text": rf"\text{{{w}}}",
        "plain": w,
        "textbf": rf"\textbf{{{w}}}",
        "mathrm": rf"\mathrm{{{w}}}",
        "textit": rf"\textit{{{w}}}",
        "first letter's case": rf"\text{{{w.swapcase()[0]}{w[1:]}}}",
        "space within text": rf"\text{{ {w} }}",
        "full stop": rf"\text{{{w}.}}",
        "capitals": rf"\text{{{w.upper()}}}",
        "bold text": rf"\mathbf{{\text{{{w}}}}}",
    }
    wrong: Table = {
        "another word": rf"\text{{{o}}}",
        "negated": rf"\text{{not {w}}}",
        "neither": rf"\text{{neither {w} nor {o}}}",
        "both": rf"\text{{{w} and {o}}}",
        "with another": rf"\text{{{w}, {o}}}",
        "one of the two": rf"\text{{{o} or {w}}}",
        "everyone except": is_name and rf"\text{{everyone except {w}}}",
        "longer name": is_name and rf"\text{{{w}a}}",
        "first letter only": is_name and w[0],
    }
    return item("word", "word", gold, right, wrong)


@family
def letter_order(rng: Random) -> Item:
    w = "".join(rng.sample("ABCDE", rng.randint(3, 5)))
    o = w[1] + w[0] + w[2:]
    right: Table = {
        "text": rf"\text{{{w}}}",
        "mathrm": rf"\mathrm{{{w}}}",
        "textbf": rf"\textbf{{{w}}}",
    }
    wrong: Table = {
        "first two swapped": o,
        "reversed": w[::-1],
        "last letter lost": w[:-1],
        "letter repeated": w + w[0],
        "rotated": w[1:] + w[0],
        "sorted": "".join(sorted(w)) != w and "".join(sorted(w)),
    }
    return item("letter order", "word", w, right, wrong)


@family
def base_numeral(rng: Random) -> Item:
    b = rng.choice([2, 3, 4, 5, 6, 7, 8, 9])
    d = str(pick(rng, 1, b - 1)) + "".join(
        str(rng.randint(0, b - 1)) for _ in range(rng.randint(2, 6))
    )
    last = str((int(d[-1]) + 1) % b)
    names = dict(
        zip(
            range(2, 10),
            ["two", "three", "four", "five", "six", "seven", "eight", "nine"],
            strict=True,
        )
    )
    right: Table = {
        "braces": f"{d}_{{{b}}}",
        "base as a word": rf"{d}_{{\text{{{names[b]}}}}}",
        "parentheses": f"({d})_{b}",
        "base bracketed": f"{d}_{{({b})}}",
        "text digits": rf"\text{{{d}}}_{b}",
    }
    wrong: Table = {
        "last digit": f"{d[:-1]}{last}_{b}",
        "another base": f"{d}_{{{b + 1}}}",
        "digits reversed": d != d[::-1] and d[-1] != "0" and f"{d[::-1]}_{b}",
        "digit lost": f"{d[:-1]}_{b}",
        "extra digit": f"{d}1_{b}",
        "base ten": f"{d}_{{10}}",
    }
    return item("base numeral", "base", f"{d}_{b}", right, wrong)


@family
def ratio_and_time(rng: Random) -> Item:
    a, b = rng.sample([2, 3, 5, 7, 11, 13, 17], 2)
    if rng.random() < 0.5:
        right: Table = {
            "spaces": f"{a} : {b}",
            "colon": rf"{a}\colon {b}",
            "to": rf"{a} \text{{ to }} {b}",
            "braced colon": f"{a}{{:}}{b}",
        }
        wrong: Table = {
            "second off": f"{a}:{b + 1}",
            "swapped": f"{b}:{a}",
            "three parts": f"{a}:{b}:1",
            "one part": str(a),
            "part of the whole": f"{a}:{a + b}",
        }
        return item("ratio", "ratio", f"{a}:{b}", right, wrong)
    h, m = rng.randint(1, 11), rng.choice([12, 15, 24, 35, 40, 45, 53])
    am, pm = rng.choice([("a.m.", "p.m."), ("p.m.", "a.m.")])
    cap = am.replace(".", "").upper()
    right = {
        "capitals": rf"{h}:{m} \text{{ {cap}}}",
        "plain": f"{h}:{m} {cap}",
        "plain with stops": f"{h}:{m} {am}",
        "thin space": rf"{h}:{m}\,\text{{{am}}}",
    }
    wrong = {
        "minute off": rf"{h}:{m + 1} \text{{ {am}}}",
        "other half of the day": rf"{h}:{m} \text{{ {pm}}}",
        "hour off": rf"{h + 1}:{m} \text{{ {am}}}",
        "minutes lost": rf"{h} \text{{ {am}}}",
    }
    return item("time", "time", rf"{h}:{m} \text{{ {am}}}", right, wrong)


@family
def general_solution(rng: Random) -> Item:
    q = Fraction(rng.choice([1, 1, 2, 3]), rng.choice([5, 7, 8, 9]))
    turn = rf"\frac{{{q.numerator if q.numerator > 1 else ''}\pi}}{{{q.denominator}}}"
    z = r", k \in \mathbb{Z}"
    right: Table = {
        "unbraced Z": rf"{turn} + k\pi, k\in\mathbb Z",
        "terms swapped": rf"k\pi + {turn}{z}",
        "other letter": rf"{turn} + n\pi, n \in \mathbb{{Z}}",
        "x =": rf"x = {turn} + k\pi{z}",
        "quad": rf"{turn} + k\pi, \quad k \in \mathbb{{Z}}",
        "pi first": rf"{turn} + \pi k{z}",
    }
    wrong: Table = {
        "offset": rf"\frac{{\pi}}{{11}} + k\pi{z}",
        "double period": rf"{turn} + 2k\pi{z}",
        "offset sign": rf"-{turn} + k\pi{z}",
        "period lost": turn,
        "half period": rf"{turn} + \frac{{k\pi}}{{2}}{z}",
        "pi lost in the period": rf"{turn} + k{z}",
    }
    return item("general solution", "general", rf"{turn} + k\pi{z}", right, wrong)


@family
def special(rng: Random) -> Item:
    if rng.random() < 0.5:
        return item(
            "empty set",
            "empty",
            r"\emptyset",
            {
                "varnothing": r"\varnothing",
                "braces": r"\{\}",
                "spaced braces": r"\{ \}",
                "unicode": "∅",
                "left right braces": r"\left\{ \right\}",
            },
            {
                "zero": "0",
                "nested": r"\{\emptyset\}",
                "zero in a set": r"\{0\}",
                "everything": r"\mathbb{R}",
                "nested braces": r"\{\{\}\}",
                "negated": r"\neq \emptyset",
                "number": str(rng.randint(1, 99)),
            },
        )
    sign = rng.choice(["", "-"])
    turned = "" if sign else "-"
    return item(
        "infinity",
        "infinity",
        rf"{sign}\infty",
        {
            "explicit plus": not sign and r"+\infty",
            "unicode": f"{sign}∞",
            "braces": rf"{sign}{{\infty}}",
        },
        {
            "sign": rf"{turned}\infty",
            "zero": "0",
            "both signs": r"\pm\infty",
            "number": str(rng.randint(1, 10**6)),
            "reciprocal": r"\frac{1}{\infty}",
        },
    )


@family
def named_value(rng: Random) -> Item:
    n, v = pick(rng, -40, 40), rng.choice("xnakt")
    right: Table = {
        "bare": str(n),
        "tight": f"{v}={n}",
        "sides swapped": f"{n} = {v}",
        "computed": f"{v} = {n - 3} + 3 = {n}",
    }
    wrong: Table = {
        "value off": f"{v} = {n + 1}",
        "sign": f"{v} = {-n}",
        "neq": rf"{v} \neq {n}",
        "inequality": rf"{v} > {n}",
        "square": f"{v}^2 = {n}",
        "two solutions": f"{v} = {n}, {v} = {n + 2}",
        "name only": v,
    }
    return item("named value", "named", f"{v} = {n}", right, wrong)
