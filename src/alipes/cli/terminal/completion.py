"""Completion of commands, arguments and files, the completion menu, and the input history."""

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

from alipes.cli.render import to_one_line, truncate
from alipes.cli.terminal.styles import TerminalStyle, apply_style
from alipes.cli.width import display_width

MENU_ROWS = 6
MAX_FILES = 200

ListChoices = Callable[[], Iterable[str]]


class InputCompleter(Completer):
    """Completes commands, their arguments and files; `commands` and `arguments` are set once loaded."""

    def __init__(self) -> None:
        self.commands: Sequence[tuple[str, str]] = ()
        """Command with its slash, and its description."""
        self.arguments: dict[str, ListChoices] = {}

    def opens_menu(self, text: str) -> bool:
        """True if the menu opens by itself: for a command, its argument, or a file after `@`."""
        if text.startswith("/") and "\n" not in text:
            name, blank, _ = text.partition(" ")
            return not blank or name in self.arguments
        return _last_word(text).startswith("@")

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Completions that need no file access."""
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
        for name in await asyncio.to_thread(list_files, path):
            yield Completion(name, -len(path.rpartition("/")[2]), display=name)


def list_files(path: str) -> list[str]:
    """The files whose path starts with `path`, directories first and with a slash."""
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
    names = [name if is_file else name + "/" for is_file, name in found[:MAX_FILES]]
    return [name for name in names if name.isprintable()]


def render_menu(state: CompletionState | None, columns: int, style: TerminalStyle) -> list[str]:
    """The rows of the menu around the selected entry."""
    if state is None or not state.completions:
        return []
    chosen = state.complete_index
    first = max(0, min((chosen or 0) - MENU_ROWS + 2, len(state.completions) - MENU_ROWS))
    shown = state.completions[first : first + MENU_ROWS]
    names = [truncate(to_one_line(one.display_text), max(4, columns // 2), style.more) for one in shown]
    room = max(display_width(name) for name in names)
    rows = []
    for number, (one, name) in enumerate(zip(shown, names, strict=True), first):
        meaning = truncate(to_one_line(one.display_meta_text), max(0, columns - room - 6), style.more)
        gap = " " * (room - display_width(name) + 2) if one.display_meta_text else ""
        mark, sgr = (style.chosen, style.accent) if number == chosen else (" ", "")
        rows.append(f"{apply_style(mark, sgr)} {apply_style(name, sgr)}{gap}{apply_style(meaning, style.faint)}")
    if (left := len(state.completions) - len(shown)) > 0:
        rows.append("  " + apply_style(f"{style.more} {left} more", style.faint))
    return rows


def _last_word(text: str) -> str:
    return text[max(text.rfind(blank) for blank in " \n\t") + 1 :]


MAX_ENTRIES = 1000
MAX_FILE_BYTES = 1_000_000
"""A larger file is cut to the last `MAX_ENTRIES` entries."""
MAX_ENTRY_CHARS = 20_000
"""Longer texts are not saved in the file."""


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class InputHistory(History):
    """The input history in a file that several processes append to. Disk errors are ignored."""

    def __init__(self, path: Path, expand: Callable[[str], str] = str) -> None:
        """`expand` replaces paste marks by their text."""
        super().__init__()
        self._path, self._expand = path, expand

    def append_string(self, string: str) -> None:
        """Add the text unless it equals the last entry."""
        if string.strip() and self._loaded_strings[:1] != [string]:
            super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        """The entries, latest first."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return self._loaded_strings
        lines = data.splitlines()
        if len(data) > MAX_FILE_BYTES:
            lines = lines[-MAX_ENTRIES:]
            self._shorten(lines)
        entries, decode = [], msgspec.json.Decoder(str).decode
        for line in lines[: -MAX_ENTRIES - 1 : -1]:
            with suppress(msgspec.DecodeError):  # a damaged line is skipped
                entries.append(decode(line))
        return [*self._loaded_strings, *entries]

    def store_string(self, string: str) -> None:
        text = self._expand(string)
        if len(text) > MAX_ENTRY_CHARS:
            return
        line = msgspec.json.encode(text.encode("utf-8", "replace").decode()) + b"\n"
        with suppress(OSError), open(self._path, "ab", buffering=0, opener=_open_private) as file:
            file.write(line)

    def _shorten(self, lines: list[bytes]) -> None:
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            with open(beside, "xb", opener=_open_private) as shorter:
                shorter.write(b"".join(line + b"\n" for line in lines))
            os.replace(beside, self._path)
