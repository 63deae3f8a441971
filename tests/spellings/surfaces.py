"""Changes of any answer: surfaces that keep it, frames that make it wrong, and prose."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from spellings.families import Answer

Surface = Callable[[str, Random], str]
"""Gives its argument back where it does not apply."""

# ---------------------------------------------------------------- surfaces: the same answer

ALWAYS, WORDS = "(?!)", "text"
REWRITINGS: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {
    "fraction": {
        ALWAYS: (
            (r"\\frac", r"\\dfrac"),
            (r"\\frac", r"\\tfrac"),
            (r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2"),
            (r"\\frac\{([^{}]+)\}\{([^{}]+)\}", r"\\frac{ \1 }{ \2 }"),
            (r"\\frac\{([^{}]+)\}\{", r"\\frac {\1} {"),
        )
    },
    "root": {ALWAYS: ((r"\\sqrt\{(\d)\}", r"\\sqrt\1"), (r"\\sqrt\{([^{}]+)\}", r"\\sqrt{ \1 }"))},
    "power": {ALWAYS: ((r"\^(\d)", r"^{\1}"),)},
    "comma": {
        WORDS: tuple(
            (r"(?<!\\), ", to) for to in (r",\\,", r",\\;", ",~", r",\\ ", r",\\quad ", " , ")
        )
    },
    "space": {
        r"text|left|sqrt\[|\\\(": ((r"([(\[])([^()\[\]]*)([)\]])", r"\1 \2 \3"),),
        WORDS: ((" ([-+=<>]) ", r"\1"),),
    },
    "character": {
        WORDS: (("-", "\u2212"), ("(?<![a-z\\\\]) ", "\u00a0")),
        ALWAYS: (
            *(("(^|(?<=, )|(?<=-)|$)", mark) for mark in ("\u200b", "\ufeff", "\u2060", "\u200c")),
            *((rf"\\{name}\b", char) for name, char in (("infty", "∞"), ("cup", "\u222a"))),
            *((rf"\\{name}\b", char) for name, char in (("times", "\u00d7"), ("cdot", "·"))),
            *((rf"\\{name}\b", char) for name, char in (("le", "≤"), ("ge", "≥"), ("pm", "±"))),
            (r"\\pi\b ?", "π"),
        ),
    },
}
"""Patterns and what takes their place, by group and by what keeps an answer as it is."""

PLAIN = r"-?[\d.]+(?:, ?-?\d+)*|[A-Za-z]+"
NO_DOLLARS, NO_EQUATION = r"[^$]*", "[^=]*"
NO_TABLE, NO_WORDS = r"(?!.*(\\begin|\$)).*", r"(?!.*(\\begin|\\text|\$)).*"
NO_STOP = r".*(?<!\.)(?<!\.\})"
NO_RELATION = r"(?!.*([=<>≤≥A-Z]|approx|\\[lg]e|\\in |text)).*"
FRAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "wrap": {
        ".*": (r"\displaystyle @", r"\displaystyle{@}", "{@}", "{{@}}"),
        NO_TABLE: (r"\mathbf{@}", r"\boldsymbol{@}", r"\bm{@}"),
        NO_WORDS: (r"\bf @", r"{\bf @}", r"\text{$@$}"),
        NO_DOLLARS: (
            *("$@$", "$ @ $", r"\(@\)", r"\( @ \)"),
            *(r"\color{blue}{@}", r"\textcolor{red}{@}", r"\large @", r"{\Large @}"),
        ),
        PLAIN: (r"\text{@}", r"\text{ @}", r"\textbf{@}", r"\mathrm{@}"),
    },
    "space": {
        ".*": (r"\, @ \,", "~@~", r"\;@", "  @ ", r"\!@\!", r"@\ ", r"\quad @", "\n@\n", " @\n"),
    },
    "tail": {NO_STOP: ("@.", r"@\,.", "@ ."), ".*": ("@\\ \\ ", r"@\quad", r"@ \qquad")},
    "lead": {
        NO_EQUATION: (
            *(r"\therefore @", r"\therefore\ @", r"\therefore \; @"),
            *(r"\text{The answer is } @", r"\text{Answer: } @"),
        ),
        NO_RELATION: ("= @", r"=\,@"),
    },
}
"""Frames by group and by the answers that they suit, each around an answer at "@"."""

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
"""Names of what is asked for, by the answer's shape."""
LEAD = "lead: name of the unknown"
NESTED, SPACED = "box: nested", "box: space before brace"


