"""What a person is told: a turn while it runs, and the reply that it was. It asks for nothing but a stop."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from msgspec import Struct

from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.kernel.turns import Event, Op, Said, Stop, TextDelta, TurnEnded, Usage
from alipes.testing.stops import Point

E = TypeVar("E")


class Reply(Struct, frozen=True):
    """All that one turn told, in order."""

    events: tuple[Event, ...] = ()
    turn: str = ""
    """Its id; empty if the message never became a turn, for instance because a plugin dropped it."""
    point: Point | None = None
    """Where `stop_at` stopped it."""
    refused: str = ""
    """Why the message never became a turn."""

    def of(self, kind: type[E]) -> tuple[E, ...]:
        """The events of one kind, such as `ToolProgress`."""
        return tuple(event for event in self.events if isinstance(event, kind))

    @property
    def said(self) -> tuple[Message, ...]:
        """What joined the transcript, the person's own message first."""
        return tuple(event.message for event in self.of(Said))

    @property
    def text(self) -> str:
        """The last words of the model that were kept."""
        return next((each.text for each in reversed(self.said) if each.role == "assistant" and each.text), "")

    @property
    def partial(self) -> str:
        """What was streamed and never became part of the transcript: the answer that a stop cut off."""
        words: list[str] = []
        for event in self.events:
            if isinstance(event, TextDelta):
                words.append(event.text)
            elif isinstance(event, Said):
                words = []
        return "".join(words)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(call for message in self.said for call in message.calls)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """What the model was told of its calls, in the order it made them."""
        return tuple(part for each in self.said for part in each.parts if isinstance(part, ToolResult))

    def result(self, name: str) -> ToolResult:
        """The result of the last call of the tool `name`. Raises `LookupError` if there is none."""
        ids = {call.id for call in self.tool_calls if call.name == name}
        for result in reversed(self.results):
            if result.call_id in ids:
                return result
        raise LookupError(f"no call of {name} has a result here; called were {self.tool_calls}")

    @property
    def end(self) -> TurnEnded | None:
        return next(iter(self.of(TurnEnded)), None)

    @property
    def ending(self) -> str:
        """`answered`, `stopped`, `failed`, `out_of_steps`, `steered`; empty if it never became a turn."""
        return self.end.ending if self.end else ""

    @property
    def detail(self) -> str:
        return self.end.detail if self.end else self.refused

    @property
    def usage(self) -> Usage | None:
        return self.end.usage if self.end else None


class Running:
    """A turn that was begun. Await it for the reply."""

    def __init__(self, post: Callable[[Op], Awaitable[None]]) -> None:
        self.turn = ""
        self.events: list[Event] = []
        """What it has told so far."""
        self.refused = ""
        self.over = asyncio.Event()
        self.accepted = asyncio.Event()
        self.follower: asyncio.Task[None] | None = None
        self._post = post
        self._heard = asyncio.Event()
        self._when_over: list[Callable[[], None]] = []

    def __await__(self) -> Generator[Any, Any, Reply]:
        return self.reply().__await__()

    async def reply(self, point: Point | None = None) -> Reply:
        """What it told, once it is over."""
        await self.over.wait()
        return Reply(tuple(self.events), self.turn, point, self.refused)

    async def stop(self, reason: str = "user_stop", invalidation_reason: str = "session_interrupt") -> Reply:
        """Stop this turn and no other, and have what it told."""
        await self._post(Stop(reason, invalidation_reason, self.turn))
        return await self.reply()

    async def until(self, kind: type[E], times: int = 1) -> E:
        """The event number `times` of a kind, such as `ToolStarted`, as soon as it is told.

        Raises `LookupError` if the turn ends without.
        """
        while len(found := [event for event in self.events if isinstance(event, kind)]) < times:
            if self.over.is_set():
                told = [type(event).__name__ for event in self.events]
                raise LookupError(f"the turn is over, and told no {kind.__name__} number {times}: {told}")
            self._heard.clear()
            await self._heard.wait()
        return found[times - 1]

    def hear(self, event: Event) -> None:
        self.events.append(event)
        self._heard.set()

    def when_over(self, act: Callable[[], None]) -> None:
        """Call `act` once it is over; at once if it is."""
        self._when_over.append(act)
        if self.over.is_set():
            act()

    def end(self) -> None:
        self.over.set()
        self.accepted.set()
        self._heard.set()
        for act in self._when_over:
            act()
