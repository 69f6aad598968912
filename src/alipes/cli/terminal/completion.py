"""What a half-typed word may become: commands, models, files. And the menu that shows it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from alipes.cli.render import one_line
from alipes.cli.terminal.look import Look, shortened, styled
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
