r"""Answers as LaTeX text: one spelling for what reads the same, and its outer structure."""

import re

_UNICODE = str.maketrans(
    {
        "\u2212": "-",
        "\u2013": "-",
        "\u00d7": r"\times ",
        "\u00b7": r"\cdot ",
        "\u22c5": r"\cdot ",
        "\u00f7": "/",
        "\u221a": r"\sqrt ",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u2264": r"\le ",
        "\u2265": r"\ge ",
        "\u2260": r"\ne ",
        "\u2248": r"\approx ",
        "\u2208": r"\in ",
        "\u222a": r"\cup ",
        "\u00b1": r"\pm ",
        "\u00b2": "^2",
        "\u00b3": "^3",
        "\u00a0": " ",
    }
)
_COMMANDS = {
    **dict.fromkeys(["left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr"], ""),
    **dict.fromkeys(["displaystyle", "textstyle", "limits", "quad", "qquad"], " "),
    **dict.fromkeys(["dfrac", "tfrac", "cfrac"], r"\frac"),
    **dict.fromkeys(["dbinom", "tbinom"], r"\binom"),
    **dict.fromkeys(["textbf", "textit", "textrm", "textsf", "textnormal", "mbox"], r"\text"),
    **dict.fromkeys(["mathrm", "mathbf", "mathit", "mathsf"], r"\text"),
    **dict.fromkeys(["lvert", "rvert"], "|"),
    **dict.fromkeys(["leq", "leqslant"], r"\le"),
    **dict.fromkeys(["geq", "geqslant"], r"\ge"),
    **dict.fromkeys(["approxeq", "simeq", "doteq"], r"\approx"),
    "neq": r"\ne",
    "lt": "<",
    "gt": ">",
    "lbrace": r"\{",
    "rbrace": r"\}",
    "langle": "(",
    "rangle": ")",
    "degree": "\u00b0",
}
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_SPACE = r"(?:(?<!\\)\\[,;:!> ]|~|\s)"
_THOUSANDS = re.compile(rf"(?<![\d.])\d{{1,3}}(?:(?:{_SPACE}|\{{,\}})\d{{3}})+(?!\d)")
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_TOKEN = r"(?:[0-9a-zA-Z]|\\(?!frac|binom|sqrt)[a-zA-Z]+)"
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        # Mathematics within mathematics, and invisible delimiters
        (r"(?<!\\)\$|(?<!\\)\\[()\[\]]|\\(?:left|right)\s*\.", " "),
        (_SPACE, " "),
        (r"\{\s*\\(?:rm|bf|it)\s+([^{}]*)\}", r"\\text{\1}"),
        # Words with a meaning
        (r"\\text ?\{\s*([,;]? ?(?:and|or) ?)\}|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])", " , "),
        (r"\\%|\\text ?\{ ?percent ?\}|(?<![a-zA-Z\\])percent(?![a-zA-Z])", "%"),
        (r" ?\^ ?(?:\\circ(?![a-zA-Z])|\{ ?\\circ ?\})", "\u00b0"),
        # Arguments in braces: \frac43 is \frac{4}{3}
        (rf"(\\(?:frac|binom|sqrt)(?![a-zA-Z])(?:\[[^\]]*\])?) ?({_TOKEN})", r"\1{\2}"),
        (rf"(\\(?:frac|binom) ?{_GROUP}) ?({_TOKEN})", r"\1{\2}"),
        (r" +", " "),
    ]
]
_BRACKET = re.compile(r"(?P<open>\\\{|[(\[{])|(?P<close>\\\}|[)\]}])|\\.", re.DOTALL)


def normalize(text: str) -> str:
    r"""One spelling for what looks the same in print; the meaning is not touched.

    Example: ``r"\left( 60{,}000,\ \dfrac 43 \right)."`` gives ``r"( 60000, \frac{4}{3} )"``.
    """
    text = text.translate(_UNICODE)
    text = _COMMAND.sub(lambda command: _COMMANDS.get(command[1], command[0]), text)
    text = _THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text.strip().rstrip(" .,;")


def spelling(answer: str) -> str:
    r"""``normalize`` without spaces, to compare answers by; 0.5 and 1/2 are not spelled the same.

    Comparing values would need a computer algebra system, which is too slow for a vote.
    """
    return normalize(answer).replace(" ", "")


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """The stripped parts of ``text`` between separators that stand outside all brackets.

    Example: ``split("(1, 2), 3", re.compile(","))`` gives ``["(1, 2)", "3"]``.
    """
    depths = _depths(text)
    cuts = [m for m in separator.finditer(text) if depths[m.start()] == 0]
    starts = [0, *(cut.end() for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def unwrap(text: str) -> tuple[str, str, str]:
    r"""The pair of brackets around the whole of ``text``, with what stands between them.

    Example: ``"[2, 3)"`` gives ``("[", "2, 3", ")")``, ``"(x)(y)"`` gives ``("", "(x)(y)", "")``.
    """
    opening = _BRACKET.match(text)
    depths = _depths(text)
    if opening is None or not opening["open"] or depths[-1] != 0:
        return "", text, ""
    if depths.index(0, opening.end()) != len(text):
        return "", text, ""
    *_, closing = _BRACKET.finditer(text)
    return opening[0], text[opening.end() : closing.start()].strip(), closing[0]


def is_balanced(text: str) -> bool:
    """Whether every bracket that is opened is closed, of whatever kind, and the reverse."""
    depths = _depths(text)
    return depths[-1] == 0 and min(depths) == 0


def _depths(text: str) -> list[int]:
    """How many brackets are open before each character, and at the end."""
    depths = [0] * (len(text) + 1)
    depth = position = 0
    for token in _BRACKET.finditer(text):
        depths[position : token.end()] = [depth] * (token.end() - position)
        position = token.end()
        depth += 1 if token["open"] else -1 if token["close"] else 0
    depths[position:] = [depth] * (len(text) + 1 - position)
    return depths
