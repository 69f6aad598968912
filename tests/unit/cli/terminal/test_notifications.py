"""The window title and notifications about turns."""

from pathlib import Path

import pytest
from msgspec import structs

from alipes.cli.terminal.screen.notifications import TerminalNotifier
from alipes.config.settings import TerminalConfig
from alipes.console.styles import TerminalFeatures
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import ApprovalAnswered, ApprovalAsked, TurnEnded, TurnStarted

ASKED = ApprovalAsked("a", ToolCall("1", "terminal", {"command": "sudo ls"}), "why", "sudo")
BELL, OSC9, OSC777 = "\x07", "\x1b]9;alipes in code finished\x1b\\", "\x1b]777;notify;alipes;code: finished\x1b\\"


class Window:
    """The sequences written to a terminal, and a clock."""

    def __init__(self, config: TerminalConfig, features: TerminalFeatures | None = None) -> None:
        self.written: list[str] = []
        self.now = 100.0
        self.notifier = TerminalNotifier(
            self.written.append,
            config,
            features or TerminalFeatures("dark"),
            Path("/home/me/code"),
            clock=lambda: self.now,
        )

    def happens(self, event, seconds: float = 0.0) -> str:
        self.now += seconds
        self.written.clear()
        self.notifier.handle_event(event)
        return "".join(self.written)


def test_the_title_shows_whether_a_turn_is_running_or_asks():
    window = Window(TerminalConfig())
    assert window.happens(TurnStarted("t", "s")) == "\x1b]2;● alipes · code\x1b\\"
    assert window.happens(ASKED) == "\x1b]2;? alipes · code\x1b\\"
    assert window.happens(ApprovalAnswered("a", "once")) == "\x1b]2;● alipes · code\x1b\\"
    assert window.happens(TurnEnded("t", "answered")) == "\x1b]2;alipes · code\x1b\\"


@pytest.mark.parametrize("features", [TerminalFeatures("dark"), TerminalFeatures("dark", titles=False)])
def test_nothing_is_written_if_titles_and_notifications_are_off(features):
    window = Window(TerminalConfig(title=False, notify="off"), features)
    assert window.happens(TurnStarted("t", "s")) == ""
    assert window.happens(ASKED, 900) == ""
    assert window.happens(TurnEnded("t", "answered")) == ""


@pytest.mark.parametrize(("kind", "sequence"), [("bell", BELL), ("osc9", OSC9), ("osc777", OSC777)])
def test_a_long_turn_is_notified_when_it_is_finished(kind, sequence):
    window = Window(TerminalConfig(title=False, notify=kind))
    window.happens(TurnStarted("t", "s"))
    assert window.happens(TurnEnded("t", "answered"), 21) == sequence
    auto = structs.replace(TerminalFeatures("dark"), notifications=kind)
    window = Window(TerminalConfig(title=False), auto)
    window.happens(TurnStarted("t", "s"))
    assert window.happens(TurnEnded("t", "answered"), 21) == sequence


def test_a_short_turn_and_a_stopped_one_are_not_notified():
    window = Window(TerminalConfig(title=False, notify="bell"))
    window.happens(TurnStarted("t", "s"))
    assert window.happens(TurnEnded("t", "answered"), 19) == ""
    window.happens(TurnStarted("t", "s"))
    assert window.happens(TurnEnded("t", "stopped"), 100) == ""
    window.happens(TurnStarted("t", "s"))
    assert window.happens(TurnEnded("t", "steered"), 100) == ""
    assert window.happens(ASKED) == BELL
    assert window.happens(TurnEnded("t", "failed")) == BELL
