"""Unfinished messages in a chat: the answer so far, and the progress of the tools.

Callers hold the chat's lock, so that nobody finishes the same messages at the same time.
"""

from collections.abc import Callable

import msgspec
from msgspec import structs

from alipes.gateway.outbound.send import UNCONFIRMED
from alipes.gateway.platform_runner import LIVE_TIMEOUT, PlatformRunner
from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.outbox import lane
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.store.people import Progress
from alipes.store.store import Store

MAX_LINES = 12
"""Lines of full tool progress; of more, the last are shown."""
MAX_LINE_CHARS = 70
UNFINISHED = " …"
_MARKS = {"ok": "✓", "failed": "✗", "denied": "✗", "cancelled": "–", "unknown": "?"}
_MAIN_ARGUMENTS = ("command", "path", "pattern", "query", "url", "name")
"""Arguments that describe a call best; the first one present is shown."""


class ToolProgressView:
    """Text of the tool progress message, built from the events of one turn."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, str]] = {}
        self._note = ""

    def start(self, call: ToolCall) -> None:
        self._calls[call.id] = ("…", _describe_call(call))
        self._note = ""

    def update(self, call_id: str, text: str) -> None:
        if call_id in self._calls:
            self._note = _shorten(text.strip().rpartition("\n")[2])

    def finish(self, call: ToolCall, result: ToolResult) -> None:
        self._calls[call.id] = (_MARKS[result.outcome], _describe_call(call))
        self._note = ""

    def add_note(self, text: str) -> None:
        self._note = _shorten(text)

    def text(self, progress: Progress) -> str:
        """Markdown; empty if there is nothing to show."""
        if progress == "off":
            return ""
        lines = [f"{mark} {call}" for mark, call in self._calls.values()]
        if progress == "short":
            count = f" ({len(lines)} steps)" if len(lines) > 1 else ""
            lines = [f"{line}{count}" for line in lines[-1:]]
        elif len(lines) > MAX_LINES:
            lines = [f"({len(lines) - MAX_LINES} before)", *lines[-MAX_LINES:]]
        note = [self._note] if self._note and (progress == "full" or not lines) else []
        return "  \n".join(lines + [f"_{escape_markdown(each)}_" for each in note])


def _describe_call(call: ToolCall) -> str:
    value = next((call.args[name] for name in _MAIN_ARGUMENTS if call.args.get(name)), None)
    if value is None and call.args:
        value = msgspec.json.encode(call.args).decode()
    shown = _shorten(str(value)) if value is not None else ""
    return f"**{escape_markdown(call.name)}** {format_code(shown)}".rstrip()


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1].rstrip() + "…"


def format_code(text: str) -> str:
    """`text` as inline code, whatever it contains."""
    if not text:
        return ""
    fence = "`"
    while fence in text:
        fence += "`"
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def escape_markdown(text: str) -> str:
    """Markdown that shows `text` literally."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>#|~" else char for char in text)


class DraftMessages:
    """Sends and edits the unfinished messages of one chat. Raises `DeliveryError`; callers do not retry."""

    def __init__(self, address: Address, runner: PlatformRunner, store: Store) -> None:
        self._address, self._runner, self._store = address, runner, store
        self._lane = lane(address)
        self._drafts: list[tuple[str, MessagePart | None]] = []
        self._answer = 0
        """Counts the answers of a turn; drafts of an earlier one are final."""
        self._adopt = False
        self._progress = ("", "")
        """Message id and text of the tool progress."""
        self._lost: set[str] = set()
        """Markers of drafts that may have arrived although their message id is unknown."""

    def begin(self, *, resumed: bool) -> None:
        """Another turn starts. `resumed`: an earlier process may have sent drafts of it."""
        self.finalise()
        self._adopt, self._progress = resumed, ("", "")
        self._lost.clear()

    def finalise(self) -> None:
        """The drafts become the final answer elsewhere; later text starts new drafts."""
        self._drafts, self._adopt = [], False
        self._answer += 1

    @property
    def has_progress(self) -> bool:
        """True if a tool progress message was sent."""
        return bool(self._progress[0])

    async def show_progress(self, text: str) -> None:
        message, before = self._progress
        if not text or text == before or not self._runner.capabilities.can_edit:
            return
        if not message and await self._has_queued():
            return
        part = (await self._runner.format_message(text))[0]
        if not message:
            message = await self._runner.send(self._address, part, within=LIVE_TIMEOUT)
        else:
            try:
                await self._runner.edit(self._address, message, part, within=LIVE_TIMEOUT)
            except Undeliverable:
                message = ""
        self._progress = (message, text)

    async def show_draft(self, turn: str, text: str, is_current: Callable[[], bool]) -> None:
        """Show `text`, the unfinished answer of `turn`, as long as `is_current()`."""
        if not text.strip() or not self._runner.capabilities.can_edit:
            return
        answer = self._answer
        if not self._drafts:
            if await self._has_queued():
                return
            if self._adopt:
                known = await self._store.drafts.list_ids(self._lane, turn)
                self._drafts = [(id, None) for id in known if not id.startswith(UNCONFIRMED)]
        parts = await self._runner.format_message(text.rstrip() + UNFINISHED)
        for index, part in enumerate(parts):
            if answer != self._answer or not is_current():
                return
            await self._place(turn, index, part)

    async def _has_queued(self) -> bool:
        """True if the outbox has a message for this chat, which goes first."""
        return await self._store.outbox.head(self._lane) is not None

    async def _place(self, turn: str, index: int, part: MessagePart) -> None:
        answer, drafts = self._answer, self._store.drafts
        if index >= len(self._drafts):
            name = f"{turn}:draft:{self._store.host}:{answer}:{index}"
            id = await self._send(turn, structs.replace(part, id=name))
            if answer == self._answer:
                self._drafts.append((id, part))
            return
        id, before = self._drafts[index]
        if part == before:
            return
        try:
            await self._runner.edit(self._address, id, part, within=LIVE_TIMEOUT)
        except Undeliverable:
            await drafts.remove(self._lane, turn, id)
            if answer == self._answer:
                del self._drafts[index]
        else:
            if answer == self._answer:
                self._drafts[index] = (id, part)

    async def _send(self, turn: str, part: MessagePart) -> str:
        """One row marks the start of the send, another stores its id, so that a crash in between is seen."""
        drafts, marker = self._store.drafts, f"{UNCONFIRMED}{part.id}"
        await drafts.add(self._lane, turn, marker)
        try:
            id = await self._runner.send(self._address, part, within=LIVE_TIMEOUT)
        except DeliveryError as error:
            if error.uncertain and not self._runner.capabilities.deduplicates:
                self._lost.add(marker)
            elif not error.uncertain and marker not in self._lost:
                await drafts.remove(self._lane, turn, marker)
            raise
        await drafts.add(self._lane, turn, id)
        if marker not in self._lost:  # an earlier send under the same marker may have arrived as well
            await drafts.remove(self._lane, turn, marker)
        return id
