"""What asyncio lacks: error groups, closing despite cancellation, backoff, worker threads, uncaught errors.

Uncaught errors are reported as one line for the user and a traceback for the log. A front end that runs
prompt_toolkit must pass `set_exception_handler=False` to `prompt_async` and `run_async`: otherwise
prompt_toolkit installs its own handler, which prints a traceback over the prompt and waits for ENTER.
"""

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FunctionType, TracebackType
from typing import Any, NoReturn, TypeGuard, TypeVar

log = logging.getLogger(__name__)


@contextmanager
def unwrap_error_group() -> Iterator[None]:
    """Wrap an `async with TaskGroup()`: raises the first error itself instead of a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise_if_cancelled()
        raise first_error(group) from group


def raise_if_cancelled() -> None:
    """Raise a cancellation that was swallowed: until Python 3.13, a `TaskGroup` that is cancelled while a
    child fails raises only the child's error."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def first_error(error: BaseException) -> BaseException:
    """The first error inside nested error groups."""
    return first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


class KeptError:
    """Keeps how the block inside it ended, with its error, because the caller may have stopped to wait for it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        self.reached.set()
        if error is None or isinstance(error, asyncio.CancelledError):
            return False
        self.error = error
        return True


async def run_to_completion(close: Callable[[], Awaitable[object]]) -> None:
    """Await `close()` even if cancelled meanwhile; the cancellation is raised afterwards, an error then logged."""
    completion = KeptError()

    async def close_and_signal() -> None:
        with completion:
            await close()

    try:
        await asyncio.shield(close_and_signal())
    except asyncio.CancelledError:
        while not completion.reached.is_set():
            with suppress(asyncio.CancelledError):
                await completion.reached.wait()
        if completion.error is not None:
            log.warning("what had to be finished before a cancellation failed: %s", completion.error)
        raise
    if completion.error is not None:
        raise completion.error


FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0


def backoff(attempt: int, dice: Callable[[], float] = random.random) -> float:
    """Seconds before retry number `attempt` (the first is 1): doubling, capped, with full jitter.

    `dice` returns a number in [0, 1). Full jitter keeps clients that failed together from retrying together.
    """
    doublings = min(max(attempt, 1), 32) - 1
    return dice() * min(MAX_DELAY_S, FIRST_DELAY_S * 2.0**doublings)


T = TypeVar("T")
MAX_THREADS = 256
"""Upper limit; a thread is started only when all others are busy, so that long calls do not delay others."""
JOIN_TIMEOUT_S = 2.0


class WorkerPool(ThreadPoolExecutor):
    """Thread pool of `asyncio.to_thread`; its shutdown waits for a limited time."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            _join(list(self._threads))


