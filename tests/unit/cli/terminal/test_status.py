"""The status line: what is done now first, and less of the rest where there is less room."""

import pytest

from alipes.cli.terminal.screen_diff import span
from alipes.cli.terminal.status import Status
from alipes.cli.terminal.styles import make_look
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import (
    ApprovalAnswered,
    ApprovalAsked,
    Noted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)

LOOK = make_look("none")
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
    status = Status(clock)
    status.doing = ""
    return status


def said(status: Status, *events, columns: int = 80) -> str:
    for event in events:
        status.tell(event)
    return status.row(columns, LOOK).strip()


def test_it_tells_what_is_being_done(status, clock):
    assert said(status) == ""
    assert said(status, TurnStarted("t", "s")) == "thinking · 0 s"
    clock.now += 65
    assert said(status, ThinkingDelta("hm")) == "thinking · 1 min 05 s"
    assert said(status, TextDelta("so")) == "answering · 1 min 05 s"
    assert said(status, ToolStarted(CALL)) == "running terminal · 1 min 05 s"
    assert said(status, ToolStarted(OTHER)) == "running 2 tools · 1 min 05 s"
    assert said(status, ToolFinished(CALL, ToolResult("1", ""))) == "running read_file · 1 min 05 s"
    assert said(status, ToolFinished(OTHER, ToolResult("2", ""))) == "thinking · 1 min 05 s"
    assert said(status, TurnEnded("t", "answered")) == ""
    assert not status.busy


def test_it_tells_who_is_waited_for(status, clock):
    said(status, TurnStarted("t", "s"))
    assert said(status, ApprovalAsked("a", CALL, "why", "ls")) == "waiting for your word · 0 s"
    assert said(status, ApprovalAnswered("a", "once")) == "thinking · 0 s"
    noted = Noted("m: too many requests; asking again in 3.0 s (attempt 2 of 4)")
    assert said(status, noted) == "retrying in 3 s · 0 s"
    clock.now += 2
    assert said(status) == "retrying in 1 s · 2 s"
    clock.now += 2
    assert said(status) == "asking again · 4 s"
    status.waiting = 2
    assert said(status, TextDelta("x")) == "answering · 4 s · 2 waiting"
    assert said(status, TurnEnded("other", "steered")) == "answering · 4 s · 2 waiting"


def test_it_tells_model_context_and_cost(status):
    said(status, TurnStarted("t", "s"), Said(ANSWER, "test/scripted", Usage(900, 100, cost=0.25)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "test/scripted · 1.0k tokens · $0.2500"
    status.window = 128_000
    said(status, Said(ANSWER, "test/scripted", Usage(60_000, 4_000, cost=0.75)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "test/scripted · 50 % of 128k · $1.00"


def test_an_unknown_price_is_not_told_as_nothing(status):
    said(status, Said(ANSWER, "m", Usage(10, 10, cost=0.5)), Said(ANSWER, "m", Usage(10, 10)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "m · 20 tokens · price unknown"


def test_what_costs_nothing_is_not_talked_about(status):
    said(status, Said(ANSWER, "m", Usage(10, 10, cost=0.0)), TurnEnded("t", "answered"))
    assert said(status) == "m · 20 tokens"


def test_a_narrow_screen_shows_what_matters_most(status):
    said(status, TurnStarted("t", "s"), Said(ANSWER, "test/scripted", Usage(900, 100, cost=0.25)))
    said(status, ToolStarted(CALL))
    assert said(status, columns=40) == "running terminal · 0 s · test/scripted"
    assert said(status, columns=30) == "running terminal · 0 s"
    assert said(status, columns=12) == "running t…"
    for columns in range(3, 90):
        assert span(status.row(columns, LOOK)) <= columns


def test_a_hint_stands_over_everything(status):
    said(status, TurnStarted("t", "s"))
    status.hint = "again to leave"
    assert said(status) == "again to leave"
