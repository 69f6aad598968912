"""Stops a turn at every point it has, one after the other, each time in a house of its own."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Self, TypeAlias

from msgspec import Struct

from alipes.testing.agent import Conversation
from alipes.testing.leaks import LeakCheck, Leaked
from alipes.testing.replies import Point, Reply
from alipes.testing.scripted_model import Model

Opens: TypeAlias = Callable[[], AbstractAsyncContextManager[Conversation]]
FINE = "fine"


class Attempt(Struct, frozen=True):
    """One stop, and what came of it. All is closed again."""

    point: Point
    reply: Reply
    """Of the turn that was stopped."""
    after: Reply
    """Of the message that was said next."""


def every_stop(opens: Opens, text: str, *, after: str = "and now?") -> "EveryStop":
    """Iterate it: the turn that `text` begins is stopped at its first point, then at its second, until it
    ends before the stop comes.

    `opens` is called for each attempt anew, as in `every_stop(lambda: open_agent(...), "hello")`. Beside
    what you assert of each `Attempt` it raises `AssertionError` when the stopped turn does not end as
    `stopped`, when the next message is not answered, when the last turn, which nobody
    stops, is not answered, and `Leaked` when something stays open.
    """
    return EveryStop(opens, text, after)


class EveryStop:
    def __init__(self, opens: Opens, text: str, after: str) -> None:
        self._opens, self._text, self._after = opens, text, after
        self._number = 0
        self.completed: Reply | None = None
        """Of the last turn, which came to its end."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Attempt:
        attempt = await self._try() if self.completed is None else None
        if attempt is None:
            raise StopAsyncIteration
        return attempt

    async def _try(self) -> Attempt | None:
        self._number += 1
        check = LeakCheck().begin()
        async with self._opens() as agent:
            reply = await agent.stop_at(self._number, self._text)
            if reply.point is None:
                _demand(reply, "answered", "the turn that nobody stopped")
                self.completed = reply
                return None
            _demand(reply, "stopped", f"the turn stopped at {_told(reply.point)}")
            if isinstance(agent.model, Model):
                agent.model.follow(FINE)
            after = await agent.say(self._after)
            _demand(after, "answered", f"the message after a stop at {_told(reply.point)}")
        try:
            await check.settle()
        except Leaked as leaked:
            raise Leaked(f"after a stop at {_told(reply.point)}, {leaked}") from None
        return Attempt(reply.point, reply, after)


def _demand(reply: Reply, ending: str, what: str) -> None:
    if reply.ending != ending:
        raise AssertionError(f"{what} ended as {reply.ending or 'no turn at all'}: {reply.detail}")


def _told(point: Point) -> str:
    return f"point {point.number} ({point.where})"
