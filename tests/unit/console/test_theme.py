"""Themes use only palette colours."""

import re

import msgspec
import pytest

from alipes.console.theme import ASCII, Theme, make_theme

COLOURS = {str(code) for base in (30, 90) for code in range(base, base + 8)}
ATTRIBUTES = {"1", "2", "3", "4", "9"}


def styles(theme):
    """Every style of a theme."""
    for name in ("bold", "italic", "strike", "code", "link", "url", "marker", "done", "faint"):
        yield getattr(theme, name)
    yield from theme.headings
    yield from theme.tokens.values()


@pytest.mark.parametrize("name", ["dark", "light"])
def test_only_attributes_and_colours_of_the_palette_are_used(name):
    for style in styles(make_theme(name)):
        assert style and set(style.split(";")) <= COLOURS | ATTRIBUTES


def test_a_light_theme_has_no_bright_colours_and_no_yellow():
    used = {code for style in styles(make_theme("light")) for code in style.split(";")}
    assert not used & {"33", "37", *(str(code) for code in range(90, 98))}


def test_without_colours_nothing_is_styled_and_marks_stay():
    theme = make_theme("none")
    assert set(styles(theme)) == {""}
    assert theme.marks and not theme.links and not make_theme("none", links=True).links


def test_links_and_symbols_are_parameters():
    assert make_theme("dark").links and not make_theme("dark", links=False).links
    assert make_theme("light", ascii_only=True).glyphs == ASCII
    assert all(
        re.fullmatch(r"[ -~]+", glyph) for glyph in (*ASCII.bullets, ASCII.bar, ASCII.rule, ASCII.cross, ASCII.fence)
    )


def test_there_are_six_headings_and_a_theme_is_a_value():
    for name in ("dark", "light", "none"):
        assert len(make_theme(name).headings) == 6
        assert make_theme(name) == make_theme(name)
    with pytest.raises(AttributeError):
        make_theme("dark").bold = ""
    assert msgspec.structs.replace(Theme(), bold="1").bold == "1"
