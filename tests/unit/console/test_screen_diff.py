"""Screen updates checked with a terminal emulator (pyte)."""

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.console.screen_diff import LiveScreen, row_height, strip_escapes, visible_width

COLUMNS, LINES = 20, 8


class TmuxScreen(pyte.HistoryScreen):
    """Like tmux: erasing all from the top left corner moves what is on the screen into the scrollback."""

    def erase_in_display(self, how: int = 0, *args: object, **more: object) -> None:
        if how == 0 and (self.cursor.x, self.cursor.y) == (0, 0):
            used = [y for y, row in enumerate(self.display) if row.strip()]
            self.history.top.extend(self.buffer.pop(y) for y in range(max(used, default=-1) + 1))
        super().erase_in_display(how, *args, **more)


class Screen:
    """A terminal with a scrollback, and a canvas that paints on it."""

    def __init__(self, columns: int = COLUMNS, lines: int = LINES) -> None:
        self.screen = TmuxScreen(columns, lines, history=100_000, ratio=0.01)
        self.screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self.screen)
        self.canvas = LiveScreen(columns, lines)
        self.written = 0

    def write(self, text: str) -> None:
        self.written += len(text.encode())
        self._stream.feed(text)

    def paint(self, final: list[str], live: list[str], cursor: tuple[int, int] = (0, 0)) -> None:
        self.write(self.canvas.paint(final, live, cursor))

    @property
    def shown(self) -> list[str]:
        """Everything from the first line of the scrollback to the last that has something."""
        above = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        rows = [row.rstrip() for row in (*above, *self.screen.display)]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def cursor(self) -> tuple[int, int]:
        """The line of `shown`, and the column."""
        return len(self.screen.history.top) + self.screen.cursor.y, self.screen.cursor.x


def lines(rows: list[str], columns: int = COLUMNS) -> list[str]:
    """What rows fill, line by line, without blanks at the ends."""
    seen = []
    for row in rows:
        text = strip_escapes(row)
        seen += [text[at : at + columns].rstrip() for at in range(0, len(text), columns)] or [""]
    while seen and not seen[-1]:
        seen.pop()
    return seen


words = st.text(alphabet="abcdefg ", max_size=COLUMNS)
styled = st.builds(
    lambda before, style, text: f"{before}\x1b[{style}m{text}\x1b[0m",
    *(st.text("xyz ", max_size=6), st.sampled_from(["1", "2;3", "31"]), st.text("opq", max_size=8)),
)
row = st.one_of(words, styled, st.sampled_from(["", "> ", "status", "a" * COLUMNS]))
scenes = st.lists(
    st.tuples(
        st.lists(st.one_of(row, st.text("u", min_size=COLUMNS + 1, max_size=3 * COLUMNS)), max_size=4),
        st.lists(row, min_size=1, max_size=LINES),
    ),
    min_size=1,
    max_size=8,
)


@given(scenes)
@settings(max_examples=400, deadline=None)
def test_live_rows_are_on_the_screen_and_the_rest_in_the_scrollback(painted):
    screen, final = Screen(), []
    for ended, live in painted:
        at = (len(live) - 1, min(visible_width(live[-1]), COLUMNS - 1))
        screen.paint(ended, live, at)
        final += ended
        assert screen.shown == lines([*final, *live])
        above = sum(row_height(one, COLUMNS) for one in final)
        assert screen.cursor == (above + at[0], at[1])


@given(scenes)
@settings(max_examples=100, deadline=None)
def test_an_unchanged_frame_writes_nothing(painted):
    screen = Screen()
    for ended, live in painted:
        screen.paint(ended, live)
        before = screen.written
        screen.paint([], live)
        assert screen.written == before


@given(st.lists(st.text("ab 日本語ｆé", max_size=9), min_size=2, max_size=10))
@settings(max_examples=200, deadline=None)
def test_wide_characters_stay_in_their_columns(texts):
    screen = Screen()
    for text in texts:
        screen.paint([], [text, "> "], (1, 2))
        assert screen.screen.display[0].rstrip() == text.rstrip()


def test_a_family_of_emoji_is_written_whole_when_it_grows():
    screen = Screen()
    screen.paint([], ["a 👩"])
    assert screen.canvas.paint([], ["a 👩\u200d👧 b"], (0, 0)) == "\x1b[K\x1b[?7la 👩\u200d👧 b\x1b[?7h\r"


