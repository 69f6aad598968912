"""The state of a running turn, folded from its events."""

import asyncio
import time

from msgspec import Struct

from alipes.kernel.errors import LimitReached
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import (
    Ending,
    Envelope,
    Event,
    JournalEvent,
    Retracted,
    Said,
    Stop,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Usage,
)
from alipes.plugins.dispatch import HookDispatcher


class TurnOutcome(Struct, frozen=True):
    """A turn's task has ended; its session writes the ending."""

    running: "RunningTurn"
    ending: Ending | None
    """None: fenced, so another process writes the ending; or it waits for a limit."""
    detail: str = ""
    limit: LimitReached | None = None
    """It waits for this limit."""


class StepBoundary(Struct, frozen=True):
    """The turn is between two steps and waits for messages steered into it."""

    running: "RunningTurn"
    steered: "asyncio.Future[tuple[Message, ...]]"


class RunningTurn:
    def __init__(self, turn: Turn, hooks: HookDispatcher | None = None) -> None:
        self.turn, self._key = turn, turn.key
        self.hooks = hooks or HookDispatcher()
        """The plugins at the moment it started."""
        self.said: tuple[Message, ...] = turn.said
        self.unpublished: tuple[Message, ...] = turn.unpublished
        """The end of `said` that was not published yet."""
        self.tool_results: dict[str, ToolResult | None] = dict(turn.tool_results)
        self.usage: Usage | None = None
        self.stop: Stop | None = None
        self.task: asyncio.Task[TurnOutcome] | None = None
        self.held_result: ToolFinished | None = None
        """The last result of a step: published once the message with all results is recorded."""
        self.started = False
        """It is set up and has announced itself."""
        self.first_in_session = not turn.history and turn.attempt == 1
        """No turn of its conversation was set up before it."""
        self.comes_from_elsewhere = False
        """The turn before it may have run in another process."""
        self.abandoned = False
        """It did not end when it was cancelled; its ending is written anyway."""
        self.last_event_at = time.monotonic()
        self.started_at = time.monotonic()
        self.stopped_at = 0.0
        self.timer: asyncio.TimerHandle | None = None
        """Fires when it has been silent, or has run, for too long."""
        self._partial: list[str] = []
        self._call_started: dict[str, float] = {}
        self.may_have_steered = not turn.queue_empty
        """Messages may be queued for steering."""

    def start(self, task: "asyncio.Task[TurnOutcome]", *, comes_from_elsewhere: bool, first_in_session: bool) -> None:
        """Its session runs it as this task."""
        self.task = task
        self.comes_from_elsewhere, self.first_in_session = comes_from_elsewhere, first_in_session

    def attach_hooks(self, hooks: HookDispatcher) -> None:
        """It is set up: it uses these plugins to its end, and they stay open for it."""
        hooks.hold()
        self.hooks, self.started = hooks, True

    def mark_stopped(self, stop: Stop) -> None:
        """From now on it starts nothing and emits nothing."""
        self.stop, self.stopped_at = stop, time.monotonic()

    def mark_abandoned(self) -> None:
        """Its session continues without it."""
        self.abandoned = True

    def mark_lost_reported(self) -> None:
        """It knows what it lost when it came here from another process."""
        self.comes_from_elsewhere = False

    def expect_steered(self, *, expected: bool) -> None:
        """Messages for it may be queued for steering; or they are being taken now."""
        self.may_have_steered = expected

    def set_timer(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer

    def envelope(self, event: Event) -> Envelope:
        return Envelope(self._key, self.turn.id, event)

    def release(self) -> None:
        """It has ended and everyone was notified."""
        if self.timer is not None:
            self.timer.cancel()
        if self.started:
            self.hooks.release()
        if not self.abandoned:
            self.task = None  # its result or traceback refers back to us

    @property
    def idle_seconds(self) -> float:
        """Seconds since its last event."""
        return time.monotonic() - self.last_event_at

    @property
    def age(self) -> float:
        """Seconds since it started here."""
        return time.monotonic() - self.started_at

    def describe_stop(self) -> tuple[str, float, str]:
        """For the log: its id, the seconds since its stop, and the tools that are running."""
        calls = (call for message in self.said for call in message.calls)
        names = [call.name for call in calls if call.id in self.running_calls]
        return self.turn.id, time.monotonic() - self.stopped_at, ", ".join(names) or "no tool"

    def observe(self, event: Event) -> None:
        """Remember the time, and the text of an unfinished answer."""
        self.last_event_at = time.monotonic()
        match event:
            case TextDelta(text):
                self._partial.append(text)
            case Said() | Retracted():
                self._partial.clear()

    @property
    def partial(self) -> str:
        """The text of an unfinished answer."""
        return "".join(self._partial)

    def partial_messages(self) -> tuple[Message, ...]:
        """The unfinished answer as a message; none if nothing of it was said."""
        return (Message("assistant", (Text(self.partial),)),) if self.partial.strip() else ()

    @property
    def running_calls(self) -> tuple[str, ...]:
        """Ids of the calls that started and have no result."""
        return tuple(name for name, result in self.tool_results.items() if result is None)

    def unanswered_calls(self, closing: tuple[Message, ...]) -> list[tuple[ToolCall, ToolResult, float]]:
        """The calls of the last answer that only `closing` answers, and how long each ran."""
        calls = {call.id: call for message in self.said for call in message.calls}
        now = time.monotonic()
        return [
            (calls[part.call_id], part, now - self._call_started.get(part.call_id, now))
            for message in closing
            for part in message.parts
            if isinstance(part, ToolResult) and self.tool_results.get(part.call_id) is None
        ]

    def fold(self, event: JournalEvent) -> None:
        match event:
            case Said(message, _, usage):
                self.said = (*self.said, message)
                if usage is not None:
                    self.usage = usage if self.usage is None else self.usage + usage
            case ToolStarted(call):
                self.tool_results[call.id] = None
                self._call_started[call.id] = time.monotonic()
            case ToolFinished(call, result):
                self.tool_results[call.id] = result

    def all_answered(self) -> bool:
        """True if every call of the last message has a result."""
        return all(self.tool_results.get(call.id) is not None for call in self.said[-1].calls)

    def take_opening(self) -> list[Said]:
        """The messages that were not published yet, once."""
        opening, self.unpublished = [Said(message) for message in self.unpublished], ()
        return opening

    def hold_result(self, event: ToolFinished) -> None:
        self.held_result = event

    def take_held_result(self) -> tuple[ToolFinished, ...]:
        held, self.held_result = self.held_result, None
        return () if held is None else (held,)
