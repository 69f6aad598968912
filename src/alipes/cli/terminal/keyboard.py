"""The keys of a terminal, and between them its answer to the one thing we ask it: its background colour."""

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
from typing import TextIO

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress

QUESTION = "\x1b]11;?\x1b\\"
PATIENCE = 2.0
"""Seconds in which half an answer is waited for."""
PIECE = 65_536
_PART = "([0-9a-fA-F]{1,4})"
_ANSWER = re.compile(rf"\x1b\]11;rgba?:{_PART}/{_PART}/{_PART}[^\x07\x1b]*(?:\x07|\x1b\\)")
_HALF = re.compile(r"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]*\x1b?)?)?)?)?\Z")


class Keyboard(Vt100Input):
    """Reads keys as prompt_toolkit does. An answer of the terminal never reaches what is being typed."""

    def __init__(self, stdin: TextIO, on_background: Callable[[bool], None]) -> None:
        """`on_background(dark)` is called when the terminal has told its background."""
        super().__init__(stdin)
        self._on_background = on_background
        self._asked = 0.0
        self._held = ""
        self._gone = False
        self._ahead = 0
        """Bytes typed before we came: the terminal took Enter for the end of a line then."""
        # Bytes that are no text are shown as such: nothing that is kept or sent could take them.
        self._decoder = codecs.getincrementaldecoder(stdin.encoding)("replace")

    @property
    def closed(self) -> bool:
        return self._gone

    @property
    def expecting(self) -> bool:
        """An answer may still come."""
        return bool(self._asked) and time.monotonic() - self._asked < PATIENCE

    def asked(self) -> None:
        """The question was sent."""
        self._asked = time.monotonic()

    def raw_mode(self) -> AbstractContextManager[None]:
        waiting = fcntl.ioctl(self._fileno, termios.FIONREAD, b"\0\0\0\0")
        self._ahead = int.from_bytes(waiting, sys.byteorder)
        return super().raw_mode()

    def read_keys(self) -> list[KeyPress]:
        self.vt100_parser.feed(self._without_answer(self._read()))
        return self._taken()

    def flush_keys(self) -> list[KeyPress]:
        if self._held == "\x1b" or not self.expecting:  # a key after all
            self.vt100_parser.feed(self._held)
            self._held = ""
        self.vt100_parser.flush()
        return self._taken()

    def _taken(self) -> list[KeyPress]:
        keys, self._buffer = self._buffer, []
        return keys

    def _read(self) -> str:
        """What has been typed; the end of the terminal, or its loss, closes us."""
        try:
            if self._gone or not select.select([self._fileno], [], [], 0)[0]:
                return ""
            data = os.read(self._fileno, PIECE)
        except OSError:
            data = b""
        self._gone = not data
        if self._ahead > 0:
            data = data[: self._ahead].replace(b"\n", b"\r") + data[self._ahead :]
            self._ahead -= len(data)
        return self._decoder.decode(data)

    def _without_answer(self, data: str) -> str:
        if not self._asked:
            return data
        data, self._held = self._held + data, ""
        if found := _ANSWER.search(data):
            self._asked -= PATIENCE
            red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
            self._on_background(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)
            data = data[: found.start()] + data[found.end() :]
        elif self.expecting and (half := _HALF.search(data)):
            data, self._held = data[: half.start()], half[0]
        return data
