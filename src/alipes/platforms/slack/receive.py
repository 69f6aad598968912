"""Receives from Slack: envelopes become incoming messages, in order per channel, and are then acknowledged."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import aiohttp
from msgspec import field
from msgspec.structs import replace
from slack_sdk.socket_mode.request import SocketModeRequest

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.platform import IncomingMessage, MessagePart, OnMessage, ReceivedFile
from alipes.platforms.connection import Job, Lanes
from alipes.platforms.files import (
    CHUNK,
    Downloads,
    FileUnavailable,
    make_file_name,
    media_kind,
    media_name,
    read_outgoing,
)
from alipes.platforms.markup.spans import escape_html
from alipes.platforms.messenger import Messenger
from alipes.platforms.settings import SlackSettings
from alipes.platforms.slack import parse
from alipes.platforms.slack.parse import SlackMessage, SlackNames, mentions
from alipes.platforms.slack.socket import SlackSocket
from alipes.platforms.slack.web_api import UPLOAD_TIMEOUT, SlackApi
from alipes.platforms.state_files import MAX_AGE, ReadPosition, ReadState, put_bounded


class SlackFiles:
    """Downloads with the bot's token, which is sent to Slack only."""

    def __init__(self, api: SlackApi, settings: SlackSettings) -> None:
        self._api, self._settings = api, settings
        self._headers = {"Authorization": f"Bearer {settings.token.reveal()}"}

    async def fetch(self, listed: list[dict[str, Any]]) -> Downloads:
        settings = self._settings
        downloads = Downloads(settings.folder / "files", settings.largest, settings.picture)
        for file in listed:
            with downloads.note_failure(_name(file), DeliveryError):
                whole = await self._complete(file)
                with downloads.note_failure(_name(whole), aiohttp.ClientError, OSError):
                    await self._save(whole, downloads)
        return downloads

    async def _complete(self, file: dict[str, Any]) -> dict[str, Any]:
        """Details of a file that another workspace shared have to be requested."""
        if file.get("file_access") == "check_file_info":
            listed = await self._api("requesting a file", "files_info", file=file["id"])
            file = listed["file"]
        if file.get("is_external") or file.get("mode") == "external":
            raise FileUnavailable(f"is stored outside of Slack: {file.get('url_private')}")
        return file

    async def _save(self, file: dict[str, Any], downloads: Downloads) -> None:
        mime, name = str(file.get("mimetype", "")), _name(file)
        kind = "voice" if file.get("subtype") == "slack_audio" else media_kind(mime)
        downloads.check_size(int(file.get("size") or 0))
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        if not self._api.is_slack_url(url):
            raise FileUnavailable("was not downloaded: its address is not on Slack")
        stall = aiohttp.ClientTimeout(total=UPLOAD_TIMEOUT, sock_connect=10, sock_read=30)
        async with self._api.session.get(
            url, headers=self._headers, proxy=self._api.proxy, timeout=stall, allow_redirects=False
        ) as response:
            _check(response, mime)
            stored = ReceivedFile(make_file_name(str(file.get("id")), name), kind, name, mime)
            await downloads.save(stored, response.content.iter_chunked(CHUNK))

    async def upload_file(self, part: MessagePart) -> str:
        """Upload a file without showing it yet; returns its id."""
        assert part.media
        name, data = media_name(part.media), await asyncio.to_thread(read_outgoing, part.media)
        if not data:
            raise Undeliverable(f"Slack does not accept empty files ({name}).")
        listed = await self._api("requesting an upload", "files_getUploadURLExternal", filename=name, length=len(data))
        await self._api.upload(str(listed["upload_url"]), data)
        return str(listed["file_id"])


def _name(file: dict[str, Any]) -> str:
    return str(file.get("name") or file.get("title") or "file")


def _check(response: aiohttp.ClientResponse, mime: str) -> None:
    if response.status != 200:
        raise FileUnavailable(f"could not be downloaded: Slack answered {response.status}")
    if response.content_type == "text/html" and mime != "text/html":
        # without permission Slack returns a login page
        raise FileUnavailable("could not be downloaded: the app needs the scope files:read")


