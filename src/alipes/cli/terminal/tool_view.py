"""Tool calls as rows: a line when one begins, a glimpse while it runs, its outcome and what it changed."""

import re
from collections import deque

from msgspec import Struct

from alipes.cli.render import call_line, harmless, one_line
from alipes.cli.terminal import images
from alipes.cli.terminal.styles import Look, shortened, styled
from alipes.kernel.messages import ToolCall, ToolResult

LONGEST = 40
"""Rows of a diff that are shown."""
_HEADER = re.compile(r"(?:diff --git .*\n(?:.*\n)*?)?--- .*\n\+\+\+ .*\n")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def is_diff(text: str) -> bool:
    return _HEADER.match(text) is not None and _HUNK.search(text) is not None


class Line(Struct, frozen=True):
    sign: str
    """`+`, `-`, a blank, or `@` where lines were left out."""
    number: int
    text: str


class Diff(Struct, frozen=True):
    lines: tuple[Line, ...]

    @staticmethod
    def read(text: str) -> "Diff":
        """The lines of a unified diff. What its hunks do not count, such as file names, is left out."""
        lines: list[Line] = []
        old = new = old_end = new_end = 0
        for row in text.split("\n"):
            sign = row[:1] or " "
            if (old < old_end or new < new_end) and sign in "+- ":
                lines.append(Line(sign, old if sign == "-" else new, row[1:]))
                old, new = old + (sign != "+"), new + (sign != "-")
            elif hunk := _HUNK.match(row):
                old, new = int(hunk[1]), int(hunk[3])
                old_end, new_end = old + int(hunk[2] or 1), new + int(hunk[4] or 1)
                if lines:
                    lines.append(Line("@", 0, ""))
        return Diff(tuple(lines))

    @property
    def summary(self) -> str:
        """`+3 -1`"""
        came, went = (sum(line.sign == sign for line in self.lines) for sign in "+-")
        return " ".join(part for part in (f"+{came}" if came else "", f"-{went}" if went else "") if part)

    def rows(self, columns: int, look: Look) -> list[str]:
        digits = max((len(str(line.number)) for line in self.lines), default=1)
        shown = self.lines if len(self.lines) <= LONGEST else self.lines[: LONGEST - 1]
        rows = [_row(line, digits, columns, look) for line in shown]
        if left := len(self.lines) - len(shown):
            rows.append("  " + styled(f"{look.more} {left:,} more lines", look.faint))
        return rows


def _row(line: Line, digits: int, columns: int, look: Look) -> str:
    if line.sign == "@":
        return "  " + styled(" " * (digits - 1) + look.more, look.faint)
    style = {"+": look.good, "-": look.bad}.get(line.sign, look.faint)
    text = shortened(harmless(line.text).expandtabs(4), max(1, columns - digits - 5), look.more)
    number = styled(f"{line.number:>{digits}}", look.faint)
    return f"  {number} " + styled(f"{line.sign} {text}".rstrip(), style)


GLIMPSE = 4
"""Rows of output that are shown of a running call."""
EXCERPT = 3
"""Rows that stay of a command's output, and of an error."""
_STATUS = re.compile(r"\[(exit code [1-9]\d*|ended by \w+|timed out[^\]]*)[^\]]*\]\s*\Z")
_OUTCOMES = {"failed": "failed", "denied": "not allowed", "cancelled": "stopped", "unknown": "unknown"}


