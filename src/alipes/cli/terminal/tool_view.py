"""Tool calls as rows: the call, its live output, its outcome and its diff."""

import re
from collections import deque

from msgspec import Struct

from alipes.cli.render import format_call, sanitize, to_one_line, truncate
from alipes.cli.terminal import images
from alipes.cli.terminal.styles import TerminalStyle, apply_style
from alipes.kernel.messages import ToolCall, ToolResult

MAX_DIFF_ROWS = 40
_HEADER = re.compile(r"(?:diff --git .*\n(?:.*\n)*?)?--- .*\n\+\+\+ .*\n")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def is_diff(text: str) -> bool:
    return _HEADER.match(text) is not None and _HUNK.search(text) is not None


class DiffLine(Struct, frozen=True):
    sign: str
    """`+`, `-`, a space, or `@` for omitted lines."""
    number: int
    text: str


class UnifiedDiff(Struct, frozen=True):
    lines: tuple[DiffLine, ...]

    @staticmethod
    def read(text: str) -> "UnifiedDiff":
        """Parse a unified diff; lines outside of hunks, such as file names, are ignored."""
        lines: list[DiffLine] = []
        old = new = old_end = new_end = 0
        for row in text.split("\n"):
            sign = row[:1] or " "
            if (old < old_end or new < new_end) and sign in "+- ":
                lines.append(DiffLine(sign, old if sign == "-" else new, row[1:]))
                old, new = old + (sign != "+"), new + (sign != "-")
            elif hunk := _HUNK.match(row):
                old, new = int(hunk[1]), int(hunk[3])
                old_end, new_end = old + int(hunk[2] or 1), new + int(hunk[4] or 1)
                if lines:
                    lines.append(DiffLine("@", 0, ""))
        return UnifiedDiff(tuple(lines))

    @property
    def summary(self) -> str:
        """`+3 -1`"""
        came, went = (sum(line.sign == sign for line in self.lines) for sign in "+-")
        return " ".join(part for part in (f"+{came}" if came else "", f"-{went}" if went else "") if part)

    def rows(self, columns: int, style: TerminalStyle) -> list[str]:
        digits = max((len(str(line.number)) for line in self.lines), default=1)
        shown = self.lines if len(self.lines) <= MAX_DIFF_ROWS else self.lines[: MAX_DIFF_ROWS - 1]
        rows = [_format_diff_line(line, digits, columns, style) for line in shown]
        if left := len(self.lines) - len(shown):
            rows.append("  " + apply_style(f"{style.more} {left:,} more lines", style.faint))
        return rows


def _format_diff_line(line: DiffLine, digits: int, columns: int, style: TerminalStyle) -> str:
    if line.sign == "@":
        return "  " + apply_style(" " * (digits - 1) + style.more, style.faint)
    sgr = {"+": style.good, "-": style.bad}.get(line.sign, style.faint)
    text = truncate(sanitize(line.text).expandtabs(4), max(1, columns - digits - 5), style.more)
    number = apply_style(f"{line.number:>{digits}}", style.faint)
    return f"  {number} " + apply_style(f"{line.sign} {text}".rstrip(), sgr)


LIVE_ROWS = 4
"""Rows of output shown for a running call."""
EXCERPT_ROWS = 3
"""Rows of output shown for a finished command or an error."""
_STATUS = re.compile(r"\[(exit code [1-9]\d*|ended by \w+|timed out[^\]]*)[^\]]*\]\s*\Z")


