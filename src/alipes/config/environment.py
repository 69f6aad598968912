"""Environment variables and the `.env` file of the home, which holds the secrets."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from alipes.config.paths import Paths, current_environ, has_own_environ
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json

MAX_FILE_BYTES = 1_000_000
REFERENCE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"
"""`${NAME}` in a setting: replaced by the variable."""
_DOUBLE = r'"((?:[^"\\]|\\.)*)"[ \t]*(?:#.*)?'
_SINGLE = r"'([^']*)'[ \t]*(?:#.*)?"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


class EnvLine(Struct, frozen=True):
    """One variable as `.env` sets it."""

    value: str
    number: int


class Variables(Struct, frozen=True):
    """Variables by name. The environment overrides `.env`; an empty variable counts as not set."""

    environ: Mapping[str, str]
    file: Path
    lines: dict[str, EnvLine] = {}

    def get(self, name: str) -> str:
        line = self.lines.get(name)
        return self.environ.get(name, "") or (line.value if line else "")

    def where(self, name: str) -> str:
        """Where `get` found it: `environment`, `/home/me/.alipes/.env:3`, or empty."""
        if self.environ.get(name):
            return "environment"
        line = self.lines.get(name)
        return f"{self.file}:{line.number}" if line and line.value else ""

    def names(self) -> Iterable[str]:
        return {*self.environ, *self.lines}


def process_environment() -> dict[str, str]:
    """A copy of the environment of this process, or of the profile that the current task works for."""
    return dict(current_environ())


def move_secrets_off_stack(is_secret: Callable[[str, str], bool]) -> list[str]:
    """Re-set the variables for which `is_secret(name, value)`, so that they move out of the initial
    environment block, which child processes can read in /proc. Returns their names, to be wiped there."""
    names = [name for name, value in os.environ.items() if value and is_secret(name, value)]
    for name in names:
        os.environ[name] = os.environ[name]
    return names


def export_variables(variables: Variables, names: Iterable[str]) -> set[str]:
    """Put these variables of `.env` into the process environment, for code that only looks there.

    Returns those that were not there before, for `unset_variables`. If this process serves several profiles, nothing
    is added: the others would see it.
    """
    if has_own_environ():
        return set()
    added = {name for name in names if name not in os.environ and variables.get(name)}
    os.environ.update((name, variables.get(name)) for name in added)
    return added


def unset_variables(names: Iterable[str]) -> None:
    for name in names:
        os.environ.pop(name, None)


def read_text(path: Path) -> str | None:
    """The text of a file that people edit; None if it does not exist. Raises ConfigError."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigError(f"{path} is not a regular file: remove or replace it.")
        if facts.st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} has {facts.st_size:,} bytes; at most {MAX_FILE_BYTES:,} are allowed.")
        return path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            gone = f"{path} is a link to {os.readlink(path)}, which does not exist"
            raise ConfigError(f"{gone}: create that file, or remove the link.") from error
        return None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text: save the file as UTF-8.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


def parse_env(text: str, file: Path) -> dict[str, EnvLine]:
    """The variables of a `.env` text. Raises ConfigError with all invalid lines, without any value."""
    found: dict[str, EnvLine] = {}
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if pair := _pair(line.strip(" \t\r")):
                name, value = pair
                if name in found:
                    raise ValueError(f"{name} is already set on line {found[name].number}: remove one")
                found[name] = EnvLine(value, number)
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
        raise ValueError("not NAME=value; start a comment with #")
    if not (name.isascii() and name.isidentifier()) or (raw[:1].isspace() and raw.strip()):
        raise ValueError("write NAME=value without spaces around the equals sign; a name has A-Z, 0-9 and _")
    if any(not (c.isprintable() or c == "\t") for c in raw):
        raise ValueError(f"{name} contains control characters: remove them")
    return name, _value(name, raw)


def _value(name: str, raw: str) -> str:
    if raw[:1] == '"' and (quoted := re.fullmatch(_DOUBLE, raw)):
        return re.sub(r"\\(.)", lambda escape: _unescaped(name, escape[1]), quoted[1])
    if raw[:1] == "'" and (quoted := re.fullmatch(_SINGLE, raw)):
        return quoted[1]
    if raw[:1] in ('"', "'"):
        raise ValueError(f"{name} has an opening quote that is not closed on its line")
    plain = raw.replace("\t#", " #").partition(" #")[0].strip()
    if plain.startswith("#") or any(c.isspace() or c in "\"'`\\" for c in plain):
        raise ValueError(f"{name} has characters that need quotes: put the value in 'single quotes'")
    return plain


def _unescaped(name: str, letter: str) -> str:
    if letter not in _ESCAPES:
        raise ValueError(f"{name} has a backslash before {letter!r}, which is not an escape: use 'single quotes'")
    return _ESCAPES[letter]


def fill_references(table: dict[str, Json], variables: Variables) -> dict[str, Json]:
    """A plugin's table with `${NAME}` replaced. Raises KeyError with the name of an unset variable."""

    def value(found: re.Match[str]) -> str:
        if not (text := variables.get(found[1])):
            raise KeyError(found[1])
        return text

    def fill(item: Any) -> Any:
        match item:
            case str():
                return re.sub(REFERENCE, value, item)
            case list():
                return [fill(inner) for inner in item]
            case dict():
                return {name: fill(inner) for name, inner in item.items()}
        return item

    return cast("dict[str, Json]", fill(table))


def current_variables(paths: Paths) -> Variables:
    """The environment and `.env` as they are now. Raises ConfigError."""
    return read_variables(paths.env, current_environ())


def read_variables(file: Path, environ: Mapping[str, str]) -> Variables:
    text = read_text(file)
    return Variables(environ, file, parse_env(text, file) if text else {})


class EnvFileWatch:
    """Notices changes of a `.env` file while the process runs."""

    def __init__(self, file: Path) -> None:
        self._file, self._path = file, str(file)
        self._seen: tuple[int, int] | None = None

    def changed_values(self) -> tuple[str, ...]:
        """All values of the file if it changed since the last call; else none. An invalid file has none."""
        try:
            facts = os.stat(self._path)
            seen = (facts.st_mtime_ns, facts.st_size)
            if seen == self._seen:
                return ()
            self._seen = seen
            return tuple(line.value for line in read_variables(self._file, {}).lines.values() if line.value)
        except (OSError, ConfigError):
            return ()


def readable_by_others(file: Path) -> str:
    """A warning if other users can read `file`; else empty."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return ""
    if not mode & 0o077:
        return ""
    return (
        f"{file} contains secrets and is readable by other users (mode {stat.S_IMODE(mode):o}): run `chmod 600 {file}`."
    )
