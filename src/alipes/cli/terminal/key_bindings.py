"""Which key does what. The deeds are the terminal's; here they are only bound to keys."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from alipes.cli.terminal.approval import KEYS
from alipes.cli.terminal.layout import Bottom, Pastes
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


class Deeds(Protocol):
    """What keys can do."""

    def send(self) -> None:
        """What is typed."""
        ...

    def interrupt(self) -> None:
        """Stop, clear or leave, whichever makes sense."""
        ...

    def leave(self) -> None: ...

    def put_away(self) -> None:
        """Empty the input, but keep it for the up key."""
        ...

    def edit(self) -> None:
        """What is typed, in an editor of the person's choice."""
        ...

    def paste(self, data: str) -> None: ...

    def asked(self) -> bool:
        """Whether a letter is an answer now."""
        ...

    def answer(self, choice: Consent) -> None: ...


def make_keys(deeds: Deeds, buffer: Buffer) -> KeyBindings:
    keys = KeyBindings()
    typing = ~is_searching
    asked = Condition(deeds.asked)

    def bind(*names: str, to: Callable[[], None]) -> None:
        keys.add(*names, filter=typing)(lambda _event: to())

    bind("enter", to=lambda: _enter(buffer, deeds))
    bind("escape", "enter", to=lambda: buffer.newline(copy_margin=False))
    bind("c-j", to=lambda: buffer.newline(copy_margin=False))
    bind("c-c", to=deeds.interrupt)
    bind("<sigint>", to=deeds.interrupt)
    bind("c-d", to=lambda: _end_of_input(buffer, deeds))
    bind("c-x", "c-e", to=deeds.edit)
    bind("tab", to=lambda: _complete(buffer))
    keys.add("s-tab", filter=has_completions)(lambda _event: buffer.complete_previous())
    keys.add("escape", filter=typing, eager=Condition(_alone))(lambda _event: _close(buffer, deeds))
    keys.add("c-l")(_clear)
    keys.add(Keys.BracketedPaste)(lambda event: deeds.paste(event.data))
    keys.add("escape", filter=asked, eager=Condition(_alone))(lambda _event: deeds.answer("no"))
    for letter, choice in KEYS.items():
        keys.add(letter, filter=asked, eager=True)(lambda _event, choice=choice: deeds.answer(choice))
    return keys


def _enter(buffer: Buffer, deeds: Deeds) -> None:
    """Send; but a backslash before the cursor asks for another line, where Alt-Enter does not reach us."""
    if buffer.document.char_before_cursor == "\\":
        buffer.delete_before_cursor()
        buffer.newline(copy_margin=False)
    else:
        deeds.send()


def _end_of_input(buffer: Buffer, deeds: Deeds) -> None:
    if buffer.text:
        buffer.delete()
    else:
        deeds.leave()


def _complete(buffer: Buffer) -> None:
    """The next of the menu; without one, look what there is."""
    state = buffer.complete_state
    if state is not None and state.completions:
        buffer.complete_next()
    else:
        get_app().create_background_task(_look_up(buffer))


async def _look_up(buffer: Buffer) -> None:
    """Put in what all have in common that fits; if that is nothing, open the menu.

    `Buffer.start_completion` would do nothing while the menu is about to open by itself.
    """
    document, event = buffer.document, CompleteEvent(completion_requested=True)
    found = [one async for one in buffer.completer.get_completions_async(document, event)]
    if not found or buffer.document != document:
        return
    if len(found) == 1:
        buffer.apply_completion(found[0])
    elif common := get_common_complete_suffix(document, found):
        buffer.insert_text(common)
    else:
        buffer.complete_state = CompletionState(document, found)
        buffer.on_completions_changed.fire()


def _close(buffer: Buffer, deeds: Deeds) -> None:
    """The menu if it is open; else what is typed is put away."""
    if buffer.complete_state:
        buffer.cancel_completion()
    elif buffer.text:
        deeds.put_away()


def _clear(event: KeyPressEvent) -> None:
    event.app.renderer.clear()


def _alone() -> bool:
    """Nothing came together with the key, so it is not the beginning of Alt and another one."""
    return not get_app().key_processor.input_queue
