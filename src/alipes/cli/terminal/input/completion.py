"""Completion of commands, arguments and files, the completion menu, and the input history."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from alipes.console.render import to_one_line, truncate
from alipes.console.styles import TerminalStyle, apply_style
from alipes.console.width import display_width
from alipes.runtime.fuzzy import PREFIX, best_matches, score_match

_MENTION = re.compile(r'(?:(?<=[\s(\[{,;])|^)@(?:"[^"\n]*|[^\s"]*)\Z')
MENU_ROWS = 6
MAX_FILES = 200
MAX_CHOICES = 200


class CommandEntry(NamedTuple):
    """A command as the menu offers it."""

    name: str
    """With its slash."""
    help: str = ""
    needs_argument: bool = False
    """It does nothing without an argument, so Enter only completes its name."""
    aliases: tuple[str, ...] = ()
    """With their slashes."""


class ArgumentChoice(NamedTuple):
    """An argument of a command."""

    text: str
    """What is inserted."""
    shown: str = ""
    """What the menu shows and what is searched; empty: the text."""
    detail: str = ""


ListChoices = Callable[[], Iterable[str]]
LoadChoices = Callable[[], Awaitable[Sequence[ArgumentChoice]]]


class FileSearch(Protocol):
    """Finds files of the folder."""

    async def search(self, query: str) -> list[str]: ...


class InputCompleter(Completer):
    """Completes commands, their arguments and files; what it offers is set once the session is loaded."""

    def __init__(self) -> None:
        self._commands: tuple[CommandEntry, ...] = ()
        self.arguments: dict[str, ListChoices] = {}
        """Arguments that are known at once, by command."""
        self.loaded_arguments: dict[str, LoadChoices] = {}
        """Arguments that must be loaded, by command."""
        self.files: FileSearch | None = None
        self._completed = ""
        """The text before the cursor when a file was completed."""

    @property
    def commands(self) -> Sequence[CommandEntry]:
        return self._commands

    @commands.setter
    def commands(self, entries: Sequence[tuple[str, str] | CommandEntry]) -> None:
        self._commands = tuple(CommandEntry(*entry) for entry in entries)

    def opens_menu(self, text: str) -> bool:
        """True if the menu opens by itself: for a command, its argument, or a file after `@`."""
        if text.startswith("/") and "\n" not in text:
            name, blank, _ = text.partition(" ")
            if not blank:
                return "/" not in name[1:]
            if name in self.arguments or name in self.loaded_arguments:
                return True
        return find_mention(text) is not None

    def file_completed(self, buffer: Buffer) -> None:
        """A row of the menu was inserted; remember it if it is a file."""
        text = buffer.document.text_before_cursor
        self._completed = text if re.search(r'@(?:"[^"\n]*"|[^\s"]+) \Z', text) else ""

    def follows_file(self, buffer: Buffer) -> bool:
        """True directly after a completed file and the blank that its completion added."""
        text, state = buffer.document.text_before_cursor, buffer.complete_state
        row = state.current_completion if state is not None else None
        chosen = row is not None and row.text.startswith("@") and row.text.endswith(" ") and text.endswith(row.text)
        return chosen or (bool(text) and text == self._completed)

    def find_command(self, name: str) -> CommandEntry | None:
        """The command with this name or alias."""
        return next((entry for entry in self._commands if name == entry.name or name in entry.aliases), None)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Completions that need no file access."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, blank, word = text.partition(" ")
        if not blank:
            yield from self._complete_command(name)
        elif name in self.arguments:
            yield from _complete_argument([ArgumentChoice(each) for each in self.arguments[name]()], word)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        offered = list(self.get_completions(document, complete_event))
        text = document.text_before_cursor
        name, blank, word = text.partition(" ")
        if blank and "\n" not in text and name in self.loaded_arguments:
            offered = list(_complete_argument(await self.loaded_arguments[name](), word))
            if not offered and find_mention(text) is None:
                return  # its argument is not a file
        if not offered:
            offered = await self._complete_file(text, requested=complete_event.completion_requested)
        for completion in offered:
            yield completion

    def _complete_command(self, name: str) -> Iterator[Completion]:
        rows = [(entry.name, entry.help) for entry in self._commands]
        rows += [(alias, f"same as {entry.name}") for entry in self._commands for alias in entry.aliases]
        if name == "/":
            rows = rows[: len(self._commands)]
        found = best_matches(name[1:], rows, lambda row: row[0][1:], limit=MAX_CHOICES, score=_score_command)
        for command, meaning in found:
            yield Completion(command, -len(name), display_meta=meaning)

    async def _complete_file(self, text: str, *, requested: bool) -> list[Completion]:
        mention = find_mention(text)
        if mention is None:
            if not requested:
                return []
            path = _last_word(text)
            names = await asyncio.to_thread(list_files, path)
            return [Completion(name, -len(path.rpartition("/")[2]), display=name) for name in names]
        path = mention.removeprefix("@").removeprefix('"')
        if self.files is None or path.startswith(("/", "~", "./", "../")):
            folder = path[: path.rfind("/") + 1]
            found = [folder + name for name in await asyncio.to_thread(list_files, path)]
        else:
            found = await self.files.search(path)
        return [Completion(quote_mention(each), -len(mention), display=each) for each in found]


def _score_command(typed: str, name: str) -> int | None:
    """Commands that start with what was typed keep their order: `/mod` is /model before /mode."""
    points = score_match(typed, name)
    return PREFIX if points is not None and name != typed and name.startswith(typed) else points


def find_mention(text: str) -> str | None:
    """The `@` and the path before the cursor, perhaps with an open quote; None if there is none."""
    found = _MENTION.search(text)
    return found[0] if found else None


def quote_mention(path: str) -> str:
    """The path as it is written in a message. A folder is not closed, so that its files can be added."""
    ending = "" if path.endswith("/") else " "
    if not re.search(r"\s", path):
        return f"@{path}{ending}"
    return f'@"{path}' if not ending else f'@"{path}" '


def _complete_argument(choices: Sequence[ArgumentChoice], word: str) -> Iterator[Completion]:
    def searched(choice: ArgumentChoice) -> str:
        return f"{choice.text} {choice.shown}" if choice.shown else choice.text

    for text, shown, detail in best_matches(word, choices, searched, limit=MAX_CHOICES):
        yield Completion(text, -len(word), display=shown or text, display_meta=detail)


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
    chosen = state.complete_index or 0  # Enter takes the first row if none was chosen
    first = max(0, min(chosen - MENU_ROWS + 2, len(state.completions) - MENU_ROWS))
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


def select_next(buffer: Buffer) -> None:
    """Move down in the open menu. Its first row is shown as chosen from the start."""
    state = buffer.complete_state
    if state is not None and state.complete_index is None and len(state.completions) > 1:
        buffer.go_to_completion(1)
    else:
        buffer.complete_next()


def take_row(buffer: Buffer, completer: InputCompleter) -> bool:
    """Take the chosen row of the menu, if it is open. True if the input can be sent then."""
    state = buffer.complete_state
    if state is None or not state.completions:
        return True
    typed = state.original_document.text_before_cursor
    row = state.current_completion or state.completions[0]
    word = typed[len(typed) + row.start_position :]
    exact = any(each.text.rstrip() == word for each in state.completions)
    if state.complete_index is None and (exact or completer.find_command(typed) is not None):
        buffer.complete_state = None  # it was typed in full
        return True
    if state.complete_index is None:
        buffer.apply_completion(row)
    else:
        buffer.complete_state = None
    completer.file_completed(buffer)
    if row.text.endswith("/"):  # a folder: offer its files
        buffer.start_completion()
        return False
    if not typed.startswith("/") or row.text.startswith("@") or row.text.endswith(" "):
        return False
    entry = completer.find_command(row.text) if " " not in typed else None
    if entry is not None and entry.needs_argument:
        buffer.insert_text(" ")
        return False
    return True


def start_range(buffer: Buffer) -> None:
    """A colon directly after a completed file starts a line range: `@f.py:10-40`."""
    buffer.delete_before_cursor()
    buffer.insert_text(":")


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
