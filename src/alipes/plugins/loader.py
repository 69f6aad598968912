"""Opens the plugins that are asked for, and exchanges them while the house runs. What is broken stays out.

Each lodges in a task of its own. What a new version registers takes the place of the old one's in one
step; the old one is closed when the last turn that began with it is over.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from msgspec import json, structs

from alipes.config.loader import read
from alipes.config.settings import Settings, load
from alipes.config.validation import Way
from alipes.kernel.errors import PluginError
from alipes.kernel.formatting import did_you_mean
from alipes.plugins import discovery
from alipes.plugins.attribution import on_behalf_of
from alipes.plugins.context import Host, hook_names
from alipes.plugins.discovery import Found, PluginFacts, keep
from alipes.plugins.dispatch import Hooks
from alipes.plugins.instance import OPENING, House, Lodging
from alipes.plugins.native_loader import Door, NativeDoor
from alipes.plugins.owner import Owner
from alipes.plugins.registry import Offers

__all__ = ["Door", "Plugins", "open_plugins"]


ENABLED: Way = ("plugins", "enabled")
DISABLED: Way = ("plugins", "disabled")


async def renewed(settings: Settings) -> Settings:
    """The settings, with what concerns plugins as the file says it now. Raises ConfigError."""
    if not settings.paths.config.exists():
        return settings
    now = await asyncio.to_thread(load, settings.home)
    plugins = structs.replace(now.plugins, safe=settings.plugins.safe)
    return structs.replace(settings, plugins=plugins, toolsets=now.toolsets, hooks=now.hooks)


async def find(name: str, settings: Settings) -> Found:
    """The plugin of that name, if it may be opened. Raises PluginError."""
    if settings.plugins.safe:
        raise PluginError(name, "not loaded", "alipes runs in safe mode, without plugins: start it anew")
    if name in settings.plugins.disabled:
        raise PluginError(name, "not loaded", "`plugins.disabled` names it, and that always wins")
    found = {each.name: each for each in await asyncio.to_thread(discovery.find, settings)}
    if name not in found:
        raise PluginError(name, "not loaded", f"there is no such plugin.{did_you_mean(name, found)}")
    return found[name]


def why_not(found: Found, settings: Settings) -> str:
    """Why it is not in use."""
    if settings.plugins.safe:
        return "safe mode"
    return "in plugins.disabled" if found.name in settings.plugins.disabled else "not in plugins.enabled"


async def remember(found: Found, settings: Settings, *, on: bool) -> Settings:
    """Write it into config.toml for the next start; the settings after it. Raises ConfigError."""
    by_itself = found.kind in ("file-hook", "shell-hooks")
    before = await asyncio.to_thread(_written, settings)
    after = {way: [name for name in names if name != found.name] for way, names in before.items()}
    if on and not by_itself:
        after[ENABLED].append(found.name)
    if not on and by_itself:
        after[DISABLED].append(found.name)
    changed = {way: json.encode(names).decode() for way, names in after.items() if names != before[way]}
    if not changed:
        return settings
    edit: Any = await asyncio.to_thread(import_module, "alipes.config.editor")  # it brings tomlkit along
    await asyncio.to_thread(edit.change, changed, home=settings.home)
    return await renewed(settings)


def _written(settings: Settings) -> dict[Way, list[str]]:
    """What the file says, whatever goes over it; without a file, what we were started with."""
    if not settings.paths.config.exists():
        return {ENABLED: list(settings.plugins.enabled), DISABLED: list(settings.plugins.disabled)}
    values = read(settings.home).values
    lists: dict[Way, list[str]] = {}
    for way in (ENABLED, DISABLED):
        given = values.get(way)
        lists[way] = [str(name) for name in given] if isinstance(given, list) else []
    return lists


log = logging.getLogger(__name__)


class Plugins:
    """The plugins of one house. Sentences that are returned or raised are for the person who asked."""

    def __init__(self, house: House, group: asyncio.TaskGroup) -> None:
        self._house, self._group = house, group
        self._loop = asyncio.get_running_loop()
        self._lodgings: dict[str, Lodging] = {}
        """By name, those that count now, or failed last."""
        self._living: dict[Lodging, asyncio.Task[None]] = {}
        """All that are not closed, also those that begin or leave."""
        self._unknown: dict[str, str] = {}
        self._changing = asyncio.Lock()

    def facts(self) -> tuple[PluginFacts, ...]:
        """How those stand that are asked for."""
        unknown = (PluginFacts(name, "failed", why) for name, why in self._unknown.items())
        return (*(each.facts() for each in self._lodgings.values()), *unknown)

    async def listing(self) -> tuple[PluginFacts, ...]:
        """All there are, by name, also those that nobody asked for."""
        known = {each.name: each for each in self.facts()}
        settings = await renewed(self._house.settings)
        for found in await asyncio.to_thread(discovery.find, settings):
            if found.name not in known:
                facts = Lodging(found, self._house).facts()
                why = why_not(found, settings)
                known[found.name] = structs.replace(facts, state="disabled", why=why)
        return tuple(known[name] for name in sorted(known))

    async def reload(self, name: str) -> str:
        """Exchange it for the code and the settings that lie there now. If they fail, the old one stays.

        Raises PluginError with the reason.
        """
        async with self._changing:
            found = await self._found(name)
            if found.name not in (*self._lodgings, *self._house.settings.plugins.enabled):
                raise PluginError(name, "reload", f"it is not in use; /plugins enable {name} loads it")
            before = self._lodgings.get(found.name)
            if before is not None and found.path is None and found.entry and before.state == "on":
                raise PluginError(
                    name, "reload", "it came with a package, whose code is loaded once: start alipes again"
                )
            await self._exchange(found)
            return f"{found.name} is loaded anew; what runs finishes with what it began with."

    async def enable(self, name: str) -> str:
        """Load it, and at every start from now on. Raises PluginError where it cannot be loaded."""
        async with self._changing:
            found = await self._found(name)
            lodging = self._lodgings.get(found.name)
            if lodging is None or lodging.state != "on":
                await self._exchange(found)
            await self._remember(found, on=True)
            return f"{found.name} is loaded, and will be at every start."

    async def disable(self, name: str) -> str:
        """Load it no more, and close it once no turn uses it."""
        async with self._changing:
            known = (*self._lodgings, *self._unknown, *self._house.settings.plugins.enabled)
            if name not in known:
                raise PluginError(name, "disable", f"it is not loaded.{did_you_mean(name, known)}")
            lodging = self._lodgings.pop(name, None)
            self._unknown.pop(name, None)
            if lodging is not None:
                self._retire(lodging)
            await self._remember(lodging.found if lodging else Found(name, "native"), on=False)
            _keep(self, self._house.settings)
            return f"{name} is no longer loaded; what runs finishes with it."

    async def open_all(self) -> None:
        """Side by side; what they register counts in the order in which they were named."""
        wanted, unknown = await asyncio.to_thread(discovery.wanted, self._house.settings)
        if unknown:
            known = [each.name for each in await asyncio.to_thread(discovery.find, self._house.settings)]
            for name in unknown:
                meant = did_you_mean(name, known) or " `alipes plugins list` shows which there are."
                self._unknown[name] = f"there is no plugin {name}.{meant}"
        self._lodgings = {found.name: self._lodge(found) for found in wanted}
        for lodging in self._lodgings.values():
            await lodging.ready.wait()
        for lodging in self._lodgings.values():
            if not lodging.settled(self._soon_off):
                log.error("plugin %s is not loaded: %s", lodging.found.name, lodging.why)
        for hook in self._house.settings.plugins.deadlines:
            if hook not in hook_names() and (meant := did_you_mean(hook, hook_names())):
                log.warning("[plugins.deadlines] %s is no hook of ours.%s", hook, meant)
        _keep(self, self._house.settings)

    async def close(self) -> None:
        """Close all of them, at once and side by side."""
        for lodging, task in self._living.items():
            lodging.withdraw()
            lodging.leave()
            if not lodging.ready.is_set():
                task.cancel()
        if self._living:
            await asyncio.wait(list(self._living.values()))

    async def _exchange(self, found: Found) -> None:
        lodging = self._lodge(found)
        try:
            await lodging.ready.wait()
        except asyncio.CancelledError:
            lodging.leave()
            raise
        before = self._lodgings.get(found.name)
        if not lodging.settled(self._soon_off):
            if before is None or before.state != "on":
                self._lodgings[found.name] = lodging
                _keep(self, self._house.settings)
                raise PluginError(found.name, "not loaded", lodging.why)
            raise PluginError(found.name, "not exchanged, the one before goes on", lodging.why)
        self._lodgings[found.name] = lodging
        self._unknown.pop(found.name, None)
        if before is not None:
            self._retire(before)
        _keep(self, self._house.settings)

    def _lodge(self, found: Found) -> Lodging:
        lodging = Lodging(found, self._house)
        with on_behalf_of(None):
            task = self._group.create_task(lodging.run(), name=f"plugin {found.name}")
        self._living[lodging] = task
        task.add_done_callback(lambda _: self._living.pop(lodging))
        return lodging

    def _soon_off(self, owner: Owner) -> None:
        """Called in the midst of whatever it failed in."""
        self._loop.call_soon_threadsafe(self._off, owner)

    def _off(self, owner: Owner) -> None:
        """It failed too often: it counts no more, and is closed when nobody uses it."""
        lodging = self._lodgings.get(owner.name)
        if lodging is None or lodging.owner is not owner:
            return
        lodging.state, lodging.why = "off", owner.why
        self._retire(lodging)
        _keep(self, self._house.settings)

    def _retire(self, lodging: Lodging) -> None:
        lodging.withdraw()
        if lodging in self._living:
            with on_behalf_of(None):
                self._group.create_task(lodging.see_off(), name=f"plugin {lodging.found.name} leaves")

    async def _found(self, name: str) -> Found:
        """It, by the settings that the file has now."""
        self._house = structs.replace(self._house, settings=await renewed(self._house.settings))
        return await find(name, self._house.settings)

    async def _remember(self, found: Found, *, on: bool) -> None:
        settings = await remember(found, self._house.settings, on=on)
        self._house = structs.replace(self._house, settings=settings)


def _keep(plugins: Plugins, settings: Settings) -> None:
    try:
        keep(settings.paths, plugins.facts())
    except OSError as error:
        log.warning("how the plugins stand could not be written down: %s", error)


@asynccontextmanager
async def open_plugins(
    settings: Settings,
    *,
    hooks: Hooks,
    offers: Offers,
    host: Host,
    doors: Mapping[str, Callable[[], Door]],
    opening: float = OPENING,
) -> AsyncIterator[Plugins]:
    """The plugins that `settings` ask for, open; at the end all of them are closed.

    `doors`: by kind, who opens plugins that are not native; each is called when first needed.
    """
    native = NativeDoor(settings.paths)
    house = House(settings, hooks, offers, host, {"native": lambda: native, **doors}, opening)
    group = asyncio.TaskGroup()
    await group.__aenter__()
    plugins = Plugins(house, group)
    try:
        if discovery.anything_wanted(settings):
            await plugins.open_all()
        yield plugins
    finally:  # not as `async with`: what the body raises is none of the group's, and stays as it is
        try:
            await plugins.close()
        finally:
            await group.__aexit__(None, None, None)
