"""The question: nothing hidden in it, and no key that was meant for something else answers it."""

import pytest
from msgspec import structs

from alipes.cli.terminal.approval import LONGEST, PAUSE, Dialogue
from alipes.cli.terminal.screen_diff import plain
from alipes.cli.terminal.styles import make_look
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import ApprovalAsked

LOOK = make_look("none")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def dialogue(clock):
    return Dialogue(clock)


def asked(ask: str = "1", command: str = "sudo make install", name: str = "terminal") -> ApprovalAsked:
    return ApprovalAsked(ask, ToolCall("c", name, {"command": command}), "runs as another user", "rule")


def rows(dialogue: Dialogue, columns: int = 80, *, typing: bool = False) -> list[str]:
    return [plain(row) for row in dialogue.rows(columns, LOOK, typing=typing)]


def test_it_shows_the_command_the_reason_and_the_keys(dialogue):
    assert rows(dialogue) == []
    dialogue.ask(asked())
    assert rows(dialogue) == [
        "? terminal wants to do this:",
        "    sudo make install",
        "  It runs as another user.",
        "  o once  s in this conversation  a always exactly this  n no",
    ]
    assert rows(dialogue, typing=True)[-1].startswith("  Esc puts away what you are typing; then  o once")


def test_a_key_answers_only_after_a_pause(dialogue, clock):
    assert not dialogue.answerable
    dialogue.ask(asked())
    assert not dialogue.answerable
    clock.now += PAUSE
    assert dialogue.answerable
    dialogue.press()
    clock.now += PAUSE / 2
    assert not dialogue.answerable


def test_an_answer_to_one_question_is_none_to_the_next(dialogue, clock):
    dialogue.ask(asked("1"))
    dialogue.ask(asked("2", "sudo reboot"))
    dialogue.ask(asked("1"))
    assert "(1 more to answer)" in rows(dialogue)[-1]
    clock.now += 10
    dialogue.close("1")
    assert dialogue.open is not None and dialogue.open.ask == "2" and not dialogue.answerable
    clock.now += PAUSE
    assert dialogue.answerable
    dialogue.close("unknown")
    dialogue.clear()
    assert dialogue.open is None and rows(dialogue) == []


def test_nothing_hides_at_the_end_of_a_long_command_and_nothing_steers_the_screen(dialogue):
    command = "\n".join(f"echo {number}" for number in range(100)) + "\n\x1b[2Jsudo rm"
    dialogue.ask(asked(command=command))
    shown = rows(dialogue)
    assert shown[1:3] == ["    echo 0", "    echo 1"] and shown[-3] == "    [2Jsudo rm"
    assert len(shown) == LONGEST + 3 and any("more lines" in row for row in shown)
    dialogue.clear()
    dialogue.ask(asked(command="x" * 100))
    assert rows(dialogue, 40)[1:5] == [
        "    " + "x" * 36,
        "    " + "x" * 36,
        "    " + "x" * 28,
        "  It runs as another user.",
    ]


def test_other_tools_show_what_tells_most(dialogue):
    call = ToolCall("c", "write_file", {"path": "/etc/passwd", "content": "x"})
    dialogue.ask(ApprovalAsked("1", call, "changes the system", "rule"))
    assert rows(dialogue)[:2] == ["? write_file wants to do this:", "    /etc/passwd"]


def test_the_end_of_a_turn_takes_its_own_questions_away_and_nobody_elses(dialogue):
    first, second = asked(), structs.replace(asked(), ask="another")
    dialogue.ask(first, "turn")
    dialogue.ask(second, "subagent in the background")
    dialogue.clear("turn")
    assert dialogue.open is second
    dialogue.close("another")
    assert dialogue.open is None
