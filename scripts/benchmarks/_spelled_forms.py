"""The families of the forms science and choice."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from scripts.benchmarks._spelled_items import Item, Table, dec, family, item

SI = ("m/s", "J", "kJ/mol", "K", "N", "eV", "Pa", "nm", "V", "mol", "Hz", "W")


@family
def science(rng: Random) -> Item:
    q = Fraction(rng.randint(101, 999), 100) * Fraction(10) ** rng.choice(
        [-3, -2, -1, 0, 0, 0, 1, 2, 3]
    )
    q *= rng.choice([1, 1, 1, -1])
    e = (
        len(str(int(abs(q)))) - 1
        if abs(q) >= 1
        else -next(k for k in range(1, 9) if abs(q) * 10**k >= 1)
    )
    m, u, t = q / Fraction(10) ** e, rng.choice(SI), dec(q)
    off = Fraction(rng.choice([*range(50, 88), *range(114, 161)]), 100)
    near = f"{float(q * Fraction(rng.randint(98, 102), 100)):.4g}"
    sci = rf"{dec(m)} \times 10^{{{e}}}"
    right: Table = {
        "within two percent": "e" not in near and near,
        "scientific": sci,
        "scientific, cdot": sci.replace(r"\times", r"\cdot"),
        "scientific, plus in the exponent": e > 0 and sci.replace("^{", "^{+"),
        "approx": rf"\approx {t}",
        "unit": rf"{t} \text{{ {u}}}",
        "unit, mathrm": rf"{t} \, \mathrm{{{u}}}",
        "unit, tilde": rf"{t}~\text{{{u}}}",
        "unit, plain": f"{t} {u}",
        "trailing zero": "." in t and t + "0",
        "e-notation": f"{float(q):.2e}",
        "thousands separator": abs(q) >= 1000 and f"{int(q):,}" + t[len(str(int(q))) :],
        "scientific with unit": rf"{sci} \text{{ {u}}}",
        "more digits": f"{float(q * Fraction(1003, 1000)):.6f}" if abs(q) > 1 else False,
    }
    wrong: Table = {
        "well off": f"{float(q * off):.4g}" if abs(q) < 5000 else dec(q * 2),
        "sign": dec(-q),
        "ten times": dec(q * 10),
        "a tenth": dec(q / 10),
        "a thousand times": dec(q * 1000),
        "twice": dec(q * 2),
        "half": dec(q / 2),
        "exponent negated": e != 0 and rf"{dec(m)} \times 10^{{{-e}}}",
        "power of ten lost": e != 0 and dec(m),
        "exponent off": rf"{dec(m)} \times 10^{{{e + 2}}}",
        "far from with unit": rf"{dec(q * 3)} \text{{ {u}}}",
        "a fifth more": rf"{dec(m * Fraction(6, 5))} \times 10^{{{e}}}",
        "point lost": "." in t and dec(q * 10 ** len(t.split(".")[-1])),
    }
    return item("science", "sci", t, right, wrong, "science")


OPTIONS = (
    "12 m/s",
    "the mitochondrion",
    r"\frac{3}{4}",
    "It doubles",
    "4.5 kJ",
    "a covalent bond",
    "Photosynthesis",
    "Both forces are equal",
    "25%",
    "x^2+1",
    "No reaction occurs",
)


LETTERS = {
    "plain": "{}",
    "text": r"\text{{{}}}",
    "parenthesised": "({})",
    "mathrm": r"\mathrm{{{}}}",
    "text parenthesised": r"\text{{({})}}",
    "textbf parenthesised": r"\textbf{{({})}}",
    "textbf": r"\textbf{{{}}}",
    "mathbf": r"\mathbf{{{}}}",
    "full stop": "{}.",
    "closing parenthesis": "{})",
    "text full stop": r"\text{{{}.}}",
    "spaces": " {} ",
    "thin spaces": r"\, {} \,",
    "Option": r"\text{{Option {}}}",
    "textsf": r"\textsf{{{}}}",
    "Option, plain": "Option {}",
    "Answer:": r"\text{{Answer: {}}}",
    "bf": r"{{\bf {}}}",
    "The answer is": r"\text{{The answer is {}}}",
    "Choice": r"\text{{Choice {}}}",
    "dollars": "${}$",
    "left right": r"\left( {} \right)",
    "square brackets": "[{}]",
    "displaystyle": r"\displaystyle {}",
    "mathbf text": r"\mathbf{{\text{{{}}}}}",
    "option, small": r"\text{{option ({})}}",
    "boldsymbol": r"\boldsymbol{{{}}}",
}


@family
def choice(rng: Random) -> Item:
    letters = "ABCD" if rng.random() < 0.7 else "ABCDEFGHIJ"[: rng.choice([5, 6, 8, 10])]
    g, o = rng.sample(letters, 2)
    p = rng.choice(OPTIONS)
    t = "" if "\\" in p or "^" in p or "%" in p else p
    right: Table = {k: v.format(g) for k, v in LETTERS.items()}
    right |= {
        "letter) text": t and rf"\text{{{g}) {t}}}",
        "letter. text": t and rf"\text{{{g}. {t}}}",
        "letter: text": t and rf"\text{{{g}: {t}}}",
        "(letter) then text": t and rf"\text{{({g}) {t}}}",
        "textbf (letter), then maths": not t and rf"\textbf{{({g})}}\ {p}".replace("25%", r"25\%"),
        "(letter) then maths": not t and rf"({g}) \; {p}".replace("25%", r"25\%"),
    }
    wrong: Table = {
        k: v.format(o)
        for k, v in LETTERS.items()
        if k
        in ("plain", "text", "textbf parenthesised", "Option", "The answer is", "mathbf", "dollars")
    }
    wrong |= {
        "other letter with text": t and rf"\text{{{o}) {t}}}",
        "two letters": f"{g}, {o}",
        "two letters joined": "".join(sorted(g + o)),
        "or": rf"{g} \text{{ or }} {o}",
        "other or": rf"\text{{{o} or {g}}}",
        "and": rf"\text{{{g} and {o}}}",
        "not": rf"\text{{not {g}}}",
        "neither": rf"\text{{Neither {g} nor {o}}}",
        "all letters": ", ".join(letters),
        "slash": f"{g}/{o}",
        "everything but": rf"\text{{All "
        rf"except {g}}}",
        "none": r"\text{None of the above}",
        "letter beyond the options": chr(ord(letters[-1]) + 1),
        "neq": rf"\neq {g}",
        "set of two": rf"\{{{g}, {o}\}}",
        "pair": f"({o}, {g})",
        "parenthesised two": rf"\text{{({g}) and ({o})}}",
    }
    return item("choice", "choice", g, right, wrong, "choice")
