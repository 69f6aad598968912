"""Outgoing messages and their delivery state. Pure values."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.turns import Address

MediaKind: TypeAlias = Literal["image", "audio", "voice", "video", "file"]
DeliveryState: TypeAlias = Literal["queued", "sending", "sent", "failed", "expired"]
"""`sending`: a send was started and its result is not known yet; after a crash it may or may not have arrived."""


class Media(Struct, frozen=True, omit_defaults=True):
    """A file to send along."""

    path: str
    kind: MediaKind = "file"
    name: str = ""
    caption: str = ""
    blob: str = ""
    """Its name in the store of chat files; empty: only the worker that made it can send it."""


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
    emptied_lane: bool = False
    """Set by `mark_sent` if it is known that nothing else waits in the lane."""
