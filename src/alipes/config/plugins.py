"""What the operator decided about plugins, toolsets and shell hooks. What there is to load is not known."""

import os
import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from alipes.config.kinds import REFERENCE
from alipes.config.lines import Place, lines_of, nearest_line
from alipes.config.paths import Paths
from alipes.config.reading import Reading
from alipes.config.variables import Variables, read_text, read_variables
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json


class PluginSettings(Struct, frozen=True):
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    safe: bool = False
    project: bool = False
    import_hermes: bool = False
    deadline: float = 5.0
    deadlines: dict[str, float] = {}
    """By hook, what goes over `deadline`."""
    entries: dict[str, dict[str, Json]] = {}
    """By plugin, its own table, as it stands in the file."""


class ShellHook(Struct, frozen=True):
    command: str
    matcher: str = ""
    """A regular expression for the names of tools; empty means all."""
    timeout: float = 60.0


def plugin_settings(reading: Reading, picked: Mapping[str, Any]) -> PluginSettings:
    """`picked`: the values of `[plugins]` that have a name of ours."""
    return PluginSettings(
        **picked,
        deadlines=cast("dict[str, float]", _named(reading, "plugins", "deadlines")),
        entries=cast("dict[str, dict[str, Json]]", _named(reading, "plugins", "entries")),
    )


def toolsets(reading: Reading) -> dict[str, tuple[str, ...]]:
    found = cast("dict[str, list[str]]", _named(reading, "toolsets"))
    return {platform: tuple(names) for platform, names in found.items()}


def shell_hooks(reading: Reading) -> dict[str, tuple[ShellHook, ...]]:
    found = cast("dict[str, list[dict[str, Any]]]", _named(reading, "hooks"))
    return {
        hook: tuple(ShellHook(**{"timeout": 60.0, **each}) for each in tables)
        for hook, tables in found.items()
    }


def _named(reading: Reading, *tables: str) -> dict[str, Json]:
    """The values directly under a table whose names the operator chose."""
    depth = len(tables)
    return {
        way[depth]: value
        for way, value in reading.values.items()
        if way[:depth] == tables and len(way) == depth + 1
    }


def variables_now(paths: Paths) -> Variables:
    """What the environment and `.env` say at this moment. Raises ConfigError."""
    return read_variables(paths.env, os.environ)


def filled(table: dict[str, Json], variables: Variables) -> dict[str, Json]:
    """A plugin's table with `${NAME}` replaced. Raises KeyError with the variable that is not set."""

    def value(found: re.Match[str]) -> str:
        if not (text := variables.get(found[1])):
            raise KeyError(found[1])
        return text

    def fill(item: Any) -> Any:
        match item:
            case str():
                return re.sub(REFERENCE, value, item)
            case list():
                return [fill(each) for each in item]
            case dict():
                return {name: fill(each) for name, each in item.items()}
        return item

    return cast("dict[str, Json]", fill(table))


def where(paths: Paths, place: Place) -> str:
    """`/home/me/.alipes/config.toml:7`, the line nearest to what stands at `place`."""
    try:
        line = nearest_line(lines_of(read_text(paths.config) or ""), place)
    except ConfigError:
        line = None
    return f"{paths.config}:{line}" if line else str(paths.config)
