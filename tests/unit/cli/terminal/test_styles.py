"""What the variables tell about a terminal."""

from pathlib import Path

import pytest

from alipes.cli.terminal.styles import Surroundings, look_around
from alipes.config.environment import Variables


def around(chosen="auto", *, utf8=True, **variables: str) -> Surroundings:
    return look_around(Variables({"TERM": "xterm-256color", **variables}, Path("/none")), chosen, utf8=utf8)


def test_an_unknown_background_is_asked_for_and_taken_for_dark_until_then():
    assert around() == Surroundings("dark", asks=True)


@pytest.mark.parametrize(
    ("colours", "theme"),
    [("15;0", "dark"), ("0;15", "light"), ("0;default;15", "light"), ("12;8", "dark"), ("0;7", "light")],
)
def test_the_variable_of_the_background_is_believed(colours, theme):
    assert around(COLORFGBG=colours) == Surroundings(theme)


def test_nonsense_in_it_is_not():
    assert around(COLORFGBG="default;default").asks


def test_the_operator_has_the_last_word_but_for_no_color():
    assert around("light", COLORFGBG="15;0") == Surroundings("light")
    assert around("light", NO_COLOR="1") == Surroundings("none")


@pytest.mark.parametrize("term", ["linux", "vt220", "cons25"])
def test_who_would_print_the_question_is_not_asked(term):
    assert around(TERM=term) == Surroundings("dark", reflows=False)


@pytest.mark.parametrize(
    ("variables", "reflows"),
    [
        ({}, True),
        ({"XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "st-256color"}, False),
        ({"TERM": "screen-256color"}, False),
        ({"TERM": "screen-256color", "TMUX": "/tmp/tmux-0/default,1,0"}, True),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/tmux-0/default,1,0"}, True),
        ({"TERM": "xterm-kitty"}, True),
    ],
)
def test_who_breaks_rows_anew_is_known(variables, reflows):
    assert around(**variables).reflows is reflows


def test_without_utf8_there_is_only_ascii():
    assert around(utf8=False).ascii_only
