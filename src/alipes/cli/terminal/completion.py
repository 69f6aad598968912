"""What a half-typed word may become: commands, models, files. And the menu that shows it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from alipes.cli.render import one_line
from alipes.cli.terminal.styles import Look, shortened, styled
from alipes.cli.width import width

MENU = 6
"""Rows of the menu."""
MOST = 200
"""Files that are offered."""

Choices = Callable[[], Iterable[str]]


class Words(Completer):
    """Completes by what it was given so far; commands and models come when they are loaded."""

    def __init__(self) -> None:
        self.commands: Sequence[tuple[str, str]] = ()
        """With the stroke, and what it does."""
        self.arguments: dict[str, Choices] = {}
        """By command, what may follow it."""

    def asks(self, text: str) -> bool:
        """Whether the menu opens by itself: for a command, what follows one, and a file after `@`."""
        if text.startswith("/") and "\n" not in text:
            name, blank, _ = text.partition(" ")
            return not blank or name in self.arguments
        return _last_word(text).startswith("@")

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Those that take no waiting."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, blank, word = text.partition(" ")
        if not blank:
            for command, meaning in self.commands:
                if command.startswith(name):
                    yield Completion(command, -len(name), display_meta=meaning)
        elif name in self.arguments:
            found = [choice for choice in self.arguments[name]() if word.lower() in choice.lower()]
            found.sort(key=lambda choice: not choice.lower().startswith(word.lower()))
            for choice in found:
                yield Completion(choice, -len(word))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        offered = list(self.get_completions(document, complete_event))
        for completion in offered:
            yield completion
        text = document.text_before_cursor
        word = _last_word(text)
        if offered or (not word.startswith("@") and not complete_event.completion_requested):
            return
        path = word.removeprefix("@")
        for name in await asyncio.to_thread(files, path):
            yield Completion(name, -len(path.rpartition("/")[2]), display=name)


def files(path: str) -> list[str]:
    """The names in the folder of `path` that begin like its last part, folders first and with a slash."""
    folder, _, begin = path.rpartition("/")
    where = os.path.expanduser(folder + "/" if "/" in path else ".")
    found: list[tuple[bool, str]] = []
    try:
        with os.scandir(where) as entries:
            for entry in entries:
                if entry.name.startswith(begin) and (begin or not entry.name.startswith(".")):
                    found.append((not entry.is_dir(), entry.name))
    except (OSError, ValueError):
        return []
    found.sort()
    names = [name if is_file else name + "/" for is_file, name in found[:MOST]]
    return [name for name in names if name.isprintable()]


def menu(state: CompletionState | None, columns: int, look: Look) -> list[str]:
    """The rows of the menu: the chosen one among its neighbours."""
    if state is None or not state.completions:
        return []
    chosen = state.complete_index
    first = max(0, min((chosen or 0) - MENU + 2, len(state.completions) - MENU))
    shown = state.completions[first : first + MENU]
    names = [shortened(one_line(one.display_text), max(4, columns // 2), look.more) for one in shown]
    room = max(width(name) for name in names)
    rows = []
    for number, (one, name) in enumerate(zip(shown, names, strict=True), first):
        meaning = shortened(one_line(one.display_meta_text), max(0, columns - room - 6), look.more)
        gap = " " * (room - width(name) + 2) if one.display_meta_text else ""
        mark, style = (look.prompt, look.accent) if number == chosen else (" ", "")
        rows.append(f"{styled(mark, style)} {styled(name, style)}{gap}{styled(meaning, look.faint)}")
    if (left := len(state.completions) - len(shown)) > 0:
        rows.append("  " + styled(f"{look.more} {left} more", look.faint))
    return rows


def _last_word(text: str) -> str:
    return text[max(text.rfind(blank) for blank in " \n\t") + 1 :]


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
