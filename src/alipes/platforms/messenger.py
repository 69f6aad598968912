"""What the platforms of all messengers have in common: access to files, command names, and a sender."""

from collections.abc import Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from alipes.kernel.errors import DeliveryError
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import Capabilities, IncomingMessage, MayFetch, MessagePart, OnStatus
from alipes.kernel.turns import Address

S = TypeVar("S")
ALL_MEDIA: tuple[MediaKind, ...] = ("image", "audio", "voice", "video", "file")
CHAT = Capabilities(can_edit=True, buttons=True, media=ALL_MEDIA, deduplicates=True, can_delete=True)
"""What most chats can do."""


class MessageSender(Protocol):
    """Sends on an open connection, with one attempt per call. Raises `DeliveryError`."""

    async def send(self, address: Address, part: MessagePart) -> str: ...

    async def edit(self, address: Address, message: str, part: MessagePart) -> None: ...

    async def delete(self, address: Address, message: str) -> None: ...

    async def typing(self, address: Address) -> None: ...


class Messenger(Generic[S]):
    """Base of the platforms. Sends are passed on to `sender`, which is set while it is connected."""

    title: ClassVar[str]
    name: str
    capabilities: Capabilities
    webhook_path = ""

    def __init__(self, settings: S) -> None:
        self.settings = settings
        self.may_fetch: MayFetch = _fetch_for_anyone
        self.commands: frozenset[str] = frozenset()
        self.sender: MessageSender | None = None

    def set_fetch_policy(self, may_fetch: MayFetch) -> None:
        self.may_fetch = may_fetch

    async def on_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        return 404

    async def run_sender(self, on_status: OnStatus) -> None:
        raise DeliveryError(f"{self.title} sends only over the connection that receives.")

    async def send(self, address: Address, part: MessagePart) -> str:
        return await self._require_sender().send(address, part)

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        await self._require_sender().edit(address, message, part)

    async def delete(self, address: Address, message: str) -> None:
        await self._require_sender().delete(address, message)

    async def typing(self, address: Address) -> None:
        await self._require_sender().typing(address)

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        """Only the names are needed, to recognise commands."""
        self.commands = frozenset(name for name, _ in commands)

    def _require_sender(self) -> MessageSender:
        if self.sender is None:
            raise DeliveryError(f"{self.title} is not connected yet.")
        return self.sender


async def _fetch_for_anyone(_: IncomingMessage) -> bool:
    return True
