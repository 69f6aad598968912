"""Key bindings of the prompt and their actions."""

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from msgspec import Struct
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, Filter, has_completions, is_searching, vi_mode, vi_navigation_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPress
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import SearchDirection, start_search

from alipes.cli.terminal.input.approval import ANSWER_DELAY_S, KEYS, ApprovalEntry
from alipes.cli.terminal.input.clipboard import ClipboardPictures, mention_pasted_files
from alipes.cli.terminal.input.completion import InputCompleter, select_next, start_range, take_row
from alipes.cli.terminal.input.keyboard import CTRL_ENTER, ESCAPE_KEY, SHIFT_ENTER
from alipes.cli.terminal.screen.layout import BottomArea, PasteStore
from alipes.config.keys import REWIND_KEY, KeysConfig, short_key_table
from alipes.kernel.turns import ApprovalChoice

DOUBLE_PRESS_S = 2.0
"""A second Ctrl-C within this time quits, a second Esc opens the list of messages; another key ends that."""
KEEP_QUEUE_S = 1.0
"""An Esc so soon after a stop was meant for the stop: it does not discard the messages that the stop kept."""
QUIT_HINT, REWIND_HINT = "Press Ctrl-C again to quit", "Press Esc again to go back to a message"
EARLY_KEY = "Ignored, because the question is new. Press the key again."
EARLY_KEY_HINT_S = 3.0
SIGNAL_DELAY_S = 0.5
"""How long after the end of the editor a signal may still be meant for it."""


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


class KeyAction(Struct, frozen=True):
    """A key for the session: `expand`, `pick_model`, `pick_conversation`, `cycle_mode`, `rewind`, `background`,
    `take_back`, `take_back_all`, `send_held`, `drop_held` or `leave_job`."""

    name: str


InputEvent: TypeAlias = TypedText | StopRequest | ApprovalKey | KeyAction


class AnswerKeys:
    """Answers the approval prompt and the questions of the model."""

    def __init__(
        self,
        buffer: Buffer,
        bottom: BottomArea,
        input_events: "asyncio.Queue[InputEvent]",
        hint: Callable[[str, float], None],
    ) -> None:
        self._buffer, self._bottom, self._input_events, self._hint = buffer, bottom, input_events, hint
        self._pressed = ""
        """Keys that become an answer soon, unless other characters follow: then they are text."""
        self._timer: asyncio.TimerHandle | None = None
        self._ask = ""
        """The question that they answer."""
        self._early = False
        """They came too soon after the question, or after other keys: they are no answer."""
        self.on_answer: Callable[[], None] = lambda: None

    def can_answer(self) -> bool:
        """True if a key press answers the approval prompt."""
        return self.can_move() and self._bottom.approvals.accepts_keys and not self._pressed

    def can_move(self) -> bool:
        """True if keys are for the approval prompt."""
        approvals = self._bottom.approvals
        is_open = approvals.current is not None and not approvals.entry
        return is_open and not self._buffer.text and self._bottom.picker is None

    def is_early(self) -> bool:
        """True if a key press would be an answer a moment later."""
        return self.can_move() and not self._bottom.approvals.accepts_keys and not self._pressed

    @property
    def is_waiting(self) -> bool:
        """True between a key and its answer."""
        return bool(self._pressed)

    def accepts(self, key: str) -> bool:
        """True if the key is a letter of an answer, or the number of one. `p` says why there is no pattern."""
        keys = self._bottom.approvals.keys
        return key in (*keys, "o", "p") or key in map(str, range(1, len(keys) + 1))

    def press(self, key: str) -> None:
        """Answer with the key after a moment, or ignore it if it came too early."""
        asked = self._bottom.approvals.current
        if not self._pressed:
            self._early, self._ask = not self.can_answer(), asked.ask if asked is not None else ""
        self._pressed = self.withdraw() + key
        self._timer = asyncio.get_running_loop().call_later(ANSWER_DELAY_S, self.confirm)

    def press_enter(self) -> None:
        """Answer with the chosen answer."""
        self.press(self._bottom.approvals.chosen)
        self.confirm()

    def confirm(self) -> None:
        """Answer with the key that was pressed."""
        key, approvals = self.withdraw()[:1], self._bottom.approvals
        if not key or approvals.current is None or approvals.current.ask != self._ask:
            return
        if self._early:
            self.ignore()
        else:
            self.answer(KEYS[approvals.keys[int(key) - 1] if key.isdecimal() else key])
        self.on_answer()

    def ignore(self) -> None:
        """A key came too early: say so, and type nothing."""
        self._hint(EARLY_KEY, EARLY_KEY_HINT_S)

    def withdraw(self) -> str:
        """Forget the keys that were pressed; returns them."""
        keys, self._pressed = self._pressed, ""
        if self._timer is not None:
            self._timer.cancel()
        return keys

    def type_on(self, data: str) -> None:
        """A character follows: all are text, unless one key is held down."""
        if data == self._pressed[:1]:
            self.press(data)
        elif data.isprintable():
            self._buffer.insert_text(self.withdraw() + data)

    def answer(self, choice: ApprovalChoice | ApprovalEntry) -> None:
        asked, approvals = self._bottom.approvals.current, self._bottom.approvals
        if asked is None:
            return
        if choice == "pattern" or choice == "note":
            text = approvals.begin_entry(choice)
            self._buffer.document = Document(text, len(text))
        else:
            self._input_events.put_nowait(ApprovalKey(asked.ask, choice))

    @property
    def is_in_entry(self) -> bool:
        """True while a pattern or a reason is typed."""
        return bool(self._bottom.approvals.entry)

    def leave_entry(self) -> None:
        """Back to the keys of the question; the pattern or the reason is discarded."""
        self._bottom.approvals.leave_entry()
        self._buffer.reset()

    def send_entry(self, text: str) -> None:
        """Answer the question with the pattern or the reason that was typed."""
        answer = self._bottom.approvals.end_entry(text)
        if answer is not None:
            self._buffer.reset()
            self._input_events.put_nowait(ApprovalKey(*answer))

    def can_choose(self) -> bool:
        """True if the arrow keys choose an answer."""
        is_question = self._bottom.choices.is_open and self._bottom.approvals.current is None
        return self.can_move() or (is_question and not self._buffer.text)

    def choose(self, step: int) -> None:
        if self._bottom.approvals.current is not None:
            self._bottom.approvals.move(step)
        else:
            self._bottom.choices.move(step)


