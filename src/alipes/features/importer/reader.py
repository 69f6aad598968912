"""What a reader of another program's home is, and the table of readers. To add one:

1. A folder `features/importer/NAME/` with `reader.py`, and in it `Reader`, a subclass of `HomeReader`.
2. Its line in `READERS`. The module is imported when `alipes import NAME` runs or a home is looked for.

A reader yields records (`records.py`) lazily, kind by kind, and keeps nothing: `records` is called once for the plan
and once more to apply it, and must yield the same both times. All access is by `SourceHome`, which refuses links out
of the home, files that are too large, and never opens a database but its copy. What cannot be read is a `LeftOut` with
a sentence, beside its neighbours; `SourceError` that leaves `records` costs the rest of that kind only. It resolves no
reference to keys, fetches nothing, runs nothing.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from alipes.features.importer.records import Kind, LeftOut, Record, RecordSource
from alipes.features.importer.source_home import SourceHome

READERS: dict[str, str] = {
    "hermes": "alipes.features.importer.hermes.reader",
    "openclaw": "alipes.features.importer.openclaw.reader",
    "nanobot": "alipes.features.importer.nanobot.reader",
    "claude-code": "alipes.features.importer.claude_code.reader",
    "codex": "alipes.features.importer.codex.reader",
    "pi": "alipes.features.importer.pi.reader",
}
"""Modules by the word after `alipes import`."""


class HomeReader:
    """Reads one home. Subclasses are called `Reader`."""

    program: ClassVar[str]
    """The word after `alipes import`."""
    title: ClassVar[str]
    """Its name for people."""
    part: ClassVar[str] = ""
    """`profile` or `agent`, if a home can have several: the option that chooses one."""

    def __init__(self, home: SourceHome, part: str = "") -> None:
        """`part`: the profile or agent that was chosen; empty: the main one (or all, as the program has it)."""
        self.home, self.chosen = home, part

    @classmethod
    def places(cls, environ: Mapping[str, str], user: Path) -> list[Path]:
        """Where its home may be, the likeliest first. `user`: the home directory of the person."""
        raise NotImplementedError

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """True if the folder is a home of this program. Looks at names of files only."""
        raise NotImplementedError

    def list_parts(self) -> tuple[str, ...]:
        """The names for `--profile` or `--agent`."""
        return ()

    def version(self) -> str:
        """The version of the home's formats, for the report; empty if it has none."""
        return ""

    def running(self) -> str:
        """A sentence that names a gateway that seems to run on this home; empty if none does."""
        return ""

    def default_hashes(self) -> frozenset[str]:
        """`formats.content_hash` of the program's default persona texts, after `" ".join(text.split())`."""
        return frozenset()

    def records(self, kind: Kind) -> Iterator[Record]:
        """Everything of a kind, lazily. Yields nothing for a kind that the program has not. May raise `SourceError`."""
        raise NotImplementedError

    def left_out(self, kind: Kind, file: str, what: str, why: str) -> LeftOut:
        """A shorthand for subclasses."""
        return LeftOut(source=RecordSource(file, f"{file}:{what}", ""), kind=kind, what=what, why=why)


def load_reader(program: str) -> type[HomeReader]:
    """Raises KeyError."""
    reader: type[HomeReader] = import_module(READERS[program]).Reader
    return reader


def find_home(program: str, environ: Mapping[str, str], user: Path) -> Path | None:
    """The first place where the program has a home."""
    reader = load_reader(program)
    return next((place for place in reader.places(environ, user) if reader.recognises(place)), None)


def describe_homes(environ: Mapping[str, str], user: Path) -> list[str]:
    """A line for each home of another program on this machine."""
    lines = []
    for program in READERS:
        if (home := find_home(program, environ, user)) is not None:
            title = load_reader(program).title
            lines.append(f"{title} has a home at {home}. To bring it over: alipes import {program} --dry-run")
    return lines
