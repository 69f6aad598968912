"""An event loop with virtual time and seeded randomness: the same seed takes the same steps."""

import asyncio
import heapq
import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

DROPPED_TASKS: list["SeededTask"] = []
"""Tasks of dropped processes, kept until they can be collected without warnings."""

_ALL: Any = asyncio.tasks._all_tasks  # type: ignore[attr-defined]


class Crashed(BaseException):
    """The process died here: nothing after this step happens."""


class Deadlock(Exception):
    """Nothing is scheduled any longer."""


def _raise_crashed() -> None:
    raise Crashed


class SeededTask(asyncio.Task[Any]):
    """Hashes by its number, so that sets of tasks are iterated in the same order each time."""

    def __init__(self, work: Any, *, number: int, **more: Any) -> None:
        self.number = number  # needed while the base class is initialised
        super().__init__(work, **more)

    def __hash__(self) -> int:
        return self.number


class SeededLoop(asyncio.BaseEventLoop):
    """Keeps the promises of asyncio, such as the order of `call_soon`. What asyncio leaves open is random: the
    order of timers due at one moment, and when the result of a thread arrives."""

    def __init__(self, clock: list[float], rng: random.Random) -> None:
        super().__init__()
        self.set_debug(False)
        self.clock, self.rng = clock, rng
        self.steps = 0
        self.crash_at = 0
        self.on_crash: Callable[[], None] = _raise_crashed
        self.dead = False
        self.busy_threads = 0
        """Jobs and results of threads that are pending."""
        self.tasks: list[SeededTask] = []
        self.on_task: Callable[[SeededTask, Any], None] = lambda _task, _work: None
        self.on_idle: Callable[[], None] = lambda: None
        """Called whenever nothing is ready at this moment."""
        self.on_step: Callable[[], None] = lambda: None
        """Called after every step."""
        self._last_answer = 0.0

    def time(self) -> float:
        return self.clock[0]

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> SeededTask:
        number = len(self.tasks) + 1
        task = SeededTask(coro, number=number, loop=self, name=name or "task", context=context)
        self.tasks.append(task)
        _ALL.discard(task)  # tasks of dropped loops have the same hashes there
        self.on_task(task, coro)
        return task

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if not ready:
            self.on_idle()
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
        """Advance to the next timer; timers due at one moment run in any order."""
        timers = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not timers:
            raise Deadlock
        self.clock[0] = now = max(self.clock[0], timers[0]._when)
        due = []
        while timers and timers[0]._when <= now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            due.append(timer)
        if len(due) > 1:
            self.rng.shuffle(due)
        self._ready.extend(due)  # type: ignore[attr-defined]

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Results of a thread arrive a little later, in order."""
        if self.dead:
            return None
        late = 0.0 if self.rng.random() < 0.5 else self.rng.random() * 0.01
        self._last_answer = max(self._last_answer + 1e-9, self.clock[0] + late)
        self.busy_threads += 1
        return self.call_at(self._last_answer, self._deliver_result, callback, *args, context=context)

    def _deliver_result(self, callback: Any, *args: Any) -> None:
        self.busy_threads -= 1
        callback(*args)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        seen = self.create_future()
        thread = executor if isinstance(executor, Thread) else Thread(self)

        def pass_on(done: "Future[Any]") -> None:
            if not seen.done():
                error = done.exception()
                seen.set_result(done.result()) if error is None else seen.set_exception(error)

        thread.submit(func, *args).add_done_callback(lambda done: self.call_soon_threadsafe(pass_on, done))
        return seen

    async def create_unix_server(self, *_args: Any, **_more: Any) -> "FakeServer":
        """Sockets between processes: there is no other process."""
        return FakeServer()

    def drop(self) -> None:
        """The process is gone, with everything it had scheduled."""
        self.dead = self._closed = True
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        DROPPED_TASKS.extend(task for task in self.tasks if not task.done())
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.tasks.clear()

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


class FakeServer:
    """A server without clients."""

    async def start_serving(self) -> None:
        return None

    def close(self) -> None:
        return None


class Thread:
    """A pool of one thread: jobs run one after the other, each after a random delay."""

    def __init__(self, loop: SeededLoop, span: Callable[[], float] | None = None) -> None:
        self._loop = loop
        self._span = span or (lambda: loop.rng.random() * 0.01)
        self._free_at = 0.0

    def submit(self, work: Callable[..., Any], *args: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        if not self._loop.dead:
            self._loop.busy_threads += 1
            self._free_at = max(self._free_at, self._loop.time()) + self._span()
            self._loop.call_at(self._free_at, self._do, done, work, args)
        return done

    def _do(self, done: "Future[Any]", work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._loop.busy_threads -= 1
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
