r"""Sets, matrices, formulas, words and letters in many spellings; the kinds of spellings.py."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from scripts.benchmarks._spelled_numbers import SEPARATORS, UNITS, Drawn, digits, number

# ---------------------------------------------------------------- several numbers


def pairs(rng: Random) -> Drawn:
    a, a2, a3 = number(rng)
    b, b2, b3 = number(rng)
    right = [f"({a2}, {b2})", rf"\left({a2},\ {b2}\right)", rf"(x, y) = ({a2}, {b2})"]
    right += [f"x = {a2}, y = {b2}", rf"y = {b2} \text{{ and }} x = {a2}", rf"\{{({a2}, {b2})\}}"]
    right += [f"{{({a2},{b2})}}", rf"\langle {a2}, {b2} \rangle", f"x={a2},\\ y={b2}"]
    wrong = [f"({a3}, {b2})", f"x = {a2}, y = {b3}", f"({a2}, {b2}, 0)", f"{a2}, {b2}"]
    wrong += [rf"\{{{a2}, {b2}\}}", f"[{a2}, {b2}]", a2, f"{a2}, {b3}"]
    return f"({a}, {b})", rng.choice(right), rng.choice(wrong)


def lists(rng: Random) -> Drawn:
    values = rng.sample(range(-30, 31), rng.randint(2, 4))
    gold = ", ".join(map(str, values))
    given = list(map(str, rng.sample(values, len(values))))
    right = [", ".join(given), ",".join(given), rf"\{{{', '.join(given)}\}}", "; ".join(given)]
    right += [f"{', '.join(given[:-1])} \\text{{ {word} }} {given[-1]}" for word in ("and", "or")]
    right += [", ".join(f"x = {value}" for value in given), f"x \\in \\{{{', '.join(given)}\\}}"]
    right += [r" \text{ or } ".join(f"x = {value}" for value in given)]
    right += [", ".join(f"x_{n} = {value}" for n, value in enumerate(given, 1))]
    low, high = sorted(values)[:2]
    wrong = [", ".join(given[1:]), ", ".join([*given, "77"]), f"({gold})", f"{low}<x<{high}"]
    wrong += [", ".join([*given[1:], str(int(given[0]) + 70)]), rf"\left[{gold}\right]"]
    return rng.choice([gold, rf"\{{{gold}\}}"]), rng.choice(right), rng.choice(wrong)


def plus_minus(rng: Random) -> Drawn:
    middle, under = rng.randint(1, 20), rng.choice([2, 3, 5, 7])
    root = rf"\sqrt{{{under}}}"
    right = [
        rf"{middle} \pm {root}",
        rf"x = {middle}\pm{root}",
        rf"{middle}-{root}, {middle}+{root}",
    ]
    right += [rf"{middle}\pm\sqrt{under}", rf"{middle}\u00b1{root}".replace("\\u00b1", "\u00b1")]
    wrong = [
        f"{middle}+{root}",
        rf"{middle + 1}\pm{root}",
        rf"\pm {root}",
        rf"{middle}+{root}, {middle}",
    ]
    return rf"{middle} \pm {root}", rng.choice(right), rng.choice(wrong)


def intervals(rng: Random) -> Drawn:
    a = rng.randint(-20, 20)
    b = a + rng.randint(1, 20)
    closed = (rng.random() < 0.5, rng.random() < 0.5)

    def bracketed(low: str, high: str, closed: tuple[bool, bool]) -> str:
        return f"{'(['[closed[0]]}{low}, {high}{')]'[closed[1]]}"

    def chained(closed: tuple[bool, bool]) -> str:
        low, high = (rng.choice([r"\le", r"\leq", "\u2264"]) if end else "<" for end in closed)
        return f"{a} {low} x {high} {b}"

    below = (r"\ge" if closed[0] else ">", r"\le" if closed[1] else "<")
    right = [
        bracketed(str(a), str(b), closed),
        chained(closed),
        rf"x \in {bracketed(str(a), str(b), closed)}",
    ]
    right += [
        rf"\{{x \mid {chained(closed)}\}}",
        rf"\{{ x \in \mathbb{{R}} : {chained(closed)} \}}",
    ]
    right += [rf"x {below[0]} {a} \text{{ and }} x {below[1]} {b}"]
    flipped = rng.choice([(not closed[0], closed[1]), (closed[0], not closed[1])])
    wrong = [
        bracketed(str(a), str(b), flipped),
        chained(flipped),
        bracketed(str(a - 1), str(b), closed),
    ]
    wrong += [
        bracketed(str(a), str(b + 1), closed),
        f"{a}, {b}",
        rf"\{{{a}, {b}\}}",
        f"x {below[0]} {a}",
    ]
    return bracketed(str(a), str(b), closed), rng.choice(right), rng.choice(wrong)


def unions(rng: Random) -> Drawn:
    a = rng.randint(-20, 20)
    b = a + rng.randint(1, 20)

    def spelled(a: int, b: int, *, is_closed: bool) -> str:
        below, above = (r"\le", r"\ge") if is_closed else ("<", ">")
        left = rf"(-\infty, {a}{']' if is_closed else ')'}"
        right = rf"{'[' if is_closed else '('}{b}, \infty)"
        either = rf"x {below} {a} \text{{ or }} x {above} {b}"
        between = f"({a}, {b})" if is_closed else f"[{a}, {b}]"
        without = rf"\mathbb{{R}} \setminus {between}"
        forms = [rf"{left} \cup {right}", rf"{right}\cup{left}", f"{left} \u222a {right}", either]
        forms += [
            rf"x \in {left} \cup {right}",
            rf"\{{x \mid {either}\}}",
            f"x {below} {a} or x {above} {b}",
        ]
        return rng.choice([*forms, without, f"x {above} {b}, x {below} {a}"])

    is_closed = rng.random() < 0.5
    gold = spelled(a, b, is_closed=is_closed)
    wrong = [spelled(a, b, is_closed=not is_closed), spelled(a, b + 1, is_closed=is_closed)]
    wrong += [rf"({a}, {b})", f"x < {a}", f"{a}, {b}", rf"(-\infty, {a})", rf"{a} < x < {b}"]
    return gold, spelled(a, b, is_closed=is_closed), rng.choice(wrong)


def rays(rng: Random) -> Drawn:
    a = rng.randint(-30, 30)
    right = [
        f"x > {a}",
        f"{a} < x",
        rf"({a}, \infty)",
        rf"x \in ({a}, +\infty)",
        rf"\{{x : x > {a}\}}",
    ]
    wrong = [
        f"x < {a}",
        rf"x \ge {a}",
        rf"[{a}, \infty)",
        f"x > {a + 1}",
        str(a),
        rf"(-\infty, {a})",
    ]
    return rng.choice(right[:3]), rng.choice(right), rng.choice(wrong)


def matrices(rng: Random) -> Drawn:
    num_rows, num_columns = rng.choice([(2, 2), (3, 1), (2, 3), (2, 1), (3, 3)])
    rows = [[rng.randint(-9, 9) for _ in range(num_columns)] for _ in range(num_rows)]

    def spelled(rows: Sequence[Sequence[int]]) -> str:
        joint = rng.choice([r" \\ ", r"\\", r" \\[4pt] ", r" \\[0.5em]"])
        body = joint.join(" & ".join(map(str, row)) for row in rows)
        kind = rng.choice(["pmatrix", "bmatrix", "array"])
        if kind == "array":
            return rf"\left(\begin{{array}}{{{'c' * len(rows[0])}}} {body} \end{{array}}\right)"
        return rf"\begin{{{kind}}} {body} \end{{{kind}}}"

    changed = [list(row) for row in rows]
    changed[-1][-1] += rng.choice([1, -20])
    wrong = [spelled(changed), spelled(rows[:-1]), str(rows[-1][-1])]
    if rows != rows[::-1]:
        wrong.append(spelled(rows[::-1]))
    return spelled(rows), spelled(rows), rng.choice(wrong)


# ---------------------------------------------------------------- expressions


def polynomials(rng: Random) -> Drawn:
    a, b = rng.sample([n for n in range(-9, 10) if n], 2)
    total, product = a + b, a * b
    middle = f"{total:+d}x" if total else ""
    right = [f"x^2{middle}{product:+d}", f"(x{a:+d})(x{b:+d})", f"{product}{middle}+x^{{2}}"]
    right += [f"x\u00b2 {middle} {product:+d}", f"f(x) = x^2{middle}{product:+d}"]
    wrong = [
        f"x^2{middle}{product + 1:+d}",
        f"x^2{middle}{-product:+d}",
        f"(x{a:+d})(x{b + 19:+d})",
    ]
    wrong += [
        f"y^2{middle.replace('x', 'y')}{product:+d}",
        f"X^2{middle.replace('x', 'X')}{product:+d}",
    ]
    return rng.choice(right[:2]), rng.choice(right), rng.choice(wrong)


def products_of_letters(rng: Random) -> Drawn:
    letters = rng.sample("abcmnpqrstuvwxyz", rng.randint(2, 5))
    shuffled = rng.sample(letters, len(letters))
    right = ["".join(letters), " ".join(letters), r" \cdot ".join(shuffled), " ".join(shuffled)]
    wrong = ["".join(letters).upper(), "".join(letters[1:]), "+".join(letters), "-".join(letters)]
    return "".join(letters), rng.choice(right), rng.choice(wrong)


def sums_of_letters(rng: Random) -> Drawn:
    p, q, r, s = rng.sample("abcmnpqrstuvwxyzABCD", 4)
    right = [f"{p} - {q}", f"-{q} + {p}", f"-{q}+{p}", f"-({q}-{p})"]
    wrong = [f"{q} - {p}", f"{p} {q}", f"{p} + {q}", f"{p}{q}", f"{p.swapcase()} - {q}", f"{p}-{r}"]
    if rng.random() < 0.5:
        return f"{p} - {q}", rng.choice(right), rng.choice(wrong)
    right = [f"{p}{q} - {r}{s}", f"-{r}{s} + {q}{p}", rf"{q} \cdot {p} - {s}{r}"]
    wrong = [f"{p}{q} {r}{s}", f"{r}{s} - {p}{q}", f"{p}{r} - {q}{s}", f"{p}{q}+{r}{s}"]
    return f"{p}{q} - {r}{s}", rng.choice(right), rng.choice(wrong)


def lines(rng: Random) -> Drawn:
    slope, offset = rng.randint(2, 9), rng.randint(1, 9)
    right = [f"y = {slope}x + {offset}", f"y={offset}+{slope}x", f"{slope}x - y + {offset} = 0"]
    right += [f"{slope}x+{offset}", f"y - {offset} = {slope}x"]
    wrong = [
        f"y = {slope}x - {offset}",
        f"y = {offset + 10}x + {slope}",
        f"z = {slope}x + {offset}",
    ]
    return right[0], rng.choice(right), rng.choice([*wrong, f"y = {slope + 1}x + {offset}"])


WORDS = ["north", "Tuesday", "even", "no solution", "isosceles", "neither", "right triangle"]


def words(rng: Random) -> Drawn:
    word, other = rng.sample(WORDS, 2)
    right = [word, rf"\text{{{word}}}", rf"\textbf{{{word}}}", rf"\mathrm{{{word}}}"]
    right += [word.capitalize(), rf"\text{{{word.title()}}}", rf"\text{{{word}.}}"]
    wrong = [other, rf"\text{{{other}}}", word[::-1], rf"\text{{not {word}}}", word[0], "5"]
    return rng.choice([word, rf"\text{{{word}}}"]), rng.choice(right), rng.choice(wrong)


# ---------------------------------------------------------------- other forms


def science(rng: Random) -> Drawn:
    mantissa, power = rng.randint(11, 99), rng.randint(-9, 9)
    value = mantissa / 10 * 10.0**power

    def spelled(mantissa: int, power: int) -> str:
        text = f"{mantissa / 10:.1f}"
        unit = rng.choice(
            ["", "", *(rf"\,\mathrm{{{spelling}}}" for spelling in rng.choice(UNITS))]
        )
        forms = [
            rf"{text} \times 10^{{{power}}}",
            f"{text}e{power}",
            rf"{text}\cdot 10^{{{power}}}",
        ]
        if 0 < power < 9:
            forms.append(digits(rng, mantissa * 10 ** (power - 1), [*SEPARATORS, ","]))
        return rng.choice(["", "v = ", r"\approx "]) + rng.choice(forms) + unit

    near = rng.choice([(mantissa + 12, power), (mantissa, power + 1), (mantissa, power - 1)])
    return f"{value:.6g}", spelled(mantissa, power), spelled(*near)


OPTIONS = """Wrong, Not wrong|Not wrong, Wrong|To the left|But only slowly|(i) and (ii)|(i)|B|A|ADP
|either A or B|$\\frac{1}{2}$|-5|12|a dog|nor C|all of the above|x = 3|C. elegans|A and D only
|Vitamin A|(II), (III)|I, II""".replace("\n", "").split("|")


def choices(rng: Random) -> Drawn:
    options = rng.sample(OPTIONS, 4)
    right, wrong = rng.sample(range(4), 2)
    listed = "\n".join(f"({letter}) {text}" for letter, text in zip("ABCD", options, strict=True))

    def spelled(number: int) -> str:
        letter, text = "ABCD"[number], options[number]
        bare = [letter, f"({letter})", rf"\text{{{letter}}}", rf"\Large {letter}", f"{letter};"]
        bare += [
            f"{letter} is correct",
            f"Option {letter}",
            rf"\textbf{{({letter})}}",
            f"{letter}.",
        ]
        full = [f"{letter}. {text}", f"({letter}) {text}", f"{letter}, {text}", f"{letter}: {text}"]
        full += [rf"{letter}\ \text{{{text}}}", rf"\text{{{letter}) {text}}}", f"{letter} {text}"]
        return rng.choice(bare + full)

    mixed = f"{'ABCD'[right]}. {options[wrong]}"
    both = f"{'ABCD'[right]} or {'ABCD'[wrong]}"
    return (
        f"{'ABCD'[right]}\n{listed}",
        spelled(right),
        rng.choice([spelled(wrong)] * 3 + [mixed, both]),
    )
