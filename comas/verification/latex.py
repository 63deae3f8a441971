r"""LaTeX answers as text: gives one spelling to answers that look the same in print."""

import re
import unicodedata
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import yaml

from comas.verification.boxed import last_boxed_list

VOCABULARY = yaml.safe_load(Path(__file__).with_name("vocabulary.yaml").read_text(encoding="utf-8"))
"""Words and signs that the graders know, by heading of the file."""
_UNICODE = {sign: latex for latex, signs in VOCABULARY["signs"].items() for sign in signs}
_COMMANDS = {
    name: plain for plain, names in VOCABULARY["synonyms"].items() for name in names.split()
}
# Characters without width, except those that change the writing direction.
_UNSEEN = dict.fromkeys([0xAD, *range(0x200B, 0x200E), *range(0x2060, 0x2065), 0xFEFF])
# Unicode's names of typeset forms: 2 in superscript, 1/2 as one sign, a bold x.
_SET_FORMS = {"<super>": "^{%s}", "<sub>": "_{%s}", "<fraction>": "%s"}
_BRACKET = re.compile(r"(?P<open>\\\{|[(\[{])|(?P<close>\\\}|[)\]}])|\\.", re.DOTALL)
_COMMAND = re.compile(r"\\((?:left|right)\.|[a-zA-Z]+)")
_SPACE = r"(?:(?<!\\)\\(?:[,;:!> ]|$)|~|\s)"
# Thin spaces, a comma without its space, a comma in braces: always separate thousands.
_GROUPED = rf"\{{ ?(?:,|{_SPACE})+ ?\}}{_SPACE}*|(?:\\!)*,(?:\\!\s*)+|{_SPACE}+"
_SET_APART = re.compile(rf"(?<![\d.])\d{{1,3}}(?:(?:{_GROUPED})\d{{3}})+(?!\d)")
_BY_COMMAS = re.compile(r"(?<![\d.])(?<!\d,)[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)")
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_TOKEN = r"(?:[0-9a-zA-Z]|\\(?!frac|binom|sqrt)[a-zA-Z]+)"
_PARENTHESES = r"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
_FUNCTION = r"(?:arc)?(?:sin|cos|tan|cot|csc)h?|log|ln|exp|gcd|lcm"
_SYSTEM = (
    r"cases|[dr]cases|array|(?:small)?matrix|aligned|align\*?|gathered|gather\*?|split|eqnarray\*?"
)
_MOD = r"(?:\\[pb]?mod(?![a-zA-Z])|\\text ?\{ ?mod(?:ulo)? ?\}|(?<![a-zA-Z\\])mod(?![a-zA-Z]))"
_HALF_OF_DAY = r"([apAP])\.? ?[mM](?![a-zA-Z])\.?"
_OPERATOR = "tr|det|rank|arg|Re|Im|sgn|cis|dim|ker"

_TEXT = re.compile(rf"\\text\s*({_GROUP})")
_DOTS = re.compile(r"\s*\.\s*\.")
_STOPS_IN_TEXT = re.compile(r"\\text\s*\{([\s.,:;]*)\}")
_FORMULA_IN_TEXT = re.compile(r"(?<!\\)\$([^$]*)(?<!\\)\$|\\\((.*?)\\\)")
_NUMBER_IN_TEXT = re.compile(
    rf"(?<![^\s(:=$])(?:[-+]|\\?\$)*(?:\d(?:[\d,.:]*\d)?(?:/\d+)?|\\frac ?{_GROUP} ?{_GROUP})"
    r"(?:\\?%)?(?![\w^])"
)
_SIGN_IN_TEXT = re.compile(
    r"(?<![\w^-])-?\d|[=+<>]|\\\$|\\(?!(?:cdot|times|mu|Omega|AA|circ)(?![a-zA-Z]))[a-zA-Z]"
)
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}")


def _out_of_text(wrapped: re.Match[str]) -> str:
    r"""Move numbers and formulas out of ``\text``: ``\text{It is }25``."""
    content = wrapped[1][1:-1]
    if r"\text" in content:  # the outer one only sets the font
        return f" {_TEXT.sub(_out_of_text, content)} "
    if _FORMULA_IN_TEXT.search(content):
        content = _FORMULA_IN_TEXT.sub(lambda m: f"}} {m[1] or m[2]} \\text{{", content)
    elif _SIGN_IN_TEXT.search(content) and not _WORD.search(content):
        return f" {content} "
    else:
        content = _NUMBER_IN_TEXT.sub(lambda m: f"}} {m[0]} \\text{{", content)
    return _STOPS_IN_TEXT.sub(r"\1", rf"\text{{{content}}}")


