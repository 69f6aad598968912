"""Sends to Slack with one attempt per call; a message that may have been sent already is looked for first."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.platforms.connection import Lanes
from alipes.platforms.files import media_name
from alipes.platforms.markup import escape_html
from alipes.platforms.slack.markup import RICH_TEXT_PREFIX
from alipes.platforms.slack.receive import SlackFiles
from alipes.platforms.slack.web_api import SlackApi, error_code
from alipes.platforms.state_files import write_atomic

MAX_AGE = 86_400.0
"""Seconds after which an unconfirmed send is no longer looked for."""
MAX_JOURNAL_BYTES = 100_000
"""Bytes after which the journal is rewritten."""
MAX_CONFIRMED = 200
"""Confirmed sends that stay in the file: a kill may come before the outbox stores the result."""


class SendRecord(Struct, omit_defaults=True):
    id: str
    at: float
    """When it started; zero: it is closed."""
    note: str = ""
    """Id of a file that was already uploaded."""


class SendJournal:
    """Appends a line when a send starts and ends; the lines survive this process.

    Only one process may use a file. What others began is said by `MessagePart.tried_since`.
    """

    def __init__(self, path: Path | None) -> None:
        """`path`: None if nothing is to be written."""
        self._path = path
        self._open = {} if path is None else _read(path)
        self._there: dict[str, SendRecord] = {}
        self._size = 0
        self._rewrite()

    def begin(self, id: str) -> SendRecord | None:
        """Record the start of a send. Returns the record of an earlier attempt, if any."""
        before = self._open.get(id)
        if id and before is None:
            self._there.pop(id, None)
            self._write(SendRecord(id, time.time()))
        return before

    def note(self, id: str, note: str) -> None:
        if id:
            self._write(SendRecord(id, self._open[id].at, note))

    def confirm(self, id: str) -> None:
        """It was sent. The next process still looks for it, unless many were sent since."""
        if id in self._open:
            self._there[id] = self._open.pop(id)
        if len(self._there) > MAX_CONFIRMED:
            oldest = next(iter(self._there))
            del self._there[oldest]
            self._write(SendRecord(oldest, 0.0))

    def done(self, id: str) -> None:
        """It was certainly not sent."""
        if id in self._open:
            self._write(SendRecord(id, 0.0))

    def _write(self, entry: SendRecord) -> None:
        if entry.at:
            self._open[entry.id] = entry
        else:
            self._open.pop(entry.id, None)
        if self._path is None:
            return
        line = msgspec.json.encode(entry) + b"\n"
        with open(self._path, "ab", buffering=0) as file:
            file.write(line)
        self._size += len(line)
        if self._size > MAX_JOURNAL_BYTES:
            self._rewrite()

    def _rewrite(self) -> None:
        if self._path is None:
            return
        lines = b"".join(msgspec.json.encode(each) + b"\n" for each in (*self._there.values(), *self._open.values()))
        write_atomic(self._path, lines)
        self._size = len(lines)


def _read(path: Path) -> dict[str, SendRecord]:
    found: dict[str, SendRecord] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=SendRecord)
        except msgspec.DecodeError:
            continue  # cut off by a crash of the machine
        found.pop(entry.id, None)
        if entry.at > time.time() - MAX_AGE:
            found[entry.id] = entry
    return found


SECTION = 3000
"""Characters of one plain text block."""
BUTTONS, LABEL = 25, 75
METADATA_EVENT = "alipes_message"
"""Event type of the metadata by which we find our messages again."""
BLOCK_ERRORS = ("invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long")
"""Slack rejected the markup."""


def message_target(address: Address, reply_to: str = "") -> dict[str, Any]:
    """Where a new message goes. A reply to a message in a channel is in its thread and also shown in the channel."""
    here: dict[str, Any] = {"channel": address.chat}
    if address.thread:
        here["thread_ts"] = address.thread
    elif reply_to:
        here |= {"thread_ts": reply_to, "reply_broadcast": True}
    return here


def message_body(part: MessagePart, *, fresh: bool = True, marked: bool = True) -> dict[str, Any]:
    """Content of a message. `fresh`: it is sent, not edited; not `marked`: as plain text."""
    words = part.plain or part.text
    rich = part.text.startswith(RICH_TEXT_PREFIX) and marked
    # for edits a missing `parse` means something else
    response: dict[str, Any] = {"text": escape_html(words), "parse": "none", "link_names": False}
    if rich or part.buttons or not fresh:
        shown = [msgspec.json.decode(part.text)] if rich else _plain(words) if part.buttons else []
        response["blocks"] = [*shown, *_actions(part.buttons)]
    if fresh:
        # no link previews: a fetched address could leak data
        response |= {"unfurl_links": False, "unfurl_media": False, "mrkdwn": False}
        if part.id:
            response["metadata"] = {"event_type": METADATA_EVENT, "event_payload": {"id": part.id}}
    return response


def has_send_id(message: dict[str, Any], id: str) -> bool:
    """True if this message was sent with this id of ours."""
    note = message.get("metadata") or {}
    return note.get("event_type") == METADATA_EVENT and (note.get("event_payload") or {}).get("id") == id


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
    """Text in blocks, split at line ends where possible."""
    parts = []
    while text:
        end = len(text) if len(text) <= SECTION else text.rfind("\n", SECTION // 2, SECTION) + 1 or SECTION
        parts.append(text[:end])
        text = text[end:]
    return [{"type": "section", "text": {"type": "plain_text", "text": part, "emoji": False}} for part in parts]


FILE_PREFIX = "file:"
"""Prefix of the id of a file message: Slack reports the file's id, not the message's."""
BUSY_REACTION = "eyes"
CLOCK_SKEW = 60.0
"""Seconds by which Slack's clock may be behind ours."""
PAGE = 200
_NOTHING_TO_HANG_FROM = ("thread_not_found", "message_not_found", "cannot_reply_to_message")


