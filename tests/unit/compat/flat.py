"""A whole app with a scripted model, and one voice in it; plugins are opened into it by the tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from alipes.app import App, open_app
from alipes.config.settings import load
from alipes.kernel.turns import Address, Event, Inbound, Said, TurnEnded
from alipes.sessions.commands.context import Reply
from alipes.sessions.commands.table import parse, run
from alipes.testing.script import Model
from tests.unit.compat.stage import Stage


class Flat:
    def __init__(self, app: App, model: Model, stage: Stage) -> None:
        self.app, self.model, self.stage = app, model, stage
        self.address = Address("terminal", "desk")
        self._numbers = count(1)

    @property
    def key(self) -> str:
        return self.address.key

    def inbound(self, text: str) -> Inbound:
        return Inbound(f"m{next(self._numbers)}", self.address, "ada", text)

    async def say(self, text: str) -> tuple[str, TurnEnded]:
        """What was answered last, and how it ended."""
        events: list[Event] = []
        async with self.app.lobby.ask(self.inbound(text)) as following:
            events += [event async for event in following]
        assert isinstance(events[-1], TurnEnded)
        texts = [e.message.text for e in events if isinstance(e, Said) and e.message.role == "assistant"]
        await self.settled()
        return texts[-1] if texts else "", events[-1]

    async def command(self, text: str) -> Reply:
        parsed = parse(text)
        assert parsed is not None, text
        return await run(self.app.context(self.inbound(text)), parsed)

    async def settled(self) -> None:
        """Also what is told to plugins after the end of a turn."""
        await self.app.lobby.settled()
        for _ in range(20):
            await asyncio.sleep(0.005)


@asynccontextmanager
async def open_flat(home: Path, script: Any = None, *, interactive: bool = False) -> AsyncIterator[Flat]:
    place = home / "house"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").touch()
    settings = load(place, {"ALIPES_MODEL": "scripted"})
    settings.paths.make()
    model = Model(script)
    error: BaseException | None = None
    async with open_app(settings, interactive=interactive, lent={"scripted": model}) as app:
        stage = Stage(place)
        stage.hooks = app.hooks
        try:
            yield Flat(app, model, stage)
        except Exception as raised:  # a task group on its way would make a group of it
            error = raised
    if error is not None:
        raise error
