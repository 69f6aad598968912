"""Loads native plugins: imports a module and registers the hooks and tools it finds by name."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from inspect import iscoroutinefunction, isfunction
from types import ModuleType
from typing import Any, Protocol, TypeAlias

import msgspec

from alipes.config.environment import current_variables, fill_references
from alipes.config.paths import Paths
from alipes.config.reader import locate
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError, PluginError
from alipes.kernel.formatting import closest_matches, did_you_mean
from alipes.kernel.messages import Json
from alipes.plugins import discovery
from alipes.plugins.context import Context, hook_names
from alipes.plugins.discovery import DiscoveredPlugin
from alipes.plugins.registration import hook_parameters
from alipes.plugins.tool_decorator import tool_mark

OVERRIDE = "allow_tool_override"
"""Our key in every plugin's table."""


def plugin_settings(settings: Settings, name: str) -> tuple[dict[str, Json], bool]:
    """A plugin's settings with variables filled in, and whether it may replace built-in tools.

    Raises ConfigError if a variable is not set.
    """
    table = dict(settings.plugins.entries.get(name, {}))
    may_override = table.pop(OVERRIDE, False) is True
    try:
        return fill_references(table, current_variables(settings.paths)), may_override
    except KeyError as missing:
        place = locate(settings.paths, ("plugins", "entries", name))
        raise ConfigError(
            f"{place}: [plugins.entries.{name}] needs the variable {missing.args[0]}, which is not set: "
            f"run `alipes config set {missing.args[0]} -`, or set it in the environment."
        ) from missing


def validate_config(table: Mapping[str, Json], shape: type[Any], name: str, paths: Paths) -> Any:
    """The settings as the plugin's `Config`. Raises ConfigError with file, line and setting of everything wrong."""
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        raise TypeError("Config must be a class(msgspec.Struct)")
    errors = list(_config_errors(table, shape))
    if not errors:
        try:
            return msgspec.convert(dict(table), shape)
        except msgspec.ValidationError as error:  # a rule about several settings
            errors = [_wrong_value((), error)]
    raise ConfigError("\n".join(_locate_error(name, paths, way, why) for way, why in errors))


ConfigProblem: TypeAlias = tuple[tuple[str | int, ...], str]
"""Where it is, and a sentence without its subject."""


def _config_errors(table: Mapping[str, Json], shape: type[msgspec.Struct]) -> Iterator[ConfigProblem]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(shape)}
    for key, value in table.items():
        if key not in fields:
            others = did_you_mean(key, fields) or f" It has {', '.join(fields) or 'none'}."
            yield (key,), f"is not a setting of this plugin.{others}"
            continue
        try:
            msgspec.convert(value, fields[key].type)
        except msgspec.ValidationError as error:
            yield _wrong_value((key,), error)
    for key, field in fields.items():
        if field.required and key not in table:
            yield (key,), "is missing: the plugin requires it."


def _wrong_value(way: tuple[str | int, ...], error: msgspec.ValidationError) -> ConfigProblem:
    why, _, at = str(error).partition(" - at `$")
    inside = (int(part) if part.isdecimal() else part for part in re.findall(r"[^.\[\]`]+", at))
    return (*way, *inside), f"is wrong: {why}."


def _locate_error(name: str, paths: Paths, way: tuple[str | int, ...], why: str) -> str:
    place = locate(paths, ("plugins", "entries", name, *way))
    what = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in way).lstrip(".")
    what = f"{what} of [plugins.entries.{name}]" if what else f"[plugins.entries.{name}]"
    return f"{place}: {what} {why.replace('..', '.')}"


class PluginLoader(Protocol):
    """Loads one kind of plugin."""

    async def open(self, found: DiscoveredPlugin, context: Context) -> None:
        """Import its code and let it register; an error is reported and the plugin stays out."""
        ...


class NativeLoader:
    """For modules with hooks, tools marked `@tool`, `async def setup(ctx)` and a `Config`."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def open(self, found: DiscoveredPlugin, context: Context) -> None:
        plugin = await self._load(found, context)
        traits = _hooks_and_tools(found.name, plugin)
        for name, thing in traits.items():
            if hook_parameters(name) is not None:
                context.hook(thing, name=name)
            elif tool_mark(thing) is not None:
                context.tool(thing)
        shape = getattr(plugin, "Config", None)
        if shape is not None:
            context.config = validate_config(context.config, shape, found.name, self._paths)
        setup = getattr(plugin, "setup", None)
        if setup is not None:
            await _setup(found, setup, context)
        elif not traits:
            raise PluginError(found.name, "opening", _describe_missing(plugin))

    async def _load(self, found: DiscoveredPlugin, context: Context) -> object:
        """In a thread, because the plugin's own imports may be slow."""
        if found.path is not None:
            module: ModuleType = await asyncio.to_thread(discovery.import_fresh, found.slug, found.path)
            context.stack.callback(discovery.forget, module.__name__)
            return module
        name, _, attributes = found.entry.partition(":")
        plugin: Any = await asyncio.to_thread(import_module, name.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            plugin = getattr(plugin, attribute)
        return plugin


def _hooks_and_tools(plugin_name: str, plugin: object) -> dict[str, Callable[..., Any]]:
    """Its hooks and tools by name. Raises PluginError for a misspelt hook."""
    names: Mapping[str, Any] = vars(plugin) if isinstance(plugin, ModuleType) else _public(plugin)
    traits: dict[str, Callable[..., Any]] = {}
    for name, thing in names.items():
        if tool_mark(thing) is not None:
            traits[name] = thing
        elif not name.startswith("_") and callable(thing) and not isinstance(thing, type):
            if hook_parameters(name) is not None:
                traits[name] = thing
            elif isfunction(thing) and thing.__module__ == getattr(plugin, "__name__", ""):
                _refuse_misspelt(plugin_name, name, thing)
    return traits


def _public(plugin: object) -> dict[str, Any]:
    return {name: getattr(plugin, name) for name in dir(plugin) if not name.startswith("_")}


def _refuse_misspelt(plugin: str, name: str, thing: object) -> None:
    """A misspelt hook would silently never be called."""
    meant = closest_matches(name, (*hook_names(), "setup"), 1)
    if meant and name != "setup" and iscoroutinefunction(thing):
        why = f"no such hook. Did you mean {meant[0]}? If it is not a hook, rename it to _{name}"
        raise PluginError(plugin, name, why)


async def _setup(found: DiscoveredPlugin, setup: Any, context: Context) -> None:
    if not iscoroutinefunction(setup):
        raise PluginError(found.name, "setup", "it must be `async def setup(ctx)`")
    await setup(context)


def _describe_missing(plugin: object) -> str:
    if hasattr(plugin, "register"):
        return "it has `register`, like a Hermes plugin: add its plugin.yaml to the folder"
    return "no hook, @tool or `async def setup(ctx)` found"
