"""Settings of the gateway, its counters, and small parts that its modules share. Nothing here does I/O."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Literal

from msgspec import Struct

from alipes.kernel.turns import BusyMode
from alipes.store.sql.people import PersonRole, Progress


class GatewayCounters:
    """Counters for /metrics. Except for `stops` they are per platform and only grow."""

    def __init__(self) -> None:
        self.arrived: Counter[str] = Counter()
        """Incoming messages, including second copies."""
        self.strangers: Counter[str] = Counter()
        """Messages of people without access."""
        self.sent: Counter[str] = Counter()
        self.uncertain: Counter[str] = Counter()
        self.postponed: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        """Finished chat turns, by ending."""
        self.stops: deque[float] = deque(maxlen=1000)
        """Seconds from /stop to the end of the turn, for the last thousand stops."""


class LateTaskGroup:
    """A task group that is opened later. It starts nothing before it is open or while it ends."""

    def __init__(self) -> None:
        self._tasks: asyncio.TaskGroup | None = None

    def open(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    @property
    def is_open(self) -> bool:
        return self._tasks is not None

    def start(self, work: Coroutine[None, None, None], name: str) -> bool:
        """Start a task. Returns False, and closes `work`, if the group is not open."""
        if self._tasks is not None:
            try:
                # an empty context: the work is not attributed to the turn or plugin that happens to start it
                self._tasks.create_task(work, name=name, context=Context())
            except RuntimeError:  # raised by a group that is ending
                self._tasks = None
            else:
                return True
        work.close()
        return False


class PlatformPolicy(Struct, frozen=True):
    """How one platform is served."""

    allow: tuple[str, ...] = ()
    """Ids of people with access; `*`: everyone. Paired people have access as well."""
    owners: tuple[str, ...] = ()
    """Ids of people who may pair others; if empty, the people in `allow` may."""
    busy: BusyMode | None = None
    """What a message does while a turn is running, unless the conversation has its own mode; None: as the platform
    asks for, else it is steered into the turn."""
    progress: Progress = "short"
    """How much tool progress a chat shows, unless it chose otherwise."""
    group: Literal["mention", "all"] = "mention"
    """Which messages of a group are for us."""
    wanted_busy: Callable[[], BusyMode | None] = lambda: None
    """The mode that the platform itself asks for."""
    known_role: Callable[[str], PersonRole | None] = lambda _person: None
    """Role that the platform itself gives a person. "owner" counts only if `owners` is empty."""

    @property
    def usual_busy(self) -> BusyMode:
        return self.busy or self.wanted_busy() or "steer"


class GatewayPolicy(Struct, frozen=True):
    """Settings of the gateway. All times are in seconds."""

    platforms: dict[str, PlatformPolicy] = {}
    """By platform name."""
    pairing: bool = True
    """Send strangers a pairing code; otherwise they get no answer."""
    expiry: float = 12 * 3600.0
    """Age after which an undelivered message is dropped."""
    max_attempts: int = 8
    """Attempts per message, not counting outages of a whole platform."""
    silence_timeout: float = 0.0
    """Restart a platform that reports nothing for this long; zero: it restarts itself."""
    batch_window: float = 0.7
    """Pictures that follow each other within this time are one message."""
    edits_per_second: float = 20.0
    """Draft edits per platform, over all chats."""
    draft_delay: float = 1.0
    """Wait before an unfinished answer is shown; a quick answer arrives in one piece."""
    view_idle: float = 120.0
    """How long a chat is watched after its last turn."""
    poll_interval: float = 1.0
    """Time between two looks at the outbox for messages of other processes."""
    menu_interval: float = 5.0
    """Time between two checks whether plugins changed the commands."""
    page_address: str = ""
    """Where browsers reach the page, for links in chats; empty: there are none."""
    workdir: str = ""
    """Working directory of tools in chats."""
    outgoing: str = ""
    """Folder for files that are generated to be sent; empty: none are generated."""
    files: str = ""
    """Folder with a folder for each messenger, for its state."""

    def for_platform(self, name: str) -> PlatformPolicy:
        return self.platforms.get(name, _NO_ACCESS)


_NO_ACCESS = PlatformPolicy()


class EditRateLimiter:
    """Spaces out the edits of one platform."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._interval, self._clock = 1.0 / per_second, clock
        self._next = 0.0

    def reserve(self) -> float:
        """Reserve the next free slot and return the seconds until it."""
        now = self._clock()
        slot = max(now, self._next)
        self._next = slot + self._interval
        return slot - now

    def try_reserve(self) -> bool:
        """Reserve a slot only if one is free now."""
        if self._next > self._clock():
            return False
        self.reserve()
        return True