class InputActions:
    def __init__(
        self, buffer: Buffer, pastes: PasteStore, bottom: BottomArea, hint: Callable[[str, float], None]
    ) -> None:
        self._editor_closed_at = -SIGNAL_DELAY_S
        self._buffer, self._pastes, self._bottom, self._hint = buffer, pastes, bottom, hint
        self._count = 0
        self.input_events: asyncio.Queue[InputEvent] = asyncio.Queue()
        self.on_quit: Callable[[], None] = lambda: None
        self.answers = AnswerKeys(buffer, bottom, self.input_events, hint)
        self.pictures = ClipboardPictures(buffer, hint, pastes.add_picture)
        self.on_suspend: Callable[[], None] = lambda: None
        self.rewind_on_double_escape = True
        self._presses = 0
        """Keys pressed so far."""
        self._last_ctrl_c = self._last_escape = (0, -DOUBLE_PRESS_S)
        """The press and the time of the last Ctrl-C that stopped or announced to quit, and of the last Esc with nothing
        else to do."""
        self._stopped_at = -KEEP_QUEUE_S
        self._help_was_open = False
        """The keys were shown when the current key was pressed."""

    def send(self) -> None:
        """Send the input. If it is empty: the chosen answer, or the held messages."""
        text = self._buffer.text
        if self._bottom.approvals.entry:
            self.answers.send_entry(text)
        elif text.strip():
            self.clear_input()
            self._send(self._pastes.expand(text), self._pastes.show_labels(text))
        elif answer := self._bottom.choices.answer():
            self._send(*answer)
        elif self._bottom.held:
            self.request("send_held")

    def send_as(self, mode: str) -> None:
        """Send the input after the running turn, or to it; the usual way while none runs."""
        text = self._buffer.text
        if self.is_running and text.strip() and not text.startswith("/") and not self._bottom.approvals.entry:
            self.clear_input()
            self._send(f"/{mode} {self._pastes.expand(text)}", self._pastes.show_labels(text))
        else:
            self.send()

    @property
    def is_running(self) -> bool:
        return self._bottom.status.is_running

    def _send(self, text: str, shown: str) -> None:
        self._count += 1
        if self._bottom.status.hint:
            self._hint("", 0)
        typed = TypedText(f"typed {self._count}", text, shown)
        self._bottom.queued[typed.id] = shown
        if text.startswith("/queue "):
            self._bottom.after_turn.add(typed.id)
        self.input_events.put_nowait(typed)

    def request(self, name: str) -> None:
        """Ask the session to do what the key means."""
        self.input_events.put_nowait(KeyAction(name))

    def key_pressed(self) -> None:
        """A key arrived: it hides the list of keys, and no other key counts as pressed twice."""
        self._presses += 1
        if self._bottom.status.hint in (QUIT_HINT, REWIND_HINT):
            self._hint("", 0)
        self._help_was_open = bool(self._bottom.key_help)
        self._bottom.key_help = []

    def show_keys(self, keys: KeysConfig) -> None:
        """Show the keys; pressed again, type the character."""
        if self._help_was_open:
            self._buffer.insert_text(keys.show_keys[0])
        else:
            self._bottom.key_help = short_key_table(keys)

    def interrupt(self) -> None:
        """Ctrl-C: quit if pressed twice; else stop the turn, clear the input, or show a hint."""
        if self._is_second_press(self._last_ctrl_c):
            self.quit()
        elif self._is_busy:
            self._stop_turn()
            self._announce_quit()
        elif self._buffer.text:
            self.clear_input()
        else:
            self._announce_quit()

    def _announce_quit(self) -> None:
        self._last_ctrl_c = self._presses, time.monotonic()
        self._hint(QUIT_HINT, DOUBLE_PRESS_S)

    def _is_second_press(self, first: tuple[int, float]) -> bool:
        """True if no other key was pressed since the first press, shortly before."""
        presses, at = first
        return self._presses - presses <= 1 and time.monotonic() - at < DOUBLE_PRESS_S

    def quit(self) -> None:
        """Quit; the input stays in the history."""
        if self._buffer.text.strip():
            self._buffer.append_to_history()
        self.on_quit()

    def escape(self) -> None:
        """Esc: close the menu, stop the turn, clear the input, drop held messages; twice: go back to a message."""
        before, self._last_escape = self._last_escape, (0, -DOUBLE_PRESS_S)
        if self._buffer.complete_state:
            self._buffer.cancel_completion()
        elif self._help_was_open:
            pass
        elif self._is_busy and not self._bottom.approvals.current:  # which has its own keys
            self._stop_turn()
        elif self._buffer.text:
            self.clear_input()
        elif self._bottom.held:
            meant_stop = time.monotonic() - self._stopped_at < KEEP_QUEUE_S
            self.request("take_back_all" if meant_stop else "drop_held")
        elif self._bottom.is_following():
            self.request("leave_job")
        elif not self._is_busy and self.rewind_on_double_escape:
            self._rewind(is_second=self._is_second_press(before))

    def _rewind(self, *, is_second: bool) -> None:
        if is_second:
            self._hint("", 0)
            self.request("rewind")
        else:
            self._last_escape = self._presses, time.monotonic()
            self._hint(REWIND_HINT, DOUBLE_PRESS_S)

    @property
    def _is_busy(self) -> bool:
        """A turn is running, or a message was sent and its turn starts soon."""
        return self._bottom.status.is_running or bool(self._bottom.queued)

    def _stop_turn(self) -> None:
        self._stopped_at = time.monotonic()
        self.input_events.put_nowait(StopRequest())
        self._bottom.status.activity = "stopping"

    def clear_input(self) -> None:
        """Clear the input, but keep it in the history."""
        self._buffer.reset(append_to_history=True)
        self._buffer.load_history_if_not_yet_loaded()

    def put_text(self, text: str) -> None:
        """Put a text into the input for editing."""
        if self._buffer.text:
            self.clear_input()
        self._buffer.insert_text(self._pastes.collapse(text))

    def stash(self) -> None:
        """Put the draft aside, or bring back the one that was; a new one changes places with it."""
        draft, stashed = self._buffer.text, self._bottom.stashed
        if not draft.strip() and not stashed:
            self._hint("There is no draft to put aside", 3.0)
            return
        self.clear_input()
        self._buffer.insert_text(stashed)
        self._bottom.stashed = draft if draft.strip() else ""

    def edit(self) -> None:
        self._buffer.text = self._pastes.expand(self._buffer.text)
        self._editor_closed_at = math.inf
        self._buffer.open_in_editor().add_done_callback(lambda _: self._note_editor_closed())

    def _note_editor_closed(self) -> None:
        self._editor_closed_at = time.monotonic()

    @property
    def ignores_signals(self) -> bool:
        """True while another program has the terminal, and a moment longer: its Ctrl-C may reach us after its end."""
        is_editing = time.monotonic() < self._editor_closed_at + SIGNAL_DELAY_S
        return get_app()._running_in_terminal or is_editing

    def paste(self, data: str) -> None:
        """Insert pasted text. Dropped pictures and files become `@` mentions."""
        self._buffer.insert_text(mention_pasted_files(data) or self._pastes.collapse(data))

    def delete_or_quit(self) -> None:
        if self._buffer.text:
            self._buffer.delete()
        else:
            self.quit()

    def can_take_back(self) -> bool:
        waits = bool(self._bottom.queued or self._bottom.held)
        return waits and not self._buffer.text and not self.answers.can_choose()


