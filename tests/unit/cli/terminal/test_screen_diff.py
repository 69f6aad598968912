"""The canvas against a real terminal's behaviour (pyte): whatever is painted, the screen shows it, cheaply."""

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.cli.terminal.screen_diff import Canvas, height, plain, span

COLUMNS, LINES = 20, 8


class Glass:
    """A terminal with a scrollback, and a canvas that paints on it."""

    def __init__(self, columns: int = COLUMNS, lines: int = LINES) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=100_000, ratio=0.01)
        self.screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self.screen)
        self.canvas = Canvas(columns, lines)
        self.written = 0

    def write(self, text: str) -> None:
        self.written += len(text.encode())
        self._stream.feed(text)

    def paint(self, final: list[str], live: list[str], cursor: tuple[int, int] = (0, 0)) -> None:
        self.write(self.canvas.paint(final, live, cursor))

    @property
    def shown(self) -> list[str]:
        """Everything from the first line of the scrollback to the last that has something."""
        above = [
            "".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top
        ]
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
    told = []
    for row in rows:
        text = plain(row)
        told += [text[at : at + columns].rstrip() for at in range(0, len(text), columns)] or [""]
    while told and not told[-1]:
        told.pop()
    return told


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
def test_whatever_is_painted_stands_on_the_screen_and_the_rest_in_the_scrollback(painted):
    glass, final = Glass(), []
    for ended, live in painted:
        at = (len(live) - 1, min(span(live[-1]), COLUMNS - 1))
        glass.paint(ended, live, at)
        final += ended
        assert glass.shown == lines([*final, *live])
        above = sum(height(one, COLUMNS) for one in final)
        assert glass.cursor == (above + at[0], at[1])


@given(scenes)
@settings(max_examples=100, deadline=None)
def test_an_unchanged_scene_costs_nothing(painted):
    glass = Glass()
    for ended, live in painted:
        glass.paint(ended, live)
        before = glass.written
        glass.paint([], live)
        assert glass.written == before


@given(st.lists(st.text("ab 日本語ｆé", max_size=9), min_size=2, max_size=10))
@settings(max_examples=200, deadline=None)
def test_wide_characters_stay_in_their_columns(texts):
    glass = Glass()
    for text in texts:
        glass.paint([], [text, "> "], (1, 2))
        assert glass.screen.display[0].rstrip() == text.rstrip()


def test_a_family_of_emoji_is_written_whole_when_it_grows():
    glass = Glass()
    glass.paint([], ["a 👩"])
    assert glass.canvas.paint([], ["a 👩\u200d👧 b"], (0, 0)) == "a 👩\u200d👧 b\r"


def test_a_growing_row_costs_what_it_grows_by():
    glass = Glass(80, 24)
    glass.paint([], ["hello", "", "> draft", "status"], (2, 7))
    before = glass.written
    glass.paint([], ["hello world", "", "> draft", "status"], (2, 7))
    assert glass.written - before <= len(" world") + 18
    glass.paint([], ["hello \x1b[1mworld\x1b[0m", "", "> draft", "status"], (2, 7))
    assert glass.shown[0] == "hello world" and glass.screen.buffer[0][6].bold


def test_a_style_goes_on_where_the_row_does():
    glass = Glass(80, 24)
    glass.paint([], ["\x1b[1mbo\x1b[0m"])
    glass.paint([], ["\x1b[1mbold and more\x1b[0m plain"])
    assert glass.shown == ["bold and more plain"]
    assert glass.screen.buffer[0][12].bold and not glass.screen.buffer[0][14].bold


def test_a_hyperlink_is_never_taken_up_in_the_middle():
    start, end = "\x1b]8;;https://a.example\x1b\\", "\x1b]8;;\x1b\\"
    canvas = Canvas(80, 24)
    canvas.paint([], [f"see {start}her{end}"], (0, 0))
    again = canvas.paint([], [f"see {start}here{end} and there"], (0, 0))
    assert again == f"\r\x1b[4C{start}here{end} and there\r"
    assert canvas.paint([], [f"see {start}here{end} and then"], (0, 0)) == "\r\x1b[16Cn\x1b[K\r"


