"""Loads plugins, file hooks and shell hooks that were written for Hermes."""

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from alipes.compat.hermes.bridge import PACKAGE, Bridge
from alipes.compat.hermes.context import PluginContext, manifest_of
from alipes.compat.hermes.file_hooks import open_file_hook
from alipes.compat.hermes.hooks import record_state
from alipes.compat.hermes.modules import install
from alipes.compat.hermes.modules.memory_provider import MemoryProvider
from alipes.compat.hermes.modules.names import NAMES
from alipes.compat.hermes.shell_hooks import open_shell_hooks
from alipes.config.settings import Settings
from alipes.kernel.errors import PluginError
from alipes.plugins.context import Context, Host
from alipes.plugins.discovery import DiscoveredPlugin, add_package, forget, run_module, source_spec
from alipes.plugins.foreign_loaders import FindFeature
from alipes.plugins.interruption.attribution import on_behalf_of
from alipes.plugins.owner import PluginOwner

BUNDLED = "plugins"
"""Plugins that come with Hermes import their own modules as `plugins.<family>.<name>.<module>`."""
_ABSOLUTE = re.compile(rf"\b{BUNDLED}\.(\w+)\.(\w+)(?:\.(\w+)|\s+import\s+(\w+))")


def module_name(found: DiscoveredPlugin) -> str:
    """The module name for the plugin's code."""
    if found.path is None:
        return found.entry.partition(":")[0]
    name, number = f"{PACKAGE}.{found.slug}", 1
    while name in sys.modules:
        number += 1
        name = f"{PACKAGE}.{found.slug}_{number}"
    return name


def import_register(found: DiscoveredPlugin, name: str) -> Callable[[Any], Any]:
    """Import the plugin as `name` and return its `register`. Raises `PluginError` if there is none."""
    if found.path is not None:
        thing: Any = _import_folder(found, found.path, name)
    else:
        thing = import_module(name)
        for attribute in filter(None, found.entry.partition(":")[2].split(".")):
            thing = getattr(thing, attribute)
    if isinstance(thing, ModuleType) or not callable(thing):
        thing = getattr(thing, "register", None)
    if callable(thing):
        register: Callable[[Any], Any] = thing
        return register
    provider = _find_memory_class(name)
    if provider is None:
        raise PluginError(found.name, "register", "no function `register(ctx)` and no MemoryProvider found")
    return lambda ctx: ctx.register_memory_provider(provider())


def _find_memory_class(name: str) -> type[MemoryProvider] | None:
    """The memory provider that the plugin's modules define, for plugins without `register`."""
    modules = [module for key, module in sys.modules.items() if f"{key}.".startswith(f"{name}.")]
    found = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    own = [each for each in found if each.__module__.startswith(name) and issubclass(each, MemoryProvider)]
    concrete = sorted((each for each in own if not inspect.isabstract(each)), key=lambda each: each.__name__)
    return concrete[0] if concrete else None


def _import_folder(found: DiscoveredPlugin, folder: Path, name: str) -> ModuleType:
    file = folder / "__init__.py"
    if not file.is_file():
        raise PluginError(found.name, "register", f"{folder} has no __init__.py")
    add_package(PACKAGE)
    module = sys.modules[name] = module_from_spec(source_spec(name, file, folder))
    setattr(sys.modules[PACKAGE], name.rpartition(".")[2], module)
    for second in bundled_names(folder):
        add_package(second.rpartition(".")[0])
        sys.modules[second] = module
    run_module(module)
    return module


def bundled_names(folder: Path) -> set[str]:
    """The names `plugins.<family>.<name>` by which the plugin's own code imports its modules."""
    return {
        f"{BUNDLED}.{family}.{name}"
        for file in folder.glob("*.py")
        for family, name, module, other in _ABSOLUTE.findall(file.read_text("utf-8", "replace"))
        if name == folder.name or any((folder / each).exists() for each in (f"{module or other}.py", module) if each)
    }


def _forget_bundled(folder: Path) -> None:
    for second in bundled_names(folder):
        forget(second)
        family = second.rpartition(".")[0]
        if not any(each.startswith(f"{family}.") for each in sys.modules):
            sys.modules.pop(family, None)


def open_loader(host: Host, settings: Settings, find_feature: FindFeature | None = None) -> "HermesLoader":
    """One per app."""
    return HermesLoader(Bridge(host, settings, find_feature))


def provided_names() -> Mapping[str, Collection[str]]:
    """The modules that a plugin of Hermes may import, and the names in each."""
    return NAMES


class HermesLoader:
    """Opens Hermes plugins. Their importable modules are in `sys.modules` while at least one is open."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge

    async def open(self, found: DiscoveredPlugin, context: Context) -> None:
        """Import the plugin and let it register. It is closed with the context."""
        if found.kind == "shell-hooks":
            await open_shell_hooks(self.bridge, context)
            return
        name = module_name(found)
        install.install(self.bridge)
        self.bridge.enter(context, name)
        context.stack.callback(self._leave, context.owner)
        with on_behalf_of(context.owner):
            if found.kind == "file-hook":
                assert found.path is not None
                await open_file_hook(found.path, context)
            else:
                await self._register(found, context, name)

    async def _register(self, found: DiscoveredPlugin, context: Context, name: str) -> None:
        if found.path is not None:
            context.stack.callback(forget, name)
            context.stack.callback(_forget_bundled, found.path)
        record_state(self.bridge, context)
        self.bridge.environment.expose(*found.manifest.requires_env, *found.manifest.optional_env)
        register = await self.bridge.off_loop(lambda: import_register(found, name))  # imports may take long
        answer = register(PluginContext(self.bridge, context, manifest_of(found)))
        if inspect.isawaitable(answer):
            await answer

    def _leave(self, owner: PluginOwner) -> None:
        if self.bridge.leave(owner):
            install.uninstall(self.bridge)
