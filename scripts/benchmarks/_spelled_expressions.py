"""Families of expressions, equations and inequalities."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from scripts.benchmarks._spelled_items import Item, Table, family, frac, item, pick, poly


@family
def quadratic(rng: Random) -> Item:
    p = pick(rng, -9, 9)
    q = pick(rng, -9, 9, -p)
    b, c = -(p + q), p * q
    half = Fraction(b, 2)
    right: Table = {
        "ascending order": poly((c, ""), (b, "x"), (1, "x^2")),
        "factored": f"(x{-p:+d})(x{-q:+d})",
        "Horner": f"x(x {'-' if b < 0 else '+'} {abs(b)}) {'-' if c < 0 else '+'} {abs(c)}",
        "completed square": half.denominator == 1
        and f"(x{int(half):+d})^2" + (f"{int(c - half**2):+d}" if c != half**2 else ""),
        "x times x": poly((1, r"x \cdot x"), (b, "x"), (c, "")),
        "cdot after coefficients": abs(b) > 1 and poly((1, "x^2"), (b, r" \cdot x"), (c, "")),
    }
    wrong: Table = {
        "constant off": poly((1, "x^2"), (b, "x"), (c + 1, "")),
        "middle sign": poly((1, "x^2"), (-b, "x"), (c, "")),
        "constant sign": poly((1, "x^2"), (b, "x"), (-c, "")),
        "cubed": poly((1, "x^3"), (b, "x"), (c, "")),
        "constant dropped": poly((1, "x^2"), (b, "x")),
        "coefficients reversed": c != 1 and poly((c, "x^2"), (b, "x"), (1, "")),
        "one factor only": f"(x{-p:+d})",
        "derivative": poly((2, "x"), (b, "")),
        "root sign in a factor": f"(x{p:+d})(x{-q:+d})",
        "negated": poly((-1, "x^2"), (-b, "x"), (-c, "")),
    }
    return item("quadratic", "expr", poly((1, "x^2"), (b, "x"), (c, "")), right, wrong)


@family
def two_variables(rng: Random) -> Item:
    a = pick(rng, -9, 9, 1, -1)
    sq = a * a
    right: Table = {
        "as a square": f"({poly((1, 'x'), (a, 'y'))})^2",
        "factors of a term swapped": poly((1, "x^2"), (2 * a, "yx"), (sq, "y^2")),
        "terms reordered": poly((sq, "y^2"), (2 * a, "xy"), (1, "x^2")),
    }
    wrong: Table = {
        "middle coefficient": poly((1, "x^2"), (2 * a + 1, "xy"), (sq, "y^2")),
        "middle term dropped": poly((1, "x^2"), (sq, "y^2")),
        "middle term halved": poly((1, "x^2"), (a, "xy"), (sq, "y^2")),
        "variables swapped": poly((1, "y^2"), (2 * a, "xy"), (sq, "x^2")),
        "sign in the square": f"({poly((1, 'x'), (-a, 'y'))})^2",
    }
    return item("two variables", "expr", poly((1, "x^2"), (2 * a, "xy"), (sq, "y^2")), right, wrong)


@family
def factored(rng: Random) -> Item:
    p = pick(rng, -9, 9)
    q = pick(rng, -9, 9, p, -p)
    f, g = f"(x{-p:+d})", f"(x{-q:+d})"
    right: Table = {
        "factors swapped": g + f,
        "cdot": rf"{f} \cdot {g}",
        "spaced": f.replace("+", " + ").replace("-", " - ") + " " + g,
    }
    wrong: Table = {
        "sign in one factor": f"(x{p:+d}){g}",
        "signs in both factors": f"(x{p:+d})(x{q:+d})",
        "one factor lost": f,
        "one factor squared": f"{f}^2{g}",
        "sum of the factors": f"{f}+{g}",
        "minus in front": f"-{f}{g}",
    }
    return item("factored", "expr", f + g, right, wrong)


@family
def rational_function(rng: Random) -> Item:
    a = pick(rng, -9, 9)
    b = pick(rng, -9, 9, a, -a)
    top, bot = poly((1, "x"), (a, "")), poly((1, "x"), (b, ""))
    turned_top, turned_bot = poly((-a, ""), (-1, "x")), poly((-b, ""), (-1, "x"))
    right: Table = {
        "slash": f"({top})/({bot})",
        "divided out": rf"1 + \frac{{{a - b}}}{{{bot}}}",
        "both signs turned": rf"\frac{{{turned_top}}}{{{turned_bot}}}",
        "negative power": f"({top})({bot})^{{-1}}",
    }
    wrong: Table = {
        "numerator sign": rf"\frac{{{poly((1, 'x'), (-a, ''))}}}{{{bot}}}",
        "inverted": rf"\frac{{{bot}}}{{{top}}}",
        "product": f"({top})({bot})",
        "x cancelled": frac(Fraction(a, b)),
        "minus in front": rf"-\frac{{{top}}}{{{bot}}}",
        "denominator lost": top,
    }
    return item("rational function", "expr", rf"\frac{{{top}}}{{{bot}}}", right, wrong)


@family
def trigonometric(rng: Random) -> Item:
    k = rng.randint(2, 9)
    right: Table = {
        "double angle": rf"{k} \sin 2x",
        "double angle, parentheses": rf"{k}\sin(2x)",
        "factors swapped": rf"{2 * k}\cos x \sin x",
        "parentheses": rf"{2 * k}\sin(x)\cos(x)",
    }
    wrong: Table = {
        "coefficient off": rf"{2 * k + 1}\sin x \cos x",
        "sine squared": rf"{2 * k}\sin^2 x",
        "double angle undivided": rf"{2 * k}\sin 2x",
        "cosine double angle": rf"{k}\cos 2x",
        "sum": rf"{2 * k}\sin x + \cos x",
        "tangent": rf"{2 * k}\tan x",
    }
    return item("trigonometric", "expr", rf"{2 * k}\sin x \cos x", right, wrong)


@family
def line(rng: Random) -> Item:
    m, c = pick(rng, -9, 9, 1, -1), pick(rng, -12, 12)
    gold = "y = " + poly((m, "x"), (c, ""))
    right: Table = {
        "sides swapped": poly((m, "x"), (c, "")) + " = y",
        "constant first": "y = " + poly((c, ""), (m, "x")),
        "no spaces": gold.replace(" ", ""),
        "constant on the left": "y " + poly((1, ""), (-c, ""))[2:] + f" = {m}x",
        "standard form": poly((m, "x"), (-1, "y")) + f" = {-c}",
    }
    wrong: Table = {
        "intercept off": "y = " + poly((m, "x"), (c + 1, "")),
        "slope sign": "y = " + poly((-m, "x"), (c, "")),
        "intercept sign": "y = " + poly((m, "x"), (-c, "")),
        "x and y swapped": "x = " + poly((m, "y"), (c, "")),
        "reciprocal slope": rf"y = {frac(Fraction(1, m))}x {c:+d}",
        "inequality": gold.replace("=", ">"),
        "squared": gold.replace("x", "x^2"),
        "intercept dropped": f"y = {m}x",
    }
    return item("line", "eq", gold, right, wrong)


@family
def circle(rng: Random) -> Item:
    a, b, d = pick(rng, -9, 9), pick(rng, -9, 9), rng.randint(2, 12)
    b += (a == b) * 10
    x, y = f"(x{-a:+d})^2", f"(y{-b:+d})^2"
    right: Table = {
        "terms swapped": f"{y} + {x} = {d * d}",
        "radius unsquared": f"{x} + {y} = {d}^2",
        "sides swapped": f"{d * d} = {x} + {y}",
    }
    wrong: Table = {
        "right side off": f"{x} + {y} = {d * d + 1}",
        "radius for its square": f"{x} + {y} = {d}",
        "centre negated": f"(x{a:+d})^2 + (y{b:+d})^2 = {d * d}",
        "centre swapped": f"(x{-b:+d})^2 + (y{-a:+d})^2 = {d * d}",
        "minus between": f"{x} - {y} = {d * d}",
    }
    return item("circle", "eq", f"{x} + {y} = {d * d}", right, wrong)


@family
def inequality(rng: Random) -> Item:
    a, b = sorted(rng.sample([k for k in range(-25, 26) if k], 2))
    if rng.random() < 0.5:
        right: Table = {
            "leq": rf"x \leq {a}",
            "leqslant": rf"x \leqslant {a}",
            "turned round": rf"{a} \ge x",
            "unicode": f"x ≤ {a}",
        }
        wrong: Table = {
            "bound off": rf"x \le {a + 1}",
            "strict": f"x < {a}",
            "turned": rf"x \ge {a}",
            "equation": f"x = {a}",
            "bound sign": rf"x \le {-a}",
            "bound only": str(a),
            "neq": rf"x \neq {a}",
        }
        return item("inequality", "rel", rf"x \le {a}", right, wrong)
    right = {
        "leq": rf"{a} \leq x < {b}",
        "turned round": rf"{b} > x \ge {a}",
        "lt": rf"{a} \le x \lt {b}",
        "unicode": f"{a} ≤ x < {b}",
    }
    wrong = {
        "upper bound off": rf"{a} \le x < {b + 1}",
        "first strict": f"{a} < x < {b}",
        "second not strict": rf"{a} \le x \le {b}",
        "one side lost": f"x < {b}",
        "outside": rf"x < {a} \text{{ or }} x > {b}",
        "strictness swapped": rf"{a} < x \le {b}",
    }
    return item("double inequality", "rel", rf"{a} \le x < {b}", right, wrong)
