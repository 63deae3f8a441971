"""The strict science verifier: which number a box holds, and whether it is close enough."""

from __future__ import annotations

import pytest

from comas.verification.science import read_number, verify_science


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6.25", 6.25),
        ("+6.25", 6.25),
        ("-6.25", -6.25),
        ("- 6.25", -6.25),
        ("\u22126.25", -6.25),
        (".25", 0.25),
        ("6.", 6.0),
        ("$6.25$", 6.25),
        (r"\text{6.25}", 6.25),
        (r"\mathbf{6.25}", 6.25),
        ("v = 6.25", 6.25),
        (r"v \approx 6.25", 6.25),
        (r"x = 5/0.8 = 6.25", 6.25),
        # scientific notation
        ("4.71e-5", 4.71e-5),
        ("4.71E-05", 4.71e-5),
        (r"4.71\text{e}{-5}", 4.71e-5),
        (r"4.71 \times 10^{-5}", 4.71e-5),
        (r"4.71 \times 10^ { - 5 }", 4.71e-5),
        (r"4.71\cdot10^{-5}", 4.71e-5),
        ("4.71*10^-5", 4.71e-5),
        ("4.71 x 10^-5", 4.71e-5),
        ("4.71*10**-5", 4.71e-5),
        ("4.71 \u00d7 10\u207b\u2075", 4.71e-5),
        (r"4.71 \times {10}^{-5}", 4.71e-5),
        (r"{4.71} \cdot{10}^{{-5}}", 4.71e-5),
        (r"4.71{\times}{10^{-5}}", 4.71e-5),
        (r"{4.71 \times {10}^{-5}} \text{ T}", 4.71e-5),
        (r"4.71\text{E}{{-5}}", 4.71e-5),
        ("10^3", 1000.0),
        (r"10^{-3}", 0.001),
        # thousands
        ("63,120.5", 63120.5),
        (r"63{,}120.5", 63120.5),
        (r"63\,120.5", 63120.5),
        ("63 120.5", 63120.5),
        (r"63,\!120.5", 63120.5),
        # a unit, although none is asked for
        (r"6.25 \text{ m/s}", 6.25),
        (r"6.25\,\mathrm{m/s}^{2}", 6.25),
        (r"6.25 \ \text{kJ}\,\text{mol}^{-1}\,\text{K}^{-1}", 6.25),
        (r"\text{6.25 m}", 6.25),
        ("6.25 m/s", 6.25),
        ("6.25 hours", 6.25),
        (r"6.25^\circ", 6.25),
        (r"6.25^{\circ}\text{C}", 6.25),
        (r"6.25 \, \Omega", 6.25),
        (r"6.25 \mu\text{m}", 6.25),
        (r"4.71 \times 10^{-5} \text{ T}", 4.71e-5),
        (r"6.25\,\mathrm{m/s^2}", 6.25),
        (r"6.25\,\mathrm{kg \cdot m^{2}}", 6.25),
        (r"6.25\,\AA", 6.25),
        ("6.25 km/h", 6.25),
        (r"6.25 \frac{\mathrm{J}}{\mathrm{mol}}", 6.25),
    ],
)
def test_a_number_is_read_in_every_usual_notation(text, value):
    assert read_number(text) == (pytest.approx(value, rel=1e-12),)


@pytest.mark.parametrize("text", [r"6.25\%", "6.25%", r"6.25 \text{ percent}", r"p = 6.25 \%"])
def test_a_percent_sign_is_read_both_ways(text):
    assert read_number(text) == (6.25, pytest.approx(0.0625))


@pytest.mark.parametrize(
    "text",
    [
        "fast",
        "",
        "nan",
        "inf",
        # braces that set a number apart
        "x_{2}",
        "10_{2}",
        "2{3}",
        r"6.02 \times {10}",
        r"6.02 {10}^{23}",
        # more than one number, or which one is not clear
        "2 5",
        "2, 5",
        "2-5",
        r"2 \text{ to } 5",
        r"2 \text{ or } 5",
        r"2.5 \pm 0.1",
        "(2, 5)",
        "12,34",
        "0,125",
        "2.5.1",
        r"\therefore\ \text{Answer: }\mathbf{not}\ 6.25",
        # still to be worked out
        r"\frac{1}{2}",
        "1/2",
        r"3\pi",
        r"\sqrt{2}",
        "2^3",
        "5!",
        "2.5x",
        "2.5i",
        # another number than the digits say
        r"2.5 \text{ million}",
        "2.5 million",
        "\u0662.\u0665",
    ],
)
def test_what_holds_no_single_number_is_not_read(text):
    assert read_number(text) == ()
    assert verify_science(rf"\boxed{{{text}}}", "2.5") == "unanswered"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("200", "210"),  # 210 - 200 = 10 = 5 % of 200
        ("200", "190"),
        ("-200", "-190"),
        (" -214", "-214.0"),
        (" 9.8765 ", "9.9"),
        ("1.2345e-05", r"1.23 \times 10^{-5}"),
        ("63,120.5", "63120.5"),
        ("6.25", r"6.25\%"),
        ("0.0625", r"6.25\%"),
        ("0", "0.0"),
        ("0", "-1e-9"),
    ],
)
def test_a_number_within_five_percent_is_correct(gold, answer):
    assert verify_science(rf"Hence \boxed{{{answer}}}", gold) == "correct"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("200", "210.1"),
        ("200", "189.9"),
        ("200", "-200"),
        ("0", "0.01"),
        ("0.0000471", "4.71e-4"),
        ("6.25", r"62.5\%"),
        ("63120.5", "63.1205"),
        ("6.25", "1e999"),
        ("2500", r"2.5 \text{ kJ}"),
    ],
)
def test_a_number_further_off_is_wrong(gold, answer):
    assert verify_science(rf"\boxed{{{answer}}}", gold) == "wrong"


@pytest.mark.parametrize("joint", [" or ", ", ", r"\text{ or }"])
def test_boxes_joined_to_one_answer_hold_several_numbers(joint):
    assert verify_science(rf"\boxed{{1}}{joint}\boxed{{2.5}}", "2.5") == "unanswered"
    assert verify_science(rf"\boxed{{2.5}}{joint}\boxed{{2.5}}", "2.5") == "correct"


@pytest.mark.parametrize("gold", ["swift", "", "1e999", "nan", r"\frac{1}{2}"])
def test_a_science_gold_that_is_no_number_is_an_error(gold):
    with pytest.raises(ValueError, match=r"gold answer .* is not a number"):
        verify_science(r"\boxed{1}", gold)
