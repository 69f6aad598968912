"""What the commands share: the store, questions, lists, the results of checks, and the optional programs."""

import asyncio
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from alipes.config.environment import Variables, process_environment
from alipes.config.reader import RawConfig
from alipes.config.settings import Settings
from alipes.console import render
from alipes.console.stdio import is_terminal, terminal_width
from alipes.console.theme import Theme
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_count
from alipes.kernel.lazy import lazy_pattern
from alipes.store.open import open_home_archive, open_home_store
from alipes.store.ports.archive import Archive
from alipes.store.sql.store import Store

if TYPE_CHECKING:
    from alipes.kernel.checks import CheckResult

T = TypeVar("T")
MIN_WRAP_WIDTH = 40
DescriptionRow: TypeAlias = tuple[str, str]
"""Name and text; without a name, the text is a line of its own."""
_LABEL = lazy_pattern(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")


def run_in_store(settings: Settings, action: Callable[[Store], Awaitable[T]]) -> T:
    """The result of `action`. The store is closed again before anything is printed or asked."""

    async def run() -> T:
        async with open_home_store(settings) as store:
            return await action(store)

    return asyncio.run(run())


def run_in_archive(settings: Settings, action: Callable[[Archive], Awaitable[T]]) -> T:
    """Like `run_in_store`, for what only reads: it works on a read-only home too."""

    async def run() -> T:
        async with open_home_archive(settings) as archive:
            return await action(archive)

    return asyncio.run(run())


def confirm(question: str, action: str) -> bool:
    """True if the user answers yes. Raises ConfigError where there is no terminal to ask on."""
    if not is_terminal(sys.stdin):
        raise ConfigError(f"no terminal to confirm on; use --yes to {action}")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def check_label(kind: str, name: str, taken: str = "") -> None:
    """Raises ConfigError unless `name` is a valid name for a key or webhook. `taken`: why it cannot be used."""
    if taken or not _LABEL.fullmatch(name):
        usable = "use lowercase letters, digits, and -, _ or . between them"
        raise ConfigError(f"{name!r} is not a valid {kind} name: {usable}{taken}")


def print_list(
    found: object, head: Sequence[str], rows: Iterable[Sequence[str]], *, json: bool, empty: str = ""
) -> bool:
    """Print `found` as JSON, or its rows as a table, or `empty` if there are none. True if it was a table."""
    cells = [tuple(map(render.sanitize, row)) for row in rows]
    if json:
        print_json(found)
    elif not cells:
        print(empty)
    else:
        print_lines(render.format_table([head, *cells]))
    return bool(cells) and not json


def print_lines(lines: Iterable[str]) -> None:
    """Print the lines, truncated to the width of the terminal; elsewhere whole."""
    width = terminal_width(sys.stdout)
    for line in lines:
        print(render.truncate(line, width) if width else line.rstrip())


def print_paged(lines: Iterable[str], variables: Variables) -> None:
    """Print the lines, at a terminal with $PAGER, which stays only if they do not fit on the screen."""
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    pager = shlex.split(variables.get("PAGER") or "less -FRX")
    dumb = variables.get("TERM") in ("", "dumb")
    if not is_terminal(sys.stdout) or not is_terminal(sys.stdin) or dumb or not pager or not shutil.which(pager[0]):
        print(text, end="")
        return
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):  # also sent to the pager, which handles it
        subprocess.run(pager, input=text, text=True, errors="replace", check=False)


def choose_theme(reading: RawConfig, settings: Settings, *, plain: bool) -> Theme | None:
    """The theme of rendered answers; None if they are printed as the model wrote them."""
    if plain or not is_terminal(sys.stdout) or reading.variables.get("TERM") in ("", "dumb"):
        return None
    from alipes.console.markdown.answer_view import make_answer_theme  # noqa: PLC0415

    return make_answer_theme(reading.variables, settings)


def print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode())


def wrap_text(text: str, width: int) -> list[str]:
    """The lines of the text, wrapped to `width` unless that is too narrow (0: not a terminal)."""
    if width < MIN_WRAP_WIDTH:
        return text.splitlines()
    wrap = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False).wrap
    return [row for line in text.splitlines() for row in wrap(line)]


REPORTED_FILE = "programs-reported"
"""File in the home with the missing programs that were already reported."""
_MARK_STYLES = {"ok": "\033[32m", "note": "\033[33m", "wrong": render.RED}
CHECK_MARKS = {"ok": "ok  ", "note": "note", "wrong": "FAIL"}


class OptionalProgram(Struct, frozen=True):
    name: str
    package: str
    benefit: str
    """What it is good for, after "install X for ..."."""


PROGRAMS = (
    OptionalProgram("rg", "ripgrep", "faster search"),
    OptionalProgram("bwrap", "bubblewrap", "sandboxing"),
    OptionalProgram("git", "git", "showing and reverting changes"),
)


def print_checks(results: "Sequence[CheckResult]") -> None:
    """Print the results aligned and wrapped to the terminal, with coloured marks at one with colours."""
    width = terminal_width(sys.stdout)
    longest = max([10, *(render.text_width(result.about) for result in results)])
    indent = longest + 8
    variables = process_environment()
    coloured = bool(width) and not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"
    for result in results:
        mark = CHECK_MARKS[result.state]
        if coloured:
            mark = f"{_MARK_STYLES[result.state]}{mark}{render.PLAIN}"
        says = wrap_text(render.sanitize(result.says), width - indent)
        advice = [f"-> {line}" for line in wrap_text(result.advice, width - indent - 3)]
        first, *rest = [*says, *advice] or [""]
        print(f"{mark}  {render.pad(result.about, longest)}  {first}")
        for line in rest:
            print(f"{'':{indent}}{line}")


def print_verdict(results: "Sequence[CheckResult]") -> None:
    wrong = sum(result.state == "wrong" for result in results)
    print(f"\n{format_count(wrong, 'problem') if wrong else 'No problems'} found.")


def missing_programs() -> tuple[OptionalProgram, ...]:
    return tuple(program for program in PROGRAMS if shutil.which(program.name) is None)


def missing_programs_note(home: Path, said: str = "") -> str:
    """One sentence about missing programs that were not reported yet; empty if there are none. `said`: what is reported
    beside it, whose programs are not named again."""
    file = home / REPORTED_FILE
    reported = set(file.read_text().split()) if file.exists() else set()
    missing = [
        program for program in missing_programs() if program.name not in reported and program.package not in said
    ]
    if not missing:
        return ""
    names = sorted({*reported, *(program.name for program in missing)})
    file.write_text("".join(f"{name}\n" for name in names))
    *most, last = [f"{program.package} for {program.benefit}" for program in missing]
    return f"Optional: install {', '.join(most)}{' and ' if most else ''}{last}."


def print_rows(rows: Iterable[DescriptionRow]) -> None:
    print(*format_rows(list(rows), terminal_width(sys.stdout)), sep="\n")


def format_rows(rows: list[DescriptionRow], width: int = 0) -> Iterator[str]:
    """The rows as aligned lines; `width` 0: do not wrap."""
    indent = 4 + max((render.text_width(name) for name, _ in rows), default=0)
    for name, text in rows:
        head = f"  {render.pad(name, indent - 4)}  " if name else ""
        first, *rest = wrap_text(render.to_one_line(text), width - len(head)) or [""]
        yield head + first
        yield from (" " * len(head) + line for line in rest)
