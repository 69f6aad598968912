"""The status line."""

import pytest

from alipes.cli.terminal.screen_diff import visible_width
from alipes.cli.terminal.status import StatusLine
from alipes.cli.terminal.styles import make_style
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import (
    ApprovalAnswered,
    ApprovalAsked,
    Notice,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)

LOOK = make_style("none")
CALL = ToolCall("1", "terminal", {"command": "ls"})
OTHER = ToolCall("2", "read_file", {"path": "x"})
ANSWER = Message("assistant", (Text("yes"),))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def status(clock):
    status = StatusLine(clock)
    status.activity = ""
    return status


def said(status: StatusLine, *events, columns: int = 80) -> str:
    for event in events:
        status.handle_event(event)
    return status.render(columns, LOOK).strip()


def test_it_shows_the_activity(status, clock):
    assert said(status) == ""
    assert said(status, TurnStarted("t", "s")) == "thinking · 0 s"
    clock.now += 65
    assert said(status, ThinkingDelta("hm")) == "thinking · 1 min 05 s"
    assert said(status, TextDelta("so")) == "writing · 1 min 05 s"
    assert said(status, ToolStarted(CALL)) == "running a command · 1 min 05 s"
    assert said(status, ToolStarted(OTHER)) == "running 2 tools · 1 min 05 s"
    assert said(status, ToolFinished(CALL, ToolResult("1", ""))) == "reading · 1 min 05 s"
    assert said(status, ToolFinished(OTHER, ToolResult("2", ""))) == "thinking · 1 min 05 s"
    assert said(status, TurnEnded("t", "answered")) == ""
    assert not status.is_running


def test_it_shows_what_it_is_waiting_for(status, clock):
    said(status, TurnStarted("t", "s"))
    assert said(status, ApprovalAsked("a", CALL, "why", "ls")) == "waiting for approval · 0 s"
    assert said(status, ApprovalAnswered("a", "once")) == "thinking · 0 s"
    noted = Notice("m: too many requests. Retrying in 3.0 s (2/4)")
    assert said(status, noted) == "retrying in 3 s · 0 s"
    clock.now += 2
    assert said(status) == "retrying in 1 s · 2 s"
    clock.now += 2
    assert said(status) == "retrying · 4 s"
    status.queued = 2
    assert said(status, TextDelta("x")) == "writing · 4 s · 2 queued"
    assert said(status, TurnEnded("other", "steered")) == "writing · 4 s · 2 queued"


def test_it_shows_model_context_and_cost(status):
    said(status, TurnStarted("t", "s"), Said(ANSWER, "test/scripted", Usage(900, 100, cost=0.25)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "test/scripted · 1.0k tokens · $0.2500"
    status.window = 128_000
    said(status, Said(ANSWER, "test/scripted", Usage(60_000, 4_000, cost=0.75)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "test/scripted · 50 % of 128k · $1.00"


def test_an_unknown_price_is_not_shown_as_zero(status):
    said(status, Said(ANSWER, "m", Usage(10, 10, cost=0.5)), Said(ANSWER, "m", Usage(10, 10)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "m · 20 tokens · price unknown"


def test_a_cost_of_zero_is_not_shown(status):
    said(status, Said(ANSWER, "m", Usage(10, 10, cost=0.0)), TurnEnded("t", "answered"))
    assert said(status) == "m · 20 tokens"


def test_a_narrow_screen_shows_what_matters_most(status):
    said(status, TurnStarted("t", "s"), Said(ANSWER, "test/scripted", Usage(900, 100, cost=0.25)))
    said(status, ToolStarted(CALL))
    assert said(status, columns=42) == "running a command · 0 s · test/scripted"
    assert said(status, columns=30) == "running a command · 0 s"
    assert said(status, columns=12) == "running a…"
    for columns in range(3, 90):
        assert visible_width(status.render(columns, LOOK)) <= columns


def test_a_hint_replaces_everything(status):
    said(status, TurnStarted("t", "s"))
    status.hint = "again to leave"
    assert said(status) == "again to leave"
