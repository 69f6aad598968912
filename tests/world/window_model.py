"""An in-process model with a context window: it counts tokens, rejects long requests, and summarises."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from alipes.agent.auxiliary import AuxiliaryModels
from alipes.agent.budget import SpendingLimits
from alipes.agent.compaction import summary
from alipes.agent.compaction.compaction import Compactor
from alipes.agent.loop import Agent
from alipes.config.settings import Settings
from alipes.kernel.errors import ContextTooLong, ProviderError
from alipes.kernel.messages import Message, Part, Text, ToolResult, count_chars
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta, ModelReply, TextDelta, Usage
from alipes.providers.registry import Backend
from alipes.store.sql.history import CompactionStore
from alipes.store.sql.store import Store
from alipes.store.sql.usage import UsageLedger

PER_TOKEN = 4
SUMMARY = "The person wants a book. Chapter one is written."


def count_tokens(request: Request) -> int:
    return (request.fixed_chars + count_chars(request.messages)) // PER_TOKEN


def find_invalid(messages: tuple[Message, ...]) -> str:
    """The reason why a provider would reject the messages: calls without results, results without calls."""
    open_calls: set[str] = set()
    for message in messages:
        results = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if message.role == "tool":
            if results - open_calls:
                return f"results without calls: {results - open_calls}"
            open_calls -= results
        elif open_calls:
            return f"calls without results: {open_calls}"
        open_calls |= {call.id for call in message.calls}
    return f"calls without results: {open_calls}" if open_calls else ""


class WindowModel:
    """Gives scripted answers: a text, parts, or a function of the request.

    `sums`: the next summaries, the last one repeated: a text, an error, or an event to wait for.
    """

    def __init__(self, *script: Any, window: int = 4_000, sums: tuple[Any, ...] = (SUMMARY,)) -> None:
        self.script, self.window, self.sums = list(script), window, list(sums)
        self.asked: list[Request] = []
        self.summed: list[Request] = []

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        yield self._deltas(request)

    async def _deltas(self, request: Request) -> AsyncIterator[Delta]:
        apart = request.system == summary.SYSTEM
        (self.summed if apart else self.asked).append(request)
        count = count_tokens(request)
        if not apart and (complaint := find_invalid(request.messages)):
            raise ProviderError(complaint)
        if count > self.window:
            raise ContextTooLong(f"{count:,} tokens are more than {self.window:,}")
        parts = await self._sum() if apart else await _parts(self.script.pop(0), request)
        for part in parts:
            if isinstance(part, Text):
                yield TextDelta(part.text)
        message = Message("assistant", parts)
        yield ModelReply(message, Usage(input=count, output=count_chars((message,)) // PER_TOKEN))

    async def _sum(self) -> tuple[Part, ...]:
        item = self.sums.pop(0) if len(self.sums) > 1 else self.sums[0]
        if isinstance(item, asyncio.Event):
            await item.wait()
            return (Text(SUMMARY),)
        if isinstance(item, BaseException):
            raise item
        return (Text(item),) if item else ()


async def _parts(item: Any, request: Request) -> tuple[Part, ...]:
    if callable(item):
        item = item(request)
    if asyncio.iscoroutine(item):
        item = await item
    if isinstance(item, BaseException):
        raise item
    if isinstance(item, str):
        return (Text(item),)
    return item if isinstance(item, tuple) else (item,)


class WindowModels:
    """Opens models by name; the first is the default."""

    def __init__(self, first: WindowModel, facts: ModelFacts | None = None, **others: WindowModel) -> None:
        self.first, self.others = first, {name.replace("_", "/"): reader for name, reader in others.items()}
        self.facts = facts

    async def open(self, name: str) -> Backend:
        reader = self.others.get(name, self.first)
        return Backend(name, name, reader, self.facts or ModelFacts(window=reader.window))


class CompactionHarness(Struct, frozen=True):
    """Everything a turn needs besides its model."""

    spending: SpendingLimits
    auxiliary: AuxiliaryModels
    compaction: Compactor
    library: WindowModels

    def agent(self, tools: dict[str, Any] | None = None, **more: Any) -> Agent:
        return Agent(
            models=self.library,
            model="p/m",
            tools=tools or {},
            spending=self.spending,
            compactor=self.compaction,
            max_tokens=64,
            **more,
        )


def settings_with(**fields: Any) -> Settings:
    """Settings with these fields, and defaults for the rest."""
    return Settings(home=Path("unused"), **fields)


def open_compaction(
    store: Store,
    library: WindowModels,
    side: Settings | None = None,
    *,
    keeps: Callable[[str], Awaitable[tuple[str, ...]]] | None = None,
    consent: Any = None,
) -> CompactionHarness:
    async def choice() -> str:
        return "p/m"

    side = side or settings_with()
    spending = SpendingLimits(UsageLedger(store.database), side.spend, consent)
    auxiliary = AuxiliaryModels(library, spending, side.auxiliary, choice=choice)
    compaction = Compactor(auxiliary, CompactionStore(store.database), side.compaction, session_notes=keeps)
    return CompactionHarness(spending, auxiliary, compaction, library)