class RunningCall:
    def __init__(self, call: ToolCall, began: float) -> None:
        self.call, self.started = call, began
        self._lines: deque[str] = deque([""], maxlen=50)
        self.diff: UnifiedDiff | None = None

    def progress(self, text: str) -> None:
        """Add output. A unified diff is shown at the end."""
        if is_diff(text):
            self.diff = UnifiedDiff.read(text)
            return
        first, *others = text.replace("\r\n", "\n").split("\n")
        self._lines[-1] = _apply_carriage_return(self._lines[-1] + first)
        self._lines.extend(_apply_carriage_return(line) for line in others)

    def rows(self, columns: int, style: TerminalStyle, now: float) -> list[str]:
        """The call and the last lines of its output."""
        seconds = int(now - self.started)
        took = f" {seconds} s" if seconds >= 2 else ""
        head = _format_head(self.call, columns - len(took) - 2, style)
        rows = [f"{apply_style(style.working, style.accent)} {head}{apply_style(took, style.faint)}"]
        lines = [line for line in self._lines if line.strip()][-LIVE_ROWS:]
        return rows + [_format_output(line, columns, style) for line in lines]

    def render_cancelled(self, columns: int, style: TerminalStyle, now: float) -> list[str]:
        """Rows for a call that was still running when the turn ended."""
        result = ToolResult(self.call.id, "", "cancelled")
        return render_finished(self.call, result, now - self.started, None, columns=columns, style=style)


def render_finished(
    call: ToolCall,
    result: ToolResult,
    seconds: float,
    running: RunningCall | None,
    *,
    columns: int,
    style: TerminalStyle,
) -> list[str]:
    """A row with the outcome; below it the diff, the error, or the end of the output."""
    outcome, mark = _format_outcome(result, style)
    diff = running.diff if running else None
    facts = [outcome, diff.summary if diff else "", f"{seconds:.1f} s" if seconds >= 0.1 else ""]
    summary = " · ".join(fact for fact in facts if fact)
    head = _format_head(call, columns - len(summary) - 4, style)
    sgr = style.faint if not outcome else style.warn if result.outcome == "ok" else style.bad
    rows = [f"{mark} {head}{'  ' if summary else ''}{apply_style(summary, sgr)}"]
    if diff and result.outcome == "ok":
        return rows + diff.rows(columns, style)
    for path in result.files if result.outcome == "ok" else ():
        rows += [f"  {apply_style(truncate(sanitize(path), columns - 2, style.more), style.faint)}"]
        rows += images.render_image(path, style.images, columns)
    if result.outcome == "ok" and call.name != "terminal":
        return rows
    return rows + _format_excerpt(result, columns, style)


def _format_outcome(result: ToolResult, style: TerminalStyle) -> tuple[str, str]:
    if result.outcome == "ok":
        if found := _STATUS.search(result.text[-200:]):
            return found[1], apply_style(style.failed, style.warn)
        return "", apply_style(style.done, style.good)
    mark = style.refused if result.outcome == "denied" else style.failed
    return "stopped" if result.outcome == "cancelled" else result.outcome, apply_style(mark, style.bad)


def _format_excerpt(result: ToolResult, columns: int, style: TerminalStyle) -> list[str]:
    """The start of an error, or the end of the output."""
    text = re.sub(r"\n?\[exit code -?\d+[^\]]*\]\s*\Z", "", result.text)
    lines = [line for line in (_apply_carriage_return(line) for line in text.split("\n")) if line.strip()]
    if lines == ["(no output)"]:
        return []
    failed = result.outcome != "ok"
    room = EXCERPT_ROWS + (len(lines) == EXCERPT_ROWS + 1)  # omitting a single line would save nothing
    shown = lines[:room] if failed else lines[-room:]
    rows = [_format_output(line, columns, style) for line in shown]
    if (left := len(lines) - len(shown)) > 0:
        more = _format_output(f"{style.more} {left:,} more lines", columns, style)
        rows = [*rows, more] if failed else [more, *rows]
    return rows


def _format_head(call: ToolCall, columns: int, style: TerminalStyle) -> str:
    """The name of the tool and its main argument."""
    name = to_one_line(call.name)
    argument = format_call(call, 0)[len(name) :].strip() if call.args else ""
    room = columns - len(name) - 1
    if not argument or room < 4:
        return apply_style(truncate(name, max(1, columns)), style.strong)
    return f"{apply_style(name, style.strong)} {truncate(argument, room, style.more)}"


def _format_output(line: str, columns: int, style: TerminalStyle) -> str:
    return "  " + apply_style(f"{style.bar} {truncate(line, max(1, columns - 4), style.more)}", style.faint)


def _apply_carriage_return(line: str) -> str:
    """The line as a terminal shows it: text after a carriage return replaces the text before it."""
    return sanitize(line.rstrip("\r").rpartition("\r")[2]).expandtabs(4)
