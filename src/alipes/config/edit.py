"""Changing the files of the home without losing a comment. The only user of tomlkit, loaded for it alone."""

import copy
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from alipes.config.checking import Problem, Way, check_tables
from alipes.config.keys import find_key
from alipes.config.kinds import HEADERS
from alipes.config.masking import dotted
from alipes.config.paths import Paths, find_home, make_private
from alipes.config.reading import Reading, read
from alipes.config.settings import build
from alipes.config.urls import Wrong, check_no_proxy, check_proxy
from alipes.config.variables import parse_env, read_text
from alipes.kernel.errors import ConfigError


def set_value(
    way: Way, text: str, *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Write one setting into config.toml, and tell which older problems of the file are left.

    Raises ConfigError, with the file as it was, when the value or the place for it is wrong.
    """
    value = _parsed(way, text)
    _refuse([checked for _, checked in check_tables(_nested({}, way, value)) if isinstance(checked, Problem)])
    with _alone(Paths(home or find_home(environ))) as paths:
        before = read(paths.home, environ)
        edited = _edited(before, way, value)
        after = Reading(paths, before.variables, edited)
        old, new = _problems(before), _problems(after)
        _refuse([problem for problem in new if problem not in old])
        _replace(paths.config, edited)
    return [f"{after.where(problem.place)}: {problem.text}" for problem in new if not problem.where]


def set_secret(
    name: str, value: str, *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """Write one variable into `.env`, readable by its owner only. Raises ConfigError, the file as it was."""
    if not value or any(not c.isprintable() for c in value):
        raise ConfigError(f"{name} cannot be empty or hold control characters: paste it again.")
    _check_variable(name, value)
    with _alone(Paths(home or find_home(environ))) as paths:
        text = read_text(paths.env) or ""
        known = parse_env(text, paths.env)
        lines = text.rstrip("\n").split("\n") if text else []
        if name in known:
            lines[known[name].number - 1] = f"{name}={_quoted(value)}"
        else:
            lines.append(f"{name}={_quoted(value)}")
        edited = "\n".join(lines) + "\n"
        assert parse_env(edited, paths.env)[name].value == value
        _replace(paths.env, edited, private=True)
    return paths.env


def _check_variable(name: str, value: str) -> None:
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
    """The file's text with `value` at `way`, everything else as it was."""
    try:
        document = tomlkit.parse(before.text)
        table: Any = document
        for name in way[:-1]:
            if name not in table:
                table[name] = tomlkit.table(is_super_table=name != way[-2])
            table = table[name]
        table[way[-1]] = value
        edited = tomlkit.dumps(document)
        if tomllib.loads(edited) == _nested(before.tables, way, value):
            return edited
    except (TOMLKitError, ValueError, TypeError, AttributeError, KeyError):
        pass
    raise ConfigError(
        f"{before.where(way)}: {dotted(way)} cannot be set by a command: edit the file by hand."
    )


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


def _sync(folder: Path) -> None:
    """Make the renaming itself durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