_RELATION = re.compile(r"[=<>]|\\(?:le|ge|ne|in|approx)(?![a-zA-Z])")
_ALIGNMENT = re.compile(r"^ ?&|& ?(?=[=<>]|\\(?:le|ge|ne|in|approx)(?![a-zA-Z]))|(?<=[=<>]) ?&")


def _as_list(system: re.Match[str]) -> str:
    r"""Turn lines of one relation each into a list in braces; leave anything else unchanged.

    Example: ``\begin{cases} x = 1 \\ y = 2 \end{cases}`` gives ``{x = 1, y = 2}``; a line that
    begins with a relation continues the previous one.
    """
    lines: list[str] = []
    for line in system["lines"].split(r"\\"):
        line = _ALIGNMENT.sub("", line).strip(" ,;.")
        if lines and _RELATION.match(line):
            lines[-1] += f" {line}"
        elif line:
            lines.append(line)
    is_system = all(
        _RELATION.search(line) and not re.search(r"[,;&]|\\(?:text|begin|lor)", line)
        for line in lines
    )
    return f"{{{', '.join(lines)}}}" if lines and is_system else system[0]


def _as_root(root: re.Match[str]) -> str:
    """Write ``sqrt(2 + sqrt(3))`` with braces instead of parentheses."""
    return rf"\sqrt{'[3]' * (root[1] == 'cb')}{{{_ROOT.sub(_as_root, root[2])}}}"


_ROOT = re.compile(rf"(?<![a-zA-Z])(?:\\?(?:sq|(cb))rt) ?{_PARENTHESES}")


def _as_international(interval: re.Match[str]) -> str:
    """Write ``]2, 3[``, the open interval, as ``(2, 3)``."""
    opening, inner, closing = interval.groups()
    return f"{'(' if opening == ']' else opening}{inner}{')' if closing == '[' else closing}"


_Rewriting = str | Callable[[re.Match[str]], str]


def _word(words: str) -> str:
    r"""Return the pattern of words with or without ``\text``."""
    return rf"(?:\\text ?\{{ ?(?:{words}) ?\}}|(?<![a-zA-Z\\])(?:{words})(?![a-zA-Z]))"


