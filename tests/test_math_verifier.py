"""The strict math verifier: what is the same answer, and what is not."""

from __future__ import annotations

import re
import threading
import time

import pytest

from comas.verification.brackets import split, unwrap
from comas.verification.latex import normalize
from comas.verification.math import MAX_ANSWER_CHARS, verify_math
from comas.verification.units import Quantity, read_quantity

EQUAL = {
    "another form of a number": [
        (r"\sqrt{66}", "√66"),
        ("2.5", "2½"),
        (r"\sqrt[3]{2}", "∛2"),
        (r"\frac{3}{4}", r"\nicefrac{3}{4}"),
        (r"-\sqrt3", r"\tan 120^\circ"),
        (r"\frac{\sqrt3}{2}", r"\sin(60°)"),
        ("90", r"\approx 90"),
        ("5", r"\underline{5}"),
        ("5", r"\textcolor{red}{5}"),
        ("6 - 7i", r"6 - 7\mathrm{i}"),
        (r"7\sqrt{3}", r"\sqrt{147}"),
        ("C - c", "-c + C"),
        (r"\pi (R^2 - r^2)", r"\pi (R - r)(R + r)"),
        ("S_n - s_n", "-s_n + S_n"),
        (r"7\sqrt{3}", r"\frac{21}{\sqrt3}"),
        ("0.125", r"\frac18"),
        (r"\frac{1}{8}", ".125"),
        (r"\frac{5}{33}", r"0.\overline{15}"),
        (r"\frac{5}{12}", r"0.41\overline{6}"),
        (r"-\frac{14}{3}", r"\frac{-14}{3}"),
        (r"-\frac{14}{3}", "-14/3"),
        (r"\frac 29", r"\dfrac{2}{9}"),
        (r"\frac29", r"\tfrac 29"),
        (r"\frac5{12}", r"\frac{5}{12}"),
        (r"\frac{\pi}{3}", r"\frac\pi3"),
        (r"\frac{5\sqrt{2}}{6}", r"\frac{5}{6}\sqrt2"),
        (r"21 \frac{3}{4}", r"\frac{87}{4}"),
        (r"21 \frac{3}{4}", "21.75"),
        ("21.75", "21 3/4"),
        (r"45 \pi", r"45\pi"),
        (r"45 \pi", "45\u03c0"),
        (r"5+3\pi", r"3\left(\frac{5}{3}+\pi\right)"),
        ("14", "2(7)"),
        ("14", "(2)(7)"),
        ("2", r"4\left(\frac{1}{2}\right)"),
        ("20", r"2\binom{5}{2}"),
        ("120", "5!"),
        (r"4^{50}", r"2^{100}"),
        ("2500", "2.5e3"),
        ("007", "7"),
        ("13", "13."),
        ("13", r"\text{13}"),
        ("13", "(13)"),
        ("0", "-0"),
        (r"2 + \sqrt{1999}", r"\sqrt{1999}+2"),
        (r"\log_2 5", r"\log_{2}(5)"),
        ("6 - 7i", "-7i + 6"),
        ("-1", "i^2"),
        (r"-i", r"\frac{1}{i}"),
        (r"\ln 2", r"\operatorname{ln} 2"),
        (r"\ln 2", r"\log_e 2"),
        (r"\frac13", r"0.\bar{3}"),
        (r"\frac13", "0.(3)"),
        (r"\pi", r"\pi \approx 3.14"),
        ("21", r"{7 \choose 2}"),
        ("25", r"\text{twenty-five}"),
        ("25", r"\text{$25$}"),
        ("25", r"\mathbf{\text{25}}"),
        ("25", "{\\bf 25 .}"),
        (r"\frac{1}{2}", r"\cos\frac{\pi}{3}"),
    ],
    "an expression": [
        ("p - q", "-q+p"),
        ("AB - CD", "-CD + BA"),
        ("abcd", r"a \cdot b \cdot c \cdot d"),
        (r"\cot x", r"\operatorname{cot}x"),
        ("tr", "rt"),
        ("x^2", "x²"),
        ("4x^2 - 9", "(2x-3)(2x+3)"),
        ("5r^2-3r-20", "5r^{2} - 3r - 20"),
        (r"\frac{12+5c}{9}", r"\frac{5c+12}{9}"),
        (r"\sec x", r"\frac{1}{\cos x}"),
        (r"\sec x", r"\sec(x)"),
        (r"\sin \frac{t}{2}", r"\sin(t/2)"),
        ("y = 4x-1", "y = -1 + 4x"),
        ("y = 4x-1", "4x-1"),
        ("4x-1", "f(x) = 4x-1"),
        ("y = 4x-1", "4x - y - 1 = 0"),
        ("x^2+y^2=9", "y^2+x^2 = 9"),
    ],
    "thousands": [
        ("10080", r"10,\!080"),
        (r"10,\!080", "10,080"),
        ("11111111100", r"11,\! 111,\! 111,\! 100"),
        ("10080", r"10{,}\!080"),
        (r"\$32,\!348", "32348"),
        ("8,250", "8250"),
        ("8250", "8,250"),
        ("82500", r"82{,}500"),
        ("82500", r"82\,500"),
        ("1,000,000", r"10^6"),
    ],
    "the name of a value": [
        ("13", "x = 13"),
        ("x = 13", "13"),
        ("x=13", "x = 13"),
        ("13", "f(2) = 13"),
        ("13", "a + b = 13"),
        ("13", r"\frac{26}{2} = 13"),
        ("13", r"x = \frac{26}{2} = 13"),
        (r"\sqrt{3}", r"\sqrt3 \approx 1.73"),
        (r"\sqrt{3}", r"x = \sqrt3 \approx 1.73"),
        ("13", r"\text{Area} = 13"),
    ],
    "the words and signs around an answer": [
        ("13", r"\therefore 13"),
        ("3", r"\text{Answer: } 3"),
        ("25", r"\text{The answer is 25}"),
        ("25", r"The answer is $25$"),
        ("25", r"\text{So the area is } 25"),
        ("12", r"\text{(C) }12"),
        ("25", "25\\ "),
        ("25", "\u200b2\u200b5"),
        ("25", r"2x = 50 \implies x = 25"),
        ("25", "25 = x"),
        (r"\text{Evelyn}", r"\operatorname{Evelyn}"),
        (r"\text{Evelyn}", r"\text{The answer is Evelyn.}"),
        (r"k\pi", r"k\pi, k\in\mathbb{Z}"),
        (r"k\pi, k\in\mathbb{Z}", r"n\pi \text{ for any integer } n"),
        (r"\text{(C)}", r"\text{(C) }12"),
    ],
    "a list or set": [
        ("11, 4, 19", "4,11,19"),
        ("11, 4, 19", "4, 11, and 19"),
        ("11, 4, 19", r"\{4, 11, 19\}"),
        ("4, 19", r"4 \text{ and } 19"),
        ("4, 19", "19 or 4"),
        ("4, -19", r"x = 4 \text{ or } x = -19"),
        ("4, -19", "x = 4, -19"),
        ("4, -19", "x_1 = -19, x_2 = 4"),
        ("x = 4, x = -19", "4, -19"),
        ("4, 19", r"x \in \{4, 19\}"),
        ("4, 19", r"\left\{19; 4\right\}"),
        ("4, 19", r"4} \text{ or } \boxed{19"),
        (r"2 \pm \sqrt{5}", r"2\pm\sqrt5"),
        (r"2 \pm \sqrt{5}", r"2-\sqrt5, 2+\sqrt5"),
        ("4, -4", r"x = \pm 4"),
        ("100, 200", "100,200"),
        ("a = 2, b = 5", "b = 5, a = 2"),
        ("(1, 2), (3, 4)", r"(3,4) \text{ and } (1,2)"),
    ],
    "a tuple, interval, vector or matrix": [
        ("(15,-29)", "x=15, y=-29"),
        ("(15,-29)", r"y = -29 \text{ and } x = 15"),
        ("(15,-29)", "{(15,-29)}"),
        ("(15,-29)", r"\{(15,-29)\}"),
        (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } x>3"),
        (r"(-\infty,2)\cup(3,\infty)", r"\{x \mid x<2 \text{ or } x>3\}"),
        (r"(-\infty,3)\cup(3,\infty)", r"\mathbb{R}\setminus\{3\}"),
        (r"(-\infty,2)\cup(3,\infty)", r"x<2} or \boxed{x>3"),
        ("[2, 8]", r"x \ge 2} and \boxed{x \le 8"),
        ("[2, 8)", r"\{x \in \mathbb{R} : 2 \le x < 8\}"),
        ("[2, 8]", r"x \ge 2 \text{ and } x \le 8"),
        (r"(2,12) \cup (12,102)", r"(12,102)\cup(2,12)"),
        (r"(2, \infty)", r"]2,\infty["),
        ("(-9, 5]", "]-9, 5]"),
        (r"(-\infty,2)\cup(3,\infty)", r"x \notin [2,3]"),
        (r"\begin{pmatrix}4\\-9\end{pmatrix}", r"\begin{pmatrix}4\\[4pt]-9\end{pmatrix}"),
        (r"\begin{pmatrix}4\\-9\end{pmatrix}", r"\left(\begin{array}{c}4\\-9\end{array}\right)"),
        ("(5, -8)", r"\left(5,-8\right)"),
        ("(5, -8)", r"(x,y) = (5,-8)"),
        ("(5, -8)", r"\langle 5, -8 \rangle"),
        (r"(\frac{7}{2}, \pi)", r"\left(3.5,\ \pi\right)"),
        (r"\left[ \frac{2}{7}, 3 \right)", "[2/7, 3)"),
        (r"\left[ \frac{2}{7}, 3 \right)", r"x \in [2/7, 3)"),
        ("(4, 9)", r"x \in (4, 9)"),
        ("4 < x < 9", "(4, 9)"),
        ("x > 4", "4 < x"),
        (r"x \geq 4", r"[4, \infty)"),
        (r"(-\infty, 1) \cup (4, \infty)", r"(4,\infty)\cup(-\infty,1)"),
        (
            r"\begin{pmatrix} 4 \\ -9 \\ 2 \end{pmatrix}",
            r"\begin{pmatrix}4\\-9\\2\end{pmatrix}",
        ),
        (
            r"\begin{pmatrix} 4 & 1 \\ 0 & 2 \end{pmatrix}",
            r"\begin{bmatrix} 4&1\\0&2 \end{bmatrix}",
        ),
    ],
    "a unit, sign or base": [
        ("2.5", "2.5 m/s"),
        (r"2.5 \text{ m/s}", "2.5 m/s"),
        (r"2.5 \text{ m/s}", r"2.5\,\mathrm{m \cdot s^{-1}}"),
        (r"2.5 \text{ m/s}", r"2.5 \frac{\text{m}}{\text{s}}"),
        (r"2.5 \text{ m/s}", r"2.5 \text{ meters per second}"),
        (r"5 \text{ m}", "5m"),
        (r"3 \text{ angstroms}", r"3\AA"),
        ("60 mph", r"60 \text{ miles per hour}"),
        ("15", "15 apples"),
        ("76", r"76\textdegree"),
        (r"76^\circ", r"76\textdegree"),
        ("18.90", r"\text{\$}18.90"),
        ("18.90", r"18.90 \text{ USD}"),
        ("24", r"2 \text{ dozen}"),
        (r"12 \text{ pairs}", r"12\text{ pairs}"),
        ("4210_5", r"4210\text{ base }5"),
        ("4210_5", "(4210)_5"),
        (r"70^\circ", "70"),
        ("70", r"70^{\circ}"),
        (r"70^\circ", r"70 \text{ degrees}"),
        (r"\$31.40", "31.40"),
        ("31.40", r"\$31.4"),
        (r"\$31.40", r"31.40 \text{ dollars}"),
        (r"512 \mbox{ feet}^3", "512"),
        (r"512 \mbox{ feet}^3", r"512 \text{ ft}^{3}"),
        (r"512 \mbox{ feet}^3", r"512 \text{ cubic feet}"),
        ("512", r"512\,\mathrm{cm}^3"),
        ("512", "512 cm^3"),
        ("512", r"512 \text{ apples}"),
        (r"12\pi \text{ cm}", r"12\pi"),
        ("35", r"35\%"),
        (r"35\%", "35"),
        ("0.35", r"35\%"),
        (r"35\%", r"\frac{7}{20}"),
        (r"35\%", r"35 \text{ percent}"),
        ("7000000", r"7 \text{ million}"),
        ("2134_6", "2134_{6}"),
        ("2134_6", "2134"),
        ("2134_8", r"2134_{\text{eight}}"),
        ("3:4", "3 : 4"),
        ("3:4", r"3 \text{ to } 4"),
        ("3:4", "3{:}4"),
        (r"4:40 \text{ p.m.}", "4:40 PM"),
    ],
    "words": [
        (r"\text{north}", "north"),
        (r"\text{north}", r"\textbf{North}"),
        ("north", r"\text{north}"),
        (r"\text{Tuesday}", r"\mathrm{tuesday}"),
        (r"\text{(B)}", "B"),
        (r"\text{(B)}", r"\textbf{(B)}"),
        (r"\text{no real roots}", r"\text{No real roots.}"),
        ("yes", r"\text{Yes}"),
        ("no", "No"),
        ("Odd", r"\text{odd.}"),
        (r"\text{June 20}", r"June \text{20}"),
        (r"2 \text{ hours } 30 \text{ minutes}", r"\text{2 hours 30 minutes}"),
    ],
}
UNEQUAL = {
    "another short word": [("yes", "No"), ("no", r"\text{yes}"), ("odd", "do d"), ("No", "9")],
    "another number": [
        ("10080", "10,80"),
        ("10,080", "10,80"),
        (r"\frac{2}{7}", "9^{9^{9^9}}"),
        ("5", "(10^{10})!"),
        (r"\frac{2}{7}", "10^{-10^{10^{10}}}"),
        ("13", "-13"),
        ("13", "31"),
        ("13", "13.5"),
        (r"7\sqrt{3}", "7"),
        (r"7\sqrt{3}", r"3\sqrt{7}"),
        (r"45 \pi", "45"),
        (r"45 \pi", r"90\pi"),
        (r"45 \pi", r"45\pi^2"),
        (r"5+3\pi", r"8\pi"),
        (r"\frac 29", "29"),
        (r"\frac29", r"\frac92"),
        (r"\frac{1}{23}", r"\frac{12}{3}"),
        ("12", "1 2"),
        ("2^{12}", "2^{1}2"),
        (r"\frac{1}{3}", "0.33"),
        (r"\frac{1}{3}", "0.333333333333"),
        (r"\sqrt{3}", "1.7320508"),
        (r"\pi", "3.14159265358979"),
        ("0.0000001", "0.0000002"),
        (r"10^{-20}\pi", r"2 \cdot 10^{-20}\pi"),
        ("10^{30}", "10^{30}+1"),
        (r"21 \frac{3}{4}", "21"),
        ("12102", "(12,102)"),
        ("3125", "(3,125)"),
        ("58,500", "58, 500"),
        ("58,500", r"58 \text{ and } 500"),
        ("9", "2(7)"),
        ("9", "2 7"),
        ("9", "(2)(7)"),
        ("8,250", "250"),
        ("8,250", "8"),
        ("6 - 7i", "6"),
        ("6 - 7i", "6 + 7i"),
        ("6 - 7i", "6 - 7j"),
        ("2", r"\frac{1}{0}"),
        ("5", r"5 \text{ million}"),
        ("5", "5 million"),
        ("5", r"5 \text{ or more}"),
        *(("0", rf"\text{{{words} }}0") for words in ("not", "more than", "at least", "No, not")),
        *(("25", rf"25\text{{ {words}}}") for words in ("dozen", "pairs", "k", "squared", "or so")),
        ("25", r"\text{The answer is not }25"),
        ("25", r"\text{Half of the answer is }25"),
        ("25", "x^2 = 25"),
        ("25", r"x = 25 \implies x = 26"),
        (r"\emptyset", r"\{\emptyset\}"),
        (r"\emptyset", r"\{\{\}\}"),
        (r"k\pi", r"k\pi, k\in\mathbb{R}"),
    ],
    "another expression": [
        ("p - q", "p q"),
        ("p - q", "q - p"),
        ("AB - CD", "AB CD"),
        ("ABC", "ACB"),
        (r"\angle ABC", r"\angle ACB"),
        ("abcd", "ABCD"),
        ("2", "2ab"),
        ("4x^2 - 9", "4x^2 + 9"),
        ("4x^2 - 9", "4y^2 - 9"),
        ("4x^2 - 9", "4X^2 - 9"),
        ("C - c", "c - c"),
        ("C - c", "c - C"),
        ("C - c", "w - c"),
        (r"\pi R^2 - \pi r^2", r"\pi r^2 - \pi R^2"),
        ("S_n - s_n", "s_n - S_n"),
        (r"\sec x", r"\csc x"),
        (r"\sec x", r"\sec t"),
        ("5", "5x"),
        ("5", "5m"),
        ("5h", "5"),
        ("x", "x'"),
        ("x = 5", "y = 5"),
        ("5", "2x = 5"),
        ("y = 4x-1", "z = 4x-1"),
        ("y = 4x-1", "y = 4x+1"),
        ("x^2+y^2=9", "9"),
    ],
    "another list": [
        ("3,5", "3<x<5"),
        ("3,5", r"\{x \mid 3<x<5\}"),
        ("11, 4, 19", "11, 4"),
        ("11, 4, 19", "11, 4, 19, 2"),
        ("11, 4, 19", "(11, 4, 19)"),
        ("13", "13, 14"),
        ("13", r"13 \text{ or } 14"),
        ("13", r"13} or \boxed{14"),
        ("13", r"13 \pm 1"),
        ("2, 2, 5", "2, 5"),
        (r"2 \pm \sqrt{5}", r"2 + \sqrt{5}"),
        ("a = 2, b = 5", "a = 5, b = 2"),
        ("a = 2, b = 5", "2, 5"),
    ],
    "another tuple, interval, vector or matrix": [
        ("3 < x < 5", "3, 5"),
        ("(1,2)", "1<x<2"),
        (r"(2,12) \cup (12,102)", "(2,12)"),
        (r"(2,12) \cup (12,102)", "5"),
        (r"(-\infty,2) \cup (3,\infty)", r"(-\infty,2)\cup(3,\infty)} or \boxed{(4,\infty)"),
        (r"x \le 2", r"x \le 2}, \boxed{x \le 3"),
        ("5", r"x \notin [2,3]"),
        ("(3, 5)", r"\{3, 5\}"),
        ("(15,-29)", "x=-29, y=15"),
        (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } x \ge 3"),
        ("x<2", "y<2"),
        ("(5, -8)", "(-8, 5)"),
        ("(5, -8)", "5"),
        ("(5, -8)", "5, -8"),
        ("(5, -8)", r"\{5, -8\}"),
        ("(5, -8)", "(5, -8, 0)"),
        ("(2, 8)", "[2, 8]"),
        (r"\left[ \frac{2}{7}, 3 \right)", r"\left[ \frac{2}{7}, 3 \right]"),
        (r"\left[ \frac{2}{7}, 3 \right)", r"\left( \frac{2}{7}, 3 \right)"),
        (r"\left[ \frac{2}{7}, 3 \right)", r"\left[ 3, \frac{2}{7} \right)"),
        ("(4, 9)", r"4 \le x < 9"),
        ("x > 4", r"x \ge 4"),
        (r"(-\infty, 1) \cup (4, \infty)", r"(-\infty, 1] \cup (4, \infty)"),
        (r"(-\infty, 1) \cup (4, \infty)", r"(-\infty, 1)"),
        (r"\begin{pmatrix} 4 \\ -9 \\ 2 \end{pmatrix}", "2"),
        (r"\begin{pmatrix} 4 \\ -9 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 4 \\ -9 \end{pmatrix}"),
        (
            r"\begin{pmatrix} 4 \\ -9 \\ 2 \end{pmatrix}",
            r"\begin{pmatrix} 2 \\ -9 \\ 4 \end{pmatrix}",
        ),
    ],
    "another unit or base": [
        (r"2.5 \text{ m/s}", "2.5 km/h"),
        (r"2.5 \text{ m/s}", r"2.5 \text{ m}"),
        (r"3 \text{ km}", r"3000 \text{ m}"),
        ("4210_5", r"4210 \text{ base six}"),
        (r"20 ^\circ\text{C}", r"20 \text{ K}"),
        (r"512 \mbox{ feet}^3", r"512 \text{ inches}^3"),
        (r"512 \mbox{ feet}^3", r"512 \text{ feet}^2"),
        (r"512 \mbox{ feet}^3", "513"),
        (r"70^\circ", r"70 \text{ radians}"),
        (r"70^\circ", "7"),
        (r"\$31.40", r"31.40 \text{ cents}"),
        (r"\$31.40", "31"),
        (r"5\text{ cm}", r"5\%"),
        (r"4:40 \text{ p.m.}", "4:40 AM"),
        ("35", "0.35"),
        (r"35\%", r"3.5\%"),
        ("2134_6", "2134_7"),
        ("2134_6", "2135_6"),
        ("3:4", "4:3"),
        ("3:4:5", "3:5:4"),
    ],
    "other words": [
        (r"\text{north}", r"\text{south}"),
        (r"\text{north}", "thorn"),
        ("north", "thorn"),
        (r"\text{north}", "n"),
        (r"\text{(B)}", "(C)"),
        (r"\text{June 20}", r"\text{June 2}"),
        (r"\text{June 20}", "20"),
        ("5", r"\text{north}"),
    ],
}


