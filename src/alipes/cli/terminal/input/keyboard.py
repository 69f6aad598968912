"""Reads keys: understands the keyboard protocols of terminals and removes their replies from the input."""

import codecs
import fcntl
import os
import re
import select
import sys
import termios
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, TextIO, TypeAlias

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

KeyboardProtocol: TypeAlias = Literal["", "kitty", "xterm"]
"""How the terminal reports keys such as Shift-Enter; empty if it cannot."""
BACKGROUND_QUERY = "\x1b]11;?\x1b\\"
KEYBOARD_QUERY = "\x1b[?u\x1b[c"
"""Asks for the kitty protocol. Every terminal answers the second sequence, so a missing first answer is noticed."""
PROTOCOL_ON = {"kitty": "\x1b[>5u", "xterm": "\x1b[>4;1m"}
PROTOCOL_OFF = {"kitty": "\x1b[<u", "xterm": "\x1b[>4m"}
REPLY_TIMEOUT_S = 2.0
"""How long to wait for the rest of a reply of the terminal."""
READ_SIZE = 65_536
ESCAPE_KEY = "Escape"
"""The data of a press of the Escape key itself; before another key, an escape character means Alt."""
SHIFT_ENTER, CTRL_ENTER = "\U0010ff0d", "\U0010ff1d"
"""Keys that prompt_toolkit has no name for."""
_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
_HEX = "([0-9a-fA-F]{1,4})"
_BACKGROUND = re.compile(rf"\x1b\]11;rgba?:{_HEX}/{_HEX}/{_HEX}[^\x07\x1b]*(?:\x07|\x1b\\)")
_PARTIAL_REPLY = re.compile(r"\x1b\](?:1(?:1(?:;[^\x07\x1b]*\x1b?)?)?)?\Z")
_SEQUENCE = re.compile(r"\x1b(?:\[(?:M...|\[[A-E]|[0-9;:<=>?]*[ -/]*[@-Z\\-~])|O[0-9]?[A-Za-z])", re.DOTALL)
_PARTIAL_SEQUENCE = re.compile(r"\x1b(?:\[(?:M.{0,2}|\[|[0-9;:<=>?]*[ -/]*)?|O[0-9]?)?\Z", re.DOTALL)
_NUMBERED = re.compile(r"\x1b\[([0-9]+)(?::[0-9]*)?(?::([0-9]+))?(?:;([0-9]+))?[0-9;:]*u")
"""The kitty protocol: code, code on a Latin keyboard, modifiers."""
_OTHER_KEY = re.compile(r"\x1b\[27;([0-9]+);([0-9]+)~")
"""xterm's modifyOtherKeys: modifiers, code."""
_MODIFIED = re.compile(r"\x1b\[([0-9]+);([0-9]+)(?::[0-9]+)?([~A-HPQS])")
_SHIFT, _ALT, _CTRL, _LOCKS = 1, 2, 4, 64 | 128
_FUNCTION_KEYS = {"\x1b[P": "\x1bOP", "\x1b[Q": "\x1bOQ", "\x1b[S": "\x1bOS"}
_KEYPAD: dict[int, str] = dict(enumerate((*"0123456789.", *"/*-+", "\r", "=", ","), 57399)) | {
    **dict(enumerate(("\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"), 57417)),
    **dict(enumerate(("\x1b[H", "\x1b[F", "\x1b[2~", "\x1b[3~"), 57423)),
}
_CTRL_SIGNS = {" ": "\x00", "@": "\x00", "\\": "\x1c", "]": "\x1d", "^": "\x1e", "_": "\x1f", "/": "\x1f", "-": "\x1f"}