_TABLE: list[tuple[str, str, _Rewriting]] = [
    # Lengths and colours
    ("[", r"\\\\ ?\[ ?-?[\d.]+ ?[a-z]{2} ?\]", r"\\\\"),
    ("color", r"\\(?:text)?color ?\{[^{}]*\}", " "),
    # Mathematics within words or mathematics, and invisible delimiters
    ("{", r"\{\s*\\(?:rm|bf|it)\s+([^{}]*)\}", r"\\text{\1}"),
    ("", r"\\(?:rm|bf|it|sf|tt)(?![a-zA-Z])", " "),
    ("{", r"(?<![\^_])\{ ?([:=<>+-]) ?\}", r"\1"),
    ("{", r"(?<![\^_])\{ ?(\\(?:times|cdot|cup|cap|setminus)) ?\}", r"\1 "),
    ("text", _TEXT.pattern, _out_of_text),
    ("", r"(?<!\\)\$|(?<!\\)\\[()\[\]]", " "),
    ("", _SPACE, " "),
    (
        "begin",
        rf"(?:\\\{{ ?)?\\begin\{{(?P<name>{_SYSTEM})\}}(?: ?\[[^\]]*\]| ?\{{[lcr| ]*\}})*"
        r"(?P<lines>.*?)\\end\{(?P=name)\}(?! ?\\\})(?: ?\.)?",
        _as_list,
    ),
    ("\\\\", r"^(?!.*\\begin)(?P<lines>.*\\\\.*)$", _as_list),
    ("begin", r"[(\[] ?\\begin\{(?:array|(?:small)?matrix)\}(?:\{[^{}]*\})?", r"\\begin{pmatrix}"),
    ("end", r"\\end\{(?:array|(?:small)?matrix)\} ?[)\]]", r"\\end{pmatrix}"),
    # No element of a list is written 000: these commas group digits even within brackets
    (
        ",0",
        r"(?<![\d.])\d{1,3}(?:,\d{3})*?,0\d\d(?:,\d{3})*(?!\d)",
        lambda m: m[0].replace(",", " " if m[0][0] == "0" else ""),
    ),
    # Words with a meaning
    ("mod", r"\\text ?\{ ?\( ?mod ?\} ?(\w+) ?(?:\)|\\text ?\{ ?\) ?\})", r"\\pmod{\1}"),
    ("mod", rf"(\()? ?{_MOD} ?\{{? ?(\w+) ?\}}?(?(1) ?\))", r"\\pmod{\2}"),
    ("lg", r"\\lg(?![a-zA-Z]| ?_)", r"\\log_{10} "),
    ("lg", r"(?:\\(?:operatorname|text) ?\{ ?lg ?\}|(?<![a-zA-Z\\])lg)(?= ?[(\d])", r"\\log_{10} "),
    ("and", _word("[,;]? ?and"), " , "),
    ("or", _word("[,;]? ?or"), r" \\lor "),
    ("%", r"\\%", "%"),
    ("", r"(?<![a-zA-Z\\])pi(?![a-zA-Z])", r"\\pi "),
    ("", rf"{_word('negative|minus')} ?(?=[\d\\])", "-"),
    ("all real", _word("all real(?: number)?s"), r"\\mathbb{R}"),
    ("percent", _word("percent"), "%"),
    ("circ", r" ?\^ ?(?:\\circ(?![a-zA-Z])|\{ ?\\circ ?\})", "\u00b0"),
    ("o", r"(?<=\d) ?\^ ?(?:\{ ?)?(?:o|\\text ?\{ ?o ?\})(?![a-zA-Z])(?: ?\})?", "\u00b0"),
    ("text", rf"\\text ?\{{ ?([ei]|[$%|]|\\[$%]|\\frac ?{_GROUP} ?{_GROUP}) ?\}}", r"\1"),
    ("operatorname", rf"\\operatorname\*? ?\{{ ?({_FUNCTION}|sec|min|max) ?\}}", r"\\\1 "),
    ("operatorname", rf"\\operatorname\*? ?\{{(?!(?:{_OPERATOR})\}})", r"\\text{"),
    ("text", rf"\\text ?\{{ ?({_FUNCTION}) ?\}}", r"\\\1 "),
    (
        "",
        rf"(?<![a-zA-Z\\])({_FUNCTION})(?=[(^_\\{{]| ?\d|(?: |(?=[nu-z]))[a-z](?![a-zA-Z]))",
        r"\\\1 ",
    ),
    # Functions and powers as in a program
    ("text", r"\\text ?\{ ?(sqrt|cbrt|abs) ?\}", r"\1"),
    ("abs", rf"(?<![a-zA-Z\\])abs ?{_PARENTHESES}", r"|\1|"),
    ("abs", rf"\\abs ?({_GROUP})", lambda m: f"|{m[1][1:-1]}|"),
    ("**", r"(?<=[\w)}]) ?\*\* ?([-+]?\d[\d.]*)", r"^{\1}"),
    ("**", r"(?<=[\w)}]) ?\*\* ?(?=[a-zA-Z({\\])", "^"),
    ("^-", r"\^ ?(-\d+(?:\.\d+)?|-[a-zA-Z](?![a-zA-Z]))", r"^{\1}"),
    # Sets
    ("c", r"(\\(?:cup|cap|setminus|infty)) ?\{ ?\}", r"\1 "),
    (";", r"(?<=[(\[\]])([^()\[\],;]*);([^()\[\],;]*)(?=[\])\[])", r"\1,\2"),
    ("U", r"(?<=[)\]\[]) ?(?:\\text ?\{ ?U ?\}|U) ?(?=[(\[\]][^()\[\]]*[,;])", r"\\cup "),
    ("union", r"(?<=[)\]\[}]) ?(?:\\text ?\{ ?union ?\}|union) ?(?=[(\[\]\\])", r"\\cup "),
    ("math", r"\\mathbb ?([NZQRC])(?![a-zA-Z])", r"\\mathbb{\1}"),
    ("not", r"\\not ?(\\in(?![a-zA-Z])|=)", lambda m: r"\ne" if m[1] == "=" else r"\notin"),
    ("{", r"\\\{ *\\\}", r"\\emptyset "),
    (
        ",",
        r"((?<![\w}).\]])\]|(?<=\\in)\]|(?<=\\c[ua]p)\]|(?<=\\setminus)\]|(?<=[:,] \})\]|[\[(])"
        r"([^()\[\]]*,[^()\[\]]*)([\])\[])",
        _as_international,
    ),
    (
        ":",
        rf"(\d ?: ?\d\d) *(?:\\text *\{{ *{_HALF_OF_DAY} *\}}|{_HALF_OF_DAY})",
        lambda m: rf"{m[1].replace(' ', '')} \text{{{(m[2] or m[3]).lower()}m}}",
    ),
    # Arguments in braces: \frac43 is \frac{4}{3}
    ("choose", r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}", r"\\binom{\1}{\2}"),
    ("log", r"\\log ?_ ?(?:e(?![a-zA-Z])|\{ ?e ?\})", r"\\ln "),
    ("inf", r"(?<![a-zA-Z\\])inf(?:inity)?(?![a-zA-Z])", r"\\infty "),
    ("rt", _ROOT.pattern, _as_root),
    ("sqrt", r"(?<![a-zA-Z\\])sqrt ?(\d+)", r"\\sqrt{\1}"),
    ("sqrt", r"(?<![a-zA-Z\\])sqrt(?![a-zA-Z]{2})", r"\\sqrt "),
    ("", rf"(\\(?:frac|binom|sqrt)(?![a-zA-Z])(?:\[[^\]]*\])?) ?({_TOKEN})", r"\1{\2}"),
    ("{", rf"(\\(?:frac|binom) ?{_GROUP}) ?({_TOKEN})", r"\1{\2}"),
    ("  ", r" +", " "),
]
_REWRITES = [(needle, re.compile(pattern), new) for needle, pattern, new in _TABLE]
"""(text without which the pattern cannot match, pattern, replacement), in the order of use. Looking
for the text first is forty times faster."""
MAX_ANSWER_CHARS = 400
"""Longer math answers are wrong: no gold is nearly as long, and reading them takes minutes."""