def test_a_growing_row_writes_only_what_was_added():
    screen = Screen(80, 24)
    screen.paint([], ["hello", "", "> draft", "status"], (2, 7))
    before = screen.written
    screen.paint([], ["hello world", "", "> draft", "status"], (2, 7))
    assert screen.written - before <= len(" world") + 18
    screen.paint([], ["hello \x1b[1mworld\x1b[0m", "", "> draft", "status"], (2, 7))
    assert screen.shown[0] == "hello world" and screen.screen.buffer[0][6].bold


def test_an_appended_text_continues_the_style():
    screen = Screen(80, 24)
    screen.paint([], ["\x1b[1mbo\x1b[0m"])
    screen.paint([], ["\x1b[1mbold and more\x1b[0m plain"])
    assert screen.shown == ["bold and more plain"]
    assert screen.screen.buffer[0][12].bold and not screen.screen.buffer[0][14].bold


def test_a_hyperlink_is_always_rewritten_from_its_start():
    start, end = "\x1b]8;;https://a.example\x1b\\", "\x1b]8;;\x1b\\"
    canvas = LiveScreen(80, 24)
    canvas.paint([], [f"see {start}her{end}"], (0, 0))
    again = canvas.paint([], [f"see {start}here{end} and there"], (0, 0))
    assert again == f"\r\x1b[4C{start}here{end} and there\r"
    assert canvas.paint([], [f"see {start}here{end} and then"], (0, 0)) == "\r\x1b[16Cn\x1b[K\r"


def test_a_finished_row_that_is_visible_is_not_written_again():
    screen = Screen(80, 24)
    bottom = ["", "> what I am typing just now", "status " * 8]
    for number in range(60):  # far beyond the bottom of the screen
        tail = [f"the line with the number {number}"]
        screen.paint([], [*tail, *bottom], (2, 5))
        before = screen.written
        screen.paint(tail, ["next", *bottom], (2, 5))
        assert screen.written - before < 40
    assert screen.shown[:60] == [f"the line with the number {n}" for n in range(60)]
    assert screen.shown[60:] == ["next", "", "> what I am typing just now", ("status " * 8).rstrip()]


def test_ten_thousand_rows_at_once_all_reach_the_scrollback():
    screen = Screen()
    final = [f"row {number}" for number in range(10_000)]
    screen.paint([], ["tail", "> "], (1, 2))
    screen.paint(final, ["> "], (0, 2))
    assert screen.shown == [*final, ">"]


def test_more_live_rows_than_the_screen_has_are_cut_at_the_top():
    screen = Screen(20, 3)
    screen.paint([], ["one", "two", "three", "four", "> "], (4, 2))
    assert screen.shown == ["three", "four", ">"]
    screen.paint(["done"], ["> "], (0, 2))
    assert screen.shown == ["done", ">"]


def test_the_last_paint_leaves_the_cursor_on_a_new_line():
    screen = Screen()
    screen.paint(["hello"], ["> bye", "status"], (0, 5))
    screen.paint(["bye"], [])
    assert screen.shown == ["hello", "bye"] and screen.cursor == (2, 0)
    screen.paint([], [])
    assert screen.cursor == (2, 0)


def test_text_below_the_cursor_at_the_start_is_erased():
    screen = Screen()
    screen.write("one\ntwo\nthree\x1b[2A\r")
    screen.paint([], ["> "], (0, 2))
    assert screen.shown == [">"]


@pytest.mark.parametrize("reflows", [False, True])
def test_after_a_resize_the_live_rows_are_shown_once(reflows):
    screen = Screen(40, 10)
    screen.paint(["the end of it"], ["t" * 40, "tail", "> draft", "status"], (2, 7))
    if reflows:  # as most terminals do: what no longer fits is broken, the cursor stays with its text
        screen.write("\x1b[2A\r\x1b[J" + "t" * 30 + "\n" + "t" * 10 + "\ntail\n> draft\nstatus\x1b[A\r\x1b[7C")
        assert screen.shown == ["the end of it", "t" * 30, "t" * 10, "tail", "> draft", "status"]
    screen.screen.resize(10, 30)
    screen.write(screen.canvas.resize(30, 10, reflows=reflows))
    assert screen.shown == ["the end of it"]
    screen.paint([], ["t" * 30, "tail", "> draft", "status"], (2, 7))
    assert screen.shown == ["the end of it", "t" * 30, "tail", "> draft", "status"]