def cases(groups):
    return [
        pytest.param(*pair, id=f"{group}: {pair[1]} for {pair[0]}")
        for group, pairs in groups.items()
        for pair in pairs
    ]


@pytest.mark.parametrize(("gold", "answer"), cases(EQUAL))
def test_the_same_answer_in_another_form_is_correct(gold, answer):
    assert verify_math(rf"So it is \boxed{{{answer}}}.", gold) == "correct"
    assert verify_math(rf"\boxed{{{gold}}}", gold) == "correct"


@pytest.mark.parametrize(("gold", "answer"), cases(UNEQUAL))
def test_another_answer_is_wrong(gold, answer):
    assert verify_math(rf"\boxed{{{answer}}}", gold) == "wrong"


@pytest.mark.parametrize("response", ["It is 13.", r"\boxed{}", r"\boxed{13"])
def test_math_without_a_box_is_unanswered(response):
    assert verify_math(response, "13") == "unanswered"


@pytest.mark.parametrize("answer", ["13 &", r"\frac{13}", "13)", "13 = ", "???", r"\{13", "1.3.1"])
def test_a_box_that_cannot_be_read_is_wrong(answer):
    assert verify_math(rf"\boxed{{{answer}}}", "13") == "wrong"


def test_an_endless_answer_is_wrong_at_once():
    assert verify_math(r"\boxed{" + "1+" * MAX_ANSWER_CHARS + "1}", "13") == "wrong"


