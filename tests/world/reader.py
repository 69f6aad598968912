"""A model with a window, in this process: it counts what it reads, refuses what is too long, sums up as told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from alipes.agent.auxiliary import Auxiliary
from alipes.agent.budget import Spending
from alipes.agent.compaction import compaction as compact_words
from alipes.agent.compaction.compaction import Compaction
from alipes.agent.compaction.plan import fixed, letters
from alipes.agent.loop import Agent
from alipes.config.settings_parts import Side
from alipes.kernel.errors import ContextTooLong, ProviderError
from alipes.kernel.messages import Message, Part, Text, ToolResult
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta, Replied, TextDelta, Usage
from alipes.providers.registry import Backend
from alipes.store.store import Store
from alipes.store.summaries import SqliteDigests
from alipes.store.usage import SqliteBill

PER_TOKEN = 4
SUMMARY = "The person wants a book. Chapter one is written."


def tokens(request: Request) -> int:
    return (fixed(request) + letters(request.messages)) // PER_TOKEN


def wrong(messages: tuple[Message, ...]) -> str:
    """What a provider would reject: calls without results, results without calls."""
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


class Reader:
    """Answers what it is scripted to: a text, parts, or a function of the request.

    `sums`: what the next summaries are, the last one for ever: a text, an error, or an event to wait for.
    """

    def __init__(self, *script: Any, window: int = 4_000, sums: tuple[Any, ...] = (SUMMARY,)) -> None:
        self.script, self.window, self.sums = list(script), window, list(sums)
        self.asked: list[Request] = []
        self.summed: list[Request] = []

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        yield self._deltas(request)

    async def _deltas(self, request: Request) -> AsyncIterator[Delta]:
        apart = request.system == compact_words.SYSTEM
        (self.summed if apart else self.asked).append(request)
        count = tokens(request)
        if not apart and (complaint := wrong(request.messages)):
            raise ProviderError(complaint)
        if count > self.window:
            raise ContextTooLong(f"{count:,} tokens are more than {self.window:,}")
        parts = await self._sum() if apart else await _parts(self.script.pop(0), request)
        for part in parts:
            if isinstance(part, Text):
                yield TextDelta(part.text)
        message = Message("assistant", parts)
        yield Replied(message, Usage(input=count, output=letters((message,)) // PER_TOKEN))

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


class Library:
    """Opens readers by name; whoever is not named is the first."""

    def __init__(self, first: Reader, facts: ModelFacts | None = None, **others: Reader) -> None:
        self.first, self.others = first, {name.replace("_", "/"): reader for name, reader in others.items()}
        self.facts = facts

    async def open(self, name: str) -> Backend:
        reader = self.others.get(name, self.first)
        return Backend(name, name, reader, self.facts or ModelFacts(window=reader.window))


class Study(Struct, frozen=True):
    """What a turn is lived with beside its model."""

    spending: Spending
    auxiliary: Auxiliary
    compaction: Compaction
    library: Library

    def agent(self, tools: dict[str, Any] | None = None, **more: Any) -> Agent:
        return Agent(
            models=self.library,
            model="p/m",
            tools=tools or {},
            spending=self.spending,
            compaction=self.compaction,
            max_tokens=64,
            **more,
        )


def study(
    store: Store,
    library: Library,
    side: Side | None = None,
    *,
    keeps: Callable[[str], Awaitable[tuple[str, ...]]] | None = None,
    consent: Any = None,
) -> Study:
    async def choice() -> str:
        return "p/m"

    side = side or Side()
    spending = Spending(SqliteBill(store.database), side.spend, consent)
    auxiliary = Auxiliary(library, spending, side, choice=choice)
    compaction = Compaction(auxiliary, SqliteDigests(store.database), side.compaction, keeps)
    return Study(spending, auxiliary, compaction, library)
