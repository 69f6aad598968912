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

from alipes.config.near import did_you_mean
from alipes.config.settings import Settings, load
from alipes.hooks import facts, finding
from alipes.hooks.context import Host, hook_names
from alipes.hooks.facts import PluginFacts
from alipes.hooks.finding import Found
from alipes.hooks.lodging import OPENING, House, Lodging
from alipes.hooks.native import Door, NativeDoor
from alipes.hooks.offers import Offers
from alipes.hooks.owners import Owner
from alipes.hooks.relay import Hooks
from alipes.hooks.tracking import on_behalf_of
from alipes.kernel.errors import PluginError

log = logging.getLogger(__name__)
__all__ = ["Door", "Plugins", "open_plugins"]


class Plugins:
    """The plugins of one house. Sentences that are returned or raised are for the person who asked."""

    def __init__(self, house: House, group: asyncio.TaskGroup) -> None:
        self._house, self._group = house, group
        self._loop = asyncio.get_running_loop()
        self._lodgings: dict[str, Lodging] = {}
        """By name, those that count now, or failed last."""
        self._leaving: set[Lodging] = set()
        self._unknown: dict[str, str] = {}
        self._changing = asyncio.Lock()

    def facts(self) -> tuple[PluginFacts, ...]:
        """How those stand that are asked for."""
        unknown = (PluginFacts(name, "failed", why) for name, why in self._unknown.items())
        return (*(each.facts() for each in self._lodgings.values()), *unknown)

    async def listing(self) -> tuple[PluginFacts, ...]:
        """All there are, by name, also those that nobody asked for."""
        known = {each.name: each for each in self.facts()}
        for found in await asyncio.to_thread(finding.find, await self._fresh()):
            known.setdefault(found.name, self._idle(found))
        return tuple(known[name] for name in sorted(known))

    async def reload(self, name: str) -> str:
        """Exchange it for the code and the settings that lie there now. If they fail, the old one stays.

        Raises PluginError with the reason.
        """
        async with self._changing:
            found = await self._find(name)
            settings = self._house.settings.plugins
            if found.name not in self._lodgings and found.name not in settings.enabled:
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
            found = await self._find(name)
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
            self._keep()
            return f"{name} is no longer loaded; what runs finishes with it."

    async def open_all(self) -> None:
        """Side by side; what they register counts in the order in which they were named."""
        wanted, unknown = await asyncio.to_thread(finding.wanted, self._house.settings)
        if unknown:
            known = [each.name for each in await asyncio.to_thread(finding.find, self._house.settings)]
            for name in unknown:
                meant = did_you_mean(name, known) or " `alipes plugins list` shows which there are."
                self._unknown[name] = f"there is no plugin {name}.{meant}"
        for lodging in [self._lodge(found) for found in wanted]:
            self._lodgings[lodging.found.name] = lodging
            await lodging.ready.wait()
        for lodging in self._lodgings.values():
            if not self._settled(lodging):
                log.error("plugin %s is not loaded: %s", lodging.found.name, lodging.why)
        for hook in self._house.settings.plugins.deadlines:
            if hook not in hook_names() and (meant := did_you_mean(hook, hook_names())):
                log.warning("[plugins.deadlines] %s is no hook of ours.%s", hook, meant)
        self._keep()

    async def close(self) -> None:
        """Close all of them, at once and side by side."""
        for lodging in (*self._lodgings.values(), *self._leaving):
            lodging.withdraw()
            lodging.leave()
        for lodging in (*self._lodgings.values(), *self._leaving):
            await lodging.closed.wait()

    async def _exchange(self, found: Found) -> None:
        lodging = self._lodge(found)
        await lodging.ready.wait()
        before = self._lodgings.get(found.name)
        if not self._settled(lodging, before):
            if before is None or before.state != "on":
                self._lodgings[found.name] = lodging
                self._keep()
                raise PluginError(found.name, "not loaded", lodging.why)
            raise PluginError(found.name, "not exchanged, the one before goes on", lodging.why)
        self._lodgings[found.name] = lodging
        self._unknown.pop(found.name, None)
        if before is not None:
            self._retire(before)
        self._keep()

    def _lodge(self, found: Found) -> Lodging:
        lodging = Lodging(found, self._house)
        with on_behalf_of(None):
            self._group.create_task(lodging.run(), name=f"plugin {found.name}")
        return lodging

    def _settled(self, lodging: Lodging, before: Lodging | None = None) -> bool:
        """Does what it registered count now? In one step, so that no turn sees both or neither."""
        if lodging.state != "on":
            return False
        try:
            lodging.settle()
        except PluginError as refused:
            lodging.state, lodging.why = "failed", str(refused)
            lodging.leave()
            return False
        if before is not None:
            before.withdraw()
        lodging.owner.on_off = self._on_off
        return True

    def _on_off(self, owner: Owner) -> None:
        """Called in the midst of whatever it failed in."""
        self._loop.call_soon_threadsafe(self._off, owner)

    def _off(self, owner: Owner) -> None:
        """It failed too often: it counts no more, and is closed when nobody uses it."""
        lodging = self._lodgings.get(owner.name)
        if lodging is None or lodging.owner is not owner:
            return
        lodging.state, lodging.why = "off", owner.why
        self._retire(lodging)
        self._keep()

    def _retire(self, lodging: Lodging) -> None:
        lodging.withdraw()
        if lodging.closed.is_set():
            return
        self._leaving.add(lodging)
        with on_behalf_of(None):
            self._group.create_task(self._see_off(lodging), name=f"plugin {lodging.found.name} leaves")

    async def _see_off(self, lodging: Lodging) -> None:
        async with asyncio.TaskGroup() as group:
            unused = group.create_task(lodging.owner.unused())
            unused.add_done_callback(lambda _: lodging.leave())
            await lodging.closed.wait()
            unused.cancel()
        self._leaving.discard(lodging)

    async def _find(self, name: str) -> Found:
        if self._house.settings.plugins.safe:
            raise PluginError(name, "not loaded", "alipes runs in safe mode, without plugins: start it anew")
        settings = await self._fresh()
        self._house = structs.replace(self._house, settings=settings)
        if name in settings.plugins.disabled:
            raise PluginError(
                name, "not loaded", "`plugins.disabled` of config.toml names it, and that always wins"
            )
        found = {each.name: each for each in await asyncio.to_thread(finding.find, settings)}
        if name not in found:
            raise PluginError(name, "not loaded", f"there is no such plugin.{did_you_mean(name, found)}")
        return found[name]

    async def _fresh(self) -> Settings:
        """The settings as the file says them now, for what concerns plugins."""
        settings = self._house.settings
        if not settings.paths.config.exists():
            return settings
        now = await asyncio.to_thread(load, settings.home)
        return structs.replace(settings, plugins=now.plugins, toolsets=now.toolsets, hooks=now.hooks)

    async def _remember(self, found: Found, *, on: bool) -> None:
        """In config.toml, for the next start."""
        plugins = (await self._fresh()).plugins
        by_itself = found.kind in ("file-hook", "shell-hooks")
        enabled = [name for name in plugins.enabled if name != found.name]
        disabled = [name for name in plugins.disabled if name != found.name]
        if on and not by_itself:
            enabled.append(found.name)
        if not on and by_itself:
            disabled.append(found.name)
        lists = {"enabled": (plugins.enabled, enabled), "disabled": (plugins.disabled, disabled)}
        changed = {key: new for key, (old, new) in lists.items() if [*old] != new}
        if changed:
            values = {("plugins", key): json.encode(new).decode() for key, new in changed.items()}
            edit: Any = await asyncio.to_thread(import_module, "alipes.config.edit")
            await asyncio.to_thread(edit.change, values, home=self._house.settings.home)
            self._house = structs.replace(self._house, settings=await self._fresh())

    def _idle(self, found: Found) -> PluginFacts:
        settings = self._house.settings.plugins
        why = "not in plugins.enabled"
        if settings.safe:
            why = "safe mode"
        elif found.name in settings.disabled:
            why = "in plugins.disabled"
        return structs.replace(Lodging(found, self._house).facts(), state="disabled", why=why)

    def _keep(self) -> None:
        try:
            facts.keep(self._house.settings.paths, self.facts())
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
        if finding.anything_wanted(settings):
            await plugins.open_all()
        yield plugins
    finally:  # not as `async with`: what the body raises is none of the group's, and stays as it is
        try:
            await plugins.close()
        finally:
            await group.__aexit__(None, None, None)
