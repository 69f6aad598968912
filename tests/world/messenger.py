"""A messenger without a network: a real small platform that keeps what it was sent, and fails as it is told."""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.platform import Arrival, Piece, Talents
from alipes.kernel.turns import Address
from tests.world.environment import LIMIT_S

TALENTS = Talents(
    longest=200, edits=True, pace=0.0, typing=5.0, buttons=True, media=("image", "file"), deletes=True
)


class Bubble(Struct):
    """A message as people see it."""

    id: str
    chat: str
    text: str
    piece: Piece
    edits: int = 0
    gone: bool = False


class Lost(DeliveryError):
    """Told as a timeout; the message is there all the same."""

    def __init__(self) -> None:
        super().__init__("no answer in time", uncertain=True)


class Messenger:
    """`faults["send"].append(error)` makes the next send raise it; an event is waited for, a crash raised."""

    def __init__(self, name: str = "test", talents: Talents = TALENTS) -> None:
        self.name, self.talents = name, talents
        self.bubbles: list[Bubble] = []
        self.log: list[tuple[str, str, str]] = []
        """(verb, chat, text), everything that was asked for, also what failed."""
        self.faults: dict[str, deque[object]] = {}
        self.commands: tuple[tuple[str, str], ...] = ()
        self.connected = asyncio.Event()
        self.starts = 0
        self.ready = True
        """Does it say so as soon as somebody listens?"""
        self.break_with: Exception | None = None
        self.take: Callable[[Arrival], object] | None = None
        self.tell: Callable[..., None] | None = None
        self._broken = asyncio.Event()
        self._changed = asyncio.Event()
        self._ids: dict[str, str] = {}

    # --- the port

    def fetch_only_for(self, welcome):
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

    def pieces(self, text: str) -> tuple[Piece, ...]:
        if "POISON" in text and "pieces" in self.faults:
            raise ValueError("cannot be put into pieces")
        size = self.talents.longest
        return tuple(Piece(text=text[at : at + size]) for at in range(0, len(text), size))

    async def send(self, address: Address, piece: Piece) -> str:
        text = piece.text if piece.media is None else f"<{piece.media.kind} {piece.media.name}>"
        if self.talents.remembers and piece.id in self._ids:
            return self._ids[piece.id]
        lost = await self._fault("send", address.chat, text)
        id = f"m{len(self.bubbles) + 1}"
        self.bubbles.append(Bubble(id, address.chat, text, piece))
        self._ids[piece.id] = id
        self._stir()
        if lost:
            raise lost
        return id

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        lost = await self._fault("edit", address.chat, piece.text)
        bubble = self.find(message)
        if bubble is None:
            raise Gone("the message is gone")
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

    async def menu(self, commands) -> None:
        await self._fault("menu", "", "")
        self.commands = commands
        self._stir()

    # --- for tests

    def fail(self, verb: str, *faults: object) -> None:
        self.faults.setdefault(verb, deque()).extend(faults)

    def cut(self, error: Exception | None = None) -> None:
        """End the listening."""
        self.break_with = error
        self._broken.set()

    def find(self, id: str) -> Bubble | None:
        return next((each for each in self.bubbles if each.id == id and not each.gone), None)

    def said(self, chat: str = "me") -> list[str]:
        """What people see there, from top to bottom."""
        return [each.text for each in self.bubbles if each.chat == chat and not each.gone]

    async def until(self, met: Callable[[], object]) -> None:
        """Return once `met()` holds; it is asked whenever something changes here."""
        while not met():
            self._changed.clear()
            await self._changed.wait()

    async def until_said(self, *texts: str, chat: str = "me") -> None:
        """Return once exactly these are seen there."""
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
        if isinstance(fault, Lost):
            return fault
        if isinstance(fault, BaseException):
            raise fault
        return None

    def _stir(self) -> None:
        self._changed.set()
