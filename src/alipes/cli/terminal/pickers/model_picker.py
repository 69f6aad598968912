"""The list of models to choose from."""

import asyncio

from alipes.cli.terminal.pickers.picker import Picker, PickerItem
from alipes.cli.terminal.terminal import TerminalApp
from alipes.config.settings import Settings
from alipes.core.app import App
from alipes.providers.registry import find_facts


async def pick_model(terminal: TerminalApp, app: App, key: str) -> str | None:
    """Let the user choose a model for the conversation `key`; None if no model was chosen.

    Models of custom and local servers are added when the servers have answered.
    """
    standing = await app.store.sessions.active(key)
    default = (await app.models.default()).model
    current = terminal.bottom.status.model or (standing.model if standing else "") or default
    names = [
        name for name in dict.fromkeys((current, default, *app.models.names())) if not app.models.is_for_tests(name)
    ]
    picker = Picker("Models", [_item(app.settings, name, current, default) for name in names], selected=current)
    picker.note = "asking servers"
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(_add_offered(picker, terminal, app, current))
        chosen = await terminal.pick(picker)
        asking.cancel()
    return chosen.value if chosen else None


async def _add_offered(picker: Picker, terminal: TerminalApp, app: App, current: str) -> None:
    offered = await app.models.offered()
    picker.note = ""
    picker.add(_item(app.settings, name, current) for name in offered)
    terminal.refresh()


def _item(settings: Settings, name: str, current: str, default: str = "") -> PickerItem:
    detail = " · ".join(filter(None, ("default" if name == default else "", describe_model(settings, name))))
    return PickerItem(name, name, detail, mark="*" if name == current else "")


def describe_model(settings: Settings, name: str) -> str:
    """Context window and price of a model, as far as they are known."""
    facts, parts = find_facts(name, settings.models), []
    if facts.window:
        short = f"{facts.window / 1e6:.3g}M" if facts.window >= 1_000_000 else f"{round(facts.window / 1000)}k"
        parts.append(f"{short} context")
    if facts.price_input is not None and facts.price_output is not None:
        free = not facts.price_input and not facts.price_output
        parts.append("free" if free else f"${facts.price_input:g} in, ${facts.price_output:g} out per 1M tokens")
    return " · ".join(parts)
