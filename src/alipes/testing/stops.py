"""Where a turn can be stopped: counts the points it passes, and holds it at one. Stopping it is another's."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import Struct

from alipes.hooks.owners import Owner
from alipes.hooks.relay import Hooks
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.ports import Output, Request
from alipes.kernel.turns import ApprovalAnswered, Event, Replied, Turn

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