@pytest.mark.parametrize("gold", [r"\heartsuit \& 13", r"(1, \& 13)", r"2, \& 13"])
def test_a_gold_that_cannot_be_read_is_an_error_unless_it_is_repeated(gold):
    assert verify_math(rf"\boxed{{{gold}}}", gold) == "correct"
    with pytest.raises(ValueError, match=r"gold answer .* cannot be read as math"):
        verify_math("I give up.", gold)


@pytest.mark.parametrize(("gold", "answer"), cases(EQUAL))
def test_every_gold_above_can_be_read(gold, answer):
    assert verify_math("I give up.", gold) == "unanswered"


@pytest.mark.parametrize("gold", ["", " ", ".", ","])
def test_an_empty_gold_is_an_error(gold):
    with pytest.raises(ValueError, match="cannot be read as math"):
        verify_math(r"\boxed{,}", gold)


def test_math_is_judged_off_the_main_thread():
    verdicts = []
    thread = threading.Thread(
        target=lambda: verdicts.append(verify_math(r"\boxed{\frac{6}{4}}", "1.5"))
    )
    thread.start()
    thread.join()
    assert verdicts == ["correct"]


# ---------------------------------------------------------------- the reading of LaTeX


def test_what_looks_the_same_is_spelled_the_same():
    assert normalize(r"\left( 60{,}000,\ \dfrac 43 \right).") == r"( 60000, \frac{4}{3} )"
    assert normalize(r"\sqrt2 \text{ and } 70^{\circ}") == "\\sqrt{2} , 70\u00b0"


