"""What a person is told: a turn while it runs, and the reply that it was. It asks for nothing but a stop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import Struct

from alipes.kernel.messages import Json, Message, ToolCall, ToolResult
from alipes.kernel.ports import Output, Request
from alipes.kernel.turns import (
    ApprovalAnswered,
    Event,
    Op,
    Replied,
    Said,
    Stop,
    TextDelta,
    Turn,
    TurnEnded,
    Usage,
)
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import Owner

T = TypeVar("T")


class Point(Struct, frozen=True):
    number: int
    """From 1, in the order the turn comes by."""
    where: str
    """`event said`, `in tool greet`, `in request`."""


class Points:
    """A point is every event that a turn tells, and every moment in which a tool, or a question to the
    model, lets others run. A turn that comes to the wanted one stays there until it is stopped.

    It watches through hooks, as a plugin may, from entering to leaving; turns that began before are not seen.
    """

    def __init__(self, hooks: Hooks, wanted: int) -> None:
        self._hooks, self._wanted = hooks, wanted
        self._owner = Owner("alipes.testing", lasting=True)
        self._count = 0
        self._settled = asyncio.Event()
        self.point: Point | None = None

    def __enter__(self) -> Self:
        for hook in (self.on_event, self.around_tool, self.around_request):
            self._hooks.add(self._owner, hook, patient=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.remove(self._owner)

    def give_up(self) -> None:
        """The turn is over."""
        self._settled.set()

    async def reached(self) -> Point | None:
        """The point, once a turn has come to it; None if it was over before."""
        await self._settled.wait()
        return self.point

    async def on_event(self, event: Event, turn: Turn) -> None:
        if isinstance(event, ApprovalAnswered) and event.by == "stop":
            return  # the session itself tells this, and it must not be held
        if self._pass(f"event {type(event).__struct_config__.tag}"):
            await asyncio.Event().wait()

    async def around_tool(
        self,
        go: Callable[[Mapping[str, Json]], Coroutine[Any, Any, str | Output]],
        args: Mapping[str, Json],
        call: ToolCall,
    ) -> str | Output:
        return await _Steps(go(args), lambda: self._pass(f"in tool {call.name}"))

    async def around_request(
        self, go: Callable[[Request], Coroutine[Any, Any, Replied]], request: Request
    ) -> Replied:
        return await _Steps(go(request), lambda: self._pass("in request"))

    def _pass(self, where: str) -> bool:
        """Come by a point; is it the wanted one?"""
        self._count += 1
        if self._count != self._wanted:
            return False
        self.point = Point(self._count, where)
        self._settled.set()
        return True


class _Steps(Generator[Any, Any, T]):
    """Does `work` from one suspension to the next. Where `held` says so it is not resumed, until something
    is thrown: that reaches it just where it was suspended."""

    def __init__(self, work: Coroutine[Any, Any, T], held: Callable[[], bool]) -> None:
        self._work, self._held = work, held
        self._holds = False

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        if self._holds:
            return next(asyncio.get_running_loop().create_future().__await__())
        return self._noted(self._work.send(value))

    def throw(self, *thrown: Any) -> Any:
        self._holds = False
        return self._noted(self._work.throw(*thrown))

    def close(self) -> None:
        self._work.close()

    def _noted(self, awaited: Any) -> Any:
        """It waits for `awaited` now, which the loop is to be given in any case."""
        self._holds = self._held()
        return awaited


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
