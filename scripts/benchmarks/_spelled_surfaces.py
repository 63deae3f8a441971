"""What may be done to any answer: surfaces that keep it, frames that make it wrong, and prose."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from scripts.benchmarks._spelled_items import Item

ZERO_WIDTH = ("\u200b", "\ufeff", "\u2060", "\u200c")
PLAIN = re.compile(r"-?[\d.]+(?:, ?-?\d+)*|[A-Za-z]+")


# ---------------------------------------------------------------- surfaces: same answer

Surface = Callable[[str, Random], str]  # returns its argument where it does not apply


def sub(pattern: str, to: str, unless: str = "") -> Surface:
    """Regex rewriting, left out where `unless` is found."""
    return lambda s, rng: s if unless and re.search(unless, s) else re.sub(pattern, to, s)


def around(*frames: str, only: str = "", unless: str = "") -> Surface:
    """Put into one of `frames` at "@" if the text matches `only` and not `unless`."""

    def apply(s: str, rng: Random) -> str:
        if (only and not re.fullmatch(only, s)) or (unless and re.search(unless, s)):
            return s
        return rng.choice(frames).replace("@", s)

    return apply


def delimiters(left: str, right: str) -> Surface:
    """Sizes before the delimiters, where these are simple pairs."""

    def apply(s: str, rng: Random) -> str:
        marks = re.findall(r"\\[{}]|[()\[\]]", s)
        opening, closing = set(marks[::2]), set(marks[1::2])
        plain = opening <= {"(", "[", r"\{"} and closing <= {")", "]", r"\}"}
        if not marks or len(marks) % 2 or not plain or re.search(r"\\(text|left|sqrt\[|b|\()", s):
            return s
        turn = iter(range(len(marks)))
        return re.sub(r"\\[{}]|[()\[\]]", lambda m: (right if next(turn) % 2 else left) + m[0], s)

    return apply


def symbols(s: str, rng: Random) -> str:
    for name, char in (
        (r"\\pi\b ?", "π"),
        (r"\\infty\b", "∞"),
        (r"\\cup\b", "\u222a"),
        (r"\\times\b", "\u00d7"),
        (r"\\cdot\b", "·"),
        (r"\\le\b", "≤"),
        (r"\\ge\b", "≥"),
        (r"\\pm\b", "±"),
    ):
        s = re.sub(name, char, s)
    return s


def zero_width(s: str, rng: Random) -> str:
    z = rng.choice(ZERO_WIDTH)
    return rng.choice([s + z, z + s, s.replace(", ", f", {z}"), s.replace("-", "-" + z)])


SURFACES: dict[str, Surface] = {
    "fraction: dfrac": sub(r"\\frac", r"\\dfrac"),
    "fraction: tfrac": sub(r"\\frac", r"\\tfrac"),
    "fraction: bare digits": sub(r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2"),
    "fraction: spaces in braces": sub(r"\\frac\{([^{}]+)\}\{([^{}]+)\}", r"\\frac{ \1 }{ \2 }"),
    "fraction: space before brace": sub(r"\\frac\{([^{}]+)\}\{", r"\\frac {\1} {"),
    "root: bare digit": sub(r"\\sqrt\{(\d)\}", r"\\sqrt\1"),
    "root: space in braces": sub(r"\\sqrt\{([^{}]+)\}", r"\\sqrt{ \1 }"),
    "power: braces": sub(r"\^(\d)", r"^{\1}"),
    "delimiters: left right": delimiters(r"\left", r"\right"),
    "delimiters: bigl bigr": delimiters(r"\bigl", r"\bigr"),
    "delimiters: big": delimiters(r"\big", r"\big"),
    "comma: thin space": sub(r"(?<!\\), ", r",\\,", "text"),
    "comma: medium space": sub(r"(?<!\\), ", r",\\;", "text"),
    "comma: tilde": sub(r"(?<!\\), ", r",~", "text"),
    "comma: backslash space": sub(r"(?<!\\), ", r",\\ ", "text"),
    "comma: quad": sub(r"(?<!\\), ", r",\\quad ", "text"),
    "comma: space before": sub(r"(?<!\\), ", r" , ", "text"),
    "space: around": around(r"\, @ \,", "~@~", r"\;@", "  @ ", r"\!@\!", r"@\ ", r"\quad @"),
    "space: inside delimiters": sub(
        r"([(\[])([^()\[\]]*)([)\]])", r"\1 \2 \3", r"text|left|sqrt\[|\\\("
    ),
    "space: newline": around("\n@\n", " @\n"),
    "space: operators tight": sub(r" ([-+=<>]) ", r"\1", "text"),
    "wrap: displaystyle": around(r"\displaystyle @", r"\displaystyle{@}"),
    "wrap: mathbf": around(r"\mathbf{@}", unless=r"\\begin|\$"),
    "wrap: boldsymbol": around(r"\boldsymbol{@}", r"\bm{@}", unless=r"\\begin|\$"),
    "wrap: bf": around(r"\bf @", r"{\bf @}", unless=r"\\begin|\\text|\$"),
    "wrap: dollars": around("$@$", unless=r"\$"),
    "wrap: dollars spaced": around("$ @ $", unless=r"\$"),
    "wrap: backslash parentheses": around(r"\(@\)", r"\( @ \)", unless=r"\$"),
    "wrap: text": around(r"\text{@}", r"\text{ @}", only=PLAIN.pattern),
    "wrap: text with dollars": around(r"\text{$@$}", r"\text{ $@$ }", unless=r"\$|\\text|begin"),
    "wrap: textbf": around(r"\textbf{@}", only=PLAIN.pattern),
    "wrap: mathrm": around(r"\mathrm{@}", only=PLAIN.pattern),
    "wrap: braces": around("{@}", "{{@}}"),
    "wrap: colour": around(r"\color{blue}{@}", r"\textcolor{red}{@}", unless=r"\$"),
    "wrap: size": around(r"\large @", r"{\Large @}", unless=r"\$"),
    "tail: full stop": around("@.", unless=r"\.\}?$"),
    "tail: full stop after space": around(r"@\,.", "@ .", unless=r"\.\}?$"),
    "tail: backslash space": around("@\\ ", "@\\ \\ "),
    "tail: quad": around(r"@\quad", r"@ \qquad"),
    "character: unicode minus": sub(r"-", "\u2212", "text"),
    "character: zero width": zero_width,
    "character: no-break space": sub(r"(?<![a-z\\]) ", "\u00a0", "text"),
    "character: unicode symbols": symbols,
    "lead: therefore": around(r"\therefore @", r"\therefore\ @", r"\therefore \; @", unless=r"="),
    "lead: the answer is": around(r"\text{The answer is } @", r"\text{Answer: } @", unless="="),
    "lead: spaced equals": around(
        "= @", r"=\,@", unless=r"[=<>≤≥]|approx|\\[lg]e|\\in |[A-Z]|text"
    ),
    "box: space before brace": around("@"),  # done by `boxed`
    "box: nested": around("@"),
}
NEUTRAL = ("space", "wrap", "tail", "character", "fraction")  # groups also put on near-misses
LEADS = {
    "num": ("x = ", "n = ", "k=", r"x\;=\;", r"\text{Sum} = ", "S_n = "),
    "expr": ("f(x) = ", "P(x) = ", "f(x)="),
    "pair": ("(x, y) = ", "(x,y)=", "P = ", r"\text{The point is } "),
    "triple": ("(x, y, z) = ", "(a,b,c) = "),
    "polar": (r"(r, \theta) = ", r"(r,\theta)="),
    "interval": (r"x \in ", r"x\in", r"\text{Domain: }", r"\text{Range: } "),
    "set": ("S = ", r"A\cap B = "),
    "list": ("x = ", "x="),
    "matrix": ("A = ", r"\mathbf{A} = ", "A^{-1} = "),
    "vector": (r"\mathbf{v} = ", r"\vec{v} = "),
    "deg": (r"\theta = ", r"\angle ABC = ", "x = "),
    "unit": ("A = ", "d = ", r"\text{Answer} = "),
    "sci": ("v = ", r"\Delta H = ", "T = ", r"\lambda=", r"v \approx "),
}
LEAD_KIND = "lead: name of the unknown"


def lead(s: str, shape: str, rng: Random) -> str:
    if shape not in LEADS or re.search(r"[=<>:$]|\\in |\\approx|setminus|:|Total", s):
        return s
    return rng.choice(LEADS[shape]) + s


# ---------------------------------------------------------------- wrong for any gold

VALUE = ("num", "sci", "unit", "money", "deg", "pct")
CLEAR = (*VALUE, "expr", "pair", "triple", "polar", "interval", "set", "matrix", "base", "ratio")
ALL = ("*",)
# kind: (shapes, frame); @ is the gold, # a wrong answer of its shape
ANY_WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "or another": (CLEAR, r"@ \text{ or } #"),
    "another or": (CLEAR, r"# \text{ or } @"),
    "either": (CLEAR, r"\text{either } @ \text{ or } #"),
    "and another": (CLEAR, r"@ \text{ and } #"),
    "listed with another": (CLEAR, r"@, \quad #"),
    "not": ((*CLEAR, "eq"), r"\text{not } @"),
    "not equal": (VALUE, r"\neq @"),
    "at least": (VALUE, r"\text{at least } @"),
    "at most": (VALUE, r"\text{at most } @"),
    "more than": (VALUE, r"\text{more than } @"),
    "less than": (VALUE, r"\text{less than } @"),
    "greater sign": (VALUE, "> @"),
    "leq sign": (VALUE, r"\leq @"),
    "unknown at least": (VALUE, r"x \ge @"),
    "pair with another": (("num", "sci"), "(@, #)"),
    "set with another": (("num", "sci"), r"\{@, #\}"),
    "range to another": (VALUE, r"@ \text{ to } #"),
    "between": (VALUE, r"\text{between } @ \text{ and } #"),
    "interval to another": (("num", "sci"), "[@, #]"),
    "one more, not added up": (("num",), "@ + 1"),
    "doubled": (("num", "sci"), r"2 \cdot \left(@\right)"),
    "squared": (("num",), r"\left(@\right)^2"),
    "negated in brackets": (("num", "sci"), r"-\left(@\right)"),
    "half of it": (("num", "sci"), r"\text{half of } @"),
    "no solution": ((*CLEAR, "list", "eq", "rel"), r"\text{No solution}"),
    "cannot be determined": ((*CLEAR, "list", "eq", "rel"), r"\text{Cannot be determined}"),
    "undefined": (VALUE, r"\text{undefined}"),
    "nothing in the box": (ALL, ""),
    "space in the box": (ALL, " "),
    "question mark": (ALL, "?"),
    "dots": (ALL, r"\ldots"),
    "None": (CLEAR, "None"),
    "placeholder": (ALL, r"\text{answer}"),
    "all real numbers": (("num", "interval", "set", "list", "rel"), r"\mathbb{R}"),
}

# ---------------------------------------------------------------- prose round the answer

OPENINGS = (
    "To solve this, we set up the equation and work step by step.\n\n",
    "Let's break it down.\n\n**Step 1:** Write $a_{%a} = %b$ and $c = %c$.\n\n",
    "We are given %a items and a total of %b. First, $%a + %b = %d$.\n\n",
    "Okay, so I need to find the value asked for. I note that %a is given, and that $%b < %c$.\n",
    "## Step 1: Identify what is known\nThe problem mentions %a and %b.\n\n## Step 2: Compute\n",
    "",
)
MIDDLES = (
    "Substituting, $%a \\cdot %b = %e$, so the intermediate quantity is $%e$.\n\n",
    "I first thought of $%c$, but that ignores the condition; redo it carefully.\n\n",
    "Simplifying gives\n\\[\n\\frac{%a}{%b} + %c,\n\\]\nwhich we then reduce.\n\n",
    "Checking: %a + %b = %d, as expected.\n\n",
    "An intermediate result is $\\boxed{%c}$, but we are not done.\n\n",
    "Since $%a > 0$, the case $t = -%b$ is impossible.\n\n",
    "",
)
ENDINGS = (
    "Therefore, the answer is ${box}$.",
    "Thus, the final answer is:\n\\[\n{box}\n\\]",
    "**Final Answer**\n\\[ {box} \\]",
    "The final answer is: ${box}$. I hope it is correct.",
    "So the answer is \\({box}\\).",
    "$$ {box} $$",
    "### Final Answer\n\n${box}$",
    "{box}",
    "Hence the result is\n\n$${box}.$$\n",
    "</think>\n\nThe answer is {box}.",
    "## Answer\n**${box}$**",
)
CHOICE_MIDDLES = (
    "Option (A) looks tempting, but let's check the others.\n\n",
    "Comparing A and B: the factor of %a matters here.\n\n",
    "- A) is not supported by the data.\n- B) needs %a units.\n\n",
    "We have $%a + %b = %d$, which rules out two of the options.\n\n",
    "",
)
# {box} is the answer's box, {obox} one with a wrong answer, {other} that answer bare
PROSE_RIGHT: dict[str, str] = {
    "wrong box corrected": "This gives ${obox}$.\n\nWait, a sign was lost. Redoing it: ${box}$.",
    "two wrong boxes first": "First try: ${obox}$. Second try: ${obox}$. Correct: ${box}$.",
    "wrong value corrected": "So it would be ${other}$. But no, that is a slip; it is ${box}$.",
    "same box twice": "Thus ${box}$.\n\n**Final answer:** ${box}$",
    "sentence after the box": "So ${box}$ is what we wanted, since the %a terms cancel in pairs.",
    "number after the box": "The answer is ${box}$.\n\n(Checked with %a and %b as test values.)",
    "box alone": "{box}",
    "box in aligned": "\\begin{align*}\nS &= T + %a - %a \\\\\n  &= {box}\n\\end{align*}",
    "box in bold": "**The final answer is ${box}$**",
    "box in a list": "1. Set it up.\n2. Solve it.\n3. Report: ${box}$",
    "box after think": "<think>maybe {other}, hmm, no</think>\nThe answer is ${box}$.",
    "box in a heading": "### ${box}$",
}
PROSE_WRONG: dict[str, str] = {
    "right in the reasoning, another boxed": "We get ${gold}$.\n\nThus, the answer is ${obox}$.",
    "right boxed first, then another": "So ${gbox}$.\n\nWait, I made an error. It is ${obox}$.",
    "another boxed twice, right between": "${obox}$? Perhaps $%a$ or ${gold}$. No: ${obox}$.",
    "two boxes joined by or": "The answer is ${gbox}$ or ${obox}$.",
    "right rejected": "It is tempting to say ${gold}$, but this is wrong. Final answer: ${obox}$",
    "right in bold, another boxed": "**${gold}** was my first guess.\n\nFinal answer: ${obox}$",
}


def boxed(body: str, kind: str = "") -> str:
    if "box: nested" in kind:
        return rf"\boxed{{\boxed{{{body}}}}}"
    return rf"\boxed {{{body}}}" if "space before brace" in kind else rf"\boxed{{{body}}}"


def numbered(text: str, rng: Random) -> str:
    """Fill the random numbers of a prose template."""
    a, b, c = rng.randint(2, 40), rng.randint(2, 60), rng.randint(61, 400)
    for mark, k in (("%a", a), ("%b", b), ("%c", c), ("%d", a + b), ("%e", a * b)):
        text = text.replace(mark, str(k))
    return text


def respond(rng: Random, it: Item, ending: str, body: str, kind: str) -> str:
    other = next(iter(it.wrong.values()))
    middles = CHOICE_MIDDLES if it.form == "choice" else MIDDLES
    start = "" if ending == "{box}" else rng.choice(OPENINGS) + rng.choice(middles)
    text = numbered(start + ending, rng)
    parts = {
        "{box}": boxed(body, kind),
        "{obox}": boxed(other),
        "{other}": other,
        "{gbox}": boxed(it.gold),
        "{gold}": it.gold,
    }
    return re.sub("|".join(map(re.escape, parts)), lambda m: parts[m[0]], text)


def dress(rng: Random, it: Item, body: str, surface: str) -> str:
    """`body` after the surface named, unchanged where this does not apply."""
    if surface == LEAD_KIND:
        return lead(body, it.shape, rng)
    return SURFACES[surface](body, rng)
