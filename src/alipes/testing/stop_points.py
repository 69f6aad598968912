"""Stops a turn at every point, one after the other, each time in a new agent."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Self, TypeAlias

from msgspec import Struct

from alipes.testing.agent import Conversation
from alipes.testing.leaks import LeakCheck, LeakError
from alipes.testing.replies import StopPoint, TurnReply
from alipes.testing.scripted_model import ScriptedModel

OpenAgent: TypeAlias = Callable[[], AbstractAsyncContextManager[Conversation]]
NEXT_ANSWER = "fine"


class StopAttempt(Struct, frozen=True):
    """One stop and its results. Everything is closed again."""

    point: StopPoint
    reply: TurnReply
    """Reply of the stopped turn."""
    after: TurnReply
    """Reply to the next message."""


def every_stop(opens: OpenAgent, text: str, *, after: str = "and now?") -> "EveryStop":
    """Iterate over all stops of the turn that `text` starts: at its first point, its second, until it ends first.

    `opens` is called for each attempt, as in `every_stop(lambda: open_agent(...), "hello")`. Raises `AssertionError` if
    a stopped turn does not end as `stopped`, the next message is not answered, or the last turn, which is not stopped,
    is not answered; and `LeakError` if something stays open.
    """
    return EveryStop(opens, text, after)


class EveryStop:
    def __init__(self, opens: OpenAgent, text: str, after: str) -> None:
        self._open, self._text, self._after = opens, text, after
        self._number = 0
        self.completed: TurnReply | None = None
        """Reply of the last turn, which was not stopped."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StopAttempt:
        attempt = await self._try() if self.completed is None else None
        if attempt is None:
            raise StopAsyncIteration
        return attempt

    async def _try(self) -> StopAttempt | None:
        self._number += 1
        check = LeakCheck().begin()
        async with self._open() as agent:
            reply = await agent.stop_at(self._number, self._text)
            if reply.point is None:
                _require_ending(reply, "answered", "the turn without a stop")
                self.completed = reply
                return None
            _require_ending(reply, "stopped", f"the turn stopped at {_describe(reply.point)}")
            if isinstance(agent.model, ScriptedModel):
                agent.model.set_script(NEXT_ANSWER)
            after = await agent.say(self._after)
            _require_ending(after, "answered", f"the message after a stop at {_describe(reply.point)}")
        try:
            await check.settle()
        except LeakError as leaked:
            raise LeakError(f"after a stop at {_describe(reply.point)}, {leaked}") from None
        return StopAttempt(reply.point, reply, after)


def _require_ending(reply: TurnReply, ending: str, what: str) -> None:
    if reply.ending != ending:
        raise AssertionError(f"{what} ended as {reply.ending or 'no turn'}: {reply.detail}")


def _describe(point: StopPoint) -> str:
    return f"point {point.number} ({point.where})"
