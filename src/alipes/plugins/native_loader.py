"""The native door: imports a module, and registers what it finds in it by name. It opens nothing itself."""

import asyncio
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import iscoroutinefunction, isfunction
from types import ModuleType
from typing import Any, Protocol

import msgspec

from alipes.config.paths import Paths
from alipes.config.settings import Settings
from alipes.config.settings_parts import filled, variables_now, where
from alipes.kernel.errors import ConfigError, PluginError
from alipes.kernel.formatting import did_you_mean, near
from alipes.kernel.messages import Json
from alipes.plugins import discovery
from alipes.plugins.context import Context, hook_names
from alipes.plugins.discovery import Found
from alipes.plugins.registration import parameters
from alipes.plugins.tool_decorator import marked

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


class Door(Protocol):
    """A way for one kind of plugin into the house."""

    async def open(self, found: Found, context: Context) -> None:
        """Import its code and let it register; whatever it raises is told, and the plugin stays out."""
        ...


class NativeDoor:
    """For modules with hooks named like ours, tools marked `@tool`, `async def setup(ctx)`, a `Config`."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def open(self, found: Found, context: Context) -> None:
        plugin = await self._load(found, context)
        traits = _traits(found.name, plugin)
        for name, thing in traits.items():
            if parameters(name) is not None:
                context.hook(thing, name=name)
            elif marked(thing) is not None:
                context.tool(thing)
        shape = getattr(plugin, "Config", None)
        if shape is not None:
            context.config = checked(context.config, shape, found.name, self._paths)
        setup = getattr(plugin, "setup", None)
        if setup is not None:
            await _setup(found, setup, context)
        elif not traits:
            raise PluginError(found.name, "opening", _nothing_in(plugin))

    async def _load(self, found: Found, context: Context) -> object:
        """In a thread, because what a plugin imports in its turn may take long."""
        if found.path is not None:
            module: ModuleType = await asyncio.to_thread(discovery.fresh, found.slug, found.path)
            context.stack.callback(discovery.forget, module.__name__)
            return module
        name, _, attributes = found.entry.partition(":")
        plugin: Any = await asyncio.to_thread(import_module, name.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            plugin = getattr(plugin, attribute)
        return plugin


def _traits(plugin_name: str, plugin: object) -> dict[str, Callable[..., Any]]:
    """Its hooks and tools by name. Raises PluginError for what was probably meant to be one."""
    names: Mapping[str, Any] = vars(plugin) if isinstance(plugin, ModuleType) else _public(plugin)
    traits: dict[str, Callable[..., Any]] = {}
    for name, thing in names.items():
        if marked(thing) is not None:
            traits[name] = thing
        elif not name.startswith("_") and callable(thing) and not isinstance(thing, type):
            if parameters(name) is not None:
                traits[name] = thing
            elif isfunction(thing) and thing.__module__ == getattr(plugin, "__name__", ""):
                _refuse_misspelt(plugin_name, name, thing)
    return traits


def _public(plugin: object) -> dict[str, Any]:
    return {name: getattr(plugin, name) for name in dir(plugin) if not name.startswith("_")}


def _refuse_misspelt(plugin: str, name: str, thing: object) -> None:
    """An async function that is called almost like a hook would never be called, and nobody would know."""
    meant = near(name, (*hook_names(), "setup"), 1)
    if meant and name != "setup" and iscoroutinefunction(thing):
        why = f"there is no such hook. Did you mean {meant[0]}? If it is none, call it _{name}"
        raise PluginError(plugin, name, why)


async def _setup(found: Found, setup: Any, context: Context) -> None:
    if not iscoroutinefunction(setup):
        raise PluginError(found.name, "setup", "it must be `async def setup(ctx)`")
    await setup(context)


def _nothing_in(plugin: object) -> str:
    if hasattr(plugin, "register"):
        return "it has `register`, as Hermes plugins do: give its folder the plugin.yaml that belongs to it"
    return "nothing in it is ours: it needs a hook, a tool marked @tool, or `async def setup(ctx)`"
