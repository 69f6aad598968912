"""Formulas stay readable, and money is no formula."""

import pytest

from alipes.console.markdown.maths import to_readable
from alipes.console.theme import make_theme
from tests.unit.console.markdown.test_stream import NONE, shown

PLAIN = make_theme("dark")


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("E = mc^2", "E = mc²"),
        (r"\frac{1}{2}", "1/2"),
        (r"\frac{a+b}{c}", "(a+b)/c"),
        (r"\sqrt{x^2 + 1}", "√(x² + 1)"),
        (r"x_1 \le x_{10}", "x₁ ≤ x₁₀"),
        (r"\alpha \times \beta\,dx", "α × β dx"),
        (r"\left( \sum_{i=1}^{n} i \right)", "( ∑ᵢ₌₁ⁿ i )"),
        (r"e^{x^2}", "e^(x²)"),
        (r"\text{speed} = 5\%", "speed = 5%"),
        (r"\unknown{x}", r"\unknown{x}"),
    ],
)
def test_common_commands_become_symbols(formula, text):
    assert to_readable(formula) == text


@pytest.mark.parametrize(
    "source", [r"so $a_1 * b_1 = \pi$ holds", r"so \(a_1 * b_1 = \pi\) holds", r"so $$a_1 * b_1 = \pi$$ holds"]
)
def test_a_formula_in_a_line_is_one_piece_in_which_no_mark_counts(source):
    assert shown(source, theme=PLAIN) == ["so a₁ * b₁ = π holds"]


@pytest.mark.parametrize(
    "text", ["It costs $5 or $6.", "from $10-$20 a day", "$HOME and $PATH", "a $ b $ c", "$x is 5"]
)
def test_money_and_variables_are_no_formulas(text):
    assert shown(text, theme=PLAIN) == [text]


@pytest.mark.parametrize(("opening", "closing"), [("$$", "$$"), (r"\[", r"\]")])
def test_a_formula_on_lines_of_its_own_is_indented_without_its_marks(opening, closing):
    text = f"First:\n{opening}\nx^2 \\,dx\n{closing}\nthen {opening}y_2{closing} too."
    assert shown(text, theme=PLAIN) == ["First:", "  x² dx", "then y₂ too."]
    assert shown(f"{opening} x^2 {closing}\n\nand **on**", theme=PLAIN) == ["  x²", "", "and on"]


def test_a_formula_that_is_not_closed_ends_at_a_blank_line():
    assert shown("$$\nx^2\n\n**then**", theme=PLAIN) == ["  x²", "", "then"]


def test_without_styles_the_source_is_shown():
    assert shown("so $a_1$ and\n$$\nb_1\n$$", theme=NONE) == ["so $a_1$ and", "$$", "b_1", "$$"]
