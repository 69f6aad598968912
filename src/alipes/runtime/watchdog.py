"""Who holds the loop's thread, and for how long: named while it does; a plugin that does is interrupted."""

import _thread
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from itertools import dropwhile
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol, TypeAlias, TypeVar

Heed: TypeAlias = Callable[[int, FrameType | None], None]
"""Called on the loop's thread, in the midst of whatever it does; what this raises is raised there."""


class _Signal(int):
    at_once = property(_thread.interrupt_main)
    """Looked at: it comes before the thread's next step. No call, because a call is a step."""


KNOCK = _Signal(getattr(signal, "SIGURG", 0))
"""By itself it does nothing: one that comes late harms nobody."""
STARVED = getattr(signal, "SIGVTALRM", 0)
CPU = 0.5
"""Seconds of work without a look: what works so hard lets no thread run, and only the kernel can tell."""


class Reach:
    """Signals are heeded by the main thread alone: for a loop on another, or on Windows, there is no way."""

    def __init__(self, heed: Heed) -> None:
        self._heed = heed
        self._thread = 0
        self._before: dict[int, Any] = {}

    def open(self) -> None:
        """Of the thread that calls this."""
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_kill"):
            self._thread = threading.get_ident()
            self._before = {each: signal.signal(each, self._heed) for each in (KNOCK, STARVED)}

    def close(self) -> None:
        if not self._thread:
            return
        self.rest()
        self._thread = 0
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        signal.siginterrupt(KNOCK, False)  # so asyncio wants it, which may have been before us

    def knock(self) -> None:
        """From any thread. It ends the waiting in system calls, too: Python asks there for signals first."""
        if self._thread:
            signal.pthread_kill(self._thread, KNOCK)

    def looked(self) -> None:
        """Unless this is called again, the thread is told when all of us have worked for a while."""
        if self._thread:
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU, CPU)

    def rest(self) -> None:
        """There will be no looks for a time."""
        if self._thread:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


F = TypeVar("F", bound=Callable[..., Any])
_EDGES: set[CodeType] = set()
_FRAMES = 4
_HOUSE = "alipes"
_DELICATE = ("logging", "importlib", "_frozen_importlib", "_frozen_importlib_external")
"""Broken off in the middle, these leave behind a lock that nobody opens, or half a module."""
_DEBUGGERS = frozenset(("bdb", "pdb", "IPython", "pydevd", "_pydevd_bundle", "debugpy"))
"""Who stands there waits for a person."""


def edge(function: F) -> F:
    """Say of a function that it begins and ends a deed: what it calls meanwhile is the plugin's."""
    _EDGES.add(function.__code__)
    return function


