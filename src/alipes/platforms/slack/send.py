"""What is said in Slack: sent, changed, taken back, each tried once; what may be there is looked for."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.outbox import Button
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.platforms.slack.markup import RICH, escape
from alipes.platforms.slack.receive import Listening
from alipes.platforms.slack.web_api import Calls, code
from alipes.platforms.state_files import write

OLDEST = 86_400.0
"""Seconds after which a send that was begun is not looked for any more."""
LARGEST = 100_000
"""Bytes after which the file is written anew, with what is still open."""
RECENT = 200
"""Sends that are there and count as open on disk still: a kill may be quicker than the outbox."""


class Entry(Struct, omit_defaults=True):
    id: str
    at: float
    """When it was begun; zero: it has ended."""
    note: str = ""
    """What is known of it: the id of a file that was brought already."""


class Begun:
    """Appends a short line at each beginning and end; what the system has taken outlives this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = _read(path)
        self._there: dict[str, Entry] = {}
        self._size = 0
        self._fresh()

    def begin(self, id: str) -> Entry | None:
        """What is known of an earlier try; None if there was none. From now on there is one."""
        before = self._open.get(id)
        if id and before is None:
            self._there.pop(id, None)
            self._write(Entry(id, time.time()))
        return before

    def note(self, id: str, note: str) -> None:
        if id:
            self._write(Entry(id, self._open[id].at, note))

    def there(self, id: str) -> None:
        """It is there. The next process looks for it all the same, unless much was sent since."""
        if id in self._open:
            self._there[id] = self._open.pop(id)
        if len(self._there) > RECENT:
            oldest = next(iter(self._there))
            del self._there[oldest]
            self._write(Entry(oldest, 0.0))

    def done(self, id: str) -> None:
        """It surely is not there."""
        if id in self._open:
            self._write(Entry(id, 0.0))

    def _write(self, entry: Entry) -> None:
        if entry.at:
            self._open[entry.id] = entry
        else:
            self._open.pop(entry.id, None)
        line = msgspec.json.encode(entry) + b"\n"
        with open(self._path, "ab", buffering=0) as file:
            file.write(line)
        self._size += len(line)
        if self._size > LARGEST:
            self._fresh()

    def _fresh(self) -> None:
        lines = b"".join(
            msgspec.json.encode(each) + b"\n" for each in (*self._there.values(), *self._open.values())
        )
        write(self._path, lines)
        self._size = len(lines)


def _read(path: Path) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except msgspec.DecodeError:
            continue  # cut off by the end of the machine
        found.pop(entry.id, None)
        if entry.at > time.time() - OLDEST:
            found[entry.id] = entry
    return found


SECTION = 3000
"""Characters of one block of plain text."""
BUTTONS, LABEL = 25, 75
EVENT = "alipes_message"
"""What the note about a message is called that goes along with it, for us to find it by."""
UNSHOWABLE = ("invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long")
"""Slack does not like how it is marked up."""


def message_target(address: Address, reply_to: str = "") -> dict[str, Any]:
    """Where a new message stands. An answer to one in a channel hangs from that, and is shown there too."""
    here: dict[str, Any] = {"channel": address.chat}
    if address.thread:
        here["thread_ts"] = address.thread
    elif reply_to:
        here |= {"thread_ts": reply_to, "reply_broadcast": True}
    return here


def message_body(piece: Piece, *, fresh: bool = True, marked: bool = True) -> dict[str, Any]:
    """The content of a message. `fresh`: it is sent, not changed; not `marked`: as plain words."""
    words = piece.plain or piece.text
    rich = piece.text.startswith(RICH) and marked
    # `parse` is named since it means something else for changes where it is not.
    told: dict[str, Any] = {"text": escape(words), "parse": "none", "link_names": False}
    if rich or piece.buttons or not fresh:
        shown = [msgspec.json.decode(piece.text)] if rich else _plain(words) if piece.buttons else []
        told["blocks"] = [*shown, *_actions(piece.buttons)]
    if fresh:
        # What a link leads to is not fetched: a model could be made to tell others something by an address.
        told |= {"unfurl_links": False, "unfurl_media": False, "mrkdwn": False}
        if piece.id:
            told["metadata"] = {"event_type": EVENT, "event_payload": {"id": piece.id}}
    return told


def is_it(message: dict[str, Any], id: str) -> bool:
    """Is this message the one that was sent with this id of ours?"""
    note = message.get("metadata") or {}
    return note.get("event_type") == EVENT and (note.get("event_payload") or {}).get("id") == id


def _actions(buttons: tuple[Button, ...]) -> list[dict[str, Any]]:
    elements = [
        {
            "type": "button",
            "action_id": f"alipes-{number}",
            "text": {"type": "plain_text", "text": (button.label or button.data)[:LABEL], "emoji": False},
            "value": button.data,
        }
        for number, button in enumerate(buttons[:BUTTONS])
    ]
    return [{"type": "actions", "elements": elements}] if elements else []