def test_a_finished_row_that_is_shown_already_is_not_written_again():
    glass = Glass(80, 24)
    bottom = ["", "> what I am typing just now", "status " * 8]
    for number in range(60):  # far beyond the bottom of the screen
        tail = [f"the line with the number {number}"]
        glass.paint([], [*tail, *bottom], (2, 5))
        before = glass.written
        glass.paint(tail, ["next", *bottom], (2, 5))
        assert glass.written - before < 40
    assert glass.shown[:60] == [f"the line with the number {n}" for n in range(60)]
    assert glass.shown[60:] == ["next", "", "> what I am typing just now", ("status " * 8).rstrip()]


def test_ten_thousand_rows_at_once_all_reach_the_scrollback():
    glass = Glass()
    final = [f"row {number}" for number in range(10_000)]
    glass.paint([], ["tail", "> "], (1, 2))
    glass.paint(final, ["> "], (0, 2))
    assert glass.shown == [*final, ">"]


def test_more_live_rows_than_the_screen_has_are_cut_at_the_top():
    glass = Glass(20, 3)
    glass.paint([], ["one", "two", "three", "four", "> "], (4, 2))
    assert glass.shown == ["three", "four", ">"]
    glass.paint(["done"], ["> "], (0, 2))
    assert glass.shown == ["done", ">"]


def test_the_last_paint_leaves_the_cursor_on_a_new_line():
    glass = Glass()
    glass.paint(["hello"], ["> bye", "status"], (0, 5))
    glass.paint(["bye"], [])
    assert glass.shown == ["hello", "bye"] and glass.cursor == (2, 0)
    glass.paint([], [])
    assert glass.cursor == (2, 0)


def test_what_stood_below_the_cursor_at_the_start_is_taken_away():
    glass = Glass()
    glass.write("one\ntwo\nthree\x1b[2A\r")
    glass.paint([], ["> "], (0, 2))
    assert glass.shown == [">"]


@pytest.mark.parametrize("reflows", [False, True])
def test_after_a_resize_the_live_rows_stand_once(reflows):
    glass = Glass(40, 10)
    glass.paint(["the end of it"], ["t" * 40, "tail", "> draft", "status"], (2, 7))
    if reflows:  # as most terminals do: what no longer fits is broken, the cursor stays with its text
        glass.write("\x1b[2A\r\x1b[J" + "t" * 30 + "\n" + "t" * 10 + "\ntail\n> draft\nstatus\x1b[A\r\x1b[7C")
        assert glass.shown == ["the end of it", "t" * 30, "t" * 10, "tail", "> draft", "status"]
    glass.screen.resize(10, 30)
    glass.write(glass.canvas.resize(30, 10, reflows=reflows))
    assert glass.shown == ["the end of it"]
    glass.paint([], ["t" * 30, "tail", "> draft", "status"], (2, 7))
    assert glass.shown == ["the end of it", "t" * 30, "tail", "> draft", "status"]


def test_erased_rows_leave_their_place_to_what_comes_next():
    glass = Glass()
    glass.paint(["kept"], ["tail", "> ", "status"], (1, 2))
    glass.write(glass.canvas.erase())
    assert glass.shown == ["kept"]
    glass.write("someone else\n")
    glass.canvas.forget()
    glass.paint([], ["> "], (0, 2))
    assert glass.shown == ["kept", "someone else", ">"]


def test_heights_count_the_characters_that_do_not_fit_at_the_end():
    assert height("abc", 3) == 1
    assert height("abcd", 3) == 2
    assert height("日本語", 3) == 3  # one column is left over on each line
    assert height("\x1b[1mabc\x1b[0m", 3) == 1
