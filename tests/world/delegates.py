"""A house with subagents: real store, real sessions, a model that answers by what it is asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.agent.loop import Agent
from alipes.config.settings_parts import DelegationSettings
from alipes.kernel.messages import Message, Text, ToolCall
from alipes.kernel.ports import Request, ToolSpec
from alipes.kernel.turns import Address, Delta, Inbound, Replied, TextDelta, Turn
from alipes.plugins.dispatch import Hooks
from alipes.sessions.sessions import Habits, Lobby
from alipes.sessions.subagents.delegation import Delegation
from alipes.store.store import open_store
from alipes.tools.delegate import Delegate
from tests.world.house import House, One

HERE = Address("test", "me")


class Mind:
    """Answers by `answer(last message, request)`: words, a call, or something to wait for before them."""

    def __init__(self, answer: Callable[[Message, Request], Any]) -> None:
        self._answer = answer
        self.asked: list[Request] = []
        self.living = 0

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        self.asked.append(request)
        self.living += 1
        try:
            given = self._answer(request.messages[-1], request)
            if isinstance(given, Awaitable):
                given = await given
            if isinstance(given, Exception):
                raise given
            yield _said(given)
        finally:
            self.living -= 1


async def _said(given: str | ToolCall | tuple[ToolCall, ...]) -> AsyncIterator[Delta]:
    if isinstance(given, str):
        yield TextDelta(given)
        yield Replied(Message("assistant", (Text(given),)))
    else:
        calls = given if isinstance(given, tuple) else (given,)
        yield Replied(Message("assistant", calls), stop="calls")


class Nap:
    """A tool that sleeps until it is cancelled, and counts who sleeps."""

    spec = ToolSpec("nap", "sleep", {"type": "object", "properties": {}})

    def __init__(self) -> None:
        self.asleep, self.stirred = 0, asyncio.Condition()

    async def run(self, args: Any, act: Any) -> str:
        await self._count(1)
        try:
            await asyncio.Event().wait()
        finally:
            self.asleep -= 1
        return ""

    async def _count(self, more: int) -> None:
        async with self.stirred:
            self.asleep += more
            self.stirred.notify_all()

    async def until(self, number: int) -> None:
        async with self.stirred:
            await self.stirred.wait_for(lambda: self.asleep == number)


def delegate(id: str = "c1", **args: Any) -> ToolCall:
    return ToolCall(id, "delegate_task", args)


def message(id: str, text: str, **more: Any) -> Inbound:
    return Inbound(id, HERE, "me", text, **more)


class Family(House):
    """The house, its tools by name, and every turn that was begun."""

    tools: dict[str, Any]
    begun: list[Turn]


@asynccontextmanager
async def open_family(
    home: Path,
    mind: Mind,
    *tools: Any,
    hooks: Hooks | None = None,
    limits: DelegationSettings | None = None,
    **habits: Any,
) -> AsyncIterator[Family]:
    hooks, limits, begun = hooks or Hooks(), limits or DelegationSettings(), list[Turn]()
    hands = {tool.spec.name: tool for tool in tools}

    async def agent(turn: Turn) -> Agent:
        begun.append(turn)
        only = turn.inbound.only
        mine = {name: tool for name, tool in hands.items() if only is None or name in only}
        return Agent(
            models=One(mind), model="test/m", tools=mine, hooks=hooks.relay, consent=lobby.approvals.ask
        )

    async def names(turn: Turn) -> tuple[str, ...]:
        only = turn.inbound.only
        return tuple(name for name in hands if only is None or name in only)

    async with open_store(home) as store:
        lobby = Lobby(store, hooks=hooks, agent=agent, habits=Habits(**habits))
        hands["delegate_task"] = Delegate(Delegation(lobby, store, limits, models=One(mind), tools=names))
        serving = asyncio.create_task(lobby.run())
        try:
            family = Family(store, lobby, hooks)
            family.tools, family.begun = hands, begun
            yield family
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
