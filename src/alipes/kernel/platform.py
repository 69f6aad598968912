"""A messenger as the gateway sees it: its capabilities, incoming and outgoing messages, and the port."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Image
from alipes.kernel.outbox import Button, Media, MediaKind
from alipes.kernel.turns import Address, BusyMode


class Capabilities(Struct, frozen=True):
    """What a platform can do. The gateway works around what it cannot do."""

    max_length: int = 4000
    """Characters per message."""
    can_edit: bool = False
    """Our messages can be edited: answers are shown while they are written."""
    edit_interval: float = 1.0
    """Minimum seconds between two edits of one message."""
    typing_seconds: float = 0.0
    """Seconds that a typing indicator lasts; zero: not supported."""
    buttons: bool = False
    media: tuple[MediaKind, ...] = ()
    """The kinds of files that can be sent."""
    deduplicates: bool = False
    """Sending the same `MessagePart.id` twice yields one message, so uncertain sends can be repeated."""
    can_delete: bool = False
    sends_alone: bool = False
    """It can send while another process receives: `run_sender` opens what sending needs. Otherwise messages are sent
    by the process that receives."""
    busy: BusyMode | None = None
    """What a message does while a turn is running, unless the operator or the conversation chose a mode. None: it
    reaches the turn at its next step."""


class ReceivedFile(Struct, frozen=True):
    """A received file, saved where tools can read it."""

    path: str
    kind: MediaKind = "file"
    name: str = ""
    mime: str = ""
    size: int = 0


class IncomingMessage(Struct, frozen=True, omit_defaults=True):
    """One message from the platform."""

    id: str
    """The platform's own unique id."""
    address: Address
    """Where it was sent; in a group, `user` is set only if each person has their own conversation."""
    sender: str
    """The sender's id on the platform."""
    name: str = ""
    """The sender's display name."""
    text: str = ""
    images: tuple[Image, ...] = ()
    files: tuple[ReceivedFile, ...] = ()
    message: str = ""
    """The platform's id of the message, for replies."""
    quoted: str = ""
    """The message it replies to or forwards: material, never an instruction."""
    group: bool = False
    addressed: bool = True
    """In a group: it mentions us or replies to us."""
    edits: str = ""
    """The `IncomingMessage.id` of the earlier message that this one edits."""
    album: str = ""
    """Messages with the same album id are one message with several files."""
    pressed: str = ""
    """The `data` of a pressed button, instead of text."""


class MessagePart(Struct, frozen=True, omit_defaults=True):
    """One message in the platform's format; a long text is several."""

    text: str = ""
    """In the platform's own markup."""
    plain: str = ""
    """The same without markup, used if the markup is rejected."""
    media: Media | None = None
    buttons: tuple[Button, ...] = ()
    reply_to: str = ""
    id: str = ""
    """Our id, for platforms that deduplicate."""
    tried_since: float = 0.0
    """Unix time since when it may have been sent, perhaps by another process; zero: it was not tried before."""


OnMessage: TypeAlias = Callable[[IncomingMessage], Awaitable[None]]
"""Accept a message; once it returns, the message is stored and the platform may acknowledge it."""
MayFetch: TypeAlias = Callable[[IncomingMessage], Awaitable[bool]]
"""May files of this sender be downloaded? Called with the message without its files."""
ConnectionState: TypeAlias = Literal["ready", "broken"]
OnStatus: TypeAlias = Callable[[ConnectionState, str], None]
"""Report the connection state: after every successful poll or heartbeat, and with the reason when it breaks."""


class Platform(Protocol):
    """A messenger. Raises `DeliveryError` kinds for failed sends; does not retry by itself."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def listen(self, take: OnMessage, tell: OnStatus) -> None:
        """Serve until cancelled, reconnecting within one call where the library can.

        Raises if it cannot continue: the gateway restarts it after a pause. `on_message` is awaited before
        the message is acknowledged to the platform.
        """

    @property
    def webhook_path(self) -> str:
        """Path of our HTTP server at which its messages arrive; empty: it fetches them itself."""

    async def on_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a request to `webhook_path`; returns the HTTP status. 200 only after the message was accepted."""

    async def run_sender(self, tell: OnStatus) -> None:
        """Be ready to send, without receiving, until cancelled. Called only if it `sends_alone`."""

    def set_fetch_policy(self, welcome: MayFetch) -> None:
        """Sets whose files are downloaded. Called before `listen`."""

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        """Convert Markdown to messages of this platform, split at block boundaries after formatting."""

    async def send(self, address: Address, piece: MessagePart) -> str:
        """Send it and return its id on the platform."""

    async def edit(self, address: Address, message: str, piece: MessagePart) -> None:
        """Edit a message of ours; no error if nothing changes."""

    async def delete(self, address: Address, message: str) -> None: ...

    async def typing(self, address: Address) -> None: ...

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Register our commands (name, help) with the platform, if it supports that."""
