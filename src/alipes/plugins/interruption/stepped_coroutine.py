"""Runs a plugin's coroutine step by step: every step is watched, and it ends at its deadline, by force if
needed.

Relies on how asyncio drives a coroutine: it yields a future to wait for, or None to let others run.
"""

import asyncio
import sys
from asyncio import _enter_task, _leave_task  # documented for asyncio extensions
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from alipes.runtime.watchdog import LOOP_ACTIVITY, LoopActivity, TrackedCall, plugin_boundary

GRACE = 0.05
"""Seconds to clean up after being cancelled at the deadline."""
CANCEL_GRACE = 5.0
"""The same without a deadline, after being cancelled with the turn."""
Some: TypeAlias = Coroutine[Any, Any, Any]
_EXIT = asyncio.TaskGroup.__aexit__.__code__


class WatchedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are watched. It may be awaited or run as a task.

    Without an activity: steps of alipes itself inside a plugin's.
    """

    def __init__(self, work: Some, deed: TrackedCall | None, watch: LoopActivity = LOOP_ACTIVITY) -> None:
        self._work, self._deed, self._watch = work, deed, watch

    def __await__(self) -> "WatchedCoroutine":
        return self

    def __iter__(self) -> "WatchedCoroutine":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        return self._step(self._work.throw, _error(kind, value))

    @plugin_boundary
    def close(self) -> None:
        before = self._watch.begin(self._deed)
        try:
            self._work.close()
        finally:
            self._watch.end(before)

    @plugin_boundary
    def _step(self, resume: Callable[[Any], Any], value: Any) -> Any:
        before = self._watch.begin(self._deed)
        try:
            return resume(value)
        finally:
            self._watch.end(before)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)  # frame, code and name, for code that prints tasks


class SteppedCoroutine(WatchedCoroutine):
    """The rest of a coroutine after its first step, awaited by the task that made that step.

    At its deadline it is cancelled, as if by its task. If it still does not end, it is closed after a grace
    period, so awaiting it is always bounded. It never waits for the coroutine's own future but for a proxy,
    which can be resolved at any time.
    """

    def __init__(self, work: Some, waits_for: Any, deed: TrackedCall, watch: LoopActivity = LOOP_ACTIVITY) -> None:
        super().__init__(work, deed, watch)
        self.timed_out = False
        """It was not done at its deadline."""
        self.permanent = False
        """Part of alipes itself: cancelled at its deadline, never closed by force."""
        self.patience = CANCEL_GRACE
        self.busy: Callable[[], bool] = _never
        """While this is true, it waits for code that is not its own, and no time counts."""
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

    def with_deadline(self, deadline: float | None) -> "SteppedCoroutine":
        """Limit its time from now on."""
        if deadline is not None:
            self._timer = self._loop.call_later(deadline, self._late, deadline)
        return self

    def task_was_cancelled(self) -> bool:
        """The awaiting task was cancelled and the coroutine swallowed it."""
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
                return self._before(inner)  # a task ends in its own way, as if awaited directly
        return self._step(self._work.throw, error)

    def _excuse(self, group: asyncio.TaskGroup | None) -> None:
        if group is not None and group is not self._excused:
            self._task.uncancel()
            self._excused = group

    def close(self) -> None:
        self._over()
        super().close()

    @plugin_boundary
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
        """The future our task waits for instead. Anything a task cannot wait for is passed on for it to
        reject."""
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
        starved = self._loop.time() - self._timer.when() > self._watch.limit  # something blocked the event loop
        if starved or self.busy():
            self._timer = self._loop.call_later(GRACE if starved else deadline, self._late, deadline)
            return
        self.timed_out = True
        if not self.permanent:
            self._timer = self._loop.call_later(GRACE, self._give_up)
        if self._inner is None or not self._inner.cancel():
            self._must_cancel = True

    def _late_if_cancelled(self) -> None:
        if self.task_was_cancelled():
            self._late(self.patience)
        else:
            self._timer = None  # it was a timeout of its own, and it continues

    def _give_up(self) -> None:
        if self.busy():
            self._timer = self._loop.call_later(GRACE, self._give_up)
            return
        self._given_up = True
        self._wake()


class _StartedCoroutine(WatchedCoroutine):
    """A task's coroutine whose first step was made before the task's."""

    def __init__(self, work: Some) -> None:
        self._work = work
        self._first: tuple[Any] | None = None
        self._gave: tuple[Any] | None = None

    @property
    def waits(self) -> bool:
        return self._first is not None

    def begin(self) -> None:
        try:
            self._first = (self._work.send(None),)
        except StopIteration as over:
            self._gave = (over.value,)  # not the error itself: its traceback refers to us

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


def start_task(group: asyncio.TaskGroup, work: Some, name: str) -> asyncio.Task[Any]:
    """Run it as a task of the group, with its first step now, before this returns.

    The task is the current one in that step too, so a timeout or a group entered there belongs to it.
    """
    begun, context, me = _StartedCoroutine(work), copy_context(), asyncio.current_task()
    assert me is not None
    task: asyncio.Task[Any] = group.create_task(begun, name=name, context=context)
    _run_as_task(task, me, context, begun.begin)
    return task


def start_short(group: asyncio.TaskGroup, work: Some, name: str) -> None:
    """As `start_task`, for work that hardly ever waits: it becomes a task only if it does. Until then the current task
    and context are those of the caller."""
    begun = _StartedCoroutine(work)
    begun.begin()
    if begun.waits:
        group.create_task(begun, name=name)


def _run_as_task(task: asyncio.Task[Any], me: asyncio.Task[Any], context: Context, act: Callable[[], None]) -> None:
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
    """The group in whose exit the coroutine waits, if the group cancelled its own task because a child
    failed.

    Before Python 3.13 the group does not undo this, so the task would count as cancelled from then on.
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
