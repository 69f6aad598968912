"""What the operator decided about chats, as the gateway is given it. Values; nothing here reads a file."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Literal

from msgspec import Struct

from alipes.kernel.turns import Busy
from alipes.store.people import Progress, Role


class Counts:
    """Read them whenever you like; they only grow."""

    def __init__(self) -> None:
        self.arrived: Counter[str] = Counter()
        """By platform, what came in, second copies included."""
        self.strangers: Counter[str] = Counter()
        """By platform, what was said by people who may not."""
        self.sent: Counter[str] = Counter()
        """By platform, what was paid of what was owed."""
        self.uncertain: Counter[str] = Counter()
        self.postponed: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        """Turns that ended in chats, by ending."""
        self.stops: list[float] = []
        """Seconds from each of the last stops in a chat to the end of the turn."""

    def stopped(self, seconds: float) -> None:
        self.stops = [*self.stops[-999:], seconds]


class Group:
    """A task group that others were given; before it is open and while it ends, nothing is begun."""

    def __init__(self) -> None:
        self._tasks: asyncio.TaskGroup | None = None

    def open(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    @property
    def is_open(self) -> bool:
        return self._tasks is not None

    def start(self, work: Coroutine[None, None, None], name: str) -> bool:
        """False: it was not begun."""
        if self._tasks is not None:
            try:
                # whoever happens to begin it, it is not done in their turn's or plugin's name
                self._tasks.create_task(work, name=name, context=Context())
            except RuntimeError:  # how a group says that it is ending
                self._tasks = None
            else:
                return True
        work.close()
        return False


class Manners(Struct, frozen=True):
    """How one platform is served."""

    allow: tuple[str, ...] = ()
    """Ids of people who may speak; `*`: everyone. Nobody else may, but those who were paired."""
    owners: tuple[str, ...] = ()
    """Ids of those who may let others in; if none is named, the people of `allow` may."""
    busy: Busy = "interrupt"
    """What a message does that finds a turn at work, unless the conversation has a mode of its own."""
    progress: Progress = "short"
    """How much of its tools a chat is shown, unless it chose otherwise."""
    group: Literal["mention", "all"] = "mention"
    """What is listened to in a group."""
    knows: Callable[[str], Role | None] = lambda _person: None
    """Whom the platform itself lets speak, asked each time; as owners only where none is named."""


class Rules(Struct, frozen=True):
    """How the gateway goes about its work."""

    manners: dict[str, Manners] = {}
    """By platform."""
    pairing: bool = True
    """Strangers who write to us are shown a code, by which they can be let in; else they hear nothing."""
    expiry: float = 12 * 3600.0
    """Seconds after which something that could not be sent is not sent any more."""
    tries: int = 8
    """How often the same thing is tried, where it is not the whole platform that fails."""
    deaf: float = 0.0
    """Seconds without a sign of life after which a platform is started anew; zero: it sees to that itself."""
    burst: float = 0.7
    """Seconds within which pictures that follow one another are one message."""
    edits: float = 20.0
    """Changes of unfinished messages per second that one platform bears, over all chats."""
    first: float = 1.0
    """Seconds after which an answer is shown though it is unfinished; a quick one comes whole."""
    linger: float = 120.0
    """Seconds that a chat is watched after its last turn."""
    poll: float = 1.0
    """Seconds between two looks for what other processes owe."""
    menus: float = 5.0
    """Seconds between two looks whether plugins changed our commands."""
    workdir: str = ""
    """Where tools work for what is said in chats."""
    outgoing: str = ""
    """The folder where files are made that are sent; empty: none are."""

    def of(self, platform: str) -> Manners:
        return self.manners.get(platform, _NOBODY)


_NOBODY = Manners()


class Pace:
    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._apart, self._clock = 1.0 / per_second, clock
        self._next = 0.0

    def reserve(self) -> float:
        """Seconds until the moment that is given out by this."""
        now = self._clock()
        mine = max(now, self._next)
        self._next = mine + self._apart
        return mine - now

    def spare(self) -> bool:
        """Is this a moment that nobody else was given? Then it is ours."""
        if self._next > self._clock():
            return False
        self.reserve()
        return True
