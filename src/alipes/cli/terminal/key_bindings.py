"""Key bindings of the prompt and their actions."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys

from alipes.cli.terminal.approval import KEYS, ApprovalEntry
from alipes.cli.terminal.clipboard import mention_pasted_files, save_clipboard_picture
from alipes.cli.terminal.completion import InputCompleter, quote_mention, select_next, take_row
from alipes.cli.terminal.layout import BottomArea, PasteStore
from alipes.cli.terminal.picker import Picker, bind_picker
from alipes.config.environment import process_environment
from alipes.kernel.turns import ApprovalChoice

DOUBLE_PRESS_S = 2.0
"""A second Ctrl-C within this time quits."""


class TypedText(Struct, frozen=True):
    """A message or a command."""

    id: str
    """Id in the list of queued messages."""
    text: str
    shown: str
    """The text with labels for long pastes."""


class StopRequest(Struct, frozen=True):
    """Stop the running turn."""


class ApprovalKey(Struct, frozen=True):
    """The answer to an approval prompt."""

    ask: str
    choice: ApprovalChoice
    pattern: str = ""
    note: str = ""


InputEvent: TypeAlias = TypedText | StopRequest | ApprovalKey


class InputActions:
    def __init__(
        self, buffer: Buffer, pastes: PasteStore, bottom: BottomArea, hint: Callable[[str, float], None]
    ) -> None:
        self._buffer, self._pastes, self._bottom, self._hint = buffer, pastes, bottom, hint
        self._count = 0
        self.input_events: asyncio.Queue[InputEvent] = asyncio.Queue()
        self.on_quit: Callable[[], None] = lambda: None
        self.pictures = Path()
        """Where pictures from the clipboard are saved."""
        self._last_ctrl_c = -DOUBLE_PRESS_S
        """When Ctrl-C was last pressed to stop or quit."""

    def send(self) -> None:
        text = self._buffer.text
        if self._bottom.approvals.entry:
            self._send_entry(text)
        elif text.strip():
            self.clear_input()
            self._count += 1
            typed = TypedText(f"typed {self._count}", self._pastes.expand(text), self._pastes.show_labels(text))
            self._bottom.queued[typed.id] = typed.shown
            self.input_events.put_nowait(typed)

    def interrupt(self) -> None:
        """Ctrl-C: quit if pressed twice; else stop the turn, clear the input, or show a hint."""
        now, before = time.monotonic(), self._last_ctrl_c
        status = self._bottom.status
        if now - before < DOUBLE_PRESS_S:
            self.on_quit()
        elif status.is_running or self._bottom.queued:
            self._last_ctrl_c = now
            self.input_events.put_nowait(StopRequest())
            status.activity = "stopping"
            self._hint("Press Ctrl-C again to quit", DOUBLE_PRESS_S)
        elif self._buffer.text:
            self.clear_input()
        else:
            self._last_ctrl_c = now
            self._hint("Press Ctrl-C again to quit", DOUBLE_PRESS_S)

    def clear_input(self) -> None:
        """Clear the input, but keep it in the history."""
        self._buffer.reset(append_to_history=True)
        self._buffer.load_history_if_not_yet_loaded()

    def edit(self) -> None:
        self._buffer.text = self._pastes.expand(self._buffer.text)
        self._buffer.open_in_editor()

    def paste(self, data: str) -> None:
        """Insert pasted text. Dropped pictures and files become `@` mentions."""
        self._buffer.insert_text(mention_pasted_files(data) or self._pastes.collapse(data))

    async def paste_picture(self) -> None:
        """Ctrl-V: insert the picture in the clipboard as an `@` mention."""
        path = await save_clipboard_picture(self.pictures, process_environment())
        if path is None:
            self._hint("No picture in the clipboard (needs wl-paste, xclip or pngpaste)", DOUBLE_PRESS_S)
        else:
            self._buffer.insert_text(quote_mention(str(path)))

    def can_answer(self) -> bool:
        """True if a key press answers the approval prompt."""
        return self._bottom.approvals.accepts_keys and not self._buffer.text and self.picker() is None

    def picker(self) -> Picker | None:
        """The open list."""
        return self._bottom.picker

    @property
    def is_in_entry(self) -> bool:
        return bool(self._bottom.approvals.entry)

    def leave_entry(self) -> None:
        """Back to the keys of the question; the pattern or the reason is discarded."""
        self._bottom.approvals.leave_entry()
        self._buffer.reset()

    def answer(self, choice: ApprovalChoice | ApprovalEntry) -> None:
        asked, approvals = self._bottom.approvals.current, self._bottom.approvals
        if asked is None:
            return
        if choice == "pattern" or choice == "note":
            text = approvals.begin_entry(choice)
            self._buffer.document = Document(text, len(text))
        else:
            self.input_events.put_nowait(ApprovalKey(asked.ask, choice))

    def _send_entry(self, text: str) -> None:
        """Answer the question with the pattern or the reason that was typed."""
        answer = self._bottom.approvals.end_entry(text)
        if answer is not None:
            self._buffer.reset()
            self.input_events.put_nowait(ApprovalKey(*answer))


def make_key_bindings(actions: InputActions, buffer: Buffer) -> KeyBindings:
    keys = KeyBindings()
    typing = ~is_searching
    asked = Condition(actions.can_answer)

    def bind(*names: str, to: Callable[[], object]) -> None:
        keys.add(*names, filter=typing)(lambda _event: to())

    bind("enter", to=lambda: _enter(buffer, actions))
    bind("escape", "enter", to=lambda: buffer.newline(copy_margin=False))
    bind("c-j", to=lambda: buffer.newline(copy_margin=False))
    bind("c-c", to=actions.interrupt)
    bind("<sigint>", to=actions.interrupt)
    bind("c-d", to=lambda: buffer.delete() if buffer.text else actions.on_quit())
    bind("c-x", "c-e", to=actions.edit)
    bind("tab", to=lambda: _complete(buffer))
    for down in ("down", "c-n"):
        keys.add(down, filter=typing & has_completions)(lambda _event: select_next(buffer))
    bind("c-v", to=lambda: get_app().create_background_task(actions.paste_picture()))
    keys.add("s-tab", filter=has_completions)(lambda _event: buffer.complete_previous())
    keys.add("escape", filter=typing, eager=Condition(_is_single_key))(lambda _event: _escape(buffer, actions))
    keys.add("c-l")(lambda event: event.app.renderer.clear())
    keys.add(Keys.BracketedPaste)(lambda event: actions.paste(event.data))
    keys.add("escape", filter=asked, eager=Condition(_is_single_key))(lambda _event: actions.answer("no"))
    keys.add("escape", filter=Condition(lambda: actions.is_in_entry), eager=Condition(_is_single_key))(
        lambda _event: actions.leave_entry()
    )
    for letter, choice in KEYS.items():
        keys.add(letter, filter=asked, eager=True)(lambda _event, choice=choice: actions.answer(choice))
    bind_picker(keys, actions.picker)
    return keys


def _enter(buffer: Buffer, actions: InputActions) -> None:
    """Take the row of the open menu, send the input, or start a new line after a backslash (for terminals without
    Alt-Enter)."""
    assert isinstance(buffer.completer, InputCompleter)
    if not take_row(buffer, buffer.completer):
        return
    if buffer.document.char_before_cursor == "\\":
        buffer.delete_before_cursor()
        buffer.newline(copy_margin=False)
    else:
        actions.send()


def _complete(buffer: Buffer) -> None:
    """Select the next menu entry, or search for completions."""
    state = buffer.complete_state
    if state is not None and state.completions:
        buffer.complete_next()
    else:
        get_app().create_background_task(_complete_now(buffer))


async def _complete_now(buffer: Buffer) -> None:
    """Insert the common prefix of all completions; if there is none, open the menu.

    `Buffer.start_completion` does nothing while the menu is about to open by itself.
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


def _escape(buffer: Buffer, actions: InputActions) -> None:
    """Close the menu, or clear the input."""
    if buffer.complete_state:
        buffer.cancel_completion()
    elif buffer.text:
        actions.clear_input()


def _is_single_key() -> bool:
    """True if no other key arrived with it, so it is not the start of Alt and another key."""
    return not get_app().key_processor.input_queue
