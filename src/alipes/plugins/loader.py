"""Opens the enabled plugins and reloads them at run time. A broken plugin stays out.

Each runs in its own task. A new version replaces the old one in one step; the old one is closed when the last
turn that started with it has ended.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from msgspec import json, structs

from alipes.config.loader import load_settings
from alipes.config.reader import KeyPath, read_config
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError, PluginError
from alipes.kernel.formatting import did_you_mean
from alipes.plugins import discovery, pins
from alipes.plugins.context import Host, hook_names
from alipes.plugins.discovery import DiscoveredPlugin, PluginStatus, save_status
from alipes.plugins.dispatch import Hooks
from alipes.plugins.instance import OPEN_TIMEOUT, LoadEnvironment, PluginInstance
from alipes.plugins.interruption.attribution import on_behalf_of
from alipes.plugins.native_loader import NativeLoader, PluginLoader
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import Contributions

__all__ = ["PluginLoader", "Plugins"]
SLOW_OPEN = 5.0
"""Seconds after which a plugin that is still opening is named."""
ENABLED: KeyPath = ("plugins", "enabled")
DISABLED: KeyPath = ("plugins", "disabled")


async def reload_settings(settings: Settings) -> Settings:
    """The settings with the current plugin sections of the file. Raises ConfigError."""
    if not settings.paths.config.exists():
        return settings
    now = await asyncio.to_thread(load_settings, settings.home)
    plugins = structs.replace(now.plugins, safe=settings.plugins.safe)
    return structs.replace(settings, plugins=plugins, toolsets=now.toolsets, hooks=now.hooks)


async def find_plugin(name: str, settings: Settings) -> DiscoveredPlugin:
    """The plugin of that name, if it may be opened. Raises PluginError."""
    if settings.plugins.safe:
        raise PluginError(name, "not loaded", "plugins are off (safe mode): restart without --safe")
    if name in settings.plugins.disabled:
        raise PluginError(name, "not loaded", "it is listed in `plugins.disabled`, which takes precedence")
    found = {each.name: each for each in await asyncio.to_thread(discovery.find_plugins, settings)}
    if name not in found:
        raise PluginError(name, "not loaded", f"no such plugin.{did_you_mean(name, found)}")
    return found[name]


def disabled_reason(found: DiscoveredPlugin, settings: Settings) -> str:
    """Why it is not in use."""
    if settings.plugins.safe:
        return "safe mode"
    return "in plugins.disabled" if found.name in settings.plugins.disabled else "not in plugins.enabled"


async def save_enabled(found: DiscoveredPlugin, settings: Settings, *, on: bool) -> Settings:
    """Write it to config.toml for the next start; returns the new settings. Raises ConfigError."""
    by_itself = found.kind in ("file-hook", "shell-hooks")
    before = await asyncio.to_thread(_configured_lists, settings)
    after = {way: [name for name in names if name != found.name] for way, names in before.items()}
    if on and not by_itself:
        after[ENABLED].append(found.name)
    if not on and by_itself:
        after[DISABLED].append(found.name)
    changed = {way: json.encode(names).decode() for way, names in after.items() if names != before[way]}
    if not changed:
        return settings
    edit: Any = await asyncio.to_thread(import_module, "alipes.config.editor")  # imports tomlkit
    await asyncio.to_thread(edit.change, changed, home=settings.home)
    return await reload_settings(settings)


def _configured_lists(settings: Settings) -> dict[KeyPath, list[str]]:
    """The lists in the file, without overrides; without a file, those we were started with."""
    if not settings.paths.config.exists():
        return {ENABLED: list(settings.plugins.enabled), DISABLED: list(settings.plugins.disabled)}
    values = read_config(settings.home).values
    lists: dict[KeyPath, list[str]] = {}
    for way in (ENABLED, DISABLED):
        given = values.get(way)
        lists[way] = [str(name) for name in given] if isinstance(given, list) else []
    return lists


log = logging.getLogger(__name__)


class Plugins:
    """All plugins of an app. Returned and raised sentences are for the person who asked."""

    def __init__(
        self,
        settings: Settings,
        hooks: Hooks,
        contributions: Contributions,
        *,
        host: Host,
        loaders: Mapping[str, Callable[[], PluginLoader]],
        opening: float = OPEN_TIMEOUT,
    ) -> None:
        """`loaders`: by kind, for plugins that are not native; each is created when first needed. `opening`: seconds
        that a plugin may take to open."""
        native = NativeLoader(settings.paths)
        loaders = {"native": lambda: native, **loaders}
        self.hooks, self.contributions = hooks, contributions
        self._environment = LoadEnvironment(settings, hooks, contributions, host, loaders, opening)
        self._group = asyncio.TaskGroup()
        self._loop: asyncio.AbstractEventLoop
        self._instances: dict[str, PluginInstance] = {}
        """By name, the active ones, or the last failure."""
        self._tasks: dict[PluginInstance, asyncio.Task[None]] = {}
        """All that are not closed, including those that are opening or closing."""
        self._unknown: dict[str, str] = {}
        self._changing = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the enabled plugins; all are closed at the end."""
        self._loop = asyncio.get_running_loop()
        await self._group.__aenter__()
        try:
            self._remember_commands()
            if discovery.has_plugins(self._environment.settings):
                await self._open_all()
            self._check_required()
            yield
        finally:  # not `async with`: errors of the body must not be wrapped in a group
            try:
                await self._close()
            finally:
                await self._group.__aexit__(None, None, None)

    def statuses(self) -> tuple[PluginStatus, ...]:
        """The states of the enabled plugins."""
        unknown = (PluginStatus(name, "failed", why) for name, why in self._unknown.items())
        return (*(each.status() for each in self._instances.values()), *unknown)

    async def list_all(self) -> tuple[PluginStatus, ...]:
        """The states of all plugins, by name, including those that are not enabled."""
        known = {each.name: each for each in self.statuses()}
        settings = await reload_settings(self._environment.settings)
        for found in await asyncio.to_thread(discovery.find_plugins, settings):
            if found.name not in known:
                facts = PluginInstance(found, self._environment).status()
                why = disabled_reason(found, settings)
                known[found.name] = structs.replace(facts, state="disabled", why=why)
        return tuple(known[name] for name in sorted(known))

    async def reload(self, name: str) -> str:
        """Replace it by its current code and settings. If that fails, the old version stays active.

        Raises PluginError with the reason.
        """
        async with self._changing:
            found = await self._found(name)
            if found.name not in (*self._instances, *self._environment.settings.plugins.enabled):
                raise PluginError(name, "reload", f"it is not loaded; use /plugins enable {name}")
            before = self._instances.get(found.name)
            if before is not None and found.path is None and found.entry and before.state == "on":
                raise PluginError(name, "reload", "it is part of a package, which cannot be reloaded: restart alipes")
            changes = await asyncio.to_thread(_accept_files, found, self._environment.settings)
            await self._exchange(found)
            files = f" Its files: {changes}." if changes else ""
            return f"{found.name} was reloaded. Running turns keep the old version.{files}"

    async def enable(self, name: str) -> str:
        """Load it now and at every start. Raises PluginError if it cannot be loaded."""
        async with self._changing:
            found = await self._found(name)
            instance = self._instances.get(found.name)
            if instance is None or instance.state != "on":
                await asyncio.to_thread(_accept_files, found, self._environment.settings)
                await self._exchange(found)
            await self._remember(found, on=True)
            return f"{found.name} is enabled and loaded."

    async def disable(self, name: str) -> str:
        """Stop loading it, and close it once no turn uses it."""
        async with self._changing:
            known = (*self._instances, *self._unknown, *self._environment.settings.plugins.enabled)
            if name not in known:
                raise PluginError(name, "disable", f"it is not loaded.{did_you_mean(name, known)}")
            if name in self._environment.settings.plugins.required:
                raise PluginError(name, "disable", "it is listed in `plugins.required`: remove it there first")
            instance = self._instances.pop(name, None)
            self._unknown.pop(name, None)
            if instance is not None:
                self._retire(instance)
            await self._remember(instance.found if instance else DiscoveredPlugin(name, "native"), on=False)
            _save_status(self, self._environment.settings)
            return f"{name} is disabled. Running turns keep it until they end."

    async def _wait_ready(self) -> None:
        """Wait until each is open or has failed; name those that take long."""
        async with asyncio.TaskGroup() as group:
            waits = {group.create_task(each.ready.wait()): name for name, each in self._instances.items()}
            if slow := (await asyncio.wait(waits, timeout=SLOW_OPEN))[1] if waits else ():
                names = ", ".join(sorted(waits[wait] for wait in slow))
                log.warning("plugins not open after %.0f s: %s", SLOW_OPEN, names)
                sys.stderr.write(f"alipes: still waiting for the setup of these plugins: {names}\n")

    async def forgive(self, name: str) -> str:
        """Forget the failures of a loaded plugin and call all its callbacks again. Raises PluginError."""
        instance = self._instances.get(name)
        if instance is None or instance.state != "on":
            on = [each.name for each in self.statuses() if each.state == "on"]
            raise PluginError(name, "forgive", f"it is not loaded.{did_you_mean(name, on)}")
        instance.owner.forgive()
        _save_status(self, self._environment.settings)
        return f"The failures of {name} are forgotten, and all its callbacks are called again."

    async def _open_all(self) -> None:
        """Open them in parallel; their registrations are ordered as configured."""
        wanted, unknown = await asyncio.to_thread(discovery.enabled_plugins, self._environment.settings)
        if unknown:
            known = [each.name for each in await asyncio.to_thread(discovery.find_plugins, self._environment.settings)]
            for name in unknown:
                meant = did_you_mean(name, known) or " `alipes plugins list` shows which there are."
                self._unknown[name] = f"there is no plugin {name}.{meant}"
        refused = await asyncio.to_thread(pins.find_refused, self._environment.settings, wanted) if wanted else {}
        self._unknown |= refused
        self._instances = {found.name: self._open(found) for found in wanted if found.name not in refused}
        await self._wait_ready()
        for instance in self._instances.values():
            if not instance.activate(self._soon_off):
                log.error("plugin %s is not loaded: %s", instance.found.name, instance.reason)
        for hook in self._environment.settings.plugins.deadlines:
            if hook not in hook_names() and (meant := did_you_mean(hook, hook_names())):
                log.warning("[plugins.deadlines] %s is no hook of ours.%s", hook, meant)
        _save_status(self, self._environment.settings)

    def _remember_commands(self) -> None:
        """The commands of plugins that were enabled at an earlier start."""
        saved = discovery.read_status(self._environment.settings.paths)
        earlier = {command: each.name for each in (saved.plugins if saved else ()) for command in each.commands}
        self.contributions.commands_off.update(earlier)

    def commands_off(self) -> tuple[PluginStatus, ...]:
        """The plugins that are off and whose commands are known."""
        off: dict[str, list[str]] = {}
        for command, name in self.contributions.commands_off.items():
            off.setdefault(name, []).append(command)
        off = {name: commands for name, commands in off.items() if name not in {each.name for each in self.statuses()}}
        return tuple(PluginStatus(name, "disabled", commands=tuple(commands)) for name, commands in off.items())

    def _check_required(self) -> None:
        """Raises ConfigError if a plugin of `plugins.required` is not loaded."""
        settings = self._environment.settings.plugins
        known = {each.name: each for each in self.statuses()}
        for name in settings.required:
            status = known.get(name)
            if status is None or status.state != "on":
                off = "plugins are off (safe mode)" if settings.safe else "it is not listed in `plugins.enabled`"
                why = off if status is None else status.why
                raise ConfigError(
                    f"The plugin {name} is required, but it is not loaded: {why.rstrip('.')}. Fix this, or remove it "
                    "from `plugins.required` in config.toml."
                )

    async def _close(self) -> None:
        """Close all of them in parallel."""
        for instance, task in self._tasks.items():
            instance.deactivate()
            instance.request_close()
            if not instance.ready.is_set():
                task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _exchange(self, found: DiscoveredPlugin) -> None:
        instance = self._open(found)
        try:
            await instance.ready.wait()
        except asyncio.CancelledError:
            instance.request_close()
            raise
        before = self._instances.get(found.name)
        if not instance.activate(self._soon_off):
            if before is None or before.state != "on":
                self._instances[found.name] = instance
                _save_status(self, self._environment.settings)
                raise PluginError(found.name, "not loaded", instance.reason)
            raise PluginError(found.name, "reload failed; the previous version stays active", instance.reason)
        self._instances[found.name] = instance
        self._unknown.pop(found.name, None)
        if before is not None:
            self._retire(before)
        _save_status(self, self._environment.settings)

    def _open(self, found: DiscoveredPlugin) -> PluginInstance:
        instance = PluginInstance(found, self._environment)
        with on_behalf_of(None):
            task = self._group.create_task(instance.run(), name=f"plugin {found.name}")
        self._tasks[instance] = task
        task.add_done_callback(lambda _: self._tasks.pop(instance))
        return instance

    def _soon_off(self, owner: PluginOwner) -> None:
        """Called from inside the failing call."""
        self._loop.call_soon_threadsafe(self._off, owner)

    def _off(self, owner: PluginOwner) -> None:
        """It failed too often: deactivate it and close it when it is unused."""
        instance = self._instances.get(owner.name)
        if instance is None or instance.owner is not owner:
            return
        instance.state, instance.reason = "off", owner.disabled_reason
        self._retire(instance)
        _save_status(self, self._environment.settings)

    def _retire(self, instance: PluginInstance) -> None:
        instance.deactivate()
        if instance in self._tasks:
            with on_behalf_of(None):
                self._group.create_task(instance.close_when_unused(), name=f"plugin {instance.found.name} leaves")

    async def _found(self, name: str) -> DiscoveredPlugin:
        """The plugin, by the current settings file."""
        self._environment = structs.replace(
            self._environment, settings=await reload_settings(self._environment.settings)
        )
        return await find_plugin(name, self._environment.settings)

    async def _remember(self, found: DiscoveredPlugin, *, on: bool) -> None:
        settings = await save_enabled(found, self._environment.settings, on=on)
        self._environment = structs.replace(self._environment, settings=settings)


def _accept_files(found: DiscoveredPlugin, settings: Settings) -> pins.FileChanges:
    """Pin a plugin that a person asked to load. Returns what changed."""
    try:
        return pins.accept_plugin(settings.home, found)
    except OSError as error:
        log.warning("the files of plugin %s could not be pinned: %s", found.name, error)
        return pins.FileChanges()


def _save_status(plugins: Plugins, settings: Settings) -> None:
    """Save the states, and the commands of plugins that are off."""
    off = plugins.commands_off()
    try:
        save_status(settings.paths, (*plugins.statuses(), *off))
    except OSError as error:
        log.warning("the plugin states could not be saved: %s", error)
