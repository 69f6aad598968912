"""What it takes to ask a person: options, picking one while typing, and the port. It touches no terminal."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Option(Struct, frozen=True):
    value: str
    label: str
    note: str = ""

    def fits(self, text: str) -> bool:
        """Whether every word of `text` occurs in it."""
        told = f"{self.label} {self.note}".lower()
        return all(word in told for word in text.lower().split())


class Left(Exception):
    """The person went away, by Ctrl-C or Ctrl-D."""


class Dialogue(Protocol):
    """Someone who can be asked. Every question raises `Left` when they leave."""

    async def choose(
        self, topic: str, options: Sequence[Option], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        """The value they chose, `first` being preselected; if `free`, it may be what they typed."""
        ...

    async def text(self, topic: str, first: str = "") -> str:
        """A line, `first` being there already."""
        ...

    async def secret(self, topic: str) -> str:
        """A line that nobody sees."""
        ...

    def tell(self, line: str) -> None: ...

    def warn(self, line: str) -> None: ...


class Picker:
    """Which options are left of those that were offered, which of them is picked, and which can be seen."""

    def __init__(self, options: Sequence[Option], *, first: str = "", free: bool = False) -> None:
        self._options, self._free = tuple(options), free
        self._text = ""
        self.found = self._options
        values = [option.value for option in self._options]
        self._first = self.at = values.index(first) if first in values else 0

    @property
    def chosen(self) -> str | None:
        """The value that Enter would take; None when there is none."""
        if self.found:
            return self.found[self.at].value
        return self._text if self._free and self._text else None

    def narrow(self, text: str) -> None:
        """Keep what fits `text`; those that begin with it come first."""
        self._text = text.strip()
        fitting = [option for option in self._options if option.fits(text)]
        begun = self._text.lower()
        self.found = tuple(sorted(fitting, key=lambda option: not option.label.lower().startswith(begun)))
        self.at = 0 if self._text else self._first

    def move(self, by: int) -> None:
        self.at = max(0, min(len(self.found) - 1, self.at + by))

    def seen(self, rows: int) -> list[tuple[bool, Option]]:
        """The part of the list around the picked one that has room, each with whether it is picked."""
        start = max(0, min(self.at - rows // 2, len(self.found) - rows))
        shown = self.found[start : start + rows]
        return [(start + row == self.at, option) for row, option in enumerate(shown)]
