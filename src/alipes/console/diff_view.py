"""Unified diffs as rows: line numbers, tinted changes, syntax colours, marked words, long lines wrapped."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from alipes.console.markdown.wrap import Row, split_row, to_ansi
from alipes.console.render import sanitize
from alipes.console.screen_diff import ERASE_REST, visible_width
from alipes.console.styles import TerminalStyle, apply_style

if TYPE_CHECKING:
    from alipes.console.markdown.highlight import PygmentsHighlighter

MAX_DIFF_ROWS = 40
MAX_LINE_ROWS = 6
"""Rows of one wrapped line, unless the whole diff is shown."""
MAX_COMPARED_CHARS = 400
"""Words are marked in lines up to this length."""
MIN_SIMILARITY = 0.4
"""Words are marked only in lines that have at least this share in common."""
_HEADER = re.compile(r"(?:diff --git .*\n(?:.*\n)*?)?--- .*\n\+\+\+ .*\n")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_FILE = re.compile(r"(?:---|\+\+\+) (?:[ab]/)?(.*?)(?:\t.*)?$")
_WORD = re.compile(r"\w+|\s+|.")
_RED_AND_GREEN = frozenset(("31", "32", "91", "92"))
"""In a diff these mean removed and added, so code has no such colours."""


class DrawContext(Struct, frozen=True):
    """What rows are drawn for: a width, the style, and the colours of code by token name."""

    columns: int
    style: TerminalStyle
    tokens: dict[str, str] = {}


def is_diff(text: str) -> bool:
    return _HEADER.match(text) is not None and _HUNK.search(text) is not None


class DiffLine(Struct, frozen=True):
    sign: str
    """`+`, `-`, a space, `@` for omitted lines, or `f` for the name of a file."""
    number: int
    text: str


class UnifiedDiff(Struct, frozen=True):
    lines: tuple[DiffLine, ...]

    @staticmethod
    def read(text: str) -> "UnifiedDiff":
        """Parse a unified diff; other lines outside of hunks are ignored."""
        lines: list[DiffLine] = []
        name = ""
        old = new = old_end = new_end = 0
        for row in text.split("\n"):
            sign = row[:1] or " "
            if (old < old_end or new < new_end) and sign in "+- ":
                lines.append(DiffLine(sign, old if sign == "-" else new, row[1:]))
                old, new = old + (sign != "+"), new + (sign != "-")
            elif hunk := _HUNK.match(row):
                old, new = int(hunk[1]), int(hunk[3])
                old_end, new_end = old + int(hunk[2] or 1), new + int(hunk[4] or 1)
                if lines and lines[-1].sign != "f":
                    lines.append(DiffLine("@", 0, ""))
            elif found := _FILE.match(row):
                name = found[1] if found[1] != "/dev/null" else name
                if row.startswith("+++"):
                    lines.append(DiffLine("f", 0, name))
        return UnifiedDiff(tuple(lines))

    @property
    def summary(self) -> str:
        """`+3 -1`"""
        came, went = (sum(line.sign == sign for line in self.lines) for sign in "+-")
        return " ".join(part for part in (f"+{came}" if came else "", f"-{went}" if went else "") if part)

    def rows(self, draw: DrawContext, *, whole: bool = False, named: bool = False) -> tuple[list[str], bool]:
        """The rows, and whether some were left out: there are at most `MAX_DIFF_ROWS` unless `whole`.

        `named`: with the name of the file, also if there is only one.
        """
        digits = max((len(str(line.number)) for line in self.lines), default=1)
        several = named or sum(line.sign == "f" for line in self.lines) > 1
        count = sum(line.sign != "f" or several for line in self.lines)
        rows: list[str] = []
        shortened = False
        for place, (line, text) in enumerate(_colour_lines(self.lines, several=several, draw=draw)):
            new = _format_line(line, text, digits, draw)
            if not whole and len(new) > MAX_LINE_ROWS:
                new, shortened = [*new[:MAX_LINE_ROWS], _note(f"{draw.style.more} the line is longer", draw)], True
            if not whole and len(rows) + len(new) > MAX_DIFF_ROWS - (place < count - 1):
                return [*rows, _note(f"{draw.style.more} {count - place:,} more lines", draw)], True
            rows += new
        return rows, shortened


def _note(text: str, draw: DrawContext) -> str:
    return "  " + apply_style(f"{text} ({draw.style.expand_key})", draw.style.faint)


def _colour_lines(lines: tuple[DiffLine, ...], *, several: bool, draw: DrawContext) -> Iterator[tuple[DiffLine, Row]]:
    """Each line to draw with its styled text: added and unchanged lines in the colours of their language."""
    marks = _mark_words(lines)
    highlighter: PygmentsHighlighter | None = None
    for place, line in enumerate(lines):
        text = sanitize(line.text).expandtabs(4)
        if line.sign == "f":
            highlighter = _open_highlighter(line.text, draw.tokens)
            if several:
                yield line, [(text, draw.style.strong, "")]
            continue
        tint, word = _tint(line.sign, draw.style)
        row: Row = [(text, tint, "")]
        if highlighter is not None and line.sign in "+ ":
            if (found := highlighter.highlight(text)) is None:
                highlighter = None
            elif not tint or draw.style.tints_code:
                row = [(part, ";".join(filter(None, (tint, style))), link) for part, style, link in found]
        elif line.sign == " ":
            row = [(text, draw.style.faint, "")]
        yield line, _apply_marks(row, marks.get(place, ()), word)


def _tint(sign: str, style: TerminalStyle) -> tuple[str, str]:
    """The styles of a changed line, and of words in it that differ."""
    return {"+": (style.added, style.added_word), "-": (style.removed, style.removed_word)}.get(sign, ("", ""))


def _open_highlighter(path: str, tokens: dict[str, str]) -> "PygmentsHighlighter | None":
    if not tokens or not path:
        return None
    from pygments.lexers import find_lexer_class_for_filename  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415

    from alipes.console.markdown.highlight import PygmentsHighlighter  # noqa: PLC0415

    lexer = find_lexer_class_for_filename(path)
    calm = {token: style for token, style in tokens.items() if _RED_AND_GREEN.isdisjoint(style.split(";"))}
    return None if lexer is None else PygmentsHighlighter(lexer(), calm)


def _mark_words(lines: tuple[DiffLine, ...]) -> dict[int, tuple[tuple[int, int], ...]]:
    """By line: the ranges of its text that differ from the line it was changed from or to."""
    marks: dict[int, tuple[tuple[int, int], ...]] = {}
    place = 0
    while place < len(lines):
        if lines[place].sign != "-":
            place += 1
            continue
        middle = place
        while middle < len(lines) and lines[middle].sign == "-":
            middle += 1
        end = middle
        while end < len(lines) and lines[end].sign == "+":
            end += 1
        for old, new in zip(range(place, middle), range(middle, end), strict=False):
            found = _compare(sanitize(lines[old].text).expandtabs(4), sanitize(lines[new].text).expandtabs(4))
            if found is not None:
                marks[old], marks[new] = found
        place = end
    return marks


_Ranges = tuple[tuple[int, int], ...]


def _compare(old: str, new: str) -> tuple[_Ranges, _Ranges] | None:
    """The ranges that differ; None if the lines have little in common."""
    if max(len(old), len(new)) > MAX_COMPARED_CHARS or not old.strip() or not new.strip():
        return None
    from difflib import SequenceMatcher  # noqa: PLC0415

    before, after = _WORD.findall(old), _WORD.findall(new)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    codes = matcher.get_opcodes()
    common = sum(len("".join(before[i1:i2]).strip()) for tag, i1, i2, _, _ in codes if tag == "equal")
    if common < MIN_SIMILARITY * max(len(old.strip()), len(new.strip())):
        return None
    changed = [code for code in codes if code[0] != "equal"]
    olds = tuple((len("".join(before[:i1])), len("".join(before[:i2]))) for _, i1, i2, _, _ in changed if i2 > i1)
    news = tuple((len("".join(after[:j1])), len("".join(after[:j2]))) for _, _, _, j1, j2 in changed if j2 > j1)
    return olds, news


def _apply_marks(row: Row, ranges: _Ranges, word: str) -> Row:
    """The row with the ranges in the style `word`."""
    if not ranges or not word:
        return row
    out: Row = []
    start = 0
    for text, style, link in row:
        cuts = {0, len(text)}
        cuts |= {edge - start for span in ranges for edge in span if start < edge < start + len(text)}
        edges = sorted(cuts)
        for first, last in pairwise(edges):
            marked = any(begin <= start + first < end for begin, end in ranges)
            out.append((text[first:last], word if marked else style, link))
        start += len(text)
    return out


def _format_line(line: DiffLine, text: Row, digits: int, draw: DrawContext) -> list[str]:
    style = draw.style
    if line.sign == "f":
        return ["  " + to_ansi(part, links=False) for part in split_row(text, max(1, draw.columns - 2))]
    if line.sign == "@":
        return ["  " + apply_style(" " * (digits - 1) + style.more, style.faint)]
    room = max(1, draw.columns - digits - 5)
    parts = split_row(text, room) if text and any(part for part, _, _ in text) else [[]]
    head = f"  {apply_style(f'{line.number:>{digits}}', style.faint)} "
    tint, _ = _tint(line.sign, style)
    if not tint:
        shown = [to_ansi(part, links=False) for part in parts]
        return [f"{head}{line.sign} {shown[0]}".rstrip(), *(" " * (digits + 5) + each for each in shown[1:])]
    rows = []
    for number, part in enumerate(parts):
        start = " " * (digits + 3) if number else head
        row = start + to_ansi([(" " if number else line.sign, tint, ""), (" ", tint, ""), *part], links=False)
        rows.append(row + apply_style(ERASE_REST, tint) if visible_width(row) < draw.columns else row)
    return rows