def in_plugin(frame: FrameType | None, *, patiently: bool) -> bool:
    """May what stands at `frame` be broken off there? Only the plugin's own code, and what that calls; never
    the house's, also where the plugin called it. `patiently`: what is delicate, neither."""
    names: list[str] = []
    while frame is not None and frame.f_code not in _EDGES:
        names.append(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back
    if frame is None or not names:
        return False
    # Beyond the edge there may be a door of ours, which translates; then all is the plugin's.
    theirs = list(dropwhile(_HOUSE.__eq__, reversed(names)))
    if not theirs or _HOUSE in theirs or not _DEBUGGERS.isdisjoint(theirs):
        return False
    return not (patiently and (names[0] == "asyncio" or any(name in _DELICATE for name in theirs)))


def where(frame: FrameType | None) -> str:
    """The innermost frames, down to the first that is the house's."""
    return ", called from ".join(_told(frame))


def _told(frame: FrameType | None) -> Iterator[str]:
    for n in range(_FRAMES):
        if frame is None or (n and str(frame.f_globals.get("__name__")).partition(".")[0] == _HOUSE):
            return
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back


log = logging.getLogger(__name__)

LIMIT = 0.25
"""Seconds for which one step may hold the loop."""
SHARE = 0.7
"""Of the limit: then a hook is interrupted, so that nobody waits for the loop longer than the limit."""
DELICATE = 5.0
"""Seconds for what is better not broken off in the middle: an import, a line on its way to the log."""
STUBBORN = 1
"""Interruptions that a deed may keep to itself; from the next on there is one at each of its steps."""
_LOOKS = 3
"""In the time after which a hook is interrupted."""
_LONGEST = 1.0
"""Seconds between two tries at what cannot be interrupted."""


class Interrupted(BaseException):
    """Raised in a deed that holds the loop. No `Exception`: who catches those must not keep this one."""

    def __init__(self, seconds: float, place: str) -> None:
        super().__init__(f"held everybody up for {seconds:.2f} s, and was interrupted at {place}")


class Deed(Protocol):
    """Something that runs on the loop's thread; its `str` is how it is named."""

    @property
    def patience(self) -> float:
        """Seconds after which it is interrupted; infinite: never."""
        ...

    def blocked(self, seconds: float) -> None:
        """It held the loop too long, and is over now. Called on the loop's thread."""
        ...

    def interrupted(self, seconds: float) -> None:
        """The same of one that was interrupted, also if it kept that to itself."""
        ...


Before: TypeAlias = tuple[Deed | None, float]


def _nobody() -> None:
    return None


class Watch:
    """What the loop's thread does right now: that thread writes it, the watchdog's reads it.

    Plain assignments, because this is done for every call of a plugin. Of deeds inside one another the
    innermost is meant, and its time does not count for those around it.
    """

    __slots__ = ("asleep", "began", "clock", "deed", "hit", "limit", "patience", "wake")

    def __init__(self, limit: float = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self.clock = limit, clock
        self.patience = limit * SHARE
        """Seconds after which a hook is interrupted."""
        self.deed: Deed | None = None
        self.began = 0.0
        self.hit: Deed | None = None
        """The deed that was interrupted, until it is over."""
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
        if deed is not None and (took > self.limit or deed is self.hit):
            self._tell(deed, took)
        return took

    def _tell(self, deed: Deed, took: float) -> None:
        if deed is not self.hit:
            log.warning("%s blocked the loop for %.2f s", deed, took)
            deed.blocked(took)
            return
        self.hit = None
        log.warning("%s blocked the loop for %.2f s, and was interrupted", deed, took)
        deed.interrupted(took)


LOOP = Watch()
"""Of this process's one loop."""


class _Sight:
    """A deed as the watchdog has seen it so far."""

    def __init__(self, deed: Deed, began: float) -> None:
        self.deed, self.began = deed, began
        self.held = 0.0
        self.named = False
        self.tries = 0
        self._looked = began

    def look(self, now: float, step: float) -> None:
        """Of the time since the last look only so much counts as is usual: perhaps all of us stood still."""
        self.held += min(now - self._looked, step * 1.5)
        self._looked = now


class Watchdog:
    """Looks at a `Watch` from a thread of its own, names who blocks while it blocks, and interrupts it.

    The thread begins with the first deed. It looks when that may have lasted too long, and again as
    long as there are others; when there were none it sleeps until it is woken, and never by itself.
    """

    def __init__(self, watch: Watch = LOOP) -> None:
        self._watch = watch
        self._loop_thread = 0
        self._thread: futures.ThreadPoolExecutor | None = None
        self._woken = threading.Event()
        self._open = False
        self._reach = Reach(self._heed)
        self._aim: tuple[Deed, float] | None = None
        """The one deed for which the thread was last knocked at."""
        self._kept = 0

    async def __aenter__(self) -> "Watchdog":
        """Watch the thread that enters. Where another watchdog does already, that one goes on."""
        if self._watch.wake is _nobody:
            self._loop_thread, self._open = threading.get_ident(), True
            self._watch.wake, self._watch.asleep = self._wake, True
            self._reach.open()
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
        self._reach.close()

    def _wake(self) -> None:
        self._watch.asleep = False
        self._reach.looked()
        self._woken.set()
        if self._thread is None:
            self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="watchdog")
            self._thread.submit(self._run).add_done_callback(_over)

    def _run(self) -> None:
        watch, last, sight = self._watch, -1.0, None
        while self._open:
            self._woken.clear()
            deed, began = watch.deed, watch.began
            if deed is None and began == last:
                self._sleep(began)
                continue
            self._reach.looked()
            last, pause = began, watch.patience / _LOOKS
            if deed is not None:
                if sight is None or sight.deed is not deed or sight.began != began:
                    sight = _Sight(deed, began)
                pause = self._look(sight, pause)
            self._woken.wait(pause)

    def _look(self, sight: _Sight, step: float) -> float:
        """At a deed that goes on; seconds until the next look."""
        watch, now = self._watch, self._watch.clock()
        sight.look(now, step)
        left = sight.deed.patience - sight.held
        if left <= 0:
            sight.tries += 1
            left = step = min(step * sight.tries / 2, _LONGEST)
            self._aim = sight.deed, sight.began
            self._reach.knock()
        if not sight.named and (until := sight.began + watch.limit - now) <= 0:
            sight.named = True
            self._name(sight.deed, sight.began)
        elif not sight.named:
            step = min(step, until)
        return min(left, step)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        """On the loop's thread: break off what it does, if that is still what was meant, and the plugin's."""
        watch, aim = self._watch, self._aim
        deed, held = watch.deed, watch.clock() - watch.began
        if deed is None or held < deed.patience:
            return
        if number == KNOCK and (aim is None or aim[0] is not deed or aim[1] != watch.began):
            return
        if not in_plugin(frame, patiently=held < DELICATE):
            return
        self._kept = self._kept + 1 if watch.hit is deed else 0
        watch.hit, self._aim = deed, (deed, watch.began)
        error = Interrupted(held, where(frame))
        if self._kept >= STUBBORN:
            _ = KNOCK.at_once  # last of all: a call would be the step before which it comes
        raise error

    def _sleep(self, began: float) -> None:
        watch = self._watch
        self._reach.rest()
        watch.asleep = True
        # Looked at once more after saying so: a deed that began in between woke nobody.
        if watch.deed is None and watch.began == began and self._open:
            self._woken.wait()
        watch.asleep = False

    def _name(self, deed: Deed, began: float) -> None:
        place = where(sys._current_frames().get(self._loop_thread))
        if self._watch.deed is deed and self._watch.began == began:
            so_far = self._watch.clock() - began
            log.warning("%s has been blocking the loop for %.2f s; it stands at %s", deed, so_far, place)


def _over(run: "futures.Future[None]") -> None:
    if (error := run.exception()) is not None:
        log.error("the watchdog died", exc_info=error)
