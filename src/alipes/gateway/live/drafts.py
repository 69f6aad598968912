"""Messages in a chat that are not finished: the answer as far as it goes, and what the tools do.

Whoever calls holds the chat's lock, so that nobody makes them whole at the same time.
"""

from collections.abc import Callable

import msgspec
from msgspec import structs

from alipes.gateway.outbound.send import BEGUN
from alipes.gateway.platform_runner import LIVELY, Channel
from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.outbox import lane
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.store.people import Progress
from alipes.store.store import Store

SHOWN = 12
"""Lines of a full bubble; of more, the last."""
WIDTH = 70
_MARKS = {"ok": "✓", "failed": "✗", "denied": "✗", "cancelled": "–", "unknown": "?"}
_TELLING = ("command", "path", "pattern", "query", "url", "name")
"""Arguments that say most of what a call is about, the first that is there."""


class Bubble:
    """Folded from what a turn tells."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}
        self._note = ""

    def started(self, call: ToolCall) -> None:
        self._calls[call.id] = ("…", _what(call))
        self._note = ""

    def progressed(self, call_id: str, text: str) -> None:
        if call_id in self._calls:
            self._note = _short(text.strip().rpartition("\n")[2])

    def finished(self, call: ToolCall, result: ToolResult) -> None:
        self._calls[call.id] = (_MARKS[result.outcome], _what(call))
        self._note = ""

    def noted(self, text: str) -> None:
        self._note = _short(text)

    def text(self, progress: Progress) -> str:
        """Markdown; empty when there is nothing to show."""
        if progress == "off":
            return ""
        lines = [f"{mark} {what}" for mark, what in self._calls.values()]
        if progress == "short":
            count = f" ({len(lines)} steps)" if len(lines) > 1 else ""
            lines = [f"{line}{count}" for line in lines[-1:]]
        elif len(lines) > SHOWN:
            lines = [f"({len(lines) - SHOWN} before)", *lines[-SHOWN:]]
        note = [self._note] if self._note and (progress == "full" or not lines) else []
        return "  \n".join(lines + [f"_{escaped(each)}_" for each in note])


def _what(call: ToolCall) -> str:
    value = next((call.args[name] for name in _TELLING if call.args.get(name)), None)
    if value is None and call.args:
        value = msgspec.json.encode(call.args).decode()
    told = _short(str(value)) if value is not None else ""
    return f"**{escaped(call.name)}** {code(told)}".rstrip()


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= WIDTH else words[: WIDTH - 1].rstrip() + "…"


def code(text: str) -> str:
    """`text` as code within a line, whatever it holds."""
    if not text:
        return ""
    fence = "`"
    while fence in text:
        fence += "`"
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def escaped(text: str) -> str:
    """`text` as Markdown that shows it as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|~" else letter for letter in text)


UNFINISHED = " …"


class Shown:
    """Raises `DeliveryError` for what could not be shown; it is worth nothing to try that again as such."""

    def __init__(self, address: Address, channel: Channel, store: Store) -> None:
        self._address, self._channel, self._store = address, channel, store
        self._lane = lane(address)
        self._drafts: list[tuple[str, Piece | None]] = []
        self._part = 0
        """Which of the things that are said one after the other is shown now."""
        self._adopt = False
        self._bubble = ("", "")
        self._lost: set[str] = set()
        """Our names of drafts that may be there without our knowing which they are."""

    def begin(self, *, resumed: bool) -> None:
        """Another turn. `resumed`: an earlier process may have begun to show it."""
        self.curtain()
        self._adopt, self._bubble = resumed, ("", "")
        self._lost.clear()

    def curtain(self) -> None:
        """What was shown of the answer is made whole by others; what comes next is shown anew."""
        self._drafts, self._adopt = [], False
        self._part += 1

    @property
    def begun(self) -> bool:
        """Is a bubble there?"""
        return bool(self._bubble[0])

    async def tools(self, text: str) -> None:
        message, before = self._bubble
        if not text or text == before or not self._channel.talents.edits:
            return
        if not message and await self._owing():
            return
        piece = (await self._channel.pieces(text))[0]
        if not message:
            message = await self._channel.send(self._address, piece, within=LIVELY)
        else:
            try:
                await self._channel.edit(self._address, message, piece, within=LIVELY)
            except Gone:
                message = ""
        self._bubble = (message, text)

    async def draft(self, turn: str, text: str, going: Callable[[], bool]) -> None:
        """Show `text`, the answer of `turn` as far as it goes."""
        if not text.strip() or not self._channel.talents.edits:
            return
        part = self._part
        if not self._drafts:
            if await self._owing():
                return
            if self._adopt:
                known = await self._store.drafts.of(self._lane, turn)
                self._drafts = [(id, None) for id in known if not id.startswith(BEGUN)]
        pieces = await self._channel.pieces(text.rstrip() + UNFINISHED)
        for index, piece in enumerate(pieces):
            if part != self._part or not going():
                return
            await self._place(turn, index, piece)

    async def _owing(self) -> bool:
        """Is something to be said here first?"""
        return await self._store.outbox.head(self._lane) is not None

    async def _place(self, turn: str, index: int, piece: Piece) -> None:
        part, drafts = self._part, self._store.drafts
        if index >= len(self._drafts):
            name = f"{turn}:draft:{self._store.host}:{part}:{index}"
            id = await self._send(turn, structs.replace(piece, id=name))
            if part == self._part:
                self._drafts.append((id, piece))
            return
        id, before = self._drafts[index]
        if piece == before:
            return
        try:
            await self._channel.edit(self._address, id, piece, within=LIVELY)
        except Gone:
            await drafts.drop(self._lane, turn, id)
            if part == self._part:
                del self._drafts[index]
        else:
            if part == self._part:
                self._drafts[index] = (id, piece)

    async def _send(self, turn: str, piece: Piece) -> str:
        """A row says that it is on its way, then another which it is: if we die between, that is known."""
        drafts, begun = self._store.drafts, f"{BEGUN}{piece.id}"
        await drafts.add(self._lane, turn, begun)
        try:
            id = await self._channel.send(self._address, piece, within=LIVELY)
        except DeliveryError as error:
            if error.uncertain and not self._channel.talents.remembers:
                self._lost.add(begun)
            elif not error.uncertain and begun not in self._lost:
                await drafts.drop(self._lane, turn, begun)
            raise
        await drafts.add(self._lane, turn, id)
        if begun not in self._lost:  # this one is there, an earlier one under its name may be there too
            await drafts.drop(self._lane, turn, begun)
        return id
