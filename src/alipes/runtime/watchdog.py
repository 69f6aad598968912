"""Watchdog of the event loop: names a call that blocks it, and interrupts plugin code that does."""

import _thread
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from itertools import dropwhile
from types import CodeType, FrameType
from typing import Any, Protocol, TypeAlias, TypeVar

SignalHandler: TypeAlias = Callable[[int, FrameType | None], None]
"""Called on the loop's thread at any point; an exception it raises is raised there."""


class _InterruptSignal(int):
    at_once = property(_thread.interrupt_main)
    """Reading this interrupts the thread before its next step (a call would be a step itself)."""


INTERRUPT_SIGNAL = _InterruptSignal(getattr(signal, "SIGURG", 0))
"""Has no effect by default, so a late one is harmless."""
CPU_TIME_SIGNAL = getattr(signal, "SIGVTALRM", 0)
CPU_SECONDS = 0.5
"""CPU seconds without a check: code that never releases the GIL can only be noticed by the kernel."""


class LoopThreadSignals:
    """Sends signals to the loop's thread. Works only if that is the main thread, and not on Windows."""

    def __init__(self, handler: SignalHandler) -> None:
        self._handler = handler
        self._thread = 0
        self._before: dict[int, Any] = {}

    def open(self) -> None:
        """Install the handlers for the calling thread."""
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill"):
            self._thread = threading.get_ident()
            self._before = {each: signal.signal(each, self._handler) for each in (INTERRUPT_SIGNAL, CPU_TIME_SIGNAL)}

    def close(self) -> None:
        if not self._thread:
            return
        self.rest()
        self._thread = 0
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        signal.siginterrupt(INTERRUPT_SIGNAL, False)  # as asyncio sets it, which may have done so before us

    def interrupt(self) -> None:
        """Interrupt the loop's thread, also inside a system call. Callable from any thread."""
        if self._thread:
            signal.pthread_kill(self._thread, INTERRUPT_SIGNAL)

    def restart_cpu_timer(self) -> None:
        """Restart the CPU timer, which signals the thread after `CPU_SECONDS` of work."""
        if self._thread:
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS, CPU_SECONDS)

    def rest(self) -> None:
        if self._thread:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


F = TypeVar("F", bound=Callable[..., Any])
_BOUNDARIES: set[CodeType] = set()
_FRAMES = 4
_OWN_PACKAGE = "alipes"
_DELICATE_MODULES = ("logging", "importlib", "_frozen_importlib", "_frozen_importlib_external")
"""Interrupted in the middle, these would leave a lock held or a module half imported."""
_DEBUGGERS = frozenset(("bdb", "pdb", "IPython", "pydevd", "_pydevd_bundle", "debugpy"))
"""A stop inside these is a person debugging."""


def plugin_boundary(function: F) -> F:
    """Decorator: marks the function that calls into plugin code; frames above it belong to the plugin."""
    _BOUNDARIES.add(function.__code__)
    return function


def is_interruptible(frame: FrameType | None, *, patiently: bool) -> bool:
    """True if the code at `frame` may be interrupted: plugin code and what it calls, but never our own code,
    even if the plugin called it. `patiently`: delicate code is not interrupted either."""
    names: list[str] = []
    while frame is not None and frame.f_code not in _BOUNDARIES:
        names.append(_package(frame))
        frame = frame.f_back
    if frame is None or not names:
        return False
    # Above the boundary there may be our own adapter frames; everything after them is the plugin's.
    theirs = list(dropwhile(_OWN_PACKAGE.__eq__, reversed(names)))
    if not theirs or _OWN_PACKAGE in theirs or not _DEBUGGERS.isdisjoint(theirs):
        return False
    return not (patiently and (names[0] == "asyncio" or any(name in _DELICATE_MODULES for name in theirs)))


def format_stack(frame: FrameType | None) -> str:
    """The innermost frames, up to the first of our own."""
    lines: list[str] = []
    while frame is not None and len(lines) < _FRAMES and (not lines or _package(frame) != _OWN_PACKAGE):
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})")
        frame = frame.f_back
    return ", called from ".join(lines)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


log = logging.getLogger(__name__)