def _rewriting(kept: str, pattern: str, to: str) -> Surface:
    return lambda s, rng: s if re.search(kept, s) else re.sub(pattern, to, s)


def _frame(frame: str, suits: str) -> Surface:
    return lambda s, rng: frame.replace("@", s) if re.fullmatch(suits, s, re.DOTALL) else s


def _delimiters(left: str, right: str) -> Surface:
    """Sizes before the delimiters, where these are simple pairs."""

    def apply(s: str, rng: Random) -> str:
        marks = re.findall(r"\\[{}]|[()\[\]]", s)
        is_paired = {*marks[::2]} <= {"(", "[", r"\{"} and {*marks[1::2]} <= {")", "]", r"\}"}
        if not is_paired or len(marks) % 2 or re.search(r"\\(text|left|sqrt\[|b|\()", s):
            return s
        turn = iter(range(len(marks)))
        return re.sub(r"\\[{}]|[()\[\]]", lambda m: (right if next(turn) % 2 else left) + m[0], s)

    return apply


SURFACES: dict[str, Surface] = {
    **{
        f"{group}: {pattern} -> {to}": _rewriting(kept, pattern, to)
        for group, by_answer in REWRITINGS.items()
        for kept, rewritings in by_answer.items()
        for pattern, to in rewritings
    },
    **{
        f"{group}: {frame}": _frame(frame, suits)
        for group, by_answer in FRAMES.items()
        for suits, frames in by_answer.items()
        for frame in frames
    },
    **{
        f"delimiters: {left}": _delimiters(left, right)
        for left, right in ((r"\left", r"\right"), (r"\bigl", r"\bigr"), (r"\big", r"\big"))
    },
}
NEUTRAL = ("space", "wrap", "tail", "character", "fraction")
"""Groups that are also put on near misses."""
GOLD_HABITS = (
    r"delimiters: \left",
    r"fraction: \\frac\{(\d)\}\{(\d)\} -> \\frac\1\2",
    r"fraction: \\frac -> \\dfrac",
    r"root: \\sqrt\{(\d)\} -> \\sqrt\1",
    r"space:  ([-+=<>])  -> \1",
    r"power: \^(\d) -> ^{\1}",
)
"""Surfaces that the golds of data sets have."""


def dress(answer: Answer, body: str, surface: str) -> str:
    """``body`` after the surface of that name, unchanged where this does not apply."""
    if surface in (NESTED, SPACED):
        return body  # done by `boxed`
    if surface != LEAD:
        return SURFACES[surface](body, answer.rng)
    shape = answer.family.shape
    if shape not in LEADS or re.search(r"[=<>:$]|\\in |\\approx|setminus|Total", body):
        return body
    return answer.rng.choice(LEADS[shape]) + body


# ---------------------------------------------------------------- wrong for any gold

