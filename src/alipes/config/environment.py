"""Variables: the environment, and beneath it the `.env` file of the home, where secrets are kept."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from alipes.kernel.errors import ConfigError

LARGEST = 1_000_000
_DOUBLE = r'"((?:[^"\\]|\\.)*)"[ \t]*(?:#.*)?'
_SINGLE = r"'([^']*)'[ \t]*(?:#.*)?"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


class Line(Struct, frozen=True):
    """One variable as `.env` sets it."""

    value: str
    number: int


class Variables(Struct, frozen=True):
    """What variables say. The environment goes over `.env`; an empty variable counts as not set."""

    environ: Mapping[str, str]
    file: Path
    lines: dict[str, Line] = {}

    def get(self, name: str) -> str:
        line = self.lines.get(name)
        return self.environ.get(name, "") or (line.value if line else "")

    def where(self, name: str) -> str:
        """Where `get` finds it, for a person: `environment`, `/home/me/.alipes/.env:3`, or nothing."""
        if self.environ.get(name):
            return "environment"
        line = self.lines.get(name)
        return f"{self.file}:{line.number}" if line and line.value else ""

    def names(self) -> Iterable[str]:
        return {*self.environ, *self.lines}


def inherited() -> dict[str, str]:
    """The environment of this process, for whoever starts another one."""
    return dict(os.environ)


def resettle(hidden: Callable[[str, str], bool]) -> list[str]:
    """Set those variables anew for which `hidden(name, value)`, so that no secret lies any more where every
    child can read it: in what this process was started with. Their names; who can, wipes them there."""
    names = [name for name, value in os.environ.items() if value and hidden(name, value)]
    for name in names:
        os.environ[name] = os.environ[name]
    return names


def lend(variables: Variables, names: Iterable[str]) -> set[str]:
    """Put these variables of `.env` into the environment of this process, for code that looks only there.

    Those that were not there before, to be taken back.
    """
    lent = {name for name in names if name not in os.environ and variables.get(name)}
    os.environ.update((name, variables.get(name)) for name in lent)
    return lent


def take_back(names: Iterable[str]) -> None:
    for name in names:
        os.environ.pop(name, None)


def read_text(path: Path) -> str | None:
    """The text of a file that people edit; None when there is none. Raises ConfigError."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigError(f"{path} is not a file: move it away or make it one.")
        if facts.st_size > LARGEST:
            raise ConfigError(f"{path} has {facts.st_size:,} bytes; more than {LARGEST:,} must be a mistake.")
        return path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: this is not UTF-8 text: save the file as UTF-8.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def parse_env(text: str, file: Path) -> dict[str, Line]:
    """The variables of a `.env` text. Raises ConfigError with all wrong lines, never showing a value."""
    found: dict[str, Line] = {}
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if pair := _pair(line.strip(" \t\r")):
                name, value = pair
                if name in found:
                    raise ValueError(
                        f"{name} was set on line {found[name].number} already: keep one of the two"
                    )
                found[name] = Line(value, number)
        except ValueError as error:
            problems.append(f"{file}:{number}: {error}.")
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def _pair(line: str) -> tuple[str, str] | None:
    if not line or line.startswith("#"):
        return None
    name, equals, raw = line.removeprefix("export ").lstrip().partition("=")
    if not equals:
        raise ValueError("this is not NAME=value; begin a comment with #")
    if not (name.isascii() and name.isidentifier()) or (raw[:1].isspace() and raw.strip()):
        raise ValueError("write NAME=value with no blanks around the equals sign; a name has A-Z, 0-9 and _")
    if any(not (c.isprintable() or c == "\t") for c in raw):
        raise ValueError(f"{name} contains control characters: leave them out")
    return name, _value(name, raw)


def _value(name: str, raw: str) -> str:
    if raw[:1] == '"' and (quoted := re.fullmatch(_DOUBLE, raw)):
        return re.sub(r"\\(.)", lambda escape: _unescaped(name, escape[1]), quoted[1])
    if raw[:1] == "'" and (quoted := re.fullmatch(_SINGLE, raw)):
        return quoted[1]
    if raw[:1] in ('"', "'"):
        raise ValueError(f"{name} opens a quote that is not closed at the end of its line")
    plain = raw.replace("\t#", " #").partition(" #")[0].strip()
    if plain.startswith("#") or any(c.isspace() or c in "\"'`\\" for c in plain):
        raise ValueError(f"{name} has a value with characters that need quotes: put it in 'single quotes'")
    return plain


def _unescaped(name: str, letter: str) -> str:
    if letter not in _ESCAPES:
        raise ValueError(
            f"{name} has a backslash before {letter!r}, which means nothing: use 'single quotes'"
        )
    return _ESCAPES[letter]


def read_variables(file: Path, environ: Mapping[str, str]) -> Variables:
    text = read_text(file)
    return Variables(environ, file, parse_env(text, file) if text else {})


def exposure(file: Path) -> str:
    """A word of warning when others on this machine may read `file`; else nothing."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return ""
    if not mode & 0o077:
        return ""
    return (
        f"{file} holds secrets and others may read it (mode {stat.S_IMODE(mode):o}): run `chmod 600 {file}`."
    )
