"""A platform without a network: it records what it is sent, and fails on demand."""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.platform import Capabilities, IncomingMessage, MessagePart
from alipes.kernel.turns import Address
from tests.world.environment import LIMIT_S

TALENTS = Capabilities(
    max_length=200,
    can_edit=True,
    edit_interval=0.0,
    typing_seconds=5.0,
    buttons=True,
    media=("image", "file"),
    can_delete=True,
)


class SentMessage(Struct):
    """A message as people see it."""

    id: str
    chat: str
    text: str
    piece: MessagePart
    edits: int = 0
    gone: bool = False


class ReplyLost(DeliveryError):
    """Raised as a timeout although the message was delivered."""

    def __init__(self) -> None:
        super().__init__("no answer in time", uncertain=True)


class FakePlatform:
    """`faults["send"].append(error)` makes the next send raise it; an event makes it wait."""

    def __init__(self, name: str = "test", talents: Capabilities = TALENTS) -> None:
        self.name, self.capabilities = name, talents
        self.bubbles: list[SentMessage] = []
        self.log: list[tuple[str, str, str]] = []
        """(verb, chat, text) of every call, also of failed ones."""
        self.faults: dict[str, deque[object]] = {}
        self.commands: tuple[tuple[str, str], ...] = ()
        self.connected = asyncio.Event()
        self.starts = 0
        self.ready = True
        """Whether it reports ready at once."""
        self.break_with: Exception | None = None
        self.take: Callable[[IncomingMessage], object] | None = None
        self.tell: Callable[..., None] | None = None
        self._broken = asyncio.Event()
        self._changed = asyncio.Event()
        self._ids: dict[str, str] = {}

    # --- the port

    def set_fetch_policy(self, welcome):
        self.welcome = welcome

    async def listen(self, take, tell):
        self.starts += 1
        self.take, self.tell = take, tell
        await self._fault("listen", "", "")
        if self.ready:
            tell("ready", "")
        self.connected.set()
        self._broken.clear()
        await self._broken.wait()
        raise self.break_with or RuntimeError("the line was cut")

    async def run_sender(self, tell):
        tell("ready", "")
        await asyncio.Event().wait()

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        if "POISON" in text and "pieces" in self.faults:
            raise ValueError("cannot be put into pieces")
        size = self.capabilities.max_length
        return tuple(MessagePart(text=text[at : at + size]) for at in range(0, len(text), size))

    async def send(self, address: Address, piece: MessagePart) -> str:
        text = piece.text if piece.media is None else f"<{piece.media.kind} {piece.media.name}>"
        if self.capabilities.deduplicates and piece.id in self._ids:
            return self._ids[piece.id]
        lost = await self._fault("send", address.chat, text)
        id = f"m{len(self.bubbles) + 1}"
        self.bubbles.append(SentMessage(id, address.chat, text, piece))
        self._ids[piece.id] = id
        self._stir()
        if lost:
            raise lost
        return id

    async def edit(self, address: Address, message: str, piece: MessagePart) -> None:
        lost = await self._fault("edit", address.chat, piece.text)
        bubble = self.find(message)
        if bubble is None:
            raise Undeliverable("the message is gone")
        bubble.text, bubble.piece = piece.text, piece
        bubble.edits += 1
        self._stir()
        if lost:
            raise lost

    async def delete(self, address: Address, message: str) -> None:
        await self._fault("delete", address.chat, message)
        if (bubble := self.find(message)) is not None:
            bubble.gone = True
        self._stir()

    async def typing(self, address: Address) -> None:
        await self._fault("typing", address.chat, "")
        self._stir()

    async def set_commands(self, commands) -> None:
        await self._fault("menu", "", "")
        self.commands = commands
        self._stir()

    # --- for tests

    def fail(self, verb: str, *faults: object) -> None:
        self.faults.setdefault(verb, deque()).extend(faults)

    def cut(self, error: Exception | None = None) -> None:
        """End `listen`."""
        self.break_with = error
        self._broken.set()

    def find(self, id: str) -> SentMessage | None:
        return next((each for each in self.bubbles if each.id == id and not each.gone), None)

    def said(self, chat: str = "me") -> list[str]:
        """The visible messages, oldest first."""
        return [each.text for each in self.bubbles if each.chat == chat and not each.gone]

    async def until(self, met: Callable[[], object]) -> None:
        """Return once `met()` is true; it is checked at every change."""
        while not met():
            self._changed.clear()
            await self._changed.wait()

    async def until_said(self, *texts: str, chat: str = "me") -> None:
        """Return once exactly these messages are visible."""
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.until(lambda: self.said(chat) == list(texts))
        except TimeoutError:
            raise AssertionError(f"said {self.said(chat)}, wanted {list(texts)}") from None

    async def _fault(self, verb: str, chat: str, text: str) -> Exception | None:
        self.log.append((verb, chat, text))
        self._stir()
        waiting = self.faults.get(verb)
        fault = waiting.popleft() if waiting else None
        if isinstance(fault, asyncio.Event):
            await fault.wait()
            fault = None
        if isinstance(fault, ReplyLost):
            return fault
        if isinstance(fault, BaseException):
            raise fault
        return None

    def _stir(self) -> None:
        self._changed.set()
