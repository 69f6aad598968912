"""Finds the line of each key in a TOML text, for error messages. `tomllib` reads the values."""

import re
from bisect import bisect_right
from contextlib import suppress
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]
"""Path to a value: names of tables and keys, indexes in lists."""

_BLANK = r"(?:[ \t\r\n]|#[^\n]*)*"
_NAME = r"[ \t]*(?:([A-Za-z0-9_-]+)|\"((?:[^\"\\\n]|\\.)*)\"|'([^'\n]*)')[ \t]*"
_VALUE = r'(?s)"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'|" r"[^,\]}\n#]+"
_ESCAPE = r"(?s)\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))"
_LETTERS = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


def lines_of(text: str) -> dict[Place, int]:
    """The line (from 1) of every table header, key and list item of a valid TOML text.

    Never raises: for an invalid text it returns what it could read.
    """
    scan = _Scan(text)
    with suppress(_SyntaxUnknown, RecursionError):
        scan.document()
    return scan.found


def nearest_line(lines: dict[Place, int], place: Place) -> int | None:
    """The line of `place`, else of what contains it."""
    for length in range(len(place), 0, -1):
        if line := lines.get(place[:length]):
            return line
    return None


def split_key(text: str) -> tuple[str, ...] | None:
    """The names in a dotted key such as `models."openai/gpt-5".window`; None if it is not one."""
    scan = _Scan(text.strip())
    try:
        names = scan.names()
    except _SyntaxUnknown:
        return None
    return names if scan.at == len(scan.text) else None


class _SyntaxUnknown(Exception):
    """The text is not valid here."""


class _Scan:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: dict[Place, int] = {}
        self._starts = [match.end() for match in re.finditer("\n", text)]
        self._counts: dict[Place, int] = {}

    def document(self) -> None:
        table: Place = ()
        self.skip()
        while self.at < len(self.text):
            begun = self.at
            if self.take("["):
                many = self.take("[")
                table = self.inside(self.names(), grow=many)
                self.take("]]" if many else "]")
                for length in range(1, len(table) + 1):
                    self.note(table[:length], begun)
            else:
                self.pair(table)
            self.skip()

    def inside(self, names: tuple[str, ...], grow: bool = False) -> Place:
        """The place of a table header: where it passes through a list of tables, the last one is meant."""
        place: Place = ()
        for name in names:
            place = (*place, name)
            if grow and len(place) - sum(isinstance(p, int) for p in place) == len(names):
                self._counts[place] = self._counts.get(place, -1) + 1
            if place in self._counts:
                place = (*place, self._counts[place])
        return place

    def pair(self, table: Place) -> None:
        begun = self.at
        place: Place = (*table, *self.names())
        for length in range(len(table) + 1, len(place)):
            self.note(place[:length], begun)
        if not self.take("="):
            raise _SyntaxUnknown
        self.note(place, begun)
        self.value(place)

    def value(self, place: Place) -> None:
        self.skip()
        if self.take("{"):
            self.skip()
            while not self.take("}"):
                self.pair(place)
                self.comma()
        elif self.take("["):
            count = 0
            self.skip()
            while not self.take("]"):
                self.note((*place, count), self.at)
                self.value((*place, count))
                self.comma()
                count += 1
        elif found := re.compile(_VALUE).match(self.text, self.at):
            self.at = found.end()
        else:
            raise _SyntaxUnknown

    def names(self) -> tuple[str, ...]:
        names = []
        while found := re.compile(_NAME).match(self.text, self.at):
            self.at = found.end()
            bare, basic, literal = found.groups()
            names.append(re.sub(_ESCAPE, _plain, basic) if basic is not None else bare or literal or "")
            if not self.take("."):
                return tuple(names)
        raise _SyntaxUnknown

    def skip(self) -> None:
        if found := re.compile(_BLANK).match(self.text, self.at):
            self.at = found.end()

    def comma(self) -> None:
        self.skip()
        self.take(",")
        self.skip()

    def take(self, mark: str) -> bool:
        if self.text.startswith(mark, self.at):
            self.at += len(mark)
            return True
        return False

    def note(self, place: Place, at: int) -> None:
        self.found.setdefault(place, bisect_right(self._starts, at) + 1)


def _plain(found: re.Match[str]) -> str:
    short, long, letter = found.groups()
    if letter:
        return _LETTERS.get(letter, letter)
    code = int(short or long, 16)
    return chr(code) if code < 0x110000 else "?"
