"""What keys do: text becomes letters to whoever serves the person. Nothing is served here."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct
from prompt_toolkit.buffer import Buffer

from alipes.cli.terminal.paste import Pastes
from alipes.cli.terminal.scene import Bottom
from alipes.kernel.turns import Consent

AGAIN = 2.0
"""Seconds within which a second Ctrl-C leaves."""


class Typed(Struct, frozen=True):
    """A message or a command."""

    id: str
    """Under which it waits until it is dealt with."""
    text: str
    shown: str
    """The same with long pastes as labels."""


class Halt(Struct, frozen=True):
    """Stop what is being done."""


class Word(Struct, frozen=True):
    """An answer to a question."""

    ask: str
    choice: Consent


Letter: TypeAlias = Typed | Halt | Word


class Desk:
    """The deeds of `keys`."""

    def __init__(
        self, buffer: Buffer, pastes: Pastes, bottom: Bottom, hint: Callable[[str, float], None]
    ) -> None:
        self._buffer, self._pastes, self._bottom, self._hint = buffer, pastes, bottom, hint
        self._count = 0
        self.letters: asyncio.Queue[Letter] = asyncio.Queue()
        self.leaving: Callable[[], None] = lambda: None
        """Called when the person wants to leave."""
        self._pressed = -AGAIN
        """When Ctrl-C was last pressed to stop or to leave."""

    def send(self) -> None:
        text = self._buffer.text
        if text.strip():
            self.put_away()
            self._count += 1
            typed = Typed(f"typed {self._count}", self._pastes.expand(text), self._pastes.labelled(text))
            self._bottom.waiting[typed.id] = typed.shown
            self.letters.put_nowait(typed)

    def interrupt(self) -> None:
        """Twice within a moment leaves. Once: stops what is done, else clears the input, else says so."""
        now, before = time.monotonic(), self._pressed
        status = self._bottom.status
        if now - before < AGAIN:
            self.leaving()
        elif status.busy or self._bottom.waiting:
            self._pressed = now
            self.letters.put_nowait(Halt())
            status.doing = "stopping"
            self._hint("Ctrl-C again leaves", AGAIN)
        elif self._buffer.text:
            self.put_away()
        else:
            self._pressed = now
            self._hint("Ctrl-C again leaves", AGAIN)

    def leave(self) -> None:
        self.leaving()

    def put_away(self) -> None:
        self._buffer.reset(append_to_history=True)
        self._buffer.load_history_if_not_yet_loaded()

    def edit(self) -> None:
        self._buffer.text = self._pastes.expand(self._buffer.text)
        self._buffer.open_in_editor()

    def paste(self, data: str) -> None:
        self._buffer.insert_text(self._pastes.take(data))

    def asked(self) -> bool:
        return self._bottom.dialogue.answerable and not self._buffer.text

    def answer(self, choice: Consent) -> None:
        if asked := self._bottom.dialogue.open:
            self.letters.put_nowait(Word(asked.ask, choice))