def test_erased_rows_make_space_for_the_next_rows():
    screen = Screen()
    screen.paint(["kept"], ["tail", "> ", "status"], (1, 2))
    screen.write(screen.canvas.erase())
    assert screen.shown == ["kept"]
    screen.write("someone else\n")
    screen.canvas.invalidate()
    screen.paint([], ["> "], (0, 2))
    assert screen.shown == ["kept", "someone else", ">"]


def test_heights_count_the_characters_that_do_not_fit_at_the_end():
    assert row_height("abc", 3) == 1
    assert row_height("abcd", 3) == 2
    assert row_height("日本語", 3) == 3  # one column is left over on each line
    assert row_height("\x1b[1mabc\x1b[0m", 3) == 1


def test_a_change_inside_a_row_does_not_repeat_its_unchanged_end():
    screen = LiveScreen(80, 24)
    faint = "\x1b[2m · test/model · ~/folder\x1b[0m"
    screen.paint([], [f"\x1b[96mwriting · 4 s\x1b[0m{faint}"], (0, 0))
    assert screen.paint([], [f"\x1b[96mwriting · 5 s\x1b[0m{faint}"], (0, 0)) == "\r\x1b[10C\x1b[96m5 s\x1b[0m\r"
    shifted = screen.paint([], [f"\x1b[96mwriting · 10 s\x1b[0m{faint}"], (0, 0))
    assert "~/folder" in shifted


@given(scenes)
@settings(max_examples=300, deadline=None)
def test_a_status_row_that_always_changes_does_not_disturb_the_rows_above_it(painted):
    screen, final = Screen(), []
    for number, (ended, rows) in enumerate(painted):
        live = [*rows[: LINES - 3], "-" * COLUMNS, "> ", f"\x1b[2mstatus {number}\x1b[0m"]
        at = (len(live) - 2, 2)
        screen.paint(ended, live, at)
        final += ended
        assert screen.shown == lines([*final, *live])
        above = sum(row_height(one, COLUMNS) for one in final)
        assert screen.cursor == (above + at[0], at[1])


def test_a_clock_that_changes_while_rows_are_added_does_not_repeat_the_rows_below_them():
    screen = Screen()
    rule = "-" * COLUMNS
    screen.paint([], ["said", rule, "> ", "4 s"], (2, 2))
    for second in range(5, 9):
        before = screen.written
        screen.paint([f"row {second}"], ["said", rule, "> ", f"{second} s"], (2, 2))
        assert screen.written - before < 60


THUMB = "\U0001f44d\U0001f3fd"
"""Two columns by the standard. The emulator counts four, as many terminals do."""
LISTED = [THUMB * 8, "from __future__ import annotations"[:COLUMNS], "The end."]


def test_emoji_that_the_terminal_counts_as_wider_destroy_no_other_row():
    screen = Screen()
    for count in range(1, len(LISTED) + 1):
        screen.paint([], [*LISTED[:count], "", "> ", "status"], (count + 1, 2))
        assert screen.shown[1 : count + 2] == [*LISTED[1:count], "", ">"]
        assert screen.cursor == (count + 1, 2)
    screen.paint(LISTED, ["", "> ", "4 s"], (1, 2))
    assert "".join(screen.shown[:2]) == LISTED[0] and screen.shown[2:] == [*LISTED[1:], "", ">", "4 s"]
    screen.paint(["after it"], ["", "> ", "5 s"], (1, 2))
    assert screen.shown[2:] == [*LISTED[1:], "after it", "", ">", "5 s"]


def test_a_long_row_with_emoji_reaches_the_scrollback_whole_and_rows_around_it_stay():
    screen = Screen()
    screen.paint([], ["above", "tail", "> "], (2, 2))
    screen.paint(["above", "x" * 15 + THUMB * 6 + "y" * 15], ["tail", "> "], (1, 2))
    assert screen.shown[0] == "above" and screen.shown[-2:] == ["tail", ">"]
    assert "".join(screen.shown[1:-2]).replace(" ", "") == "x" * 15 + THUMB * 6 + "y" * 15


def test_nothing_of_a_wider_emoji_row_stays_when_it_changes():
    screen = Screen()
    screen.paint([], [THUMB * 4 + "abc", "> "], (1, 2))
    screen.paint([], [THUMB + "abcdefgh", "> "], (1, 2))
    assert screen.shown == [THUMB + "abcdefgh", ">"]