class SlackSender:
    def __init__(
        self,
        api: SlackApi,
        files: SlackFiles,
        journal: SendJournal,
        *,
        lanes: Lanes,
        latest: Mapping[str, str],
        me: str,
    ) -> None:
        """`latest`: the latest message to us, by conversation. `me`: the bot's user id."""
        self._api, self._files, self._journal = api, files, journal
        self._lanes, self._latest, self._me = lanes, latest, me
        self._busy_marks: dict[str, str] = {}
        """By conversation: the message that has our busy reaction."""

    async def send(self, address: Address, part: MessagePart) -> str:
        found = await (self._send_file(address, part) if part.media else self._send_text(address, part))
        self._journal.confirm(part.id)
        self._clear_busy(address)
        return found

    async def _send_text(self, address: Address, part: MessagePart) -> str:
        before = self._journal.begin(part.id)
        since = before.at if before else part.tried_since
        found = await self._find(address, part, since) if since else ""
        if not found:
            place = message_target(address, part.reply_to)
            found = await self._post(place, part)
        return found

    async def _post(self, place: dict[str, Any], part: MessagePart, *, marked: bool = True) -> str:
        body = message_body(part, marked=marked)
        try:
            sent = await self._api("sending", "chat_postMessage", **place, **body)
        except DeliveryError as error:
            why = error_code(error)
            if "reply_broadcast" in place and why in _NOTHING_TO_HANG_FROM:
                return await self._post({"channel": place["channel"]}, part, marked=marked)
            if marked and why in BLOCK_ERRORS:
                return await self._post(place, part, marked=False)
            if not error.uncertain:
                self._journal.done(part.id)
            raise
        return str(sent["ts"])

    async def _find(self, address: Address, part: MessagePart, since: float) -> str:
        """The message of an earlier attempt; empty if there is none."""
        mine = [each for each in await self._read_since(address, since) if has_send_id(each, part.id)]
        return str(mine[0]["ts"]) if mine else ""

    async def _find_file(self, address: Address, name: str, since: float) -> str:
        """The file that another process shared; empty if there is none."""
        mine = [each for each in await self._read_since(address, since) if each.get("user") == self._me]
        files = [file for each in mine for file in each.get("files") or () if file.get("name") == name]
        return str(files[0]["id"]) if files else ""

    async def _read_since(self, address: Address, since: float) -> list[dict[str, Any]]:
        """The messages of a conversation; none if there is no such chat, so that nothing was sent."""
        arguments: dict[str, Any] = {"channel": address.chat, "include_all_metadata": True, "limit": PAGE}
        arguments["oldest"] = f"{since - CLOCK_SKEW:.6f}"
        method = "conversations_history"
        if address.thread:
            method, arguments["ts"] = "conversations_replies", address.thread
        response = await self._look_for("a message", method, **arguments)
        return [] if response is None else list(response["messages"])

    async def _send_file(self, address: Address, part: MessagePart) -> str:
        """Upload a file, then share it in the chat."""
        assert part.media
        before = self._journal.begin(part.id)
        file = before.note if before else ""
        if not before and part.tried_since:
            file = await self._find_file(address, media_name(part.media), part.tried_since)
        if not file or not await self._is_shared(file):
            try:
                file = file or await self._files.upload_file(part)
                if part.id:
                    self._journal.note(part.id, file)
                await self._share_file(address, part, file)
            except DeliveryError as error:
                if not error.uncertain:
                    self._journal.done(part.id)
                raise
        return f"{FILE_PREFIX}{file}"

    async def _share_file(self, address: Address, part: MessagePart, file: str) -> None:
        assert part.media
        here = {"channel_id": address.chat, "thread_ts": address.thread or None}
        response = [{"id": file, "title": part.media.name or None}]
        words = escape_html(part.plain or part.media.caption)
        await self._api(
            "sending a file",
            "files_completeUploadExternal",
            files=[{key: value for key, value in each.items() if value} for each in response],
            initial_comment=words or None,
            **here,
        )

    async def _is_shared(self, file: str) -> bool:
        response = await self._look_for("a file", "files_info", file=file)
        return response is not None and bool(response["file"].get("shares"))

    async def _look_for(self, what: str, method: str, **arguments: Any) -> dict[str, Any] | None:
        """Look for something that may have been sent; None if its chat or file does not exist."""
        try:
            return await self._api(f"looking for {what}", method, **arguments)
        except Undeliverable:
            return None
        except DeliveryError as error:
            raise DeliveryError(f"It may have been sent. {error}", retry_after=error.retry_after) from error

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        if message.startswith(FILE_PREFIX):
            raise Undeliverable("Slack files cannot be edited.")
        here = {"channel": address.chat, "ts": message}
        try:
            body = message_body(part, fresh=False)
            await self._api("editing a message", "chat_update", **here, **body)
        except Undeliverable as error:
            if error_code(error) not in BLOCK_ERRORS:
                raise
            body = message_body(part, fresh=False, marked=False)
            await self._api("editing a message", "chat_update", **here, **body)

    async def delete(self, address: Address, message: str) -> None:
        with suppress(Undeliverable):
            if message.startswith(FILE_PREFIX):
                await self._api("deleting a file", "files_delete", file=message.removeprefix(FILE_PREFIX))
            else:
                await self._api("deleting a message", "chat_delete", channel=address.chat, ts=message)

    async def typing(self, address: Address) -> None:
        """Bots have no typing indicator: mark the latest message with a reaction until it is answered."""
        lane = f"{address.chat}/{address.thread}"
        latest = self._latest.get(lane, "")
        if latest and self._busy_marks.get(lane) != latest:
            self._clear_busy(address)
            self._busy_marks[lane] = latest
            await self._react("reactions_add", address.chat, latest)

    def _clear_busy(self, address: Address) -> None:
        lane = f"{address.chat}/{address.thread}"
        if signed := self._busy_marks.pop(lane, ""):
            self._lanes.put("signs", lambda: self._react("reactions_remove", address.chat, signed))

    async def _react(self, method: str, channel: str, message: str) -> None:
        with suppress(DeliveryError):  # best effort
            await self._api("setting a reaction", method, channel=channel, timestamp=message, name=BUSY_REACTION)
