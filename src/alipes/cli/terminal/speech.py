"""The message a model is saying, thinking and text: rows that are final, and rows that may change."""

from alipes.cli.markdown.stream import Stream
from alipes.cli.render import one_line
from alipes.cli.terminal.look import Look, shortened, styled, wrapped
from alipes.cli.theme import Theme

MUSING = 3
"""Rows of thinking that are shown while it lasts; one stays."""


class Speech:
    """One message at a time; after `finish` or `drop` it is ready for the next."""

    def __init__(self, theme: Theme, look: Look, columns: int, *, thinking: bool) -> None:
        """`thinking`: show it."""
        self._theme, self._look, self._columns, self._musing = theme, look, columns, thinking
        self._thought: list[str] = []
        self._told: list[str] = []
        self._stream: Stream | None = None
        self.shown = False
        """Some of the text is final, so it cannot be taken back any more."""

    @property
    def told(self) -> str:
        """The text as far as it came."""
        return "".join(self._told)

    def think(self, text: str) -> None:
        self._thought.append(text)

    def write(self, text: str) -> list[str]:
        """More of the text; the rows that are final now."""
        self._told.append(text)
        if self._stream is None:
            text = text.lstrip("\n")
            if not text.strip():
                return []
            self._stream = Stream(self._theme, self._columns)
        rows = self._stream.feed(text)
        self.shown = self.shown or bool(rows)
        return rows

    def thought(self) -> list[str]:
        """The thinking is over; what stays of it."""
        thought = one_line("".join(self._thought))
        self._thought.clear()
        if not thought or not self._musing:
            return []
        text = shortened(thought, self._columns - 2, self._look.more)
        return [styled(f"{self._look.thinking} {text}", self._look.thought)]

    def finish(self) -> list[str]:
        """The text is over; the rows that were not final yet."""
        rows = self._stream.finish() if self._stream is not None else []
        while rows and not rows[-1]:
            rows.pop()
        self.drop()
        return rows

    def drop(self) -> None:
        """Forget what is not final."""
        self._thought.clear()
        self._told.clear()
        self._stream, self.shown = None, False

    def tail(self) -> list[str]:
        """What may still change, as it looks now."""
        if self._stream is not None:
            return self._stream.tail()
        if not self._thought or not self._musing:
            return []
        recent = "".join(self._thought[-300:])[-self._columns * MUSING :]
        rows = wrapped(one_line(recent), self._columns, self._look.thought, "  ", "  ")[-MUSING:]
        return [styled(self._look.thinking, self._look.thought) + rows[0][1:], *rows[1:]]

    def resize(self, columns: int) -> list[str]:
        """The screen has another width; the rows that are final for that."""
        self._columns = columns
        if self._stream is None:
            return []
        self._stream.resize(columns)
        return self.write("")

    def restyle(self, theme: Theme, look: Look) -> None:
        """From the next message on it looks like this."""
        self._theme, self._look = theme, look