def run_event_loop(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` with a `WorkerPool`."""

    async def within() -> T:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(WorkerPool(MAX_THREADS, thread_name_prefix="worker"))
        # The kernel delivers a signal to any thread; a loop with one signal handler is woken by every signal.
        loop.add_signal_handler(signal.SIGURG, lambda: None)
        return await main

    return asyncio.run(within())


def exit_process(status: int) -> NoReturn:
    """Exit without waiting for threads that are still blocked (by a plugin, for example)."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    stuck = _join([thread for thread in others if not thread.daemon])
    if stuck:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _join(threads: list[threading.Thread]) -> list[threading.Thread]:  # noqa: TID251
    """Join the threads; returns those that are still running after the timeout."""
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return [thread for thread in threads if thread.is_alive()]


LIBRARIES = frozenset({"httpx", "httpx2", "openai", "anthropic"})
CLIENT_LIBRARIES = ("httpx", "httpx2")
"""Their `AsyncClient` has no finaliser, so an unclosed one would be collected silently."""


_AIOHTTP_REPORTS = ("client_session", "client_response", "client_connection", "connector")
_NEVER_RAN = "Task was destroyed but it is pending!"


def leaked_client(context: Mapping[str, Any]) -> str:
    """The client type, if a loop only reports a leaked client, or that closing it failed; else empty."""
    for key in _AIOHTTP_REPORTS:
        if type(context.get(key)).__module__.startswith("aiohttp."):
            return _name(type(context[key]))
    task = context.get("task") or context.get("future")
    if not isinstance(task, asyncio.Task):
        return ""
    work, error = task.get_coro(), context.get("exception")
    code = getattr(work, "cr_code", None)
    if getattr(code, "co_name", "") not in ("aclose", "close"):
        return ""
    if _loop_is_closed(error):
        client = _owner(error.__traceback__, code)
    elif error is None and context.get("message") == _NEVER_RAN:
        frame = getattr(work, "cr_frame", None)
        client = None if frame is None else frame.f_locals.get("self")
    else:
        return ""
    roots = {cls.__module__.partition(".")[0] for cls in type(client).__mro__}
    return _name(type(client)) if roots & LIBRARIES else ""


def leaked_client_of_finaliser(error: BaseException | None, where: object) -> str:
    """The finaliser's name, if its error only reports a leaked resource; else empty."""
    if isinstance(error, ResourceWarning):
        return _name(where) if isinstance(where, FunctionType) else _name(type(where))
    if not isinstance(where, FunctionType) or where.__name__ != "__del__":
        return ""
    root = where.__module__.partition(".")[0]
    return _name(where) if root in LIBRARIES or (root == "asyncio" and _loop_is_closed(error)) else ""


@contextmanager
def report_unclosed_clients(note: Callable[[str], None]) -> Iterator[None]:
    """Call `note(type)` for each plain client that is collected without having been closed.

    Adds a finaliser to their class, because once the sockets are collected the client can no longer
    be identified. Libraries loaded later are handled at the next collection.
    """
    met: list[type] = []

    def dying(client: Any) -> None:
        # A client whose constructor failed has no such attribute.
        if not getattr(client, "is_closed", True):
            note(_name(type(client)))

    def meet(phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start" and len(met) < len(CLIENT_LIBRARIES):
            for library in CLIENT_LIBRARIES:
                client = getattr(sys.modules.get(library), "AsyncClient", None)
                if isinstance(client, type) and client not in met and "__del__" not in vars(client):
                    met.append(client)
                    client.__del__ = dying  # type: ignore[attr-defined]

    meet("start", {})
    gc.callbacks.append(meet)
    try:
        yield
    finally:
        gc.callbacks.remove(meet)
        for client in met:
            del client.__del__  # type: ignore[attr-defined]


def _loop_is_closed(error: object) -> TypeGuard[RuntimeError]:
    # asyncio and uvloop use the same text; our own loop is running, so it is about another loop.
    return isinstance(error, RuntimeError) and error.args == ("Event loop is closed",)


def _owner(trace: TracebackType | None, code: object) -> object:
    """The `self` of the frame that ran `code`."""
    while trace is not None:
        if trace.tb_frame.f_code is code:
            return trace.tb_frame.f_locals.get("self")
        trace = trace.tb_next
    return None


def _name(thing: type | FunctionType) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


MAX_LINE_CHARS = 300


_DEFAULT_HANDLER = asyncio.BaseEventLoop.default_exception_handler


class _UncaughtErrors:
    """Queues what the hooks report and logs it from the loop.

    The hooks are called by the garbage collector at any point and on any thread, where neither
    logging nor drawing is safe. Only strings and errors are queued: a reference to the object
    being collected would resurrect it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, show: Callable[[str], None]) -> None:
        self._loop = loop
        self._show: Callable[[str], None] | None = show
        self._waiting: deque[tuple[int, str, BaseException | None]] = deque()

    def on_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if name := leaked_client(context):
            self.on_leftover(name)
            return
        subject = context.get("task") or context.get("future") or context.get("handle") or ""
        said = f"{context.get('message') or 'Unhandled exception in the event loop'}: {subject!r}"
        self._put(logging.ERROR, said if subject else said.partition(":")[0], context.get("exception"))

    def on_other_loop(self, loop: asyncio.BaseEventLoop, context: dict[str, Any]) -> None:
        """A loop of a plugin without a handler of its own: its reports are logged as before, but for leaked clients."""
        if name := leaked_client(context):
            self.on_leftover(name)
        else:
            _DEFAULT_HANDLER(loop, context)

    def on_unraisable(self, args: "sys.UnraisableHookArgs") -> None:
        if name := leaked_client_of_finaliser(args.exc_value, args.object):
            self.on_leftover(name)
            return
        where = getattr(args.object, "__qualname__", None) or type(args.object).__qualname__
        self._put(logging.ERROR, f"{args.err_msg or 'Exception ignored in'} {where}", args.exc_value)

    def on_thread(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            name = args.thread.name if args.thread else "?"
            self._put(logging.ERROR, f"Exception in thread {name}", args.exc_value)

    def on_warning(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
    ) -> None:
        level = logging.DEBUG if issubclass(category, ResourceWarning) else logging.WARNING
        self._put(level, f"{category.__name__}: {message} ({filename}:{lineno})", None)

    def on_leftover(self, name: str) -> None:
        self._put(logging.DEBUG, f"an unclosed client was garbage-collected: {name}", None)

    def flush(self) -> None:
        while self._waiting:
            level, said, error = self._waiting.popleft()
            log.log(level, "%s", said, exc_info=error)
            if level >= logging.ERROR and self._show:
                # Disabled meanwhile: a `show` that raises would report itself in an endless loop.
                show, self._show = self._show, None
                show(_line(said, error))
                self._show = show

    def _put(self, level: int, said: str, error: BaseException | None) -> None:
        self._waiting.append((level, said, error))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.flush)


def _line(said: str, error: BaseException | None) -> str:
    what = said.partition("\n")[0]
    if error is not None:
        first = str(error).partition("\n")[0]
        what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"Error in the background: {what[:MAX_LINE_CHARS]} (see the log)"


@contextmanager
def handle_uncaught_errors(show: Callable[[str], None]) -> Iterator[None]:
    """Handle what the running loop, finalisers, threads and warnings would otherwise print.

    `show(line)` is called on the loop for every uncaught exception except reports of leaked
    clients; tracebacks go to the log. The previous handlers are restored at the end.
    """
    loop = asyncio.get_running_loop()
    guard = _UncaughtErrors(loop, show)
    before = loop.get_exception_handler(), sys.unraisablehook, threading.excepthook, warnings.showwarning
    loop.set_exception_handler(guard.on_loop)
    theirs = asyncio.BaseEventLoop.default_exception_handler
    asyncio.BaseEventLoop.default_exception_handler = lambda *given: guard.on_other_loop(*given)  # type: ignore[method-assign]
    sys.unraisablehook = guard.on_unraisable
    threading.excepthook = guard.on_thread
    warnings.showwarning = guard.on_warning
    try:
        with report_unclosed_clients(guard.on_leftover):
            yield
    finally:
        loop.set_exception_handler(before[0])
        asyncio.BaseEventLoop.default_exception_handler = theirs  # type: ignore[method-assign]
        _, sys.unraisablehook, threading.excepthook, warnings.showwarning = before
        guard.flush()


@contextmanager
def cancel_on_signals(leave: Callable[[], None] = lambda: None) -> Iterator[None]:
    """SIGTERM and SIGHUP cancel the current task, which closes everything; `leave` is called before."""
    main, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert main is not None

    def on_signal() -> None:
        leave()
        main.cancel()

    both = (signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in both if signal.getsignal(number) != signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
