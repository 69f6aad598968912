"""A plugin's coroutine, step by step: each is watched, and the rest ends, if need be by force.

Nothing here knows hooks. It leans on how asyncio drives a coroutine: what that yields is a future to
wait for, or None to let others run.
"""

import asyncio
import sys
from asyncio import _enter_task, _leave_task  # documented for those who extend asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from alipes.runtime.watchdog import LOOP, Deed, Watch, edge

GRACE = 0.05
"""Seconds to clean up for what was cancelled because it took too long."""
PATIENCE = 5.0
"""The same for what has no deadline, and is cancelled together with its turn."""
Some: TypeAlias = Coroutine[Any, Any, Any]
_EXIT = asyncio.TaskGroup.__aexit__.__code__


class Watched(Coroutine[Any, Any, Any]):
    """A coroutine, each step of which is watched. It may be awaited, or be a task's.

    No deed: the house's own steps, in the midst of a plugin's.
    """

    def __init__(self, work: Some, deed: Deed | None, watch: Watch = LOOP) -> None:
        self._work, self._deed, self._watch = work, deed, watch

    def __await__(self) -> "Watched":
        return self

    def __iter__(self) -> "Watched":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        return self._step(self._work.throw, _error(kind, value))

    @edge
    def close(self) -> None:
        before = self._watch.begin(self._deed)
        try:
            self._work.close()
        finally:
            self._watch.end(before)

    @edge
    def _step(self, resume: Callable[[Any], Any], value: Any) -> Any:
        before = self._watch.begin(self._deed)
        try:
            return resume(value)
        finally:
            self._watch.end(before)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)  # frame, code and name, for those who print tasks


class Rest(Watched):
    """What is left of a coroutine after its first step, to be awaited by the task that did that step.

    At its deadline it is cancelled, as if by its task. One that does not end even so is closed after a
    grace, so whoever awaits this waits no longer, whatever it does. It never waits for the coroutine's
    own future but for one in front of it, which can be resolved at any time.
    """

    def __init__(self, work: Some, waits_for: Any, deed: Deed, watch: Watch = LOOP) -> None:
        super().__init__(work, deed, watch)
        self.overran = False
        """It was not done at its deadline."""
        self.lasting = False
        """It is the house's own: cancelled at its deadline, but never closed by force."""
        self.patience = PATIENCE
        self.busy: Callable[[], bool] = _never
        """While this says so, what it does is not its own doing, and no time counts."""
        task = asyncio.current_task()
        assert task is not None
        self._task, self._loop = task, task.get_loop()
        self._cancellings = task.cancelling()
        self._timer: asyncio.TimerHandle | None = None
        self._must_cancel = self._given_up = False
        self._excused: asyncio.TaskGroup | None = None
        self._inner: asyncio.Future[Any] | None = None
        self._outer: asyncio.Future[None] | None = None
        self._first: tuple[Any] | None = (waits_for,)

    def within(self, deadline: float | None) -> "Rest":
        """From now on, its time is limited."""
        if deadline is not None:
            self._timer = self._loop.call_later(deadline, self._late, deadline)
        return self

    def cancelled_meanwhile(self) -> bool:
        """Somebody cancelled the task that awaits it, and it kept that to itself."""
        return self._task.cancelling() > self._cancellings

    def send(self, value: Any) -> Any:
        if self._first is not None:
            waits_for, self._first = self._first[0], None
            return self._before(waits_for)
        if self._given_up:
            self.close()
            raise asyncio.CancelledError
        if self._must_cancel:
            self._must_cancel = False
            return self._step(self._work.throw, asyncio.CancelledError())
        return self._step(self._work.send, value)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        error, self._first = _error(kind, value), None
        if isinstance(error, asyncio.CancelledError):
            if self._given_up:
                self.close()
                raise error
            self._excuse(_cancelling_group(self._work))
            if self._timer is None:
                self._timer = self._loop.call_later(self.patience, self._late_if_cancelled)
            if (inner := self._inner) is not None and inner.cancel() and not inner.done():
                return self._before(inner)  # a task: it has its own way of ending, as when awaited by ours
        return self._step(self._work.throw, error)

    def _excuse(self, group: asyncio.TaskGroup | None) -> None:
        if group is not None and group is not self._excused:
            self._task.uncancel()
            self._excused = group

    def close(self) -> None:
        self._over()
        super().close()

    @edge
    def _step(self, resume: Callable[[Any], Any], value: Any) -> Any:
        self._forget()
        over, before = True, self._watch.begin(self._deed)
        try:
            waits_for = resume(value)
            over = False
        finally:
            self._watch.end(before)
            if over:
                self._over()
        return self._before(waits_for)

    def _before(self, waits_for: Any) -> Any:
        """What our task is to wait for instead. What no task could wait for is left for it to refuse."""
        if not asyncio.isfuture(waits_for) or waits_for.get_loop() is not self._loop:
            return waits_for
        waits_for._asyncio_future_blocking = False
        self._forget()
        self._inner, self._outer = waits_for, self._loop.create_future()
        waits_for.add_done_callback(self._wake)
        return next(self._outer.__await__())

    def _wake(self, _done: object = None) -> None:
        if self._outer is not None and not self._outer.done():
            self._outer.set_result(None)

    def _forget(self) -> None:
        if self._inner is not None:
            self._inner.remove_done_callback(self._wake)
            self._inner = self._outer = None

    def _over(self) -> None:
        self._forget()
        if self._timer is not None:
            self._timer.cancel()

    def _late(self, deadline: float) -> None:
        assert self._timer is not None
        starved = self._loop.time() - self._timer.when() > self._watch.limit  # somebody held the loop
        if starved or self.busy():
            self._timer = self._loop.call_later(GRACE if starved else deadline, self._late, deadline)
            return
        self.overran = True
        if not self.lasting:
            self._timer = self._loop.call_later(GRACE, self._give_up)
        if self._inner is None or not self._inner.cancel():
            self._must_cancel = True

    def _late_if_cancelled(self) -> None:
        if self.cancelled_meanwhile():
            self._late(self.patience)
        else:
            self._timer = None  # it was a timeout of its own, and it goes on

    def _give_up(self) -> None:
        if self.busy():
            self._timer = self._loop.call_later(GRACE, self._give_up)
            return
        self._given_up = True
        self._wake()