_SESSION_KEYS = ("expand", "pick_model", "pick_conversation")
_SHIFTED = (Keys.Left, Keys.Right, Keys.Up, Keys.Down, Keys.Home, Keys.End)
_CTRL_SHIFTED = (Keys.Left, Keys.Right, Keys.Home, Keys.End)


def make_key_bindings(actions: InputActions, buffer: Buffer, keys: KeysConfig | None = None) -> KeyBindings:
    keys = keys or KeysConfig()
    actions.rewind_on_double_escape = REWIND_KEY in keys.rewind
    made, typing = KeyBindings(), ~is_searching
    empty, asked, lone = (
        Condition(each) for each in (lambda: not buffer.text, actions.answers.can_answer, _is_single_key)
    )
    _ignore_other_keys(made)

    def bind(names: tuple[str, ...], to: Callable[[], object], when: Filter = typing) -> None:
        for sequence in (to_sequence(name) for name in names if name != REWIND_KEY):
            eager = lone if sequence == ("escape",) else False
            made.add(*sequence, filter=when, eager=eager)(lambda _event: to())

    bind(keys.send, lambda: _enter(buffer, actions))
    bind(keys.queue, lambda: actions.send_as("queue"))
    bind(keys.steer, lambda: actions.send_as("steer"))
    bind(keys.background, lambda: actions.request("background"), typing & Condition(lambda: actions.is_running))
    bind(keys.newline, lambda: buffer.newline(copy_margin=False))
    bind(keys.interrupt, actions.interrupt)
    bind(("<sigint>",), actions.interrupt, ~Condition(lambda: actions.ignores_signals))
    bind(keys.quit, actions.delete_or_quit)
    bind(keys.suspend, lambda: actions.on_suspend())
    bind(keys.stash, actions.stash, typing & ~Condition(lambda: actions.answers.is_in_entry))
    bind(keys.editor, actions.edit)
    bind(keys.complete, lambda: _complete(buffer))
    bind(keys.search, lambda: start_search(direction=SearchDirection.BACKWARD), typing & ~vi_navigation_mode)
    bind(keys.clear_screen, lambda: get_app().renderer.clear())
    bind(keys.rewind, lambda: actions.request("rewind"), typing & empty)
    bind(keys.show_keys, lambda: actions.show_keys(keys), typing & empty & ~vi_navigation_mode)
    bind(keys.cycle_mode, lambda: actions.request("cycle_mode"))
    made.add("s-tab", filter=has_completions)(lambda _event: buffer.complete_previous())
    bind(("down", "c-n"), lambda: select_next(buffer), typing & has_completions)
    bind(keys.paste_picture, actions.pictures.request, typing & ~vi_navigation_mode)
    bind(keys.take_back, lambda: actions.request("take_back"), typing & Condition(actions.can_take_back))
    for name in _SESSION_KEYS:
        bind(getattr(keys, name), lambda name=name: actions.request(name))  # type: ignore[misc]
    bind(keys.stop, actions.escape)
    made.add("escape", filter=typing & vi_mode & ~vi_navigation_mode, eager=lone)(_leave_insert_mode)
    made.add(Keys.BracketedPaste)(lambda event: actions.paste(event.data))
    made.add(":", filter=typing & ~vi_navigation_mode & Condition(lambda: _follows_file(buffer)))(
        lambda _event: start_range(buffer)
    )
    _bind_answers(made, actions.answers, asked)
    return made


