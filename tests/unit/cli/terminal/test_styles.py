"""Detection of terminal features from environment variables."""

from pathlib import Path
from typing import Any

import pytest

from alipes.config.environment import Variables
from alipes.console.styles import TerminalFeatures, detect_features
from alipes.console.theme import ThemeName


def around(chosen="auto", *, utf8=True, **variables: str) -> TerminalFeatures:
    return detect_features(Variables({"TERM": "xterm-256color", **variables}, Path("/none")), chosen, utf8=utf8)


def features(theme: ThemeName, **more: Any) -> TerminalFeatures:
    return TerminalFeatures(theme, **{"colours": 256, **more})


def test_an_unknown_background_is_queried_and_assumed_dark_until_then():
    assert around() == features("dark", query_background=True)


@pytest.mark.parametrize(
    ("colours", "theme"),
    [("15;0", "dark"), ("0;15", "light"), ("0;default;15", "light"), ("12;8", "dark"), ("0;7", "light")],
)
def test_colorfgbg_selects_the_theme(colours, theme):
    assert around(COLORFGBG=colours) == features(theme)


def test_an_invalid_colorfgbg_is_ignored():
    assert around(COLORFGBG="default;default").query_background


def test_the_setting_overrides_everything_but_no_color():
    assert around("light", COLORFGBG="15;0") == features("light")
    assert around("light", NO_COLOR="1") == features("none")


@pytest.mark.parametrize("term", ["linux", "vt220", "cons25"])
def test_terminals_that_would_print_the_query_are_not_asked(term):
    assert around(TERM=term) == features("dark", colours=16, reflows=False, titles=False, query_keyboard=False)


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
def test_terminals_that_reflow_are_known(variables, reflows):
    assert around(**variables).reflows is reflows


def test_without_utf8_there_is_only_ascii():
    assert around(utf8=False).ascii_only


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({"TERM": "xterm-256color"}, "bell"),
        ({"TERM": "xterm-kitty"}, "osc9"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "osc9"),
        ({"TERM": "foot"}, "osc777"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0", "TERM_PROGRAM": "WezTerm"}, "bell"),
    ],
    ids=["xterm", "kitty", "iterm", "foot", "tmux"],
)
def test_the_notification_fits_the_terminal(variables, kind):
    assert around(**variables).notifications == kind


@pytest.mark.parametrize(
    ("variables", "colours"),
    [
        ({"TERM": "xterm"}, 16),
        ({"TERM": "linux"}, 16),
        ({"TERM": "tmux-256color"}, 256),
        ({"TERM": "xterm-kitty"}, 256),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, 16_777_216),
        ({"TERM": "xterm-direct"}, 16_777_216),
    ],
)
def test_the_number_of_colours_is_known(variables, colours):
    assert around(**variables).colours == colours
