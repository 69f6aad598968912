"""A plugin's own settings, as its `Config` wants them; what is wrong is told with its place in the file."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from alipes.config.near import did_you_mean
from alipes.config.paths import Paths
from alipes.config.plugins import filled, variables_now, where
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json

OVERRIDE = "allow_tool_override"
"""Ours, in every plugin's table."""


def table_of(settings: Settings, name: str) -> tuple[dict[str, Json], bool]:
    """A plugin's table with its variables filled in, and whether it may replace tools of the house.

    Raises ConfigError when a variable is not set.
    """
    table = dict(settings.plugins.entries.get(name, {}))
    may_override = table.pop(OVERRIDE, False) is True
    try:
        return filled(table, variables_now(settings.paths)), may_override
    except KeyError as missing:
        place = where(settings.paths, ("plugins", "entries", name))
        raise ConfigError(
            f"{place}: [plugins.entries.{name}] needs the variable {missing.args[0]}, which is not set: "
            f"run `alipes config set {missing.args[0]} -`, or set it in the environment."
        ) from missing


def checked(table: Mapping[str, Json], shape: type[Any], name: str, paths: Paths) -> Any:
    """The settings as the plugin's `Config`. Raises ConfigError that names file, line and setting."""
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        raise TypeError("Config must be a class(msgspec.Struct)")
    fields = {field.encode_name: field for field in msgspec.structs.fields(shape)}
    for key in table:
        if key not in fields:
            others = did_you_mean(key, fields) or f" It has {', '.join(fields) or 'none'}."
            raise _wrong(name, paths, (key,), f"is not a setting of this plugin.{others}")
    missing = [key for key, field in fields.items() if field.required and key not in table]
    if missing:
        raise _wrong(name, paths, (missing[0],), "is missing: the plugin cannot do without it.")
    try:
        return msgspec.convert(dict(table), shape)
    except msgspec.ValidationError as error:
        why, _, at = str(error).partition(" - at `$")
        way = re.findall(r"[^.\[\]`]+", at)
        raise _wrong(
            name, paths, tuple(int(n) if n.isdecimal() else n for n in way), f"is wrong: {why}."
        ) from error


def _wrong(name: str, paths: Paths, way: tuple[str | int, ...], why: str) -> ConfigError:
    place = where(paths, ("plugins", "entries", name, *way))
    what = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in way).lstrip(".")
    what = f"{what} of [plugins.entries.{name}]" if what else f"[plugins.entries.{name}]"
    return ConfigError(f"{place}: {what} {why.replace('..', '.')}")