def _plain(text: str) -> list[dict[str, Any]]:
    """Words in blocks, at the ends of lines where there are some."""
    parts = []
    while text:
        end = len(text) if len(text) <= SECTION else text.rfind("\n", SECTION // 2, SECTION) + 1 or SECTION
        parts.append(text[:end])
        text = text[end:]
    return [
        {"type": "section", "text": {"type": "plain_text", "text": part, "emoji": False}} for part in parts
    ]


FILE = "file:"
"""Before the id of a message that is a file: Slack tells the file's, not the message's."""
SIGN = "eyes"
EARLY = 60.0
"""Seconds by which Slack's clock may be behind ours."""
PAGE = 200
_NOTHING_TO_HANG_FROM = ("thread_not_found", "message_not_found", "cannot_reply_to_message")


class Speaking:
    """Lives as long as the listening."""

    def __init__(self, calls: Calls, listening: Listening, begun: Begun) -> None:
        self._calls, self._listening, self._begun = calls, listening, begun
        self._files = listening.files
        self._signs: dict[str, str] = {}
        """By conversation: the message that bears our sign that we are at it."""

    async def send(self, address: Address, piece: Piece) -> str:
        before = self._begun.begin(piece.id)
        found = await self._find(address, piece, before) if before else ""
        if not found:
            place = message_target(address, piece.reply_to)
            found = await self._post(place, piece)
        self._begun.there(piece.id)
        self._unsign(address)
        return found

    async def _post(self, place: dict[str, Any], piece: Piece, *, marked: bool = True) -> str:
        body = message_body(piece, marked=marked)
        try:
            sent = await self._calls("sending", "chat_postMessage", **place, **body)
        except DeliveryError as error:
            why = code(error)
            if "reply_broadcast" in place and why in _NOTHING_TO_HANG_FROM:
                return await self._post({"channel": place["channel"]}, piece, marked=marked)
            if marked and why in UNSHOWABLE:
                return await self._post(place, piece, marked=False)
            if not error.uncertain:
                self._begun.done(piece.id)
            raise
        return str(sent["ts"])

    async def _find(self, address: Address, piece: Piece, before: Entry) -> str:
        """The message that an earlier try of the same became; empty if it became none."""
        arguments: dict[str, Any] = {"channel": address.chat, "include_all_metadata": True, "limit": PAGE}
        arguments["oldest"] = f"{before.at - EARLY:.6f}"
        method = "conversations_history"
        if address.thread:
            method, arguments["ts"] = "conversations_replies", address.thread
        try:
            told = await self._calls("looking for a message", method, **arguments)
        except Gone:
            return ""  # there is no such chat, so it is not there
        except DeliveryError as error:
            raise DeliveryError(f"It may be there. {error}", retry_after=error.retry_after) from error
        mine = [each for each in told["messages"] if is_it(each, piece.id)]
        return str(mine[0]["ts"]) if mine else ""

    async def show(self, address: Address, piece: Piece) -> str:
        """A file: brought first, then shown in the chat."""
        assert piece.media
        before = self._begun.begin(piece.id)
        file = before.note if before else ""
        if not file or not await self._shown(file):
            try:
                file = file or await self._files.bring(piece)
                if piece.id:
                    self._begun.note(piece.id, file)
                await self._reveal(address, piece, file)
            except DeliveryError as error:
                if not error.uncertain:
                    self._begun.done(piece.id)
                raise
        self._begun.there(piece.id)
        self._unsign(address)
        return f"{FILE}{file}"

    async def _reveal(self, address: Address, piece: Piece, file: str) -> None:
        assert piece.media
        here = {"channel_id": address.chat, "thread_ts": address.thread or None}
        told = [{"id": file, "title": piece.media.name or None}]
        words = escape(piece.plain or piece.media.caption)
        await self._calls(
            "sending a file",
            "files_completeUploadExternal",
            files=[{key: value for key, value in each.items() if value} for each in told],
            initial_comment=words or None,
            **here,
        )

    async def _shown(self, file: str) -> bool:
        try:
            told = await self._calls("looking for a file", "files_info", file=file)
        except Gone:
            return False
        except DeliveryError as error:
            raise DeliveryError(f"It may be there. {error}", retry_after=error.retry_after) from error
        return bool(told["file"].get("shares"))

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        if message.startswith(FILE):
            raise Gone("Slack does not let a file be changed that was sent.")
        here = {"channel": address.chat, "ts": message}
        try:
            body = message_body(piece, fresh=False)
            await self._calls("changing a message", "chat_update", **here, **body)
        except Gone as error:
            if code(error) not in UNSHOWABLE:
                raise
            body = message_body(piece, fresh=False, marked=False)
            await self._calls("changing a message", "chat_update", **here, **body)

    async def delete(self, address: Address, message: str) -> None:
        if message.startswith(FILE):
            await self._calls("deleting a file", "files_delete", file=message.removeprefix(FILE))
        else:
            await self._calls("deleting a message", "chat_delete", channel=address.chat, ts=message)

    async def sign(self, address: Address) -> None:
        """A bot cannot be seen typing: what was said last bears a pair of eyes until it is answered."""
        lane = f"{address.chat}/{address.thread}"
        latest = self._listening.latest.get(lane, "")
        if latest and self._signs.get(lane) != latest:
            self._unsign(address)
            self._signs[lane] = latest
            await self._react("reactions_add", address.chat, latest)

    def _unsign(self, address: Address) -> None:
        lane = f"{address.chat}/{address.thread}"
        if signed := self._signs.pop(lane, ""):
            self._listening.lanes.put("signs", lambda: self._react("reactions_remove", address.chat, signed))

    async def _react(self, method: str, channel: str, message: str) -> None:
        with suppress(DeliveryError):  # it is worth nothing to try that again, nor to hold up anything else
            await self._calls("giving a sign", method, channel=channel, timestamp=message, name=SIGN)
