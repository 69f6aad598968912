"""A whole house without a network: real store, real sessions, a provider of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.agent.loop import Agent
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Provider, Tool
from alipes.kernel.turns import Address, Event, Inbound, Turn, TurnEnded
from alipes.plugins.dispatch import Hooks
from alipes.providers.registry import Backend
from alipes.sessions.sessions import Habits, Lobby
from alipes.store.store import Store, open_store


class One:
    """Models with one backend, whatever name is asked for."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def open(self, name: str) -> Backend:
        return Backend(name=name, model="m", provider=self._provider, facts=ModelFacts())


class House:
    def __init__(self, store: Store, lobby: Lobby, hooks: Hooks) -> None:
        self.store, self.lobby, self.hooks = store, lobby, hooks
        self.events: list[Event] = []

    async def ask(self, message: Inbound) -> TurnEnded:
        """Submit, follow to the end, keep what was heard in `events`."""
        async with self.lobby.ask(message) as following:
            async for event in following:
                self.events.append(event)
        assert isinstance(event, TurnEnded)
        return event


def inbound(id: str, text: str, chat: str = "me", **more) -> Inbound:
    return Inbound(id, Address("test", chat), "me", text, **more)


def an_agent(provider: Provider, *tools: Tool, **more: Any) -> Agent:
    hands = {tool.spec.name: tool for tool in tools}
    return Agent(models=One(provider), model="test/m", tools=hands, **more)


@asynccontextmanager
async def open_house(
    home: Path,
    provider: Provider,
    *tools: Tool,
    hooks: Hooks | None = None,
    agent: Callable[[Turn], Agent | Awaitable[Agent]] | None = None,
    **habits: Any,
) -> AsyncIterator[House]:
    """Open the store at `home` and run a lobby on it; at the end the lobby is shut down as by a signal.

    `habits` are those of the lobby: busy, interactive, linger, keeps.
    """
    hooks = hooks or Hooks()

    async def someone(turn: Turn) -> Agent:
        if agent is None:
            return an_agent(provider, *tools, hooks=hooks.relay)
        given = agent(turn)
        return given if isinstance(given, Agent) else await given

    async with open_store(home) as store:
        lobby = Lobby(store, hooks=hooks, agent=someone, habits=Habits(**habits))
        serving = asyncio.create_task(lobby.run())
        try:
            yield House(store, lobby, hooks)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
