"""What the operator decided about chats, as the gateway is given it. Values; nothing here reads a file."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from alipes.kernel.turns import Busy
from alipes.store.people import Progress, Role


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
