"""The rows below the scrollback: whatever is in them, they fit, and the cursor is where one types."""

from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import Completion
from prompt_toolkit.document import Document

from alipes.cli.terminal.layout import Bottom, Pastes
from alipes.cli.terminal.screen_diff import plain, span
from alipes.cli.terminal.styles import make_look
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import ApprovalAsked, TextDelta, TurnStarted

LOOK = make_look("none")
ASKED = ApprovalAsked(
    "1", ToolCall("c", "terminal", {"command": "sudo make"}), "runs as another user", "rule"
)


def bottom(text: str = "", **waiting: str) -> Bottom:
    made = Bottom(Buffer(document=Document(text)), Pastes(), LOOK)
    made.status.doing = ""
    made.status.model = "a/model"
    made.waiting.update(waiting)
    return made


def test_at_rest_there_are_a_prompt_and_a_status():
    assert bottom("hi").view(80, 24) == ([], ["› hi", "  a/model"], (0, 4))


def test_final_rows_are_given_once_and_a_blank_row_follows_them():
    one = bottom()
    one.append(["said"])
    assert one.view(80, 24) == (["said"], ["", "› ", "  a/model"], (1, 2))
    assert one.view(80, 24) == ([], ["", "› ", "  a/model"], (1, 2))
    one.append(["more", ""])
    assert one.view(80, 24).live == ["› ", "  a/model"]


def test_what_is_being_said_stands_above_and_is_cut_from_the_top():
    one = bottom()
    one.tail = lambda: [f"row {number}" for number in range(30)]
    assert one.view(80, 24).live[:2] == ["row 10", "row 11"]
    assert one.view(80, 24).live[-4:] == ["row 29", "", "› ", "  a/model"]
    assert len(one.view(80, 24).live) == 23


def test_messages_wait_in_sight_while_something_goes_on():
    one = bottom(a="first", b="second\nline", c="third", d="fourth")
    assert one.view(80, 24).live == ["› ", "  a/model"]  # they begin at once
    one.status.tell(TurnStarted("t", "s"))
    one.status.tell(TextDelta("x"))
    assert one.view(80, 24).live[:5] == [
        *("· waits: first", "· waits: second line", "· waits: third", "· and 1 more", "› "),
    ]


def test_a_question_stands_right_above_the_input():
    one = bottom()
    one.dialogue.ask(ASKED)
    assert one.view(80, 24).live[-4:] == [
        "  o once  s in this conversation  a always exactly this  n no",
        *("", "› ", "  a/model"),
    ]


def test_a_search_shows_what_was_found_and_what_for():
    one = bottom("draft")
    one.search = lambda: ("fir", Document("first", 2))
    view = one.view(80, 24)
    assert view.live[:2] == ["? first", "  earlier input with: fir"] and view.cursor == (1, 25)


@given(
    st.text("ab \n日\U000f0000\x07", max_size=60),
    st.integers(1, 120),
    st.integers(1, 40),
    st.lists(st.sampled_from(["", "short", "日本語" * 20, "\x1b[1mbold\x1b[0m" * 9]), max_size=30),
    st.integers(0, 3),
)
@settings(max_examples=300, deadline=None)
def test_whatever_there_is_to_show_fits_on_any_screen(text, columns, lines, tail, extras):
    one = bottom(text, a="x" * 200, b="y")
    one.status.tell(TurnStarted("t", "s"))
    one.tail = lambda: list(tail)
    if extras & 1:
        one.dialogue.ask(ASKED)
    if extras & 2:
        completions = [Completion("/name", display_meta="what it does " * 9)] * 9
        one._buffer.complete_state = CompletionState(Document("/"), completions)
    view = one.view(columns, lines)
    assert 1 <= len(view.live) <= lines
    assert all(span(row) <= columns for row in view.live)
    y, x = view.cursor
    assert 0 <= y < len(view.live) and 0 <= x < columns
    assert any(plain(row)[:1] in ("›", " ") for row in view.live)
