"""Outgoing messages and their delivery state: values and the outbox port."""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.turns import Address

MediaKind: TypeAlias = Literal["image", "audio", "voice", "video", "file"]
DeliveryState: TypeAlias = Literal["queued", "sending", "sent", "failed", "expired"]
"""`trying`: a send was started and its result is not known yet; after a crash it may or may not have arrived.
"""


class Media(Struct, frozen=True, omit_defaults=True):
    """A file to send along."""

    path: str
    kind: MediaKind = "file"
    name: str = ""
    caption: str = ""


class Button(Struct, frozen=True, omit_defaults=True):
    """A button; pressing it sends `data`."""

    label: str
    data: str


class Outbound(Struct, frozen=True, omit_defaults=True):
    """One message to a chat. Text is Markdown as the model wrote it; platforms convert it."""

    id: str
    """Enqueuing the same id twice has no effect."""
    address: Address
    text: str = ""
    reply_to: str = ""
    """The platform's own id of the message it replies to."""
    media: tuple[Media, ...] = ()
    buttons: tuple[Button, ...] = ()
    turn: str = ""
    """The turn that wrote it; the live preview of that turn becomes this message."""
    expires: float = 0.0
    """Not sent after this time (seconds since the epoch); zero: the default lifetime."""
    notice: bool = False
    """Written by alipes, not by the model; not sent once it is late."""
    fleeting: bool = False
    """Only valid while the process that enqueued it runs: a new process asks or announces it again."""

    @property
    def lane(self) -> str:
        """Messages of one lane are sent in order."""
        return lane(self.address)


def lane(address: Address) -> str:
    """The name of a chat, or of one thread in it."""
    names = (address.platform, address.chat, address.thread)
    return ":".join(name.replace("%", "%25").replace(":", "%3A") for name in names)


class Delivery(Struct, frozen=True):
    """An `Outbound` and the state of its delivery."""

    number: int
    outbound: Outbound
    created: float
    state: DeliveryState = "queued"
    attempts: int = 0
    due: float = 0.0
    """Do not try before this time."""
    paid: tuple[str, ...] = ()
    """The platform's ids of the parts sent so far: a long text is several messages."""
    uncertain: bool = False
    """It may have been sent twice: a send was interrupted before its result was known."""
    doubtful: bool = False
    """The next part may already have been delivered: it is sent once more, not a third time."""
    why: str = ""
    drafts: tuple[str, ...] = ()
    """Set once sending starts: the messages that showed the turn's live preview, oldest first."""


class Outbox(Protocol):
    """The outbox. Every method returns after its rows are on disk."""

    async def enqueue(self, *outbounds: Outbound) -> None:
        """Add one delivery for each new id. Messages of a turn are added by `record` instead."""
        ...

    async def lanes(self, platform: str) -> dict[str, float]:
        """The lanes of a platform with unsent messages, and when the first of each is due."""
        ...

    async def head(self, lane: str) -> Delivery | None:
        """The oldest unsent delivery of the lane."""
        ...

    async def take(self, lane: str, ready: Callable[[Delivery], bool]) -> Delivery | None:
        """As `head`; if it is not being sent yet and `ready` returns true, the same write marks it as
        `trying`."""
        ...

    async def mark_sending(self, debt: Delivery) -> Delivery:
        """Mark it as `trying`: from now until the next update it is not known whether it arrived."""
        ...

    async def mark_sent(self, debt: Delivery, *ids: str, rest: bool = False, uncertain: bool = False) -> Delivery:
        """It arrived, with these platform ids. `rest`: more parts follow; if none do, the turn's preview
        messages have become this message. `uncertain`: some of it may have been sent twice."""
        ...

    async def postpone(
        self, debt: Delivery, due: float, why: str, *, uncertain: bool = False, counts: bool = True
    ) -> None:
        """It did not arrive, or that is not known (`uncertain`); try again at `due`.

        `counts`: the attempt counts towards the limit.
        """
        ...

    async def give_up(self, debt: Delivery, state: Literal["failed", "expired"], why: str) -> None:
        """Stop trying; the row stays visible and can be sent again."""
        ...

    async def list_interrupted(self, platform: str) -> tuple[Delivery, ...]:
        """At startup: deliveries that an earlier process was sending when it died, with their previews."""
        ...

    async def expire_fleeting(self, platform: str) -> int:
        """At startup: give up `fleeting` messages of earlier processes; returns how many."""
        ...

    async def find(self, id: str) -> Delivery | None:
        """The delivery of the `Outbound` with this id."""
        ...

    async def list_deliveries(self, *states: DeliveryState, limit: int = 100) -> tuple[Delivery, ...]:
        """Deliveries in these states, or all, latest first."""
        ...

    async def requeue(self, number: int) -> bool:
        """Send a dead or expired one again; False if there is none with this number."""
        ...
