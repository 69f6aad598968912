"""A unified diff as rows: numbered lines, what went and what came. It makes no diffs."""

import re

from msgspec import Struct

from alipes.cli.render import harmless
from alipes.cli.terminal.look import Look, shortened, styled

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
