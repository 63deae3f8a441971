r"""Answers as LaTeX text: one spelling for what reads the same, and its outer structure."""

import re
import unicodedata
from itertools import groupby

_UNICODE = {
    "\u2212": "-",
    "\u2013": "-",
    "\u2044": "/",
    "\u00d7": r"\times ",
    "\u00b7": r"\cdot ",
    "\u22c5": r"\cdot ",
    "\u00f7": "/",
    "\u221a": "sqrt",
    "\u221b": r"\sqrt[3]",
    "\u03c0": r"\pi ",
    "\u03b8": r"\theta ",
    "\u221e": r"\infty ",
    "\u2264": r"\le ",
    "\u2265": r"\ge ",
    "\u2260": r"\ne ",
    "\u2248": r"\approx ",
    "\u2208": r"\in ",
    "\u222a": r"\cup ",
    "\u2229": r"\cap ",
    "\u2228": r"\lor ",
    "\u211d": r"\mathbb{R}",
    "\u2205": r"\emptyset ",
    "\u00b1": r"\pm ",
    "\u2220": r"\angle ",
}
# How Unicode names the set form of a character: 2 in superscript, 1/2 as one sign, a bold x.
_SET_FORMS = {"<super>": "^{%s}", "<sub>": "_{%s}", "<fraction>": "%s"}
_COMMANDS = {
    **dict.fromkeys(["left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr"], ""),
    **dict.fromkeys(["tiny", "small", "normalsize", "large", "Large", "LARGE", "huge", "Huge"], ""),
    **dict.fromkeys(["displaystyle", "textstyle", "limits", "quad", "qquad", "thinspace"], " "),
    **dict.fromkeys(["dfrac", "tfrac", "cfrac", "nicefrac", "sfrac", "flatfrac"], r"\frac"),
    **dict.fromkeys(["dbinom", "tbinom"], r"\binom"),
    **dict.fromkeys(["textbf", "textit", "textrm", "textsf", "textnormal", "mbox"], r"\text"),
    **dict.fromkeys(["mathrm", "mathbf", "mathit", "mathsf"], r"\text"),
    **dict.fromkeys(["underline", "boldsymbol", "pmb", "bm", "ensuremath", "fbox"], ""),
    **dict.fromkeys(["lvert", "rvert", "vert"], "|"),
    **dict.fromkeys(["leq", "leqslant"], r"\le"),
    **dict.fromkeys(["geq", "geqslant"], r"\ge"),
    **dict.fromkeys(["approxeq", "simeq", "doteq"], r"\approx"),
    "neq": r"\ne",
    "vee": r"\lor",
    "lt": "<",
    "gt": ">",
    "imath": "i",
    "lbrace": r"\{",
    "rbrace": r"\}",
    "langle": "(",
    "rangle": ")",
    "degree": "\u00b0",
}
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_SPACE = r"(?:(?<!\\)\\[,;:!> ]|~|\s)"
# Thin spaces, a comma without its space, a comma in braces; 6,600 may be two numbers, 6,060 not.
_GROUPED = rf"\{{ ?(?:,|{_SPACE})+ ?\}}{_SPACE}*|(?:\\!)*,(?:\\!\s*)+|{_SPACE}+"
_THOUSANDS = re.compile(
    rf"(?<![\d.])\d{{1,3}}(?:(?:{_GROUPED})\d{{3}})+(?!\d)"
    r"|(?<![\d.])(?<!(?<!\\),)[1-9]\d{0,2}(?:,\d{3})*,0\d\d(?:,\d{3})*(?![\d,])"
)
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_TOKEN = r"(?:[0-9a-zA-Z]|\\(?!frac|binom|sqrt)[a-zA-Z]+)"
_FUNCTION = r"(?:arc)?(?:sin|cos|tan|cot|csc)h?|log|ln|gcd|lcm"
_REWRITES = [
    (needle, re.compile(pattern), replacement)
    for needle, pattern, replacement in [
        # Lengths and colours
        ("[", r"\\\\ ?\[ ?-?[\d.]+ ?[a-z]{2} ?\]", r"\\\\"),
        ("color", r"\\(?:text)?color ?\{[^{}]*\}", " "),
        ("phantom", r"\\[hv]?phantom ?\{[^{}]*\}", " "),
        ("space", r"\\[hv]space ?\{[^{}]*\}", " "),
        # Mathematics within mathematics, and invisible delimiters
        ("", r"(?<!\\)\$|(?<!\\)\\[()\[\]]|\\(?:left|right)\s*\.", " "),
        ("", _SPACE, " "),
        ("{", r"\{\s*\\(?:rm|bf|it)\s+([^{}]*)\}", r"\\text{\1}"),
        (
            "begin",
            r"[(\[] ?\\begin\{(?:array|(?:small)?matrix)\}(?:\{[^{}]*\})?",
            r"\\begin{pmatrix}",
        ),
        ("end", r"\\end\{(?:array|(?:small)?matrix)\} ?[)\]]", r"\\end{pmatrix}"),
        # Words with a meaning
        ("and", r"\\text ?\{ ?[,;]? ?and ?\}|(?<![a-zA-Z\\])and(?![a-zA-Z])", " , "),
        ("or", r"\\text ?\{ ?[,;]? ?or ?\}|(?<![a-zA-Z\\])or(?![a-zA-Z])", r" \\lor "),
        ("%", r"\\%", "%"),
        ("percent", r"\\text ?\{ ?percent ?\}|(?<![a-zA-Z\\])percent(?![a-zA-Z])", "%"),
        ("circ", r" ?\^ ?(?:\\circ(?![a-zA-Z])|\{ ?\\circ ?\})", "\u00b0"),
        ("text", rf"\\text ?\{{ ?([ei]|\\frac ?{_GROUP} ?{_GROUP}) ?\}}", r"\1"),
        (
            "{",
            rf"\\(?:operatorname\*?|text) ?\{{ ?({_FUNCTION}|sec|min|max) ?\}} ?(?=[(a-z\\])",
            r"\\\1 ",
        ),
        ("", rf"(?<![a-zA-Z\\])({_FUNCTION})(?=[\d(^_\\]| ?[a-z](?![a-zA-Z]))", r"\\\1 "),
        # Arguments in braces: \frac43 is \frac{4}{3}
        ("inf", r"(?<![a-zA-Z\\])inf(?:inity)?(?![a-zA-Z])", r"\\infty "),
        ("sqrt", r"(?<![a-zA-Z\\])sqrt ?\(([^()]*)\)", r"\\sqrt{\1}"),
        ("sqrt", r"(?<![a-zA-Z\\])sqrt ?(\d+)", r"\\sqrt{\1}"),
        ("sqrt", r"(?<![a-zA-Z\\])sqrt(?![a-zA-Z]{2})", r"\\sqrt "),
        ("", rf"(\\(?:frac|binom|sqrt)(?![a-zA-Z])(?:\[[^\]]*\])?) ?({_TOKEN})", r"\1{\2}"),
        ("{", rf"(\\(?:frac|binom) ?{_GROUP}) ?({_TOKEN})", r"\1{\2}"),
        ("  ", r" +", " "),
    ]
]
"""In their order: what must stand in a text for the pattern to match (to look for that is forty
times faster), the pattern, and what to write for it."""
MAX_ANSWER_CHARS = 400
"""A longer math answer is wrong: no gold comes near it, and reading one takes minutes."""
_BRACKET = re.compile(r"(?P<open>\\\{|[(\[{])|(?P<close>\\\}|[)\]}])|\\.", re.DOTALL)


