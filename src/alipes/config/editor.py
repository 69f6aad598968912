"""Changing the files of the home without losing a comment. The only user of tomlkit, loaded for it alone."""

import copy
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array

from alipes.config.display import dotted
from alipes.config.environment import Variables, parse_env, read_text
from alipes.config.loader import Reading, read
from alipes.config.paths import Paths, find_home, make_private
from alipes.config.schema import find_key
from alipes.config.settings import build
from alipes.config.urls import Wrong, check_no_proxy, check_proxy
from alipes.config.validation import Problem, Way, check_tables
from alipes.config.value_types import HEADERS
from alipes.kernel.errors import ConfigError


def set_value(
    way: Way, text: str, *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Write one setting into config.toml, and tell which older problems of the file are left.

    Raises ConfigError, with the file as it was, when the value or the place for it is wrong.
    """
    return change({way: text}, home=home, environ=environ)


def set_secret(
    name: str, value: str, *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """Write one variable into `.env`, readable by its owner only. Raises ConfigError, the file as it was."""
    change({}, {name: value}, home=home, environ=environ)
    return Paths(home or find_home(environ)).env


def change(
    values: Mapping[Way, str | None],
    secrets: Mapping[str, str | None] | None = None,
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    """Write settings into config.toml and variables into `.env`: all of them, or none. None takes one out.

    Tells which older problems of config.toml are left. Raises ConfigError, with both files as they were.
    """
    parsed = {way: None if text is None else _parsed(way, text) for way, text in values.items()}
    given = [_nested({}, way, value) for way, value in parsed.items() if value is not None]
    checked = [checked for tables in given for _, checked in check_tables(tables)]
    _refuse([each for each in checked if isinstance(each, Problem)])
    for name, value in (secrets or {}).items():
        _check_variable(name, value)
    with _alone(Paths(home or find_home(environ))) as paths, ExitStack() as undo:
        env = read_text(paths.env)
        kept = _kept(paths.env, env or "", secrets or {})
        edited, left = _checked(paths, environ, kept, parsed) if parsed else ("", [])
        if secrets:
            undo.callback(_restore, paths.env, env)
            _replace(paths.env, kept, private=True)
        if parsed:
            _replace(paths.config, edited)
        undo.pop_all()
    return left


def _checked(
    paths: Paths, environ: Mapping[str, str] | None, env: str, values: Mapping[Way, object]
) -> tuple[str, list[str]]:
    """The text of config.toml with `values` in it, beside such an `.env`, and its older problems."""
    before = after = read(paths.home, environ)
    variables = Variables(before.variables.environ, paths.env, parse_env(env, paths.env))
    for way, value in values.items():
        after = Reading(paths, variables, _edited(after, way, value))
    old, new = _problems(before), _problems(after)
    _refuse([problem for problem in new if problem not in old])
    return after.text, [
        f"{after.where(problem.place)}: {problem.text}" for problem in new if not problem.where
    ]


def _kept(file: Path, text: str, secrets: Mapping[str, str | None]) -> str:
    """The text of `.env` with `secrets` in it, each line where it was."""
    known = parse_env(text, file)
    lines: list[str | None] = list(text.rstrip("\n").split("\n")) if text else []
    for name, value in secrets.items():
        line = None if value is None else f"{name}={_quoted(value)}"
        if name in known:
            lines[known[name].number - 1] = line
        else:
            lines.append(line)
    edited = "".join(f"{line}\n" for line in lines if line is not None)
    left = parse_env(edited, file)
    assert all(value == (left[name].value if name in left else None) for name, value in secrets.items())
    return edited


def _check_variable(name: str, value: str | None) -> None:
    if value is None:
        return
    if not value or any(not c.isprintable() for c in value):
        raise ConfigError(f"{name} cannot be empty or hold control characters: paste it again.")
    check = {"HTTP_PROXY": check_proxy, "HTTPS_PROXY": check_proxy, "ALL_PROXY": check_proxy}.get(
        name.upper()
    )
    try:
        if check:
            check(value)
        elif name.upper() == "NO_PROXY":
            check_no_proxy(value)
    except Wrong as wrong:
        raise ConfigError(f"{name} {wrong}.") from wrong


def _parsed(way: Way, text: str) -> object:
    """The value that `text` means for the setting at `way`; lists and tables may be written as in TOML."""
    key = find_key(way)
    if key and key.kind is HEADERS and way[-1] != "headers":
        return text
    if key and key.kind.parse and not (isinstance(key.default, list) and text.lstrip().startswith("[")):
        return key.kind.parse(text)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise ConfigError("\n".join([*(problem.text for problem in problems), "Nothing was changed."]))


def _edited(before: Reading, way: Way, value: object) -> str:
    """The file's text with `value` at `way`, None for nothing there, and everything else as it was."""
    try:
        document = tomlkit.parse(before.text)
        table: Any = document
        for name in way[:-1]:
            if name not in table and value is not None:
                table[name] = tomlkit.table(is_super_table=name != way[-2])
            table = table[name]
        if value is None:
            del table[way[-1]]
        elif not _set_items(table.get(way[-1]), value):
            table[way[-1]] = value
        edited = tomlkit.dumps(document)
        if _as_meant(before.tables, tomllib.loads(edited), way, value):
            return edited
    except (TOMLKitError, ValueError, TypeError, AttributeError, KeyError):
        pass
    raise ConfigError(
        f"{before.where(way)}: {dotted(way)} cannot be changed by a command: edit the file by hand."
    )


def _set_items(array: object, wanted: object) -> bool:
    """Make a list the wanted one item by item, so that what is said beside an item stays with it."""
    if not isinstance(array, Array) or not isinstance(wanted, list) or not _all_text([*array, *wanted]):
        return False
    for item in [item for item in array if item not in wanted]:
        array.remove(item)
    for item in wanted[len(array) :]:
        array.append(item)
    return list(array) == wanted


def _all_text(items: list[object]) -> bool:
    return all(isinstance(item, str) for item in items)


def _as_meant(before: dict[str, Any], after: dict[str, Any], way: Way, value: object) -> bool:
    if value is not None:
        return after == _nested(before, way, value)
    # A table that lost its last key may stay or go.
    return not holds(after, way) and _without(before, way) == _without(after, way)


def holds(tables: object, way: Way) -> bool:
    """Whether something stands at `way`, of whatever kind."""
    for name in way:
        if not isinstance(tables, dict) or name not in tables:
            return False
        tables = tables[name]
    return True


def _without(tables: dict[str, Any], way: Way) -> dict[str, Any]:
    """A copy of `tables` with nothing at `way`, nor tables on the way there that are empty."""
    root = copy.deepcopy(tables)
    for depth in range(len(way), 0, -1):
        table: Any = root
        for name in way[: depth - 1]:
            table = table.get(name, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict) and (depth == len(way) or table.get(way[depth - 1]) == {}):
            table.pop(way[depth - 1], None)
    return root


def _nested(tables: dict[str, Any], way: Way, value: object) -> dict[str, Any]:
    """A copy of `tables` with `value` at `way`."""
    root = copy.deepcopy(tables)
    table = root
    for name in way[:-1]:
        table = table.setdefault(name, {})
    table[way[-1]] = value
    return root


def _problems(reading: Reading) -> list[Problem]:
    with suppress(ConfigError):
        build(reading)
    return reading.problems


def _quoted(value: str) -> str:
    if value.isascii() and value.replace("-", "").replace("_", "").replace(".", "").isalnum():
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextmanager
def _alone(paths: Paths) -> Iterator[Paths]:
    """Only one process at a time edits; two at once would each undo the other."""
    make_private(paths.home)
    file = make_private(paths.run) / "config.lock"
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"{file} cannot be opened: {error.strerror}. Nothing was changed.") from error
    try:
        flock(lock, LOCK_EX)
        yield paths
    finally:
        os.close(lock)


def _replace(file: Path, text: str, *, private: bool = False) -> None:
    """Write all of it or nothing: a new file, on disk, then in the old one's place."""
    target = Path(os.path.realpath(file))  # a link into someone's dotfiles stays a link
    new = target.with_name(f".{target.name}.new")
    try:
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            if not private and target.exists():
                os.fchmod(opened.fileno(), target.stat().st_mode & 0o777)
            opened.write(text.encode())
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(new, target)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise ConfigError(f"{file} cannot be written: {error.strerror}. It is as it was.") from error
    _sync(target.parent)


def _restore(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink(missing_ok=True)
    else:
        _replace(file, text, private=True)


def _sync(folder: Path) -> None:
    """Make the renaming itself durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
