"""`alipes config`: shows settings and their origin, and changes them."""

import sys
from collections.abc import Iterator
from getpass import getpass

from alipes.config.display import HIDDEN, mask, to_toml, toml_key, toml_path
from alipes.config.editor import change, has_value, set_secret, set_value
from alipes.config.environment import read_variables
from alipes.config.known_providers import KEYED
from alipes.config.loader import CA_VARIABLE, PROXY_VARIABLES, build_settings
from alipes.config.paths import Paths, find_home
from alipes.config.reader import KeyPath, RawConfig, read_config
from alipes.config.schema import find_key
from alipes.config.settings import Settings
from alipes.config.toml_lines import split_key
from alipes.config.values import (
    check_secret_name,
    describe_value,
    effective_value,
    explain_value,
    format_origin,
    is_variable,
    list_keys,
    resolve_key,
)
from alipes.console import help_text
from alipes.console.options import OptionParser, print_config_errors


@print_config_errors
def run(argv: list[str]) -> int:
    parser = OptionParser("alipes config", help_text.CONFIG)
    parser.add_argument("action", choices=("show", "get", "set", "unset", "why", "path"))
    parser.add_argument("key", nargs="?", default="")
    parser.add_argument("value", nargs="?")
    # A value may start with a hyphen: nothing after `set KEY` is an option.
    args = parser.parse_args([*argv[:2], "--", *argv[2:]] if argv[:1] == ["set"] else argv)
    if bool(args.key) != (args.action not in ("show", "path")):
        parser.error(f"`{args.action}` {'takes no' if args.key else 'needs a'} KEY")
    if (args.value is not None) != (args.action == "set"):
        parser.error(f"`{args.action}` {'needs' if args.action == 'set' else 'takes no'} VALUE")
    for line in _run_action(args.action, args.key, args.value):
        print(line)
    return 0


def _run_action(action: str, key: str, value: str | None) -> Iterator[str]:
    if action == "set":
        assert value is not None
        return _set(key, value)
    if action == "unset":
        return _unset(key)
    reading = read_config()
    if action == "path":
        return iter([str(reading.paths.config)])
    settings = build_settings(reading)
    if action == "show":
        return _show(reading, settings)
    if is_variable(key):
        return _describe_variable(reading, key, action)
    way = resolve_key(reading, key)
    return _get(reading, way) if action == "get" or find_key(way) is None else explain_value(reading, way)


def _show(reading: RawConfig, settings: Settings) -> Iterator[str]:
    yield from _format_settings(reading, list_keys(reading))
    missing = [f"{name} ({settings.providers[name].key_env})" for name in KEYED if not settings.providers[name].key]
    if missing:
        yield f"\n# known providers without a key: {', '.join(missing)}"
    for name in (*PROXY_VARIABLES, *(name.lower() for name in PROXY_VARIABLES), CA_VARIABLE):
        if text := reading.variables.get(name):
            yield f"# {name} = {to_toml(mask(text))}, {reading.variables.where(name)}"
    for note in settings.notes:
        yield f"# {note}"


def _format_settings(reading: RawConfig, ways: list[KeyPath]) -> Iterator[str]:
    """The settings in the format of config.toml, each with its origin."""
    table: KeyPath = ()
    for way in ways:
        if way[:-1] != table:
            table = way[:-1]
            yield f"\n[{toml_path(table)}]"
        found = reading.effective(*way)
        origin = format_origin(reading, way, found)
        if way[-1].endswith("_env") and found.value:
            place = reading.variables.where(str(found.value))
            origin += f"; {'set, ' + place if place else 'not set'}"
        yield f"{toml_key(way[-1])} = {to_toml(found.value)}  # {origin}"


def _get(reading: RawConfig, way: KeyPath) -> Iterator[str]:
    key = find_key(way)
    if key is None:
        yield from _format_settings(reading, [each for each in list_keys(reading) if each[: len(way)] == way])
        return
    depth = key.path.count(".") + 1
    value = effective_value(reading, *way[:depth])
    for name in way[depth:]:  # in a table such as headers or body
        value = value.get(name) if isinstance(value, dict) else None
    if value is not None:
        yield mask(value) if isinstance(value, str) else to_toml(value)


def _describe_variable(reading: RawConfig, name: str, action: str) -> Iterator[str]:
    where = reading.variables.where(name)
    shown = mask(reading.variables.get(name)) if name.upper() in PROXY_VARIABLES else HIDDEN
    if action == "get":
        if where:
            yield shown
        return
    yield f"{name} = {shown}" if where else f"{name} is not set"
    if where:
        yield f"  from {where}"
    for way in list_keys(reading):
        if way[-1].endswith("_env") and effective_value(reading, *way) == name:
            yield f"  named by {toml_path(way)}"


def _set(key: str, value: str) -> Iterator[str]:
    if is_variable(key):
        check_secret_name(key)
        if value == "-":
            value = getpass(f"{key}: ") if sys.stdin.isatty() else sys.stdin.read().strip()
        yield f"{key} saved in {set_secret(key, value)}"
        return
    lines, left = set_value(key, value)
    yield from lines
    if left:
        print("Remaining problems in the file:", *left, sep="\n", file=sys.stderr)


def _unset(key: str) -> Iterator[str]:
    if is_variable(key):
        where = read_variables(Paths(find_home()).env, {}).where(key)
        if where:
            change({}, {key: None})
        yield f"{key} is no longer set, {where}" if where else f"{key} is not set in {Paths(find_home()).env}"
        return
    reading = read_config()
    way = split_key(key)
    if not way or not has_value(reading.tables, way):
        way = resolve_key(reading, key)
        yield f"{toml_path(way)} is not set in {reading.paths.config}"
        return
    where = reading.where(way)
    left = change({way: None})
    yield f"{toml_path(way)} is no longer set, {where}"
    if find_key(way):
        yield from describe_value(read_config(), way)
    if left:
        print("Remaining problems in the file:", *left, sep="\n", file=sys.stderr)