def normalize(text: str) -> str:
    r"""One spelling for what looks the same in print; the meaning is not touched.

    "and" is a comma and "or" is ``\lor``.

    Example: ``r"\left( 60{,}000,\ \dfrac 43 \right)."`` gives ``r"( 60000, \frac{4}{3} )"``.
    """
    text = text if text.isascii() else _in_latex(text)
    text = _COMMAND.sub(lambda command: _COMMANDS.get(command[1], command[0]), text)
    text = _THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), text)
    for needle, pattern, replacement in _REWRITES:
        if needle in text:
            text = pattern.sub(replacement, text)
    text = text.strip().rstrip(" .,;")
    while (inner := unwrap(text))[0] == "{":
        text = inner[1]
    return text


def _in_latex(text: str) -> str:
    r"""Mathematical signs of Unicode as LaTeX: ``x^{12}`` of x and two small digits."""
    return "".join(
        _SET_FORMS.get(form, "%s") % "".join(latex for _, latex in characters)
        for form, characters in groupby(map(_latex_of, text), key=lambda pair: pair[0])
    )


def _latex_of(character: str) -> tuple[str, str]:
    """The form in which a character is set, and what it stands for."""
    if character < "\x80" or character in _UNICODE:
        return "", _UNICODE.get(character, character)
    form, *codes = unicodedata.decomposition(character).split() or [""]
    if not form.startswith("<"):
        return "", character
    plain = "".join(_UNICODE.get(sign := chr(int(code, 16)), sign) for code in codes)
    return form, rf"\frac{{{plain.replace('/', '}{')}}}" if form == "<fraction>" else plain


def spelling(answer: str) -> str:
    r"""``normalize`` without spaces, to compare answers by; 0.5 and 1/2 are not spelled the same.

    Comparing values would need a computer algebra system, which is too slow for a vote. What is
    longer than ``MAX_ANSWER_CHARS`` stays as it is: of braces in braces it could take minutes.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        return answer
    return normalize(answer).replace(" ", "").replace(r"\lor", ",")


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
    if opening is None or not opening["open"]:
        return "", text, ""
    depths = _depths(text)
    if depths[-1] != 0 or depths.index(0, opening.end()) != len(text):
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
