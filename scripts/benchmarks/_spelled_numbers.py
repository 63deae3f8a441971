r"""Numbers in many spellings, each with a near-miss; the kinds of spellings.py."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

Drawn = tuple[str, str, str]
"""The gold, an answer that equals it, and one that nearly does."""

SEPARATORS = ["", "{,}", r"\,", r",\!", r",\! ", r"{,}\!", r"\ ", r"{\,}", "~"]
ONE_SIGN = {
    (1, 2): "\u00bd",
    (1, 4): "\u00bc",
    (3, 4): "\u00be",
    (1, 3): "\u2153",
    (2, 3): "\u2154",
}


def digits(rng: Random, number: int, separators: Sequence[str] = SEPARATORS) -> str:
    """Thousands may be set apart."""
    if abs(number) < 1000:
        return str(number)
    return f"{number:,}".replace(",", rng.choice(separators))


def fraction(rng: Random, over: int, under: int) -> str:
    factor = rng.randint(2, 5)
    sign, size = "-" if over < 0 else "", abs(over)
    command = rng.choice([r"\frac", r"\dfrac", r"\tfrac", r"\nicefrac", r"\sfrac", r"\cfrac"])
    spellings = [
        rf"{sign}{command}{{{size}}}{{{under}}}",
        rf"{command}{{{over}}}{{{under}}}",
        rf"\frac{{{over * factor}}}{{{under * factor}}}",
        f"{over}/{under}",
    ]
    if size < 10 and under < 10:
        spellings.append(rf"{sign}\frac{size}{under}")
    if (size, under) in ONE_SIGN:
        spellings.append(sign + ONE_SIGN[size, under])
    if size > under:
        rest = rf"\frac{{{size % under}}}{{{under}}}"
        spellings += [rf"{sign}{size // under}{rest}", rf"{sign}{size // under} {rest}"]
    if under in (2, 4, 5, 8):
        spellings += [f"{over / under:g}", f"{over / under:.4f}"]
    return rng.choice(spellings)


def draw_fraction(rng: Random) -> tuple[int, int]:
    under = rng.choice([2, 3, 4, 5, 7, 8, 9, 11])
    return rng.choice([-1, 1]) * (rng.randint(0, 3) * under + rng.randint(1, under - 1)), under


def number(rng: Random) -> tuple[str, str, str]:
    """A number spelled twice, and another: an element of what holds several."""
    if rng.random() < 0.6:
        value = rng.randint(-30, 30)
        return str(value), str(value), str(value + rng.choice([-1, 1, 31]))
    over, under = draw_fraction(rng)
    return (
        fraction(rng, over, under),
        fraction(rng, over, under),
        fraction(rng, over + under, under),
    )


def whole_numbers(rng: Random) -> Drawn:
    value = rng.randint(1_000, 10 ** rng.randint(4, 10)) * rng.choice([-1, 1, 1])
    wrong = rng.choice([value + 1, -value, value * 10, value // 1000])
    text = str(value)
    shortened = f"{text[:-3]},{int(text[-3:])}"  # 10,80 of 10,080
    near = shortened if text[-3] == "0" else digits(rng, wrong)
    return digits(rng, value, [*SEPARATORS, ","]), digits(rng, value, [*SEPARATORS, ","]), near


def decimals(rng: Random) -> Drawn:
    value = rng.randint(1, 99_999)
    places = rng.randint(1, 3)
    text = f"{value / 10**places:.{places}f}"
    spellings = [text, text + "0", rf"\frac{{{value}}}{{{10**places}}}", f"{value}/{10**places}"]
    spellings += [f"{value}e-{places}", rf"{value} \times 10^{{-{places}}}", text.removeprefix("0")]
    wrong = rng.choice([value + 1, value * 10, value + 10 ** (places + 1)])
    return text, rng.choice(spellings), f"{wrong / 10**places:.{places}f}"


def fractions(rng: Random) -> Drawn:
    over, under = draw_fraction(rng)
    near = rng.choice([(over + 1, under), (-over, under), (under, abs(over)), (over, under + 1)])
    if near[0] * under == over * near[1]:
        near = (over + 2, under)
    return (
        fraction(rng, over, under),
        fraction(rng, over, under),
        fraction(rng, near[0] or 7, near[1]),
    )


def powers_of_ten(rng: Random) -> Drawn:
    mantissa, power = rng.randint(11, 99), rng.randint(3, 12) * rng.choice([-1, 1])

    def spelled(mantissa: int, power: int) -> str:
        text = f"{mantissa / 10:.1f}"
        return rng.choice(
            [
                rf"{text} \times 10^{{{power}}}",
                rf"{text}\cdot10^{{{power}}}",
                f"{text}e{power}",
                rf"{mantissa} \times 10^{{{power - 1}}}",
                f"{text} \u00d7 10" + small(power),
            ]
        )

    near = rng.choice([(mantissa, power + 1), (mantissa + 1, power), (mantissa, -power)])
    return spelled(mantissa, power), spelled(mantissa, power), spelled(*near)


def small(power: int) -> str:
    return str(power).translate(
        dict(
            zip(
                map(ord, "-0123456789"),
                "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079",
                strict=True,
            )
        )
    )


def radicals(rng: Random) -> Drawn:
    factor, under = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7, 10, 66])

    def spelled(factor: int, under: int) -> str:
        return rng.choice(
            [
                rf"{factor}\sqrt{{{under}}}",
                rf"\sqrt{{{factor * factor * under}}}",
                rf"{factor}\cdot\sqrt{{{under}}}",
                rf"{factor} \cdot {under}^{{1/2}}",
                rf"\frac{{{factor * under}}}{{\sqrt{{{under}}}}}",
                rf"\sqrt{{{under}}} \cdot {factor}",
                f"{factor}\u221a{under}",
                f"{factor}sqrt({under})",
            ]
        )

    wrong = [
        spelled(factor + 1, under),
        spelled(factor, under + 1),
        str(factor),
        rf"\sqrt{{{under}}}",
    ]
    return spelled(factor, under), spelled(factor, under), rng.choice(wrong)


def complex_numbers(rng: Random) -> Drawn:
    real, imaginary = rng.randint(-9, 9) or 2, rng.randint(2, 9) * rng.choice([-1, 1])

    def spelled(real: int, imaginary: int) -> str:
        unit = rng.choice(["i", "i", r"\mathrm{i}", r"\text{i}", r"\imath"])
        forms = [f"{real}{imaginary:+d}{unit}", f"{real} {imaginary:+d} {unit}"]
        return rng.choice(
            [*forms, f"{imaginary}{unit} {real:+d}", f"{real}{imaginary:+d}\\cdot {unit}"]
        )

    near = [(real, -imaginary), (-real, imaginary), (real, imaginary + 11), (real + 1, imaginary)]
    return spelled(real, imaginary), spelled(real, imaginary), spelled(*rng.choice(near))


def multiples_of_pi(rng: Random) -> Drawn:
    over, under = draw_fraction(rng)
    over = abs(over)

    def spelled(over: int, under: int) -> str:
        pi = rng.choice([r"\pi", "\u03c0"])
        spellings = [rf"\frac{{{over}{pi}}}{{{under}}}", rf"\frac{{{over}}}{{{under}}}{pi}"]
        return rng.choice(
            [*spellings, f"{over}{pi}/{under}", rf"{pi} \cdot \frac{{{over}}}{{{under}}}"]
        )

    wrong = [spelled(over + under, under), f"{over}/{under}", rf"\frac{{{over}\pi^2}}{{{under}}}"]
    return spelled(over, under), spelled(over, under), rng.choice(wrong)


def percentages(rng: Random) -> Drawn:
    value = rng.randint(1, 99)
    right = [
        rf"{value}\%",
        f"{value}%",
        rf"{value} \text{{ percent}}",
        str(value),
        f"{value} percent",
    ]
    right += [rf"\frac{{{value}}}{{100}}", f"{value / 100:.2f}"]
    wrong = [rf"{value + 1}\%", rf"{value / 10:.1f}\%", f"{(value + 1) / 100:.2f}"]
    return rf"{value}\%", rng.choice(right), rng.choice(wrong)


def money(rng: Random) -> Drawn:
    value = rng.randint(1_000, 99_999)

    def spelled(value: int) -> str:
        text = digits(rng, value, [*SEPARATORS, ","])
        return rng.choice(
            [rf"\${text}", rf"\$\,{text}", rf"{text} \text{{ dollars}}", rf"\${text}.00"]
        )

    wrong = [spelled(value + 1), rf"{value}\text{{ cents}}", rf"{value} \text{{ euros}}"]
    answer = rng.choice([spelled(value), spelled(value), digits(rng, value)])
    return spelled(value), answer, rng.choice(wrong)


# ---------------------------------------------------------------- with a unit or base

BASE_WORDS = {3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}


def bases(rng: Random) -> Drawn:
    base = rng.choice(list(BASE_WORDS))
    text = rng.choice("12") + "".join(str(rng.randrange(base)) for _ in range(rng.randint(2, 6)))

    def spelled(text: str, base: int) -> str:
        word = rng.choice([str(base), BASE_WORDS[base]])
        forms = [
            f"{text}_{base}",
            f"{text}_{{{base}}}",
            f"({text})_{base}",
            rf"{text}_{{\text{{{word}}}}}",
        ]
        forms += [rf"{text} \text{{ base }} {base}", rf"{text} \text{{ base {word}}}"]
        return rng.choice([*forms, f"{text} base {base}", rf"{text}_{{\text{{base }}{base}}}"])

    another = rng.choice([other for other in BASE_WORDS if other != base])
    wrong = [spelled(text, another), spelled(text + "0", base), spelled("1" + text, base)]
    return spelled(text, base), rng.choice([spelled(text, base), text]), rng.choice(wrong)


ANGLES = [
    (r"-\sqrt{3}", r"\tan %s", 120, 60),
    (r"\frac{1}{2}", r"\sin %s", 30, 60),
    (r"\frac{\sqrt{2}}{2}", r"\cos %s", 45, 30),
    (r"1", r"\cot %s", 45, 135),
    (r"2", r"\sec %s", 60, 120),
]


def angles(rng: Random) -> Drawn:
    gold, function, right, wrong = rng.choice(ANGLES)
    sign = rng.choice([r"^\circ", r"^{\circ}", "\u00b0"])
    head = function.removesuffix(" %s")
    function = rng.choice([function, f"{head}(%s)", rf"\operatorname{{{head[1:]}}}(%s)"])
    return gold, function % f"{right}{sign}", function % f"{wrong}{sign}"


UNITS = [
    ["m/s", "meters per second", r"m\,s^{-1}", r"m \cdot s^{-1}", "metres/second", r"\frac{m}{s}"],
    ["km/h", "kilometers per hour", "kph", "km per hour", r"km\,h^{-1}", r"km \cdot h^{-1}"],
    [r"m/s^2", r"m/s^{2}", r"m\,s^{-2}", "meters per second squared", r"m \cdot s^{-2}"],
    ["cm^2", "cm^{2}", "square centimeters", "sq cm", "cm\u00b2", "centimeters squared"],
    ["ft^3", "ft^{3}", "cubic feet", "feet^3", "cubic ft"],
    ["kg", "kilograms", "kilogram"],
    ["hours", "hour", "hr", "h"],
    ["minutes", "min", "minute"],
    ["inches", "in", "inch"],
    [r"\mu m", "micrometers", "\u00b5m"],
    [r"\AA", "angstroms", "\u00c5"],
    ["kg/m^3", r"kg\,m^{-3}", r"\frac{kg}{m^3}", "kilograms per cubic meter"],
    ["J/(mol K)", r"J\,mol^{-1}\,K^{-1}", "J/mol/K"],
    ["kPa", "kilopascals"],
    ["mph", "miles per hour", "miles/hour", "mi/h"],
    [r"N \cdot m", r"N\,m", "newton meters"],
    ["apples", "apple"],
    [r"\Omega", "ohms", "\u03a9"],
]


def units(rng: Random) -> Drawn:
    value = rng.choice([str(rng.randint(1, 999)), f"{rng.randint(1, 999) / 10:.1f}"])
    unit, another = rng.sample(UNITS, 2)

    def spelled(value: str, unit: Sequence[str]) -> str:
        command = rng.choice([r"\text", r"\mathrm", r"\textrm"])
        space = rng.choice(["", " ", r"\,", r"\ "])
        return f"{value}{space}{command}{{{rng.choice(unit)}}}"

    right = [spelled(value, unit), value]
    if rng.random() < 0.3 and unit[0] in ("m/s", "km/h", "cm^2", "kg", "kg/m^3", "hours", "mph"):
        right = [f"{value} {unit[0]}"]
    wrong = [spelled(value, another), spelled(value + "1", unit), spelled("-" + value, unit)]
    return spelled(value, unit), rng.choice(right), rng.choice(wrong)
