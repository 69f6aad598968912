"""The native door: imports a module, and registers what it finds in it by name. It opens nothing itself."""

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import iscoroutinefunction, isfunction
from types import ModuleType
from typing import Any, Protocol

from alipes.config.near import near
from alipes.config.paths import Paths
from alipes.hooks import importing
from alipes.hooks.configuring import checked
from alipes.hooks.context import Context, hook_names
from alipes.hooks.entries import parameters
from alipes.hooks.finding import Found
from alipes.hooks.toolmaking import marked
from alipes.kernel.errors import PluginError


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
            module: ModuleType = await asyncio.to_thread(importing.fresh, found.slug, found.path)
            context.stack.callback(importing.forget, module.__name__)
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
