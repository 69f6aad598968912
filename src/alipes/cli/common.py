"""Helpers shared by the commands: store access, confirmation, tables and JSON output."""

import asyncio
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from alipes.cli import render
from alipes.cli.stdio import terminal_width
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.store.store import Store, open_store

T = TypeVar("T")
MIN_WRAP_WIDTH = 40


def run_in_store(settings: Settings, action: Callable[[Store], Awaitable[T]]) -> T:
    """The result of `action`. The store is closed again before anything is printed or asked."""

    async def run() -> T:
        async with open_store(settings.home) as store:
            return await action(store)

    return asyncio.run(run())


def confirm(question: str, action: str) -> bool:
    """True if the user answers yes. Raises ConfigError where there is no terminal to ask on."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(f"no terminal to confirm on; use --yes to {action}")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_table(rows: Iterable[Sequence[str]]) -> None:
    print_lines(render.format_table(rows))


def print_lines(lines: Iterable[str]) -> None:
    """Print the lines, truncated to the width of the terminal; elsewhere whole."""
    width = terminal_width(sys.stdout)
    for line in lines:
        print(render.truncate(line, width) if width else line.rstrip())


def print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode())


def wrap_text(text: str, width: int) -> list[str]:
    """The lines of the text, wrapped to `width` unless that is too narrow (0: not a terminal)."""
    if width < MIN_WRAP_WIDTH:
        return text.splitlines()
    wrap = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False).wrap
    return [row for line in text.splitlines() for row in wrap(line)]