def test_brackets_hide_separators_and_are_matched():
    assert split("(1, 2), [3, 4), 5", re.compile(",")) == ["(1, 2)", "[3, 4)", "5"]
    assert unwrap("[2, 3)") == ("[", "2, 3", ")")
    assert unwrap(r"\{1, (2)\}") == (r"\{", "1, (2)", r"\}")
    assert unwrap("(x)(y)") == ("", "(x)(y)", "")


def test_a_unit_is_told_from_its_number():
    square_feet = read_quantity(r"512 \text{ square feet}")
    assert square_feet == read_quantity("512 ft^2") != read_quantity("512 ft^3")
    assert square_feet.value == "512"
    assert read_quantity(r"9 \text{km/h}").unit == read_quantity("9 kph").unit
    assert read_quantity("-\\$5") == Quantity("-5", "1 dollar")
    assert read_quantity("5m") == Quantity("5m")
    assert read_quantity("5m", unit_expected=True) == Quantity("5", "1 meter")


def test_what_is_too_large_to_compute_is_wrong_within_a_second():
    started = time.process_time()
    assert verify_math(r"\boxed{9^{9^{9^9}}}", "5") == "wrong"
    assert verify_math(r"\boxed{x < 9^{9^{9^9}}}", r"[0, \infty)") == "wrong"
    assert time.process_time() - started < 1
