"""Who holds the loop's thread, and for how long: named while it does. It stops nobody."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from types import FrameType, TracebackType
from typing import Protocol, TypeAlias

log = logging.getLogger(__name__)

LIMIT = 0.25
"""Seconds for which one step may hold the loop."""
_FRAMES = 4
_OURS = "alipes.hooks."


class Deed(Protocol):
    """Something that runs on the loop's thread; its `str` is how it is named."""

    def blocked(self, seconds: float) -> None:
        """It held the loop too long, and is over now. Called on the loop's thread."""
        ...


Before: TypeAlias = tuple[Deed | None, float]


def _nobody() -> None:
    return None


class Watch:
    """What the loop's thread does right now: that thread writes it, the watchdog's reads it.

    Plain assignments, because this is done for every call of a plugin. Of deeds inside one another the
    innermost is meant, and its time does not count for those around it.
    """

    __slots__ = ("asleep", "began", "clock", "deed", "limit", "wake")

    def __init__(self, limit: float = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self.clock = limit, clock
        self.deed: Deed | None = None
        self.began = 0.0
        self.asleep = False
        """The watchdog sleeps, and wants `wake` to be called."""
        self.wake: Callable[[], None] = _nobody

    def begin(self, deed: Deed | None) -> Before:
        """From now on it is `deed`; None: the house itself. Give what this returns to `end`."""
        before = self.deed, self.began
        if self.asleep:
            self.wake()  # the first time this starts a thread, and that time is nobody's
        self.began = self.clock()  # before the deed: a new one is never seen with an old time
        self.deed = deed
        if self.asleep:  # it was quick to fall asleep again
            self.wake()
        return before

    def end(self, before: Before) -> float:
        """It is over; the seconds it took. One that took too long is told so."""
        deed, took = self.deed, self.clock() - self.began
        self.deed = before[0]
        if self.deed is not None:
            self.began = before[1] + took
        if took > self.limit and deed is not None:
            log.warning("%s blocked the loop for %.2f s", deed, took)
            deed.blocked(took)
        return took


LOOP = Watch()
"""Of this process's one loop."""


class Watchdog:
    """Looks at a `Watch` from a thread of its own, and names who blocks while it blocks.

    The thread begins with the first deed. It looks when that may have lasted too long, and again as
    long as there are others; when there were none it sleeps until it is woken, and never by itself.
    """

    def __init__(self, watch: Watch = LOOP) -> None:
        self._watch = watch
        self._loop_thread = 0
        self._thread: futures.ThreadPoolExecutor | None = None
        self._woken = threading.Event()
        self._open = False

    async def __aenter__(self) -> "Watchdog":
        """Watch the thread that enters. Where another watchdog does already, that one goes on."""
        if self._watch.wake is _nobody:
            self._loop_thread, self._open = threading.get_ident(), True
            self._watch.wake, self._watch.asleep = self._wake, True
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        self._watch.wake, self._watch.asleep = _nobody, False
        self._woken.set()
        if self._thread is not None:
            self._thread.shutdown()

    def _wake(self) -> None:
        self._watch.asleep = False
        self._woken.set()
        if self._thread is None:
            self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="watchdog")
            self._thread.submit(self._run).add_done_callback(_over)

    def _run(self) -> None:
        watch, last, named = self._watch, -1.0, -1.0
        while self._open:
            self._woken.clear()
            deed, began = watch.deed, watch.began
            pause = watch.limit
            if deed is None and began == last:
                self._sleep(began)
                continue
            if deed is not None and began != named:
                pause = began + watch.limit - watch.clock()
                if pause <= 0:
                    self._name(deed, began)
                    named, pause = began, watch.limit
            last = began
            self._woken.wait(pause)

    def _sleep(self, began: float) -> None:
        watch = self._watch
        watch.asleep = True
        # Looked at once more after saying so: a deed that began in between woke nobody.
        if watch.deed is None and watch.began == began and self._open:
            self._woken.wait()
        watch.asleep = False

    def _name(self, deed: Deed, began: float) -> None:
        where = _where(sys._current_frames().get(self._loop_thread))
        if self._watch.deed is deed and self._watch.began == began:
            so_far = self._watch.clock() - began
            log.warning("%s has been blocking the loop for %.2f s; it stands at %s", deed, so_far, where)


def _where(frame: FrameType | None) -> str:
    """The innermost frames, down to those that are the relay's."""
    told: list[str] = []
    while frame is not None and len(told) < _FRAMES:
        if told and str(frame.f_globals.get("__name__")).startswith(_OURS):
            break
        told.append(f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})")
        frame = frame.f_back
    return ", called from ".join(told)


def _over(run: "futures.Future[None]") -> None:
    if (error := run.exception()) is not None:
        log.error("the watchdog died", exc_info=error)
