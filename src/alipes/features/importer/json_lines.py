"""Reads files with one JSON object per line, line by line: a bad line never costs its neighbours."""

from collections.abc import Iterator
from typing import TypeAlias

from alipes.features.importer.formats import SourceError, plain_text, read_json
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Json

Row: TypeAlias = dict[str, Json]
MAX_LINE_BYTES = 16_000_000


class JsonRows:
    """The objects in a file, and afterwards how many of its lines could not be read."""

    def __init__(self, home: SourceHome, name: str) -> None:
        self._home, self._name = home, name
        self.unreadable = 0
        self.problem = ""
        """Why the rest of the file was not read."""

    def __iter__(self) -> Iterator[Row]:
        self.unreadable, self.problem = 0, ""
        try:
            for line in self._home.read_lines(self._name, MAX_LINE_BYTES):
                if line.strip():
                    row = read_row(line, self._name)
                    self.unreadable += row is None
                    if row is not None:
                        yield row
        except SourceError as error:
            self.problem = str(error)

    def notes(self) -> tuple[str, ...]:
        """What was not read, as clauses."""
        lines = [f"{format_count(self.unreadable, 'line')} of {self._name} cannot be read"] if self.unreadable else []
        return (*lines, *([self.problem] if self.problem else []))


def read_row(line: bytes | str, name: str) -> Row | None:
    """None if it is no JSON object."""
    try:
        value = read_json(plain_text(line), name)
    except SourceError:
        return None
    return value if isinstance(value, dict) else None


def get_text(row: Row, *names: str) -> str:
    """The first of these fields that is a text or a number, as text."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    return ""


def get_row(row: Row, *names: str) -> Row:
    """The object at the end of a chain of names; empty if there is none."""
    value: Json = row
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def get_rows(row: Row, name: str) -> list[Row]:
    """The objects in a list."""
    value = row.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def get_texts(row: Row, name: str) -> list[str]:
    """The texts and numbers in a list, as texts."""
    value = row.get(name)
    values = value if isinstance(value, list) else []
    return [str(each) for each in values if isinstance(each, str | int) and not isinstance(each, bool) and each != ""]


def get_count(row: Row, *names: str) -> int:
    """The first of these fields that is a whole number from 0; else 0."""
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53:
            return int(value)
    return 0
