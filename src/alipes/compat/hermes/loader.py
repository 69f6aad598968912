"""The Hermes door: opens plugins, file hooks and shell hooks that were written for Hermes."""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from alipes.compat.hermes.bridge import PACKAGE, Bridge
from alipes.compat.hermes.context import PluginContext, manifest_of
from alipes.compat.hermes.file_hooks import open_file_hook
from alipes.compat.hermes.hooks import take_notes
from alipes.compat.hermes.modules import install
from alipes.compat.hermes.shell_hooks import open_shell_hooks
from alipes.config.settings import Settings
from alipes.kernel.errors import PluginError
from alipes.plugins.attribution import on_behalf_of
from alipes.plugins.context import Context, Host
from alipes.plugins.discovery import Found, forget
from alipes.plugins.owner import Owner


def module_name(found: Found) -> str:
    """Under which name its code will live."""
    if found.path is None:
        return found.entry.partition(":")[0]
    name, number = f"{PACKAGE}.{found.slug}", 1
    while name in sys.modules:
        number += 1
        name = f"{PACKAGE}.{found.slug}_{number}"
    return name


def register_of(found: Found, name: str) -> Callable[[Any], Any]:
    """Its `register`, imported as `name`. Raises what its code raises, `PluginError` if there is none."""
    if found.path is not None:
        thing: Any = _folder(found, found.path, name)
    else:
        thing = import_module(name)
        for attribute in filter(None, found.entry.partition(":")[2].split(".")):
            thing = getattr(thing, attribute)
    if isinstance(thing, ModuleType) or not callable(thing):
        thing = getattr(thing, "register", None)
    if not callable(thing):
        raise PluginError(found.name, "register", "there is no function `register(ctx)`")
    register: Callable[[Any], Any] = thing
    return register


def _folder(found: Found, folder: Path, name: str) -> ModuleType:
    file = folder / "__init__.py"
    if not file.is_file():
        raise PluginError(found.name, "register", f"{folder} has no __init__.py")
    if PACKAGE not in sys.modules:
        parent = ModuleType(PACKAGE, "The Hermes plugins that lie in folders.")
        parent.__path__ = []
        sys.modules[PACKAGE] = parent
    spec = spec_from_file_location(name, file, submodule_search_locations=[str(folder)])
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    setattr(sys.modules[PACKAGE], name.rpartition(".")[2], module)
    spec.loader.exec_module(module)
    return module


def open_door(host: Host, settings: Settings) -> "HermesDoor":
    """One per app."""
    return HermesDoor(Bridge(host, settings))


class HermesDoor:
    """The importable names stand in `sys.modules` as long as something is open that may import them."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge

    async def open(self, found: Found, context: Context) -> None:
        """Import the code and let it register; raises what is wrong with it. It ends with the context."""
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

    async def _register(self, found: Found, context: Context, name: str) -> None:
        if found.path is not None:
            context.stack.callback(forget, name)
        take_notes(self.bridge, context)
        self.bridge.lending.lend(*found.manifest.requires_env, *found.manifest.optional_env)
        register = await self.bridge.off_loop(lambda: register_of(found, name))  # imports may take long
        answer = register(PluginContext(self.bridge, context, manifest_of(found)))
        if inspect.isawaitable(answer):
            await answer

    def _leave(self, owner: Owner) -> None:
        if self.bridge.leave(owner):
            install.uninstall(self.bridge)
