"""An event loop whose time is virtual and whose chances are seeded: the same seed takes the same steps."""

import asyncio
import heapq
import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

MORGUE: list["SeededTask"] = []
"""Tasks of dropped processes: kept until they can be let go of quietly."""

_ALL: Any = asyncio.tasks._all_tasks  # type: ignore[attr-defined]


class Crashed(BaseException):
    """The process died here: nothing after this step happens."""


class Stuck(Exception):
    """Nothing is left that could ever happen."""


def _die() -> None:
    raise Crashed


class SeededTask(asyncio.Task[Any]):
    """Sets of tasks are walked by hash: with a number of its own for one, the same way each time."""

    def __init__(self, work: Any, *, number: int, **more: Any) -> None:
        self.number = number  # asked for as soon as it is made
        super().__init__(work, **more)

    def __hash__(self) -> int:
        return self.number


class SeededLoop(asyncio.BaseEventLoop):
    """What asyncio promises holds: `call_soon` keeps its order. What it leaves open is the dice's to say:
    who is first of those due at one moment, and when the answer of a thread arrives."""

    def __init__(self, clock: list[float], dice: random.Random) -> None:
        super().__init__()
        self.set_debug(False)
        self.clock, self.dice = clock, dice
        self.steps = 0
        self.crash_at = 0
        self.on_crash: Callable[[], None] = _die
        self.dead = False
        self.working = 0
        """What threads have to do, or to tell."""
        self.everyone: list[SeededTask] = []
        self.on_task: Callable[[SeededTask, Any], None] = lambda _task, _work: None
        self.on_rest: Callable[[], None] = lambda: None
        """Called whenever all has been done that can be done at this moment."""
        self.on_step: Callable[[], None] = lambda: None
        """Called after every step."""
        self._last_answer = 0.0

    def time(self) -> float:
        return self.clock[0]

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> SeededTask:
        number = len(self.everyone) + 1
        task = SeededTask(coro, number=number, loop=self, name=name or "task", context=context)
        self.everyone.append(task)
        _ALL.discard(task)  # it is ours; and there all that were ever dropped would have the same hashes
        self.on_task(task, coro)
        return task

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if not ready:
            self.on_rest()
            if self._stopping:  # type: ignore[attr-defined]
                return
            self._advance()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            self.steps += 1
            if self.steps == self.crash_at:
                self.on_crash()
            handle._run()
            self.on_step()

    def _advance(self) -> None:
        """To the moment of the next timer; those of one moment in any order."""
        timers = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not timers:
            raise Stuck
        self.clock[0] = now = max(self.clock[0], timers[0]._when)
        due = []
        while timers and timers[0]._when <= now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            due.append(timer)
        if len(due) > 1:
            self.dice.shuffle(due)
        self._ready.extend(due)  # type: ignore[attr-defined]

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Results of a thread arrive a little later, in order."""
        if self.dead:
            return None
        late = 0.0 if self.dice.random() < 0.5 else self.dice.random() * 0.01
        self._last_answer = max(self._last_answer + 1e-9, self.clock[0] + late)
        self.working += 1
        return self.call_at(self._last_answer, self._hear, callback, *args, context=context)

    def _hear(self, callback: Any, *args: Any) -> None:
        self.working -= 1
        callback(*args)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        seen = self.create_future()
        thread = executor if isinstance(executor, Thread) else Thread(self)

        def tell(done: "Future[Any]") -> None:
            if not seen.done():
                error = done.exception()
                seen.set_result(done.result()) if error is None else seen.set_exception(error)

        thread.submit(func, *args).add_done_callback(lambda done: self.call_soon_threadsafe(tell, done))
        return seen

    async def create_unix_server(self, *_args: Any, **_more: Any) -> "Nobody":
        """Sockets between processes: nobody else is there."""
        return Nobody()

    def drop(self) -> None:
        """The process is gone, with all that it had in mind."""
        self.dead = self._closed = True
        for task in self.everyone:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        MORGUE.extend(task for task in self.everyone if not task.done())
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.everyone.clear()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
            timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _write_to_self(self) -> None:
        return None


class Nobody:
    """A server that nobody ever calls."""

    async def start_serving(self) -> None:
        return None

    def close(self) -> None:
        return None


class Thread:
    """A pool of one thread: its work is done one after the other, each in no time but after some."""

    def __init__(self, loop: SeededLoop, span: Callable[[], float] | None = None) -> None:
        self._loop = loop
        self._span = span or (lambda: loop.dice.random() * 0.01)
        self._free = 0.0

    def submit(self, work: Callable[..., Any], *args: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        if not self._loop.dead:
            self._loop.working += 1
            self._free = max(self._free, self._loop.time()) + self._span()
            self._loop.call_at(self._free, self._do, done, work, args)
        return done

    def _do(self, done: "Future[Any]", work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._loop.working -= 1
        try:
            given = work(*args)
        except BaseException as error:
            if isinstance(error, Crashed):
                raise
            done.set_exception(error)
        else:
            done.set_result(given)

    def __enter__(self) -> "Thread":
        return self

    def __exit__(self, *_error: object) -> None:
        return None