VALUE = ("num", "sci", "unit", "money", "deg", "pct")
CLEAR = (*VALUE, "expr", "pair", "triple", "polar", "interval", "set", "matrix", "base", "ratio")
WRONG_FRAMES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        CLEAR,
        (
            *(r"@ \text{ or } #", r"# \text{ or } @", r"\text{either } @ \text{ or } #"),
            *(r"@ \text{ and } #", r"@, \quad #", "None"),
        ),
    ),
    ((*CLEAR, "eq"), (r"\text{not } @",)),
    (
        VALUE,
        (
            *(r"\neq @", r"\text{at least } @", r"\text{at most } @", r"\text{more than } @"),
            *(r"\text{less than } @", "> @", r"\leq @", r"x \ge @", r"@ \text{ to } #"),
            *(r"\text{between } @ \text{ and } #", r"\text{undefined}"),
        ),
    ),
    (
        ("num", "sci"),
        (
            *("(@, #)", r"\{@, #\}", "[@, #]", r"2 \cdot \left(@\right)", r"-\left(@\right)"),
            r"\text{half of } @",
        ),
    ),
    (("num",), ("@ + 1", r"\left(@\right)^2")),
    (
        (*CLEAR, "list", "eq", "rel"),
        (r"\text{No solution}", r"\text{Cannot be determined}"),
    ),
    (("num", "interval", "set", "list", "rel"), (r"\mathbb{R}",)),
    ((), ("", " ", "?", r"\ldots", r"\text{answer}")),
)
"""Shapes (none: all), and frames; @ is the gold, # a wrong answer of its shape."""

# ---------------------------------------------------------------- prose around the answer

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
CHOICE_MIDDLES = (
    "Option (A) looks tempting, but let's check the others.\n\n",
    "Comparing A and B: the factor of %a matters here.\n\n",
    "- A) is not supported by the data.\n- B) needs %a units.\n\n",
    "We have $%a + %b = %d$, which rules out two of the options.\n\n",
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
RIGHT_ENDINGS = (
    "This gives ${obox}$.\n\nWait, a sign was lost. Redoing it: ${box}$.",
    "First try: ${obox}$. Second try: ${obox}$. Correct: ${box}$.",
    "So it would be ${other}$. But no, that is a slip; it is ${box}$.",
    "Thus ${box}$.\n\n**Final answer:** ${box}$",
    "So ${box}$ is what we wanted, since the %a terms cancel in pairs.",
    "The answer is ${box}$.\n\n(Checked with %a and %b as test values.)",
    "\\begin{align*}\nS &= T + %a - %a \\\\\n  &= {box}\n\\end{align*}",
    "**The final answer is ${box}$**",
    "1. Set it up.\n2. Solve it.\n3. Report: ${box}$",
    "<think>maybe {other}, hmm, no</think>\nThe answer is ${box}$.",
    "### ${box}$",
)
WRONG_ENDINGS = (
    "We get ${gold}$.\n\nThus, the answer is ${obox}$.",
    "So ${gbox}$.\n\nWait, I made an error. It is ${obox}$.",
    "${obox}$? Perhaps $%a$ or ${gold}$. No: ${obox}$.",
    "The answer is ${gbox}$ or ${obox}$.",
    "It is tempting to say ${gold}$, but this is wrong. Final answer: ${obox}$",
    "**${gold}** was my first guess.\n\nFinal answer: ${obox}$",
)
"""{box} is the answer's box, {gold} the gold, {gbox} its box, {other} a wrong answer, {obox} its
box."""


def respond(answer: Answer, ending: str, body: str, kinds: list[str]) -> str:
    """A whole response that ends with ``body`` in a box."""
    rng = answer.rng
    middles = CHOICE_MIDDLES if answer.family.form == "choice" else MIDDLES
    text = "" if ending == "{box}" else rng.choice(OPENINGS) + rng.choice(middles)
    text += ending
    a, b, c = rng.randint(2, 40), rng.randint(2, 60), rng.randint(61, 400)
    for mark, number in (("%a", a), ("%b", b), ("%c", c), ("%d", a + b), ("%e", a * b)):
        text = text.replace(mark, str(number))
    box = rf"\boxed {{{body}}}" if SPACED in kinds else rf"\boxed{{{body}}}"
    parts = {
        "{box}": rf"\boxed{{{box}}}" if NESTED in kinds else box,
        "{obox}": rf"\boxed{{{answer.other}}}",
        "{other}": answer.other,
        "{gbox}": rf"\boxed{{{answer.gold}}}",
        "{gold}": answer.gold,
    }
    return re.sub("|".join(map(re.escape, parts)), lambda part: parts[part[0]], text)
