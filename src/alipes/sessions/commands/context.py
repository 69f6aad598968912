"""What a command is given and what it gives back. A front end builds the one and obeys the other."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from alipes.agent.compaction.compaction import Compaction
from alipes.kernel.turns import Busy, Inbound
from alipes.plugins.dispatch import Hooks
from alipes.plugins.loader import Plugins
from alipes.plugins.registry import Offers
from alipes.providers.registry import Backend, Choice
from alipes.sessions.sessions import Lobby
from alipes.store.store import Store


class Quit(Struct, frozen=True):
    """The person leaves."""


class Copy(Struct, frozen=True):
    """Put this where the person can paste it from."""

    text: str


class Show(Struct, frozen=True):
    """An older conversation goes on now: show what was said in it last."""

    session: str


class Document(Struct, frozen=True):
    """A file for the person, where we must not write one ourselves."""

    name: str
    text: str


Action: TypeAlias = Quit | Copy | Show | Document


class Reply(Struct, frozen=True):
    """What to show the person, and what else the front end has to do."""

    text: str = ""
    """Plain lines; may be empty."""
    trouble: bool = False
    """It was not done, and the text says why."""
    turns: tuple[str, ...] = ()
    """Accepted by the command, in order; `Lobby.follow` shows each."""
    action: Action | None = None


class Models(Protocol):
    async def open(self, name: str) -> Backend: ...

    def names(self) -> tuple[str, ...]: ...


class Context(Struct, frozen=True):
    inbound: Inbound
    """The command as it came: where from, by whom, in which folder. Its id makes a second copy harmless."""
    lobby: Lobby
    store: Store
    models: Models
    choice: Callable[[], Awaitable[Choice]]
    """The model that answers where none was chosen, and why."""
    background: Callable[[str], str] = lambda _session: ""
    """What a session has running between its turns, in a few words."""
    offers: Offers | None = None
    """What plugins offer, their commands among it."""
    hooks: Hooks | None = None
    plugins: Plugins | None = None
    deadline: float = 60.0
    """Seconds in which a command of a plugin must be done."""
    files: bool = True
    """The person works on this machine, so that files may be written for them."""
    usual: Busy | None = None
    """What a message does there that finds a turn at work, where nothing was chosen; None: the usual."""
    clock: Callable[[], float] = time.time
    compaction: Compaction | None = None
    """Who makes room in long conversations."""

    @property
    def key(self) -> str:
        return self.inbound.address.key
