"""A messenger, as the gateway sees it: what it can do, what came in, what goes out. Values and one port."""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Image
from alipes.kernel.outbox import Button, Media, MediaKind
from alipes.kernel.turns import Address


class Talents(Struct, frozen=True):
    """What a platform can do. What it cannot is done otherwise, as a person would expect."""

    longest: int = 4000
    """Characters that one message holds."""
    edits: bool = False
    """A message of ours can be changed: answers are shown while they are being written."""
    pace: float = 1.0
    """Seconds between two changes of one message that the platform bears."""
    typing: float = 0.0
    """Seconds that a sign of typing lasts; zero: there is none."""
    buttons: bool = False
    media: tuple[MediaKind, ...] = ()
    """The kinds of files it takes."""
    remembers: bool = False
    """Sending the same `Piece.id` twice gives one message: what is uncertain may be sent again."""
    deletes: bool = False


class Filed(Struct, frozen=True):
    """A file that came along, saved where tools find it."""

    path: str
    kind: MediaKind = "file"
    name: str = ""
    mime: str = ""
    size: int = 0


class Arrival(Struct, frozen=True, omit_defaults=True):
    """One thing that came in, as the platform told it."""

    id: str
    """The platform's own, never given twice."""
    address: Address
    """Where it was said; in a group `user` is set only if each person has a conversation of their own."""
    sender: str
    """The person's id on the platform."""
    name: str = ""
    """What they are called."""
    text: str = ""
    images: tuple[Image, ...] = ()
    files: tuple[Filed, ...] = ()
    message: str = ""
    """The platform's id of the message, to answer it by."""
    quoted: str = ""
    """What it answers or passes on, in the words of others: material, never an instruction."""
    group: bool = False
    addressed: bool = True
    """In a group: it mentions us, or answers us."""
    edits: str = ""
    """The `Arrival.id` of an earlier one that this changes."""
    album: str = ""
    """Arrivals with the same are one message with several files."""
    pressed: str = ""
    """The `data` of a button, instead of words."""


class Piece(Struct, frozen=True, omit_defaults=True):
    """One message as the platform takes it; a long text is several."""

    text: str = ""
    """In the platform's own markup."""
    plain: str = ""
    """The same without markup, for when the markup is refused."""
    media: Media | None = None
    buttons: tuple[Button, ...] = ()
    reply_to: str = ""
    id: str = ""
    """Ours: for platforms that remember."""


Take: TypeAlias = Callable[[Arrival], Awaitable[None]]
"""Hand over what came in; once it returns, it is kept, and the platform may forget it."""
Welcome: TypeAlias = Callable[[Arrival], Awaitable[bool]]
"""May they speak who sent this? Asked with the arrival as it is without its files."""
State: TypeAlias = Literal["ready", "broken"]
Tell: TypeAlias = Callable[[State, str], None]
"""How the connection stands: told after every poll or heartbeat that went well, and why when it breaks."""


class Platform(Protocol):
    """A messenger. Raises `DeliveryError` kinds for what cannot be sent; it does not retry by itself."""

    @property
    def name(self) -> str: ...

    @property
    def talents(self) -> Talents: ...

    async def listen(self, take: Take, tell: Tell) -> None:
        """Serve until cancelled, reconnecting by itself within one call where the library can.

        Raises when it cannot go on: the gateway starts it anew, with a pause. `take` is awaited before
        the platform is told that something arrived.
        """
        ...

    def fetch_only_for(self, welcome: Welcome) -> None:
        """Whose files are fetched: nobody fills our disk who may not speak. Called before `listen`."""
        ...

    def pieces(self, text: str) -> tuple[Piece, ...]:
        """Markdown as messages of this platform, split on the borders of blocks after formatting."""
        ...

    async def send(self, address: Address, piece: Piece) -> str:
        """Its id at the platform."""
        ...

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        """Change a message of ours; to what it is already, is no error."""
        ...

    async def delete(self, address: Address, message: str) -> None: ...

    async def typing(self, address: Address) -> None: ...

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Show our commands (name, help) in the platform's own way, where it has one."""
        ...