class _Begun(Watched):
    """A task's coroutine whose first step was done before the task's."""

    def __init__(self, work: Some) -> None:
        self._work = work
        self._first: tuple[Any] | None = None
        self._gave: tuple[Any] | None = None

    def begin(self) -> None:
        try:
            self._first = (self._work.send(None),)
        except StopIteration as over:
            self._gave = (over.value,)  # not the error itself: its traceback leads back to us

    def send(self, value: Any) -> Any:
        if self._gave is not None:
            raise StopIteration(self._gave[0])
        if self._first is not None:
            waits_for, self._first = self._first[0], None
            return waits_for
        return self._work.send(value)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        self._first = None
        return self._work.throw(_error(kind, value))

    def close(self) -> None:
        self._work.close()


def start(group: asyncio.TaskGroup, work: Some, name: str) -> None:
    """Run it in a task of the group, and its first step now, before this returns.

    In that step too the task is the current one, so a timeout or a group it enters is the task's own.
    """
    begun, context, me = _Begun(work), copy_context(), asyncio.current_task()
    assert me is not None
    task: asyncio.Task[Any] = group.create_task(begun, name=name, context=context)
    _as(task, me, context, begun.begin)


def _as(task: asyncio.Task[Any], me: asyncio.Task[Any], context: Context, act: Callable[[], None]) -> None:
    loop = task.get_loop()
    _leave_task(loop, me)
    try:
        _enter_task(loop, task)
        try:
            context.run(act)
        finally:
            _leave_task(loop, task)
    finally:
        _enter_task(loop, me)


def _cancelling_group(work: Any) -> asyncio.TaskGroup | None:
    """The group in whose exit the coroutine waits, if that cancelled its own task as a child broke.

    Before Python 3.13 it does not take this back, so the task counts as cancelled ever after.
    """
    if sys.version_info >= (3, 13):
        return None
    while (below := getattr(work, "cr_await", None)) is not None and hasattr(below, "cr_frame"):
        work = below
    frame = getattr(work, "cr_frame", None)
    if frame is None or frame.f_code is not _EXIT or frame.f_locals["et"] is not None:
        return None
    group: asyncio.TaskGroup = frame.f_locals["self"]
    return group if getattr(group, "_parent_cancel_requested", False) else None


def _never() -> bool:
    return False


def _error(kind: Any, value: Any) -> BaseException:
    """The generator protocol allows an error, or its class with or without a value."""
    if isinstance(kind, BaseException):
        return kind
    return value if isinstance(value, BaseException) else kind() if value is None else kind(value)
