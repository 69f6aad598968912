"""The turn that lives in a session: what it has said and done, folded from its events. It decides nothing."""

import asyncio
import time

from msgspec import Struct

from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.kernel.turns import (
    Ending,
    Envelope,
    Event,
    Recorded,
    Retracted,
    Said,
    Stop,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Usage,
)
from alipes.plugins.dispatch import Relay


class Over(Struct, frozen=True):
    """A turn's task is done; its parent writes what follows."""

    living: "Living"
    ending: Ending | None
    """None: fenced, so the ending is somebody else's to write."""
    detail: str = ""


class Boundary(Struct, frozen=True):
    """The turn stands between two steps and waits for what was said to it meanwhile."""

    living: "Living"
    heard: "asyncio.Future[tuple[Message, ...]]"


class Living:
    def __init__(self, turn: Turn, relay: Relay | None = None) -> None:
        self.turn, self._key = turn, turn.key
        self.relay = relay or Relay()
        """The plugins it is told to: those of the moment it began."""
        self.said: tuple[Message, ...] = turn.said
        self.untold: tuple[Message, ...] = turn.fresh
        """The end of `said`, as long as nobody was told."""
        self.acts: dict[str, ToolResult | None] = dict(turn.acts)
        self.usage: Usage | None = None
        self.stop: Stop | None = None
        self.task: asyncio.Task[Over] | None = None
        self.held: ToolFinished | None = None
        """The last result before all are said together: shown once that is kept."""
        self.started = False
        """It is set up, and has told so."""
        self.opens = not turn.history and turn.attempt == 1
        """No turn of its conversation was set up before it."""
        self.abandoned = False
        """It did not end when it was cancelled; its ending is written all the same."""
        self.seen = time.monotonic()
        """When it last told something."""
        self.born = time.monotonic()
        self.marked = 0.0
        """When it was marked as stopped."""
        self.timer: asyncio.TimerHandle | None = None
        """Due when it has been silent for too long."""
        self._partial: list[str] = []
        self._began: dict[str, float] = {}
        self.steered = not turn.alone
        """Messages may wait to be taken in."""

    def hold(self, relay: Relay) -> None:
        """It is set up: these are its plugins to the end, and they stay open for it."""
        relay.hold()
        self.relay, self.started = relay, True

    def mark(self, stop: Stop) -> None:
        """From now on it begins nothing and tells nothing."""
        self.stop, self.marked = stop, time.monotonic()

    def envelope(self, event: Event) -> Envelope:
        return Envelope(self._key, self.turn.id, event)

    def release(self) -> None:
        """It is over, and everyone was told."""
        if self.timer is not None:
            self.timer.cancel()
        if self.started:
            self.relay.release()
        if not self.abandoned:
            self.task = None  # what it gave, or its traceback, leads back to us

    @property
    def silent(self) -> float:
        """Seconds since it last told something."""
        return time.monotonic() - self.seen

    @property
    def age(self) -> float:
        """Seconds since it began here."""
        return time.monotonic() - self.born

    def whereabouts(self) -> tuple[str, float, str]:
        """For the log, of a turn that will not end: which, how long since its stop, and in which tools."""
        calls = (call for message in self.said for call in message.calls)
        names = [call.name for call in calls if call.id in self.running]
        return self.turn.id, time.monotonic() - self.marked, ", ".join(names) or "no tool"

    def hear(self, event: Event) -> None:
        """Keep what is said of the next answer, while it is said."""
        self.seen = time.monotonic()
        match event:
            case TextDelta(text):
                self._partial.append(text)
            case Said() | Retracted():
                self._partial.clear()

    @property
    def partial(self) -> str:
        """What the model had said of an answer that is not whole."""
        return "".join(self._partial)

    @property
    def running(self) -> tuple[str, ...]:
        """Ids of the calls that were begun and are not answered."""
        return tuple(name for name, result in self.acts.items() if result is None)

    def cut_off(self, closing: tuple[Message, ...]) -> list[tuple[ToolCall, ToolResult, float]]:
        """The calls of the last answer that only the end of the turn answered, and how long each ran."""
        calls = {call.id: call for message in self.said for call in message.calls}
        return [
            (calls[part.call_id], part, time.monotonic() - self._began.get(part.call_id, time.monotonic()))
            for message in closing
            for part in message.parts
            if isinstance(part, ToolResult) and self.acts.get(part.call_id) is None
        ]

    def fold(self, event: Recorded) -> None:
        match event:
            case Said(message, _, usage):
                self.said = (*self.said, message)
                if usage is not None:
                    self.usage = usage if self.usage is None else self.usage + usage
            case ToolStarted(call):
                self.acts[call.id] = None
                self._began[call.id] = time.monotonic()
            case ToolFinished(call, result):
                self.acts[call.id] = result

    def all_answered(self) -> bool:
        """Has every call of the last message a result by now?"""
        return all(self.acts.get(call.id) is not None for call in self.said[-1].calls)

    def unheld(self) -> tuple[ToolFinished, ...]:
        """What was held back, once."""
        held, self.held = self.held, None
        return () if held is None else (held,)
