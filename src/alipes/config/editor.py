"""Edits config.toml and `.env` without losing comments. Imports tomlkit, so load it only when needed."""

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

from alipes.config.display import toml_path
from alipes.config.environment import Variables, parse_env, read_text
from alipes.config.loader import build_settings
from alipes.config.paths import Paths, find_home, make_private, sync_to_disk
from alipes.config.reader import ConfigProblem, KeyPath, RawConfig, check_tables, read_config
from alipes.config.schema import find_key
from alipes.config.toml_lines import split_key
from alipes.config.urls import InvalidValue, check_no_proxy, check_proxy
from alipes.config.value_types import HEADERS
from alipes.config.values import describe_value
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import hash_text
from alipes.kernel.messages import Json


def set_secret(name: str, value: str, *, home: Path | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Write one variable into `.env` (mode 0600). Raises ConfigError, leaving the file unchanged."""
    change({}, {name: value}, home=home, environ=environ)
    return Paths(home or find_home(environ)).env


class ConfigConflict(ConfigError):
    """Somebody else has changed config.toml meanwhile."""


def change(
    values: Mapping[KeyPath, Json],
    secrets: Mapping[str, str | None] | None = None,
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    base: str = "",
) -> list[str]:
    """Write settings into config.toml and variables into `.env`: all or none. None removes one; text is read like an
    argument of the command line. `base`: `hash_text` of the config.toml that is meant; another one is not changed.

    Returns older problems of config.toml. Raises ConfigError, leaving both files unchanged.
    """
    parsed = {path: _parsed(path, value) if isinstance(value, str) else value for path, value in values.items()}
    given = [_nested({}, path, value) for path, value in parsed.items() if value is not None]
    checked = [checked for tables in given for _, checked in check_tables(tables)]
    _refuse([each for each in checked if isinstance(each, ConfigProblem)])
    for name, value in (secrets or {}).items():
        _check_variable(name, value)
    with _locked(Paths(home or find_home(environ))) as paths, ExitStack() as undo:
        if base and base != hash_text(read_text(paths.config) or ""):
            raise ConfigConflict(f"{paths.config} was changed meanwhile. Nothing was changed: load the settings again.")
        env = read_text(paths.env)
        new_env = _env_text(paths.env, env or "", secrets or {})
        edited, left = _checked(paths, environ, new_env, parsed) if parsed else ("", [])
        if secrets:
            undo.callback(_restore, paths.env, env)
            _replace(paths.env, new_env, private=True)
        if parsed:
            _replace(paths.config, edited)
        undo.pop_all()
    return left


def set_value(key: str, value: str) -> tuple[list[str], list[str]]:
    """Set one setting from text, as `alipes config set` does: its new value in words, and older problems of the file.

    Raises ConfigError, leaving the file unchanged.
    """
    way = split_key(key)
    if not way:
        raise ConfigError(f"{key!r} is not a valid setting name: use dots, as in serve.port.")
    left = change({way: value})
    reading = read_config()
    if setting := find_key(way):
        return list(describe_value(reading, way[: setting.path.count(".") + 1])), left
    return [f"{toml_path(way)} is set, {reading.where(way)}"], left


def _checked(
    paths: Paths, environ: Mapping[str, str] | None, env: str, values: Mapping[KeyPath, object]
) -> tuple[str, list[str]]:
    """The text of config.toml with `values`, given the text of `.env`, and its older problems."""
    before = after = read_config(paths.home, environ)
    variables = Variables(before.variables.environ, paths.env, parse_env(env, paths.env))
    for path, value in values.items():
        after = RawConfig(paths, variables, _edited(after, path, value))
    old, new = _problems(before), _problems(after)
    _refuse([problem for problem in new if problem not in old])
    return after.text, [f"{after.where(problem.place)}: {problem.text}" for problem in new if not problem.where]


def _env_text(file: Path, text: str, secrets: Mapping[str, str | None]) -> str:
    """The text of `.env` with `secrets`, each line in its place."""
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
        raise ConfigError(f"{name} must not be empty or contain control characters: paste it again.")
    try:
        if name.upper() in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            check_proxy(value)
        elif name.upper() == "NO_PROXY":
            check_no_proxy(value)
    except InvalidValue as wrong:
        raise ConfigError(f"{name} {wrong}.") from wrong


def _parsed(path: KeyPath, text: str) -> object:
    """The value of `text` for the setting at `path`; lists and tables may be written as in TOML."""
    key = find_key(path)
    if key and key.type is HEADERS and path[-1] != "headers":
        return text
    if key and key.type.parse and not (isinstance(key.default, list) and text.lstrip().startswith("[")):
        return key.type.parse(text)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _refuse(problems: list[ConfigProblem]) -> None:
    if problems:
        raise ConfigError("\n".join([*(problem.text for problem in problems), "Nothing was changed."]))


def _edited(before: RawConfig, path: KeyPath, value: object) -> str:
    """The file's text with `value` at `path` (None: removed) and nothing else changed."""
    try:
        document = tomlkit.parse(before.text)
        table: Any = document
        for name in path[:-1]:
            if name not in table and value is not None:
                table[name] = tomlkit.table(is_super_table=name != path[-2])
            table = table[name]
        if value is None:
            del table[path[-1]]
        elif not _set_items(table.get(path[-1]), value):
            table[path[-1]] = value
        edited = tomlkit.dumps(document)
        if _as_meant(before.tables, tomllib.loads(edited), path, value):
            return edited
    except (TOMLKitError, ValueError, TypeError, AttributeError, KeyError):
        pass
    raise ConfigError(f"{before.where(path)}: {toml_path(path)} cannot be changed by a command: edit the file.")


def _set_items(array: object, wanted: object) -> bool:
    """Change a list item by item, so that comments beside items are kept."""
    if not isinstance(array, Array) or not isinstance(wanted, list):
        return False
    if not all(isinstance(item, str) for item in (*array, *wanted)):
        return False
    for item in [item for item in array if item not in wanted]:
        array.remove(item)
    for item in wanted[len(array) :]:
        array.append(item)
    return list(array) == wanted


def _as_meant(before: dict[str, Any], after: dict[str, Any], path: KeyPath, value: object) -> bool:
    if value is not None:
        return after == _nested(before, path, value)
    # A table without keys may be kept or removed.
    return not has_value(after, path) and _without(before, path) == _without(after, path)


def has_value(tables: object, path: KeyPath) -> bool:
    """True if there is any value at `path`."""
    for name in path:
        if not isinstance(tables, dict) or name not in tables:
            return False
        tables = tables[name]
    return True


def _without(tables: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """A copy of `tables` without the value at `path` and without tables that are then empty."""
    root = copy.deepcopy(tables)
    for depth in range(len(path), 0, -1):
        table: Any = root
        for name in path[: depth - 1]:
            table = table.get(name, {}) if isinstance(table, dict) else {}
        if isinstance(table, dict) and (depth == len(path) or table.get(path[depth - 1]) == {}):
            table.pop(path[depth - 1], None)
    return root


def _nested(tables: dict[str, Any], path: KeyPath, value: object) -> dict[str, Any]:
    """A copy of `tables` with `value` at `path`."""
    root = copy.deepcopy(tables)
    table = root
    for name in path[:-1]:
        table = table.setdefault(name, {})
    table[path[-1]] = value
    return root


def _problems(config: RawConfig) -> list[ConfigProblem]:
    with suppress(ConfigError):
        build_settings(config)
    return config.problems


def _quoted(value: str) -> str:
    if value.isascii() and value.replace("-", "").replace("_", "").replace(".", "").isalnum():
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextmanager
def _locked(paths: Paths) -> Iterator[Paths]:
    """Lock the files: two processes editing at once would undo each other's changes."""
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
    """Write atomically: a new file, synced, then renamed over the old one."""
    target = Path(os.path.realpath(file))  # a symbolic link (dotfiles) is kept
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
        raise ConfigError(f"{file} cannot be written: {error.strerror}. It is unchanged.") from error
    sync_to_disk(target.parent)  # makes the rename durable


def _restore(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink(missing_ok=True)
    else:
        _replace(file, text, private=True)
