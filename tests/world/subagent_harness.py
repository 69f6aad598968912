"""Subagents with real store and sessions, and a model that answers by rules."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.agent.loop import Agent
from alipes.config.settings import DelegationConfig
from alipes.features.subagents.delegation import Delegation
from alipes.features.subagents.tool import DelegateTask
from alipes.kernel.messages import Message, Text, ToolCall
from alipes.kernel.ports import Request, ToolSpec
from alipes.kernel.turns import Address, Delta, Inbound, ModelReply, TextDelta, Turn
from alipes.plugins.dispatch import Hooks
from alipes.sessions.sessions import SessionDefaults, Sessions
from alipes.store.sqlite.store import open_store
from tests.world.session_harness import SessionHarness, SingleModel

HERE = Address("test", "me")


class RuleModel:
    """Answers by `answer(last message, request)`: text, a call, or something to await first."""

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
        yield ModelReply(Message("assistant", (Text(given),)))
    else:
        calls = given if isinstance(given, tuple) else (given,)
        yield ModelReply(Message("assistant", calls), stop="calls")


class SleepTool:
    """A tool that sleeps until cancelled, and counts sleeping calls."""

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


class SubagentHarness(SessionHarness):
    """The sessions, their tools by name, and all started turns."""

    tools: dict[str, Any]
    begun: list[Turn]


@asynccontextmanager
async def open_subagents(
    home: Path,
    mind: RuleModel,
    *tools: Any,
    hooks: Hooks | None = None,
    limits: DelegationConfig | None = None,
    schemas: bool = False,
    **habits: Any,
) -> AsyncIterator[SubagentHarness]:
    hooks, limits, begun = hooks or Hooks(), limits or DelegationConfig(), list[Turn]()
    hands = {tool.spec.name: tool for tool in tools}

    async def agent(turn: Turn) -> Agent:
        begun.append(turn)
        only = turn.inbound.only
        mine = {name: tool for name, tool in hands.items() if only is None or name in only}
        return Agent(
            models=SingleModel(mind),
            model="test/m",
            tools=mine,
            hooks=hooks.dispatcher,
            ask_approval=sessions.questions.ask_approval,
        )

    async def names(turn: Turn) -> tuple[str, ...]:
        only = turn.inbound.only
        return tuple(name for name in hands if only is None or name in only)

    async with open_store(home) as store:
        sessions = Sessions(store, hooks=hooks, agent=agent, defaults=SessionDefaults(**habits))
        hands["delegate_task"] = DelegateTask(
            Delegation(sessions, store, limits, models=SingleModel(mind), tools=names), schemas=schemas
        )
        serving = asyncio.create_task(sessions.run())
        try:
            family = SubagentHarness(store, sessions, hooks)
            family.tools, family.begun = hands, begun
            yield family
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
