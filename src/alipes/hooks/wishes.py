"""What is asked for now, as the files say it, and writing down another wish. It opens no plugin."""

import asyncio
from importlib import import_module
from typing import Any

from msgspec import json, structs

from alipes.config.checking import Way
from alipes.config.near import did_you_mean
from alipes.config.reading import read
from alipes.config.settings import Settings, load
from alipes.hooks import finding
from alipes.hooks.finding import Found
from alipes.kernel.errors import PluginError

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
    found = {each.name: each for each in await asyncio.to_thread(finding.find, settings)}
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
    edit: Any = await asyncio.to_thread(import_module, "alipes.config.edit")  # it brings tomlkit along
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