class Keyboard(Vt100Input):
    """Reads keys like prompt_toolkit, with two differences: it knows Escape from Alt, and unknown keys type nothing."""

    def __init__(
        self,
        stdin: TextIO,
        on_background: Callable[[bool], None],
        on_protocol: Callable[[KeyboardProtocol], None] = lambda _protocol: None,
    ) -> None:
        """`on_background(dark)` and `on_protocol(protocol)` are called when the terminal reports them."""
        super().__init__(stdin)
        self._on_background, self._on_protocol = on_background, on_protocol
        self._query_time = 0.0
        self._protocol: KeyboardProtocol = ""
        self._held = ""
        """The start of a sequence whose rest has not arrived."""
        self._closed = False
        self._typed_ahead = 0
        """Bytes typed before the start, when the terminal still turned Enter into a line feed."""
        # Invalid bytes are shown as replacement characters: they could not be saved or sent.
        self._decoder = codecs.getincrementaldecoder(stdin.encoding)("replace")

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def awaits_reply(self) -> bool:
        """A reply may still arrive."""
        return bool(self._query_time) and time.monotonic() - self._query_time < REPLY_TIMEOUT_S

    def query_sent(self) -> None:
        self._query_time = time.monotonic()

    def raw_mode(self) -> AbstractContextManager[None]:
        waiting = fcntl.ioctl(self._fileno, termios.FIONREAD, b"\0\0\0\0")
        self._typed_ahead = int.from_bytes(waiting, sys.byteorder)
        return super().raw_mode()

    def read_keys(self) -> list[KeyPress]:
        data, held = self._read(), self._held
        if data:
            self._held = ""
            if held == "\x1b" and not data.startswith(("[", "O", "]")):
                self._press_escape()  # Alt and a key would have arrived together
                held = ""
            self._parse(held + data)
        return self._take_keys()

    def flush_keys(self) -> list[KeyPress]:
        """The keys of a sequence whose rest did not arrive in time."""
        held = self._held
        if not held.startswith("\x1b]") or not self.awaits_reply:
            self._held = ""
            if held == "\x1b":
                self._press_escape()
            elif held[:2] in ("\x1b]", "\x1bO") or held == "\x1b[":
                self._feed(held)
        self.vt100_parser.flush()
        return self._take_keys()

    def _take_keys(self) -> list[KeyPress]:
        keys, self._buffer = self._buffer, []
        return keys

    def _read(self) -> str:
        """The typed text. End of file or an error closes the keyboard."""
        try:
            if self._closed or not select.select([self._fileno], [], [], 0)[0]:
                return ""
            data = os.read(self._fileno, READ_SIZE)
        except OSError:
            data = b""
        self._closed = not data
        if self._typed_ahead > 0:
            data = data[: self._typed_ahead].replace(b"\n", b"\r") + data[self._typed_ahead :]
            self._typed_ahead -= len(data)
        return self._decoder.decode(data)

    def _parse(self, data: str) -> None:
        while data:
            if self.vt100_parser._in_bracketed_paste:
                pasted, mark, data = data.partition(_PASTE_END)
                self.vt100_parser.feed(pasted + mark)
                continue
            text, escape, rest = data.partition("\x1b")
            self.vt100_parser.feed(text)
            data = self._parse_escape(escape + rest) if escape else ""

    def _parse_escape(self, data: str) -> str:
        """Handle the sequence at the start of `data`; returns the data after it."""
        if self._query_time and (found := _BACKGROUND.match(data)):
            self._query_time -= REPLY_TIMEOUT_S
            red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
            self._on_background(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)
            return data[found.end() :]
        if _PARTIAL_SEQUENCE.match(data) or (self.awaits_reply and _PARTIAL_REPLY.match(data)):
            self._held = data
            return ""
        if found := _SEQUENCE.match(data):
            self._handle_sequence(found[0])
            return data[found.end() :]
        if data.startswith("\x1b\x1b"):
            if (after := _SEQUENCE.match(data, 1)) is None:
                self._press_escape()
                return data[1:]
            self._feed("\x1b")  # Alt, as iTerm sends it for arrow keys
            self._handle_sequence(after[0])
            return data[after.end() :]
        self._feed(data[:2])
        return data[2:]

    def _handle_sequence(self, sequence: str) -> None:
        """Handle a whole sequence: a reply, a key, or something unknown, which is dropped."""
        if sequence.startswith("\x1b[?"):
            self._handle_reply(sequence)
        elif sequence == _PASTE_START or sequence.startswith("\x1b[M"):
            self.vt100_parser.feed(sequence)
        elif found := _NUMBERED.fullmatch(sequence):
            code, latin, modifiers = (int(part or 0) for part in found.groups())
            self._press_code(code, latin, modifiers)
        elif found := _OTHER_KEY.fullmatch(sequence):
            self._press_code(int(found[2]), 0, int(found[1]))
        else:
            sequence = _FUNCTION_KEYS.get(sequence, sequence)
            if sequence not in ANSI_SEQUENCES and (found := _MODIFIED.fullmatch(sequence)):
                sequence = _without_locks(*found.groups())
            if sequence in ANSI_SEQUENCES:
                self._feed(sequence)

    def _handle_reply(self, sequence: str) -> None:
        if sequence.endswith("u"):
            self._protocol = "kitty"
        elif sequence.endswith("c") and self._query_time:
            self._query_time -= REPLY_TIMEOUT_S  # the last reply
            self._protocol = self._protocol or "xterm"
        else:
            return
        self._on_protocol(self._protocol)

    def _press_code(self, code: int, latin: int, modifiers: int) -> None:
        """Press a key by its code; combinations that nothing can be bound to are dropped."""
        held = (max(1, modifiers) - 1) & ~_LOCKS
        code = latin if latin and code > 127 and held & (_CTRL | _ALT) else code
        alt, ctrl, shift = bool(held & _ALT), bool(held & _CTRL), bool(held & _SHIFT)
        if held & ~(_SHIFT | _ALT | _CTRL) or code > 0x10FFFF:
            return
        if code == 27 or (ctrl and code == ord("[")):
            if not alt:
                self._press_escape()
        elif code == 13 and (ctrl or shift):
            self._buffer.append(KeyPress(CTRL_ENTER if ctrl else SHIFT_ENTER))
        elif text := _legacy_text(code, ctrl=ctrl, shift=shift):
            self._feed("\x1b" + text if alt else text)

    def _press_escape(self) -> None:
        self.vt100_parser.flush()
        self._buffer.append(KeyPress(Keys.Escape, ESCAPE_KEY))

    def _feed(self, sequence: str) -> None:
        """Parse a whole sequence."""
        self.vt100_parser.feed(sequence)
        self.vt100_parser.flush()


def _legacy_text(code: int, *, ctrl: bool, shift: bool) -> str:
    """What a terminal without the protocol sends for the key; empty if it sends nothing useful."""
    if code in _KEYPAD:
        return _KEYPAD[code]
    char = chr(code)
    if code == 9:
        return "\x1b[Z" if shift else "\t"
    if code == 127:
        return "\x17" if ctrl else "\x7f"
    if ctrl:
        is_letter = char.isascii() and char.isalpha() and not shift
        return chr(ord(char.lower()) - 96) if is_letter else _CTRL_SIGNS.get(char, "")
    if code == 13:
        return "\r"
    is_private = 0xE000 <= code <= 0xF8FF
    return "" if is_private or not char.isprintable() else char.upper() if shift else char


def _without_locks(number: str, modifiers: str, end: str) -> str:
    """The sequence of a key without Caps Lock and Num Lock."""
    held = (max(1, int(modifiers)) - 1) & ~_LOCKS
    if held:
        return f"\x1b[{number};{held + 1}{end}"
    if end == "~":
        return f"\x1b[{number}~"
    return f"\x1bO{end}" if end in "PQS" else f"\x1b[{end}"
