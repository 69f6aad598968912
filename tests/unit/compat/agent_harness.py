"""A whole app with a scripted model, and one voice in it; plugins lie in its home, or are opened by a test."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any

import tomlkit

from alipes.app import open_app
from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.modules.current_app import bridge
from alipes.config.loader import load_settings
from alipes.core.app import App
from alipes.kernel.turns import Address, Event, Inbound, Said, TurnEnded
from alipes.plugins.owner import PluginOwner
from alipes.sessions.commands.context import CommandReply
from alipes.sessions.commands.registry import parse, run
from alipes.sessions.services import OutboundFor
from alipes.testing.scripted_model import ScriptedModel
from tests.unit.compat.plugin_harness import PluginHarness


class AgentHarness:
    def __init__(self, app: App, model: ScriptedModel) -> None:
        self.app, self.model = app, model
        self.harness = PluginHarness(app.settings.home)
        self.harness.hooks, self.harness.contributions = app.hooks, app.contributions
        self.address = Address("terminal", "desk")
        self._numbers = count(1)

    @property
    def key(self) -> str:
        return self.address.key

    @property
    def bridge(self) -> Bridge:
        """Of the Hermes plugin that is open."""
        return bridge()

    @property
    def owner(self) -> PluginOwner:
        return next(iter(self.bridge._contexts))

    def inbound(self, text: str) -> Inbound:
        return Inbound(f"m{next(self._numbers)}", self.address, "ada", text)

    async def say(self, text: str) -> tuple[str, TurnEnded]:
        """What was answered last, and how it ended."""
        events: list[Event] = []
        async with self.app.sessions.ask(self.inbound(text)) as following:
            events += [event async for event in following]
        assert isinstance(events[-1], TurnEnded)
        texts = [e.message.text for e in events if isinstance(e, Said) and e.message.role == "assistant"]
        await self.settled()
        return texts[-1] if texts else "", events[-1]

    async def command(self, text: str) -> CommandReply:
        parsed = parse(text, self.app.contributions)
        assert parsed is not None, text
        return await run(self.app.context(self.inbound(text)), parsed)

    async def settled(self) -> None:
        """Also what is reported to plugins after the end of a turn."""
        await self.app.sessions.wait_idle()
        for _ in range(20):
            await asyncio.sleep(0.005)


@asynccontextmanager
async def open_harness(
    home: Path,
    script: Any = None,
    *,
    interactive: bool = False,
    plugins: Mapping[str, str] = {},
    config: Mapping[str, Any] = {},
    outbound: OutboundFor | None = None,
) -> AsyncIterator[AgentHarness]:
    """`plugins`: the `__init__.py` of each, by name; `config`: of config.toml, beside them."""
    place = home / "house"
    for name, source in plugins.items():
        (folder := place / "plugins" / name).mkdir(parents=True, exist_ok=True)
        (folder / "plugin.yaml").write_text(f"name: {name}\nversion: 0.1.0\n")
        (folder / "__init__.py").write_text(dedent(source))
    place.mkdir(parents=True, exist_ok=True)
    about = {"enabled": list(plugins), "unpinned": list(plugins), **config.get("plugins", {})}  # rewritten by tests
    seen = {"model": "scripted", **config, "plugins": about}
    (place / "config.toml").write_text(tomlkit.dumps(seen))
    settings = load_settings(place, {})
    settings.paths.make()
    model = ScriptedModel(script)
    error: BaseException | None = None
    async with open_app(settings, interactive=interactive, lent={"scripted": model}, outbound=outbound) as app:
        try:
            assert [each for each in app.plugins.statuses() if each.state == "failed"] == []
            yield AgentHarness(app, model)
        except Exception as raised:  # a task group on its way would make a group of it
            error = raised
    if error is not None:
        raise error
