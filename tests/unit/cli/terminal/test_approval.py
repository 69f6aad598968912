"""The approval prompt shows everything, and stray keys do not answer it."""

import pytest
from msgspec import structs

from alipes.cli.terminal.approval import KEY_PAUSE_S, MAX_COMMAND_ROWS, ApprovalPrompt
from alipes.cli.terminal.screen_diff import strip_escapes
from alipes.cli.terminal.styles import make_style
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import ApprovalAsked

LOOK = make_style("none")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def dialogue(clock):
    return ApprovalPrompt(clock)


def asked(ask: str = "1", command: str = "sudo make install", name: str = "terminal") -> ApprovalAsked:
    return ApprovalAsked(ask, ToolCall("c", name, {"command": command}), "runs as another user", "rule")


def rows(dialogue: ApprovalPrompt, columns: int = 80, *, typing: bool = False) -> list[str]:
    return [strip_escapes(row) for row in dialogue.rows(columns, LOOK, typing=typing)]


def test_it_shows_the_command_the_reason_and_the_keys(dialogue):
    assert rows(dialogue) == []
    dialogue.ask(asked())
    assert rows(dialogue) == [
        "? Run this command?",
        "    sudo make install",
        "  Why: runs as another user",
        "  y yes, once  s this session  a always  n no",
    ]
    assert rows(dialogue, typing=True)[-1].startswith("  Press Esc to clear your text first, then  y yes, once")


def test_a_key_answers_only_after_a_pause(dialogue, clock):
    assert not dialogue.accepts_keys
    dialogue.ask(asked())
    assert not dialogue.accepts_keys
    clock.now += KEY_PAUSE_S
    assert dialogue.accepts_keys
    dialogue.key_pressed()
    clock.now += KEY_PAUSE_S / 2
    assert not dialogue.accepts_keys


def test_an_answer_to_one_question_does_not_answer_the_next(dialogue, clock):
    dialogue.ask(asked("1"))
    dialogue.ask(asked("2", "sudo reboot"))
    dialogue.ask(asked("1"))
    assert "(1 more)" in rows(dialogue)[-1]
    clock.now += 10
    dialogue.close("1")
    assert dialogue.current is not None and dialogue.current.ask == "2" and not dialogue.accepts_keys
    clock.now += KEY_PAUSE_S
    assert dialogue.accepts_keys
    dialogue.close("unknown")
    dialogue.clear()
    assert dialogue.current is None and rows(dialogue) == []


def test_a_long_command_is_shown_whole_without_control_characters(dialogue):
    command = "\n".join(f"echo {number}" for number in range(100)) + "\n\x1b[2Jsudo rm"
    dialogue.ask(asked(command=command))
    shown = rows(dialogue)
    assert shown[1:3] == ["    echo 0", "    echo 1"] and shown[-3] == "    [2Jsudo rm"
    assert len(shown) == MAX_COMMAND_ROWS + 3 and any("more lines" in row for row in shown)
    dialogue.clear()
    dialogue.ask(asked(command="x" * 100))
    assert rows(dialogue, 40)[1:5] == [
        "    " + "x" * 36,
        "    " + "x" * 36,
        "    " + "x" * 28,
        "  Why: runs as another user",
    ]


def test_other_tools_show_their_main_argument(dialogue):
    call = ToolCall("c", "write_file", {"path": "/etc/passwd", "content": "x"})
    dialogue.ask(ApprovalAsked("1", call, "changes the system", "rule"))
    assert rows(dialogue)[:2] == ["? Allow write_file?", "    /etc/passwd"]


def test_the_end_of_a_turn_removes_only_its_own_questions(dialogue):
    first, second = asked(), structs.replace(asked(), ask="another")
    dialogue.ask(first, "turn")
    dialogue.ask(second, "subagent in the background")
    dialogue.clear("turn")
    assert dialogue.current is second
    dialogue.close("another")
    assert dialogue.current is None
