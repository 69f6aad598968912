"""Rows of a name and a text, aligned, and no wider than the terminal they are shown on."""

import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from alipes.cli import render
from alipes.cli.screen import terminal_width

Row: TypeAlias = tuple[str, str]
"""Without a name, the text is a line of its own."""
_NARROWEST = 40


def show(rows: Iterable[Row]) -> None:
    for line in lines(list(rows), terminal_width(sys.stdout)):
        print(line)


def lines(rows: list[Row], width: int = 0) -> Iterator[str]:
    """As lines; `width` 0: no text is broken."""
    indent = 4 + max((render.columns(name) for name, _ in rows), default=0)
    for name, text in rows:
        head = f"  {render.pad(name, indent - 4)}  " if name else ""
        first, *rest = _broken(render.one_line(text), width - len(head)) or [""]
        yield head + first
        for line in rest:
            yield " " * len(head) + line


def _broken(text: str, room: int) -> list[str]:
    if room < _NARROWEST:
        return [text]
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