def _bind_answers(made: KeyBindings, answers: AnswerKeys, asked: Filter) -> None:
    """The keys that answer an approval prompt or choose an answer."""
    moving, early = Condition(answers.can_move), Condition(answers.is_early)
    choosing = Condition(answers.can_choose)
    for name, step, when in (("up", -1, choosing), ("down", 1, choosing), ("left", -1, moving), ("right", 1, moving)):
        made.add(name, filter=when)(lambda _event, step=step: answers.choose(step))
    lone = Condition(_is_single_key)
    made.add("escape", filter=asked, eager=lone)(lambda _event: answers.answer("no"))
    made.add("escape", filter=early, eager=lone)(lambda _event: answers.ignore())
    made.add("escape", filter=Condition(lambda: answers.is_in_entry), eager=lone)(lambda _event: answers.leave_entry())
    made.add("enter", filter=asked | early)(lambda _event: answers.press_enter())
    waiting = Condition(lambda: answers.is_waiting)
    made.add("escape", filter=waiting, eager=lone)(lambda _event: answers.withdraw())
    made.add("c-c", filter=waiting)(lambda _event: answers.withdraw())
    made.add("enter", filter=waiting)(lambda _event: answers.confirm())
    made.add(Keys.Any, filter=waiting)(lambda event: answers.type_on(event.data))
    for key in (*KEYS, *"123456"):
        accepted = Condition(partial(answers.accepts, key))
        made.add(key, filter=(asked | early) & accepted, eager=True)(lambda _event, key=key: answers.press(key))


