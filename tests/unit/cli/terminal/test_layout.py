"""The live area always fits, and the cursor is in the input."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import Completion
from prompt_toolkit.document import Document

from alipes.cli.terminal.screen.layout import BottomArea, PasteStore
from alipes.console.screen_diff import strip_escapes, visible_width
from alipes.console.styles import make_style
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import ApprovalAsked, TextDelta, TurnStarted

LOOK = structs.replace(make_style("none"), rule="")
ASKED = ApprovalAsked("1", ToolCall("c", "terminal", {"command": "sudo make"}), "runs as another user", "rule")


def bottom(text: str = "", **waiting: str) -> BottomArea:
    made = BottomArea(Buffer(document=Document(text)), PasteStore(), LOOK)
    made.status.activity = ""
    made.status.model = "a/model"
    made.queued.update(waiting)
    return made


def test_while_idle_there_are_a_prompt_and_a_status():
    assert bottom("hi").frame(80, 24) == ([], ["› hi", "  a/model"], (0, 4))


def test_final_rows_are_returned_once_and_followed_by_a_blank_row():
    one = bottom()
    one.append(["said"])
    assert one.frame(80, 24) == (["said"], ["", "› ", "  a/model"], (1, 2))
    assert one.frame(80, 24) == ([], ["", "› ", "  a/model"], (1, 2))
    one.append(["more", ""])
    assert one.frame(80, 24).live == ["› ", "  a/model"]


def test_the_tail_is_above_the_input_and_cut_at_its_top():
    one = bottom()
    one.tail = lambda: [f"row {number}" for number in range(30)]
    assert one.frame(80, 24).live[:2] == ["row 10", "row 11"]
    assert one.frame(80, 24).live[-4:] == ["row 29", "", "› ", "  a/model"]
    assert len(one.frame(80, 24).live) == 23


def test_queued_messages_are_shown_during_a_turn():
    one = bottom(a="first", b="second\nline", c="third", d="fourth")
    assert one.frame(80, 24).live == ["› ", "  a/model"]  # they begin at once
    one.status.handle_event(TurnStarted("t", "s"))
    one.status.handle_event(TextDelta("x"))
    assert one.frame(80, 24).live[:5] == [
        *("· next step: first", "· next step: second line", "· next step: third", "· and 1 more", "› ")
    ]


def test_a_question_is_directly_above_the_input():
    one = bottom()
    one.approvals.ask(ASKED)
    assert one.frame(80, 24).live[-4:] == [
        " ▸1 [y] once  2 [s] session  3 [a] always  4 [n] no  5 [e] no, because ...",
        *("", "› ", "  a/model"),
    ]


def test_a_search_shows_the_match_and_the_search_text():
    one = bottom("draft")
    one.search = lambda: ("fir", Document("first", 2))
    view = one.frame(80, 24)
    assert view.live[:2] == ["? first", "  history search: fir"] and view.cursor == (1, 21)


@given(
    st.text("ab \n日\U000f0000\x07", max_size=60),
    st.integers(1, 120),
    st.integers(1, 40),
    st.lists(st.sampled_from(["", "short", "日本語" * 20, "\x1b[1mbold\x1b[0m" * 9]), max_size=30),
    st.integers(0, 3),
)
@settings(max_examples=300, deadline=None)
def test_everything_fits_on_any_screen(text, columns, lines, tail, extras):
    one = bottom(text, a="x" * 200, b="y")
    one.status.handle_event(TurnStarted("t", "s"))
    one.tail = lambda: list(tail)
    if extras & 1:
        one.approvals.ask(ASKED)
    if extras & 2:
        completions = [Completion("/name", display_meta="what it does " * 9)] * 9
        one._buffer.complete_state = CompletionState(Document("/"), completions)
    view = one.frame(columns, lines)
    assert 1 <= len(view.live) <= lines
    assert all(visible_width(row) <= columns for row in view.live)
    y, x = view.cursor
    assert 0 <= y < len(view.live) and 0 <= x < columns
    assert any(strip_escapes(row)[:1] in ("›", " ") for row in view.live)


def test_a_rule_separates_the_input_from_the_rows_above():
    one = bottom("hi")
    one.style = make_style("none")
    one.tail = lambda: ["said"]
    assert one.frame(10, 24) == ([], ["said", "", "─" * 10, "› hi", "  a/model"], (3, 4))
    assert one.frame(10, 6).live == ["said", "", "› hi", "  a/model"]