MAX_BLOCK_S = 0.25
"""Seconds that one step may block the loop."""
INTERRUPT_SHARE = 0.7
"""Share of the limit after which a hook is interrupted, so that the loop is free within the limit."""
DELICATE_CODE_S = 5.0
"""Seconds allowed for delicate code: an import, a log write."""
MAX_SWALLOWED = 1
"""Interruptions that a call may swallow; after that it is interrupted at every step."""
_CHECKS_PER_LIMIT = 3
"""Checks within the time after which a hook is interrupted."""
_MAX_RETRY_PAUSE_S = 1.0
"""Seconds between attempts to interrupt code that cannot be interrupted yet."""


class LoopBlockInterrupted(BaseException):
    """Raised in a call that blocks the loop. Not an `Exception`, so that plugins do not swallow it."""

    def __init__(self, seconds: float, place: str) -> None:
        super().__init__(f"blocked the event loop for {seconds:.2f} s; interrupted at {place}")


class TrackedCall(Protocol):
    """A call that runs on the loop's thread; `str` gives its name."""

    @property
    def patience(self) -> float:
        """Seconds after which it is interrupted; infinite: never."""
        ...

    def blocked(self, seconds: float) -> None:
        """Called on the loop's thread after the call has blocked it too long and returned."""
        ...

    def interrupted(self, seconds: float) -> None:
        """The same for a call that was interrupted, even if it swallowed the interruption."""
        ...


PreviousCall: TypeAlias = tuple[TrackedCall | None, float]


def _do_nothing() -> None:
    return None


