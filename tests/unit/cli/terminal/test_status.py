"""The status line."""

from pathlib import Path

import pytest

from alipes.cli.terminal.screen.status import StatusLine, read_branch
from alipes.console.screen_diff import visible_width
from alipes.console.styles import make_style
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


def test_it_shows_the_activity_and_the_key_that_stops_it(status, clock):
    assert said(status) == ""
    assert said(status, TurnStarted("t", "s")) == "thinking · 0 s · esc to stop"
    clock.now += 65
    assert said(status, ThinkingDelta("hm")) == "thinking · 1 min 05 s · esc to stop"
    assert said(status, TextDelta("so")) == "writing · 1 min 05 s · esc to stop"
    assert said(status, ToolStarted(CALL)) == "running a command · 1 min 05 s · esc to stop"
    assert said(status, ToolStarted(OTHER)) == "running 2 tools · 1 min 05 s · esc to stop"
    assert said(status, ToolFinished(CALL, ToolResult("1", ""))) == "reading · 1 min 05 s · esc to stop"
    assert said(status, ToolFinished(OTHER, ToolResult("2", ""))) == "thinking · 1 min 05 s · esc to stop"
    assert said(status, TurnEnded("t", "answered")) == ""
    assert not status.is_running


def test_it_shows_what_it_is_waiting_for(status, clock):
    said(status, TurnStarted("t", "s"))
    assert said(status, ApprovalAsked("a", CALL, "why", "ls")) == "waiting for approval · 0 s"
    assert said(status, ApprovalAnswered("a", "once")) == "thinking · 0 s · esc to stop"
    noted = Notice("m: too many requests. Retrying in 3 s (2/5)")
    assert said(status, noted) == "retrying in 3 s · 0 s · esc to stop"
    clock.now += 2
    assert said(status) == "retrying in 1 s · 2 s · esc to stop"
    clock.now += 2
    assert said(status) == "retrying · 4 s · esc to stop"
    said(status, TextDelta("x"))
    assert said(status, Notice("m is busy. Retrying (3/5)")) == "retrying · 4 s · esc to stop"
    status.queued = 2
    assert said(status, TextDelta("x")) == "writing · 4 s · 2 queued · esc to stop"
    assert said(status, TurnEnded("other", "steered")) == "writing · 4 s · 2 queued · esc to stop"


def test_held_messages_are_shown_with_the_keys_that_send_and_drop_them(status):
    status.held = 2
    assert said(status) == "2 kept: enter to send, esc to discard"


def test_it_shows_model_context_gauge_and_cost(status):
    said(status, TurnStarted("t", "s"), Said(ANSWER, "test/scripted", Usage(900, 100, cost=0.25)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "test/scripted · 1.0k tokens in context · $0.2500"
    status.window = 128_000
    said(status, Said(ANSWER, "test/scripted", Usage(60_000, 4_000, cost=0.75)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "test/scripted · ▰▰▰▱▱▱ 50 % of 128k · $1.00"


@pytest.mark.parametrize(("tokens", "style"), [(50_000, "2"), (100_000, "93"), (125_000, "91")])
def test_the_gauge_changes_its_colour_when_the_window_fills(status, tokens, style):
    status.window, status.context_tokens = 128_000, tokens
    assert f"\x1b[{style}m▰" in status.render(80, make_style("dark"))


def test_cost_is_shown_only_if_it_is_known_and_not_zero(status):
    said(status, Said(ANSWER, "m", Usage(10, 10, cost=0.0)), TurnEnded("t", "answered"))
    assert said(status) == "m · 20 tokens in context"
    said(status, Said(ANSWER, "m", Usage(10, 10, cost=0.5)), Said(ANSWER, "m", Usage(10, 10)))
    said(status, TurnEnded("t", "answered"))
    assert said(status) == "m · 20 tokens in context"


def test_it_shows_mode_background_processes_folder_and_branch(status):
    status.model, status.mode, status.jobs, status.folder, status.branch = "a/model", "plan", 2, "~/code", "main"
    status.extra = "battery 80 %"
    assert said(status) == "a/model · plan mode · 2 jobs · ~/code (main) · battery 80 %"
    status.mode = "ask"
    assert said(status, columns=46) == "a/model · 2 jobs · ~/code (main)"
    assert said(status, columns=30) == "a/model · 2 jobs"


def test_a_narrow_screen_shows_what_matters_most(status):
    said(status, TurnStarted("t", "s"), Said(ANSWER, "test/scripted", Usage(900, 100, cost=0.25)))
    status.folder = "~/code"
    said(status, TextDelta("x"))
    assert said(status, columns=46) == "writing · 0 s · esc to stop · test/scripted"
    assert said(status, columns=30) == "writing · 0 s · esc to stop"
    assert said(status, columns=20) == "writing · 0 s"
    assert said(status, columns=8) == "writi…"
    for columns in range(3, 90):
        assert visible_width(status.render(columns, LOOK)) <= columns


def git_folder(folder: Path, head: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(head)
    return folder


def test_the_branch_is_read_without_git(tmp_path):
    assert read_branch(tmp_path) == ""
    project = git_folder(tmp_path / "project", "ref: refs/heads/feature/x\n")
    (project / "deep" / "er").mkdir(parents=True)
    assert read_branch(project / "deep" / "er") == "feature/x"
    detached = git_folder(tmp_path / "detached", "0123456789abcdef\n")
    assert read_branch(detached) == "0123456"
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {git_folder(tmp_path / 'main', 'ref: refs/heads/side')}/.git\n")
    assert read_branch(worktree) == "side"


def test_a_branch_changed_during_a_turn_is_shown_after_it(status, tmp_path):
    project = git_folder(tmp_path / "project", "ref: refs/heads/main\n")
    status.set_folder(project)
    status.folder = f"/{'x' * 40}/project"
    assert status.branch == "main"
    said(status, TurnStarted("t", "s"))
    (project / ".git" / "HEAD").write_text("ref: refs/heads/\x1b[31mother\n")
    assert said(status, TurnEnded("t", "answered")).endswith("…/project ([31mother)")


def test_a_hint_replaces_everything(status):
    said(status, TurnStarted("t", "s"))
    status.hint = "again to leave"
    assert said(status) == "again to leave"


def test_the_branch_follows_the_checkout_of_a_command(status, tmp_path):
    project = git_folder(tmp_path / "project", "ref: refs/heads/main\n")
    status.set_folder(project)
    said(status, TurnStarted("t", "s"))
    (project / ".git" / "HEAD").write_text("ref: refs/heads/brackets\n")
    said(status, ToolFinished(ToolCall("c", "terminal", {}), ToolResult("c", ""), 0.1))
    assert status.branch == "brackets"
