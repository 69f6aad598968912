"""Replies to test messages, and the points at which a turn can be stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import Struct

from alipes.kernel.messages import Json, Message, ToolCall, ToolResult
from alipes.kernel.ports import Request, ToolOutput
from alipes.kernel.turns import ApprovalAnswered, Event, ModelReply, Op, Said, Stop, TextDelta, Turn, TurnEnded, Usage
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner

T = TypeVar("T")


class StopPoint(Struct, frozen=True):
    number: int
    """Counted from 1."""
    where: str
    """Such as `event said`, `in tool greet`, `in request`."""


class StopPoints:
    """Counts stop points: every event of a turn, and every suspension of a tool or of a model request. A
    turn that reaches the wanted one stays there until it is stopped.

    It uses hooks like a plugin while entered; turns that started before are not counted.
    """

    def __init__(self, hooks: Hooks, wanted: int) -> None:
        self._hooks, self._wanted = hooks, wanted
        self._owner = PluginOwner("alipes.testing", permanent=True)
        self._count = 0
        self._settled = asyncio.Event()
        self.point: StopPoint | None = None

    def __enter__(self) -> Self:
        for hook in (self.on_event, self.around_tool, self.around_request):
            self._hooks.add(self._owner, hook, patient=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.remove(self._owner)

    def turn_ended(self) -> None:
        self._settled.set()

    async def wait(self) -> StopPoint | None:
        """The point when a turn reaches it; None if the turn ended before."""
        await self._settled.wait()
        return self.point

    async def on_event(self, event: Event, turn: Turn) -> None:
        if isinstance(event, ApprovalAnswered) and event.by == "stop":
            return  # sent by the session itself, which must not be held
        if self._pass_point(f"event {type(event).__struct_config__.tag}"):
            await asyncio.Event().wait()

    async def around_tool(
        self,
        go: Callable[[Mapping[str, Json]], Coroutine[Any, Any, str | ToolOutput]],
        args: Mapping[str, Json],
        call: ToolCall,
    ) -> str | ToolOutput:
        return await _SteppedCall(go(args), lambda: self._pass_point(f"in tool {call.name}"))

    async def around_request(
        self, go: Callable[[Request], Coroutine[Any, Any, ModelReply]], request: Request
    ) -> ModelReply:
        return await _SteppedCall(go(request), lambda: self._pass_point("in request"))

    def _pass_point(self, where: str) -> bool:
        """Count a point; True if it is the wanted one."""
        self._count += 1
        if self._count != self._wanted:
            return False
        self.point = StopPoint(self._count, where)
        self._settled.set()
        return True


class _SteppedCall(Generator[Any, Any, T]):
    """Runs `work` step by step. When `held` returns True it is not resumed until something is thrown into it."""

    def __init__(self, work: Coroutine[Any, Any, T], held: Callable[[], bool]) -> None:
        self._work, self._should_hold = work, held
        self._holds = False

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        if self._holds:
            return next(asyncio.get_running_loop().create_future().__await__())
        return self._record(self._work.send(value))

    def throw(self, *thrown: Any) -> Any:
        self._holds = False
        return self._record(self._work.throw(*thrown))

    def close(self) -> None:
        self._work.close()

    def _record(self, awaited: Any) -> Any:
        """Called with what `work` waits for, which the loop needs in any case."""
        self._holds = self._should_hold()
        return awaited


E = TypeVar("E")


class TurnReply(Struct, frozen=True):
    """All events of one turn, in order."""

    events: tuple[Event, ...] = ()
    turn: str = ""
    """Id of the turn; empty if the message did not become one, for instance because a plugin dropped it."""
    point: StopPoint | None = None
    """Where `stop_at` stopped it."""
    refused: str = ""
    """Why the message did not become a turn."""

    def of(self, kind: type[E]) -> tuple[E, ...]:
        """Events of one type, such as `ToolProgress`."""
        return tuple(event for event in self.events if isinstance(event, kind))

    @property
    def said(self) -> tuple[Message, ...]:
        """Messages added to the transcript, starting with the user's."""
        return tuple(event.message for event in self.of(Said))

    @property
    def text(self) -> str:
        """The model's last answer."""
        return next((each.text for each in reversed(self.said) if each.role == "assistant" and each.text), "")

    @property
    def partial(self) -> str:
        """Text of an answer that was interrupted."""
        parts: list[str] = []
        for event in self.events:
            if isinstance(event, TextDelta):
                parts.append(event.text)
            elif isinstance(event, Said):
                parts = [event.message.text] if event.partial else []
        return "".join(parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(call for message in self.said for call in message.calls)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """Results of tool calls in the order of the calls."""
        return tuple(part for each in self.said for part in each.parts if isinstance(part, ToolResult))

    def result(self, name: str) -> ToolResult:
        """The result of the last call of the tool `name`. Raises `LookupError` if there is none."""
        ids = {call.id for call in self.tool_calls if call.name == name}
        for result in reversed(self.results):
            if result.call_id in ids:
                return result
        raise LookupError(f"no result of {name}; calls: {self.tool_calls}")

    @property
    def end(self) -> TurnEnded | None:
        return next(iter(self.of(TurnEnded)), None)

    @property
    def ending(self) -> str:
        """`answered`, `stopped`, `failed`, `out_of_steps`, `steered`; empty if there was no turn."""
        return self.end.ending if self.end else ""

    @property
    def detail(self) -> str:
        return self.end.detail if self.end else self.refused

    @property
    def usage(self) -> Usage | None:
        return self.end.usage if self.end else None


class PendingReply:
    """A running turn. Await it for the reply."""

    def __init__(self, post: Callable[[Op], Awaitable[None]]) -> None:
        self.turn = ""
        self.events: list[Event] = []
        """Events so far."""
        self.refused = ""
        self.ended = asyncio.Event()
        self.accepted = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._post = post
        self._new_event = asyncio.Event()
        self._on_end: list[Callable[[], None]] = []

    def __await__(self) -> Generator[Any, Any, TurnReply]:
        return self.reply().__await__()

    async def reply(self, point: StopPoint | None = None) -> TurnReply:
        await self.ended.wait()
        return TurnReply(tuple(self.events), self.turn, point, self.refused)

    async def stop(self, reason: str = "user_stop", invalidation_reason: str = "session_interrupt") -> TurnReply:
        """Stop only this turn and return its reply."""
        await self._post(Stop(reason, invalidation_reason, self.turn))
        return await self.reply()

    async def wait_for(self, kind: type[E], times: int = 1) -> E:
        """The event number `times` of a type, such as `ToolStarted`.

        Raises `LookupError` if the turn ends before.
        """
        while len(found := [event for event in self.events if isinstance(event, kind)]) < times:
            if self.ended.is_set():
                names = [type(event).__name__ for event in self.events]
                raise LookupError(f"the turn ended before {kind.__name__} number {times}; events: {names}")
            self._new_event.clear()
            await self._new_event.wait()
        return found[times - 1]

    def add_event(self, event: Event) -> None:
        self.events.append(event)
        self._new_event.set()

    def on_end(self, act: Callable[[], None]) -> None:
        """Call `act` when the turn has ended; at once if it already has."""
        self._on_end.append(act)
        if self.ended.is_set():
            act()

    def end(self) -> None:
        self.ended.set()
        self.accepted.set()
        self._new_event.set()
        for act in self._on_end:
            act()