class LoopActivity:
    """What the loop's thread is doing: written by that thread, read by the watchdog's.

    Plain assignments, because this happens for every plugin call. For nested calls the innermost counts,
    and its time is not added to the outer ones.
    """

    __slots__ = ("asleep", "began", "clock", "deed", "hit", "limit", "patience", "wake")

    def __init__(self, limit: float = MAX_BLOCK_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self.clock = limit, clock
        self.patience = limit * INTERRUPT_SHARE
        """Seconds after which a hook is interrupted."""
        self.deed: TrackedCall | None = None
        self.began = 0.0
        self.hit: TrackedCall | None = None
        """The call that was interrupted, until it returns."""
        self.asleep = False
        """True while the watchdog sleeps and `wake` must be called."""
        self.wake: Callable[[], None] = _do_nothing

    def begin(self, deed: TrackedCall | None) -> PreviousCall:
        """Start tracking `deed`; None: our own code. Pass the returned value to `end`."""
        before = self.deed, self.began
        if self.asleep:
            self.wake()  # the first call starts a thread; that time is not counted
        self.began = self.clock()  # before the call: a new call is never seen with an old time
        self.deed = deed
        if self.asleep:  # it may have gone to sleep again
            self.wake()
        return before

    def end(self, before: PreviousCall) -> float:
        """Stop tracking. Returns the seconds it took; notifies a call that took too long."""
        deed, took = self.deed, self.clock() - self.began
        self.deed = before[0]
        if self.deed is not None:
            self.began = before[1] + took
        if deed is not None and (took > self.limit or deed is self.hit):
            self._notify(deed, took)
        return took

    def _notify(self, deed: TrackedCall, took: float) -> None:
        if deed is not self.hit:
            log.warning("%s blocked the event loop for %.2f s", deed, took)
            deed.blocked(took)
            return
        self.hit = None
        log.warning("%s blocked the event loop for %.2f s and was interrupted", deed, took)
        deed.interrupted(took)


LOOP_ACTIVITY = LoopActivity()


class _Observation:
    """What the watchdog has seen of one call so far."""

    def __init__(self, deed: TrackedCall, began: float) -> None:
        self.deed, self.began, self._looked = deed, began, began
        self.held, self.named, self.tries = 0.0, False, 0

    def look(self, now: float, step: float) -> None:
        """Count at most a little more than one step per check: the whole process may have been paused."""
        self.held += min(now - self._looked, step * 1.5)
        self._looked = now


class Watchdog:
    """Checks a `LoopActivity` from its own thread; names and interrupts a call that blocks the loop.

    The thread starts with the first call. It checks while calls are running and sleeps until woken when
    there are none.
    """

    def __init__(self, watch: LoopActivity = LOOP_ACTIVITY) -> None:
        self._watch = watch
        self._loop_thread = 0
        self._thread: futures.ThreadPoolExecutor | None = None
        self._woken = threading.Event()
        self._open = False
        self._reach = LoopThreadSignals(self._handle_signal)
        self._aim: tuple[TrackedCall, float] | None = None
        """The call for which the thread was last interrupted."""
        self._kept = 0

    async def __aenter__(self) -> "Watchdog":
        """Watch the thread that enters, unless another watchdog already does."""
        if self._watch.wake is _do_nothing:
            self._loop_thread, self._open = threading.get_ident(), True
            self._watch.wake, self._watch.asleep = self._wake, True
            self._reach.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        if not self._open:
            return
        self._open = False
        self._watch.wake, self._watch.asleep = _do_nothing, False
        self._woken.set()
        if self._thread is not None:
            self._thread.shutdown()
        self._reach.close()

    def _wake(self) -> None:
        self._watch.asleep = False
        self._reach.restart_cpu_timer()
        self._woken.set()
        if self._thread is None:
            self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="watchdog")
            self._thread.submit(self._run).add_done_callback(_log_watchdog_death)

    def _run(self) -> None:
        watch, last, sight = self._watch, -1.0, None
        while self._open:
            self._woken.clear()
            deed, began = watch.deed, watch.began
            if deed is None and began == last:
                self._sleep(began)
                continue
            self._reach.restart_cpu_timer()
            last, pause = began, watch.patience / _CHECKS_PER_LIMIT
            if deed is not None:
                if sight is None or sight.deed is not deed or sight.began != began:
                    sight = _Observation(deed, began)
                pause = self._look(sight, pause)
            self._woken.wait(pause)

    def _look(self, sight: _Observation, step: float) -> float:
        """Check a running call. Returns the seconds until the next check."""
        watch, now = self._watch, self._watch.clock()
        sight.look(now, step)
        left = sight.deed.patience - sight.held
        if left <= 0:
            sight.tries += 1
            left = step = min(step * sight.tries / 2, _MAX_RETRY_PAUSE_S)
            self._aim = sight.deed, sight.began
            self._reach.interrupt()
        if not sight.named and (until := sight.began + watch.limit - now) <= 0:
            sight.named = True
            self._name(sight.deed, sight.began)
        elif not sight.named:
            step = min(step, until)
        return min(left, step)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        """On the loop's thread: interrupt the call if it is still the intended one and plugin code."""
        watch, aim = self._watch, self._aim
        deed, held = watch.deed, watch.clock() - watch.began
        if deed is None or held < deed.patience:
            return
        if number == INTERRUPT_SIGNAL and (aim is None or aim[0] is not deed or aim[1] != watch.began):
            return
        if not is_interruptible(frame, patiently=held < DELICATE_CODE_S):
            return
        self._kept = self._kept + 1 if watch.hit is deed else 0
        watch.hit, self._aim = deed, (deed, watch.began)
        error = LoopBlockInterrupted(held, format_stack(frame))
        if self._kept >= MAX_SWALLOWED:
            _ = INTERRUPT_SIGNAL.at_once  # must be the last statement: any call would be interrupted instead
        raise error

    def _sleep(self, began: float) -> None:
        watch = self._watch
        self._reach.rest()
        watch.asleep = True
        # Check again after setting `asleep`: a call that started in between woke nobody.
        if watch.deed is None and watch.began == began and self._open:
            self._woken.wait()
        watch.asleep = False

    def _name(self, deed: TrackedCall, began: float) -> None:
        place = format_stack(sys._current_frames().get(self._loop_thread))
        if self._watch.deed is deed and self._watch.began == began:
            so_far = self._watch.clock() - began
            log.warning("%s has been blocking the event loop for %.2f s, at %s", deed, so_far, place)


def _log_watchdog_death(run: "futures.Future[None]") -> None:
    if (error := run.exception()) is not None:
        log.error("the watchdog thread failed", exc_info=error)