class Running:
    """One call between its start and its end."""

    def __init__(self, call: ToolCall, began: float) -> None:
        self.call, self.began = call, began
        self._lines: deque[str] = deque([""], maxlen=50)
        self.diff: Diff | None = None

    def progress(self, text: str) -> None:
        """More of what it shows. A unified diff is kept for the end, output is shown as it comes."""
        if is_diff(text):
            self.diff = Diff.read(text)
            return
        first, *others = text.replace("\r\n", "\n").split("\n")
        self._lines[-1] = _overwritten(self._lines[-1] + first)
        self._lines.extend(_overwritten(line) for line in others)

    def rows(self, columns: int, look: Look, now: float) -> list[str]:
        """The call and the last of its output, as it looks now."""
        seconds = int(now - self.began)
        took = f" {seconds} s" if seconds >= 2 else ""
        head = _head(self.call, columns - len(took) - 2, look)
        rows = [f"{styled(look.working, look.accent)} {head}{styled(took, look.faint)}"]
        lines = [line for line in self._lines if line.strip()][-GLIMPSE:]
        return rows + [_quoted(line, columns, look) for line in lines]

    def abandoned(self, columns: int, look: Look, now: float) -> list[str]:
        """The turn ended before the call did."""
        result = ToolResult(self.call.id, "", "cancelled")
        return finished(self.call, result, now - self.began, None, columns=columns, look=look)


def finished(
    call: ToolCall, result: ToolResult, seconds: float, running: Running | None, *, columns: int, look: Look
) -> list[str]:
    """How a call went: one line; below it what changed, or why it failed, or the end of what it said."""
    outcome, mark = _outcome(result, look)
    diff = running.diff if running else None
    facts = [outcome, diff.summary if diff else "", f"{seconds:.1f} s" if seconds >= 0.1 else ""]
    told = " · ".join(fact for fact in facts if fact)
    head = _head(call, columns - len(told) - 4, look)
    style = look.faint if not outcome else look.warn if result.outcome == "ok" else look.bad
    rows = [f"{mark} {head}{'  ' if told else ''}{styled(told, style)}"]
    if diff and result.outcome == "ok":
        return rows + diff.rows(columns, look)
    for path in images.named(result.text) if result.outcome == "ok" else ():
        rows += [f"  {styled(shortened(harmless(path), columns - 2, look.more), look.faint)}"]
        rows += images.rows(path, look.pictures, columns)
    if result.outcome == "ok" and call.name != "terminal":
        return rows
    return rows + _excerpt(result, columns, look)


def _outcome(result: ToolResult, look: Look) -> tuple[str, str]:
    if result.outcome == "ok":
        if found := _STATUS.search(result.text[-200:]):
            return found[1], styled(look.failed, look.warn)
        return "", styled(look.done, look.good)
    mark = look.refused if result.outcome == "denied" else look.failed
    return _OUTCOMES[result.outcome], styled(mark, look.bad)


def _excerpt(result: ToolResult, columns: int, look: Look) -> list[str]:
    """Of an error the beginning, of output the end."""
    text = re.sub(r"\n?\[exit code -?\d+[^\]]*\]\s*\Z", "", result.text)
    lines = [line for line in (_overwritten(line) for line in text.split("\n")) if line.strip()]
    if lines == ["(no output)"]:
        return []
    failed = result.outcome != "ok"
    room = EXCERPT + (len(lines) == EXCERPT + 1)  # to leave out a single line would save nothing
    shown = lines[:room] if failed else lines[-room:]
    rows = [_quoted(line, columns, look) for line in shown]
    if (left := len(lines) - len(shown)) > 0:
        more = _quoted(f"{look.more} {left:,} more lines", columns, look)
        rows = [*rows, more] if failed else [more, *rows]
    return rows


def _head(call: ToolCall, columns: int, look: Look) -> str:
    """The tool's name and its most telling argument."""
    name = one_line(call.name)
    argument = call_line(call, 0)[len(name) :].strip() if call.args else ""
    room = columns - len(name) - 1
    if not argument or room < 4:
        return styled(shortened(name, max(1, columns)), look.strong)
    return f"{styled(name, look.strong)} {shortened(argument, room, look.more)}"


def _quoted(line: str, columns: int, look: Look) -> str:
    return "  " + styled(f"{look.bar} {shortened(line, max(1, columns - 4), look.more)}", look.faint)


def _overwritten(line: str) -> str:
    """The line as a terminal shows it in the end: what follows a carriage return stands over the rest."""
    return harmless(line.rstrip("\r").rpartition("\r")[2]).expandtabs(4)