def normalize(text: str) -> str:
    r"""Give one spelling to texts that look the same in print, without changing the meaning.

    "and" becomes a comma and "or" ``\lor``; numbers move out of ``\text``.

    Example: ``r"\left( 60{,}000,\ \dfrac 43 \right)."`` gives ``r"( 60000, \frac{4}{3} )"``.
    """
    text = text if text.isascii() else _in_latex(text.translate(_UNSEEN))
    text = _COMMAND.sub(lambda command: _COMMANDS.get(command[1], command[0]), text)
    text = _SET_APART.sub(lambda number: re.sub(r"\D", "", number[0]), text)
    for needle, pattern, replacement in _REWRITES:
        if needle in text:
            text = pattern.sub(replacement, text)
    return trim(text)


def trim(text: str) -> str:
    """Remove outer spaces, trailing stops, and braces around the whole."""
    stripped = text.strip().rstrip(" .,;")
    text = text.strip() if _DOTS.match(text, len(stripped)) else stripped
    opening, inner, _ = unwrap(text)
    return trim(inner) if opening == "{" else text


def join_thousands(text: str) -> str:
    """Remove commas from numbers in strict groups of three digits, but not within brackets, where
    commas separate: ``"3,125 + (3,125)"`` gives ``"3125 + (3,125)"``."""
    depths = _depths(text, braces=False)
    return _BY_COMMAS.sub(
        lambda number: number[0] if depths[number.start()] else number[0].replace(",", ""), text
    )


def spelled_answer(response: str) -> str | None:
    r"""Return the last boxed answer of a response after ``normalize``, without spaces, to compare
    answers; None without one. 0.5 and 1/2 are spelt differently. Longer answers than
    ``MAX_ANSWER_CHARS``, which could take minutes, stay unchanged."""
    boxed = last_boxed_list(response)
    if boxed is None or len(boxed) > MAX_ANSWER_CHARS:
        return boxed
    spelled = re.sub(r"(?<!\d) | (?!\d)", "", join_thousands(normalize(boxed)))
    return spelled.replace(r"\lor", ",") or None


def compared_as(response: str) -> str:
    """Return a key that is equal for equal answers: ``spelled_answer``, or the whole response if
    nothing is boxed, as in a program."""
    return spelled_answer(response) or response.strip()


def _in_latex(text: str) -> str:
    return "".join(
        _SET_FORMS.get(form, "%s") % "".join(latex for _, latex in characters)
        for form, characters in groupby(map(_latex_of, text), key=lambda pair: pair[0])
    )


def _latex_of(character: str) -> tuple[str, str]:
    """Return the typeset form of a character, and its meaning."""
    if character < "\x80" or character in _UNICODE:
        return "", _UNICODE.get(character, character)
    form, *codes = unicodedata.decomposition(character).split() or [""]
    if not form.startswith("<"):
        return "", character
    plain = "".join(_UNICODE.get(sign := chr(int(code, 16)), sign) for code in codes)
    return form, rf"\frac{{{plain.replace('/', '}{')}}}" if form == "<fraction>" else plain


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split ``text`` at separators outside all brackets; parts are stripped. Example: ``split("(1,
    2), 3", re.compile(","))`` gives ``["(1, 2)", "3"]``."""
    depths = _depths(text)
    cuts = [m for m in separator.finditer(text) if depths[m.start()] == 0]
    starts = [0, *(cut.end() for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def unwrap(text: str) -> tuple[str, str, str]:
    r"""Return the pair of brackets around the whole of ``text``, and the text between them.
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


def _depths(text: str, *, braces: bool = True) -> list[int]:
    """Return the number of brackets around each character; ``braces=False`` ignores braces."""
    depths = [0] * (len(text) + 1)
    depth = position = 0
    for token in _BRACKET.finditer(text):
        depths[position : token.end()] = [depth] * (token.end() - position)
        position = token.end()
        if braces or token[0] not in "{}":
            depth += 1 if token["open"] else -1 if token["close"] else 0
    depths[position:] = [depth] * (len(text) + 1 - position)
    return depths