OVERLAP = 30.0
"""Seconds by which messages of different channels may arrive out of order."""
MAX_CHANNELS = 300
MAX_CLIENT_IDS = 500
ThreadRole: TypeAlias = Literal["", "hangs", "ours", "called"]
"""Our part in a place: `""` it is a channel; `hangs` a thread below a message to us, without replies yet;
`ours` the same with replies; `called` a thread of others into which we were called."""


class SlackReadState(ReadState):
    """The position is in microseconds, as in Slack's timestamps."""

    began: int = 0
    """Messages before this are ignored."""
    said: dict[str, str] = field(default_factory=dict)
    """Ids that clients give their messages, and our names: Slack may report one message as two."""


class SlackReadPosition(ReadPosition[SlackReadState]):
    """The note of a place is a `ThreadRole`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SlackReadState, MAX_CHANNELS)
        self._state.began = self._state.began or int(time.time() * 1_000_000)
        self.changed.set()

    def since(self) -> int:
        """Time after which to read: neither before we were there nor too long ago."""
        oldest = int((time.time() - MAX_AGE) * 1_000_000)
        return max(self.position - int(OVERLAP * 1_000_000), oldest, self._state.began)

    def first_name(self, client: str, name: str) -> str:
        """Our first name for a message with this client id."""
        if client and client not in self._state.said:
            put_bounded(self._state.said, client, name, MAX_CLIENT_IDS)
        return self._state.said.get(client, name)

    def visit(self, place: str, part: ThreadRole = "") -> None:
        if self.remember_place(place, part) and not part:  # saved now, so that its gap is read after a restart
            self.flush()


def to_micros(ts: str) -> int:
    """Microseconds of a timestamp such as `1731686400.123456`."""
    seconds, _, rest = ts.partition(".")
    return int(seconds) * 1_000_000 + int(f"{rest:0<6.6}" or 0)


def to_timestamp(moment: int) -> str:
    return f"{moment // 1_000_000}.{moment % 1_000_000:06d}"


log = logging.getLogger(__name__)

MAX_THREAD_MESSAGES = 20
"""Messages of a thread, besides the first, that are quoted when we are called into it."""
MAX_THREAD_CHARS = 600
"""Characters of each of these."""
MAX_LATEST = 1000


class SlackReceiver:
    """Handles the requests of a socket. `on_request` never waits; the work happens in lanes."""

    def __init__(
        self,
        messenger: Messenger[SlackSettings],
        api: SlackApi,
        position: SlackReadPosition,
        lanes: Lanes,
        on_message: OnMessage,
    ) -> None:
        self._messenger, self._settings, self._api, self._position = messenger, messenger.settings, api, position
        self.lanes, self._on_message = lanes, on_message
        self.me = ""
        """Our user id."""
        self.before: Callable[[str], None] = lambda channel: None
        """Called with a channel before one of its messages enters its lane."""
        self.latest: dict[str, str] = {}
        """Latest message to us, by conversation."""
        self._people = SlackNames(api)
        self.files = SlackFiles(api, messenger.settings)

    def on_request(self, line: SlackSocket, request: SocketModeRequest) -> None:
        payload, envelope = request.payload, request.envelope_id
        match request.type:
            case "events_api":
                event = payload.get("event") or {}
                if message := parse.parse_event(event, self.me):
                    self._on_message_event(message, lambda: line.acknowledge(envelope))
                    return
            case "interactive":
                if incoming := parse.parse_button(payload, per_user=self._settings.per_user):
                    self._on_choice(incoming, lambda: line.acknowledge(envelope))
                    return
            case "slash_commands":
                incoming = parse.parse_command(payload, self._messenger.commands, per_user=self._settings.per_user)
                # nobody sees that a command was given unless we show it
                reply = {"response_type": "ephemeral", "text": escape_html(incoming.text)[:500]}
                self._on_choice(incoming, lambda: line.acknowledge(envelope, reply))
                return
        self.lanes.put(f"ignored {envelope}", lambda: line.acknowledge(envelope))

    def _on_message_event(self, message: SlackMessage, acknowledge: Job) -> None:
        entry = self._position.start(to_micros(message.ts))

        async def job() -> None:
            await self.deliver(message, entry)
            await acknowledge()

        self.before(message.channel)
        self.lanes.put(message.channel, job)

    def _on_choice(self, incoming: IncomingMessage, acknowledge: Job) -> None:
        async def job() -> None:
            await self._on_message(incoming)
            await acknowledge()

        # Slack reports a failure after three seconds, however long the channel's lane is
        self.lanes.put(f"choices in {incoming.address.chat}", job)

    async def deliver(self, message: SlackMessage, entry: int) -> None:
        """Deliver a message. `entry`: its entry in the read position."""
        position, wire = self._position, message.wire
        incoming = parse.to_incoming(message, addressed=self._is_addressed(message), per_user=self._settings.per_user)
        again = position.first_name(str(wire.get("client_msg_id", "")), message.name) != message.name
        if not again and not position.was_delivered(incoming.id):
            if incoming.addressed or self._settings.group == "all":
                incoming = await self._complete(incoming, message)
            else:
                text = str(wire.get("text", ""))
                incoming = replace(incoming, text=await self._people.plain_words(text, asks=False))
            await self._on_message(incoming)
            for name in message.names:
                position.mark_delivered(name)
        # not if it failed or was cancelled: then it is read again
        position.finish(entry)

    def _is_addressed(self, message: SlackMessage) -> bool:
        """In a channel: it mentions us, replies to us, or is in a thread below a message to us."""
        if mentions(str(message.wire.get("text", "")), self.me):
            return True
        if not message.thread:
            return False
        part = self._position.places.get(message.place)
        return message.wire.get("parent_user_id") == self.me or part in ("hangs", "ours")

    async def _complete(self, incoming: IncomingMessage, message: SlackMessage) -> IncomingMessage:
        """Add text and name, and for people with access also files and quotes."""
        people, wire = self._people, message.wire
        name = await people.name(incoming.sender)
        text = await people.plain_words(str(wire.get("text", "")), self.me)
        incoming = replace(incoming, name=name, text=text, quoted=await self._quote_shared(message))
        if not await self._messenger.may_fetch(incoming):
            return incoming
        quoted = incoming.quoted or await self._thread_context(message)
        self._visit(message)
        downloads = await self.files.fetch(message.files)
        return downloads.attach_to(replace(incoming, quoted=quoted))

    def _visit(self, message: SlackMessage) -> None:
        position = self._position
        position.visit(message.channel)
        if message.thread:
            hangs = (
                position.places.get(message.place) in ("hangs", "ours") or message.wire.get("parent_user_id") == self.me
            )
            position.visit(message.place, "ours" if hangs else "called")
        elif not message.direct:
            position.visit(f"{message.channel}/{message.ts}", "hangs")
        put_bounded(self.latest, message.place, message.ts, MAX_LATEST)

    async def _quote_shared(self, message: SlackMessage) -> str:
        shared = [
            f"{who}: {await self._people.plain_words(text)}" if who else await self._people.plain_words(text)
            for who, text in parse.list_shared(message.wire)
        ]
        return "Forwarded:\n" + "\n".join(shared) if shared else ""

    async def _thread_context(self, message: SlackMessage) -> str:
        """Messages of a thread before we were called into it."""
        known = self._position.places.get(message.place, "hangs")
        if not message.thread or known != "hangs" or message.changed:
            return ""
        try:
            messages = await self._api.pages(
                "reading a thread", "conversations_replies", "messages", channel=message.channel, ts=message.thread
            )
        except DeliveryError as error:
            log.info("reading a thread of %s failed: %s", message.channel, error)
            return ""
        before = [each for each in messages if to_micros(each["ts"]) < to_micros(message.ts)]
        lines = [await self._format_line(each) for each in (*before[:1], *before[1:][-MAX_THREAD_MESSAGES:])]
        return "\n".join(line for line in lines if line)

    async def _format_line(self, wire: dict[str, Any]) -> str:
        text = await self._people.plain_words(str(wire.get("text", "")))
        if not text or wire.get("subtype") == "tombstone":
            return ""
        person = wire.get("user", "")
        who = await self._people.name(person) if person else str(wire.get("username", "a program"))
        return f"{who}: {text[:MAX_THREAD_CHARS]}{' …' if len(text) > MAX_THREAD_CHARS else ''}"
