"""Real store and sessions without a network, with a model by the test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.agent.loop import Agent
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Provider, Tool
from alipes.kernel.turns import Address, Event, Inbound, Turn, TurnEnded
from alipes.plugins.dispatch import Hooks
from alipes.providers.registry import Backend
from alipes.sessions.sessions import SessionDefaults, Sessions
from alipes.store.sql.store import Store
from alipes.store.sqlite.store import open_store


class SingleModel:
    """Models with the same backend for every name."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def open(self, name: str) -> Backend:
        return Backend(name=name, model="m", provider=self._provider, facts=ModelFacts())


class SessionHarness:
    def __init__(self, store: Store, sessions: Sessions, hooks: Hooks) -> None:
        self.store, self.sessions, self.hooks = store, sessions, hooks
        self.events: list[Event] = []

    async def ask(self, message: Inbound) -> TurnEnded:
        """Submit a message and follow it to the end; events are added to `events`."""
        async with self.sessions.ask(message) as following:
            async for event in following:
                self.events.append(event)
        assert isinstance(event, TurnEnded)
        return event


def inbound(id: str, text: str, chat: str = "me", **more) -> Inbound:
    return Inbound(id, Address("test", chat), "me", text, **more)


def make_agent(provider: Provider, *tools: Tool, **more: Any) -> Agent:
    hands = {tool.spec.name: tool for tool in tools}
    return Agent(models=SingleModel(provider), model="test/m", tools=hands, **more)


class Running:
    """Background work of every session, described by `describe()`."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe

    def describe_running(self, session: str) -> str:
        return self._describe()


@asynccontextmanager
async def open_sessions(
    home: Path,
    provider: Provider,
    *tools: Tool,
    hooks: Hooks | None = None,
    agent: Callable[[Turn], Agent | Awaitable[Agent]] | None = None,
    opener: Callable[[Path], AbstractAsyncContextManager[Store]] = open_store,
    **habits: Any,
) -> AsyncIterator[SessionHarness]:
    """Open the store at `home` and run sessions on it; at the end they are shut down as by a signal.

    `opener`: opens the store. `habits`: fields of `SessionDefaults`, such as busy, interactive, idle_seconds, background.
    """
    hooks = hooks or Hooks()

    async def someone(turn: Turn) -> Agent:
        if agent is None:
            return make_agent(provider, *tools, hooks=hooks.dispatcher)
        given = agent(turn)
        return given if isinstance(given, Agent) else await given

    async with opener(home) as store:
        sessions = Sessions(store, hooks=hooks, agent=someone, defaults=SessionDefaults(**habits))
        serving = sessions._serving = asyncio.create_task(sessions.run())
        try:
            yield SessionHarness(store, sessions, hooks)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
