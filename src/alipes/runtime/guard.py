"""What nobody caught: a line for the person, the rest for the log. It mends nothing and ends nothing.

A front end that runs prompt_toolkit under it must pass `set_exception_handler=False` to
`prompt_async` and `run_async`: otherwise prompt_toolkit puts its own in our place, which
prints a traceback over the prompt and waits for ENTER.
"""

import asyncio
import logging
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from alipes.runtime import leftovers

log = logging.getLogger(__name__)

LONGEST = 300


class _Guard:
    """Takes what the hooks are given and tells it from the loop, a moment later.

    The hooks are called by the collector, in the middle of anything and on any thread,
    where neither writing a log nor drawing on a screen is safe. Only strings and errors wait
    here: holding the object that is being collected would bring it back to life.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, show: Callable[[str], None]) -> None:
        self._loop = loop
        self._show: Callable[[str], None] | None = show
        self._waiting: deque[tuple[int, str, BaseException | None]] = deque()

    def on_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if name := leftovers.of_task(context):
            self.on_leftover(name)
            return
        subject = context.get("task") or context.get("future") or context.get("handle") or ""
        said = f"{context.get('message') or 'Unhandled exception in the event loop'}: {subject!r}"
        self._put(logging.ERROR, said if subject else said.partition(":")[0], context.get("exception"))

    def on_unraisable(self, args: "sys.UnraisableHookArgs") -> None:
        if name := leftovers.of_finaliser(args.exc_value, args.object):
            self.on_leftover(name)
            return
        where = getattr(args.object, "__qualname__", None) or type(args.object).__qualname__
        self._put(logging.ERROR, f"{args.err_msg or 'Exception ignored in'} {where}", args.exc_value)

    def on_thread(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            name = args.thread.name if args.thread else "?"
            self._put(logging.ERROR, f"Exception in thread {name}", args.exc_value)

    def on_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        level = logging.DEBUG if issubclass(category, ResourceWarning) else logging.WARNING
        self._put(level, f"{category.__name__}: {message} ({filename}:{lineno})", None)

    def on_leftover(self, name: str) -> None:
        self._put(logging.DEBUG, f"a client that nobody closed was collected: {name}", None)

    def tell(self) -> None:
        while self._waiting:
            level, said, error = self._waiting.popleft()
            log.log(level, "%s", said, exc_info=error)
            if level >= logging.ERROR and self._show:
                # Disarmed meanwhile: a `show` that raises would be shown by itself, for ever.
                show, self._show = self._show, None
                show(_line(said, error))
                self._show = show

    def _put(self, level: int, said: str, error: BaseException | None) -> None:
        self._waiting.append((level, said, error))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.tell)


def _line(said: str, error: BaseException | None) -> str:
    what = said.partition("\n")[0]
    if error is not None:
        first = str(error).partition("\n")[0]
        what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"Something failed in the background: {what[:LONGEST]} (the log has the details)"


@contextmanager
def guarding(show: Callable[[str], None]) -> Iterator[None]:
    """Until left, take what the running loop, finalisers, threads and warnings would print.

    `show(line)` is called on the loop, for every exception that nobody caught except the
    leftovers that `leftovers` names; the traceback goes to the log. What was installed
    before is put back at the end.
    """
    loop = asyncio.get_running_loop()
    guard = _Guard(loop, show)
    before = loop.get_exception_handler(), sys.unraisablehook, threading.excepthook, warnings.showwarning
    loop.set_exception_handler(guard.on_loop)
    sys.unraisablehook = guard.on_unraisable
    threading.excepthook = guard.on_thread
    warnings.showwarning = guard.on_warning
    try:
        with leftovers.naming(guard.on_leftover):
            yield
    finally:
        loop.set_exception_handler(before[0])
        _, sys.unraisablehook, threading.excepthook, warnings.showwarning = before
        guard.tell()
