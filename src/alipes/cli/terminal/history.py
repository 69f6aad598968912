"""What was typed before, kept in the home for the next time: a line of JSON each. It shows nothing."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from prompt_toolkit.history import History

KEPT = 1000
LARGEST = 1_000_000
"""Bytes after which the file is shortened to the last `KEPT` entries."""
LONGEST = 20_000
"""A text longer than this is remembered until the end of the process only."""


class KeptHistory(History):
    """One file, several writers: each entry is one append. A disk that fails costs the history, no more."""

    def __init__(self, path: Path, expand: Callable[[str], str] = str) -> None:
        """`expand` makes of a typed text what is worth keeping, as what was pasted in place of its mark."""
        super().__init__()
        self._path, self._expand = path, expand

    def append_string(self, string: str) -> None:
        """Remember it, unless it is what was said last."""
        if string.strip() and self._loaded_strings[:1] != [string]:
            super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        """The latest first."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return self._loaded_strings
        lines = data.splitlines()
        if len(data) > LARGEST:
            lines = lines[-KEPT:]
            self._shorten(lines)
        return [*self._loaded_strings, *_texts(lines[: -KEPT - 1 : -1])]

    def store_string(self, string: str) -> None:
        text = self._expand(string)
        if len(text) > LONGEST:
            return
        line = msgspec.json.encode(text.encode("utf-8", "replace").decode()) + b"\n"
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)

    def _shorten(self, lines: list[bytes]) -> None:
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(file, "wb") as shorter:
                shorter.write(b"".join(line + b"\n" for line in lines))
            os.replace(beside, self._path)


def _texts(lines: Iterable[bytes]) -> Iterable[str]:
    """The entries; a line that was damaged, or is no text, is passed over."""
    decode = msgspec.json.Decoder(str).decode
    for line in lines:
        with suppress(msgspec.DecodeError):
            yield decode(line)