def _ignore_other_keys(made: KeyBindings) -> None:
    """Keys without an action must not change the input. Bindings that are added later are stronger."""

    @made.add("escape", eager=Condition(_is_single_key), filter=~is_searching)
    @made.add("escape", Keys.Any)
    @made.add("escape", "#")
    @made.add("c-o")
    @made.add("c-z")
    @made.add("c-@")
    @made.add(SHIFT_ENTER)
    @made.add(CTRL_ENTER)
    def _ignore(_event: KeyPressEvent) -> None:
        pass

    for char in "0123456789-*":  # would repeat the next key, or insert all completions
        made.add("escape", char)(_ignore)
    # A selection would not be visible, and typing would replace it.
    for prefix, moves in (("s", _SHIFTED), ("c-s", _CTRL_SHIFTED)):
        for key in moves:
            made.add(f"{prefix}-{key.value}")(lambda event, key=key: _press(event, key))


def _press(event: KeyPressEvent, key: Keys) -> None:
    event.key_processor.feed(KeyPress(key), first=True)


def to_sequence(key: str) -> tuple[str, ...]:
    """The keys of prompt_toolkit for a key of the settings."""
    special = {"space": " ", "s-enter": SHIFT_ENTER, "c-enter": CTRL_ENTER}
    found: list[str] = []
    for stroke in key.split():
        if stroke.startswith("a-"):
            found.append("escape")
            stroke = stroke[2:]
        found.append(special.get(stroke, stroke))
    return tuple(found)


def _enter(buffer: Buffer, actions: InputActions) -> None:
    """Take the row of the open menu, send the input, or start a new line after a backslash (for terminals without
    Shift-Enter)."""
    assert isinstance(buffer.completer, InputCompleter)
    if not take_row(buffer, buffer.completer):
        return
    if buffer.document.char_before_cursor == "\\":
        buffer.delete_before_cursor()
        buffer.newline(copy_margin=False)
    else:
        actions.send()


def _follows_file(buffer: Buffer) -> bool:
    return isinstance(buffer.completer, InputCompleter) and buffer.completer.follows_file(buffer)


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
        assert isinstance(buffer.completer, InputCompleter)
        buffer.completer.file_completed(buffer)
    elif common := get_common_complete_suffix(document, found):
        buffer.insert_text(common)
    else:
        buffer.complete_state = CompletionState(document, found)
        buffer.on_completions_changed.fire()


def _leave_insert_mode(event: KeyPressEvent) -> None:
    """Esc in Vim mode: go to the navigation mode."""
    buffer, state = event.current_buffer, event.app.vi_state
    if state.input_mode in (InputMode.INSERT, InputMode.REPLACE):
        buffer.cursor_position += buffer.document.get_cursor_left_position()
    state.input_mode = InputMode.NAVIGATION
    if buffer.selection_state:
        buffer.exit_selection()


def _is_single_key() -> bool:
    """True if the current key is Escape itself, not the start of Alt and another key."""
    pressed = get_app().key_processor.key_buffer
    return bool(pressed) and pressed[-1].data == ESCAPE_KEY
