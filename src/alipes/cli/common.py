"""What an examination found, one line after the other, and how that is shown. It examines nothing."""

import asyncio
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct

from alipes.cli import render
from alipes.cli.options import Where
from alipes.cli.stdio import terminal_width
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Address
from alipes.store.store import Store, open_store

if TYPE_CHECKING:
    from alipes.store.archive import Archive


def agreed(question: str, act: str) -> bool:
    """Whether they say yes to `question`. Raises ConfigError where there is nobody to ask."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(f"there is nobody to ask back; say --yes to {act}")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


MARKS = {"ok": "ok  ", "note": "note", "wrong": "FAIL"}


class Finding(Struct, frozen=True):
    about: str
    state: Literal["ok", "note", "wrong"]
    """`note`: worth knowing, nothing to be done; `wrong`: somebody must act."""
    says: str
    advice: str = ""


def show(findings: Sequence[Finding]) -> int:
    """Print them aligned, no wider than the terminal; how far their texts are indented."""
    width = terminal_width(sys.stdout)
    longest = max([10, *(render.columns(finding.about) for finding in findings)])
    indent = longest + 8
    for finding in findings:
        mark = MARKS[finding.state]
        if width and finding.state == "wrong":
            mark = f"{render.RED}{mark}{render.PLAIN}"
        room = width - indent
        says = render.harmless(finding.says)
        first, *rest = [*_wrapped(says, room), *_wrapped(finding.advice, room, "-> ")] or [""]
        print(f"{mark}  {render.pad(finding.about, longest)}  {first}")
        for line in rest:
            print(f"{'':{indent}}{line}")
    return indent


def conclude(findings: Sequence[Finding]) -> None:
    wrong = sum(finding.state == "wrong" for finding in findings)
    print(f"\n{f'{wrong} to be put right.' if wrong else 'All is well.'}")


def _wrapped(text: str, width: int, mark: str = "") -> list[str]:
    """Lines no wider than a terminal; elsewhere as they are."""
    if width < 40:
        return [mark + line for line in text.splitlines()]
    wrap = textwrap.TextWrapper(width - len(mark), break_long_words=False, break_on_hyphens=False).wrap
    return [mark + piece for line in text.splitlines() for piece in wrap(line)]


PLATFORM = "terminal"


def new_id() -> str:
    """An id for one inbound, never given twice."""
    return f"{PLATFORM}:{os.urandom(12).hex()}"


def new_place() -> Address:
    """A conversation of its own, with a name that tells when it began."""
    return Address(PLATFORM, f"{time.strftime('%y%m%d-%H%M')}-{os.urandom(3).hex()}")


def workdir() -> str:
    """Where tools are to work; ConfigError when that folder is gone."""
    try:
        return os.getcwd()
    except OSError as error:
        raise ConfigError("the folder you are in was removed; change to another") from error


async def find_place(where: Where, archive: "Archive") -> Address:
    """The named conversation, the latest, or a new one; ConfigError when there is nothing to continue."""
    if where.name:
        return Address(PLATFORM, where.name)
    if not where.latest:
        return new_place()
    if (latest := await archive.latest(PLATFORM)) is None:
        raise ConfigError("there is no conversation to continue; leave out --continue to begin one")
    return latest.address


TOLD = "programs-told"
"""The file in the home that remembers what a person was told already."""


class Program(Struct, frozen=True):
    name: str
    package: str
    without: str
    """What is different where it is missing."""


PROGRAMS = (
    Program("rg", "ripgrep", "searching in files is slower"),
    Program("bwrap", "bubblewrap", "commands cannot be run in a sandbox"),
    Program("git", "git", "changes to a project cannot be shown or undone with it"),
)


def missing() -> tuple[Program, ...]:
    return tuple(program for program in PROGRAMS if shutil.which(program.name) is None)


def tell_once(home: Path) -> str:
    """One sentence on what is missing and was not told of in this home before; empty when there is none."""
    file = home / TOLD
    told = set(file.read_text().split()) if file.exists() else set()
    news = [program for program in missing() if program.name not in told]
    if not news:
        return ""
    file.write_text("".join(f"{name}\n" for name in sorted({*told, *(p.name for p in news)})))
    return f"Not installed: {', '.join(f'{p.package} ({p.without})' for p in news)}. Everything else works."


T = TypeVar("T")


def in_store(settings: Settings, act: Callable[[Store], Awaitable[T]]) -> T:
    """What `act` gives; the store is closed again before anything is printed or asked back."""

    async def within() -> T:
        async with open_store(settings.home) as store:
            return await act(store)

    return asyncio.run(within())
