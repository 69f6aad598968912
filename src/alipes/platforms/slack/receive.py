"""Receives from Slack: envelopes become messages, in order per channel, and are acknowledged; gaps are read first."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
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
from alipes.platforms.markup import escape_html
from alipes.platforms.messenger import Messenger
from alipes.platforms.slack import parse
from alipes.platforms.slack.parse import SlackMessage, SlackNames, mentions
from alipes.platforms.slack.settings import SlackConfig
from alipes.platforms.slack.socket import SlackSocket
from alipes.platforms.slack.web_api import UPLOAD_TIMEOUT, SlackApi, error_code
from alipes.platforms.state_files import MAX_AGE, ReadPosition, ReadState, put_bounded
from alipes.runtime.tasks import backoff


class SlackFiles:
    """Downloads with the bot's token, which is sent to Slack only."""

    def __init__(self, api: SlackApi, settings: SlackConfig) -> None:
        self._api, self._settings = api, settings
        self._headers = {"Authorization": f"Bearer {settings.token.reveal()}"}

    async def fetch(self, listed: list[dict[str, Any]]) -> Downloads:
        settings = self._settings
        downloads = Downloads(settings.data_folder / "files", settings.largest, settings.picture)
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
        messenger: Messenger[SlackConfig],
        api: SlackApi,
        position: SlackReadPosition,
        lanes: Lanes,
        on_message: OnMessage,
    ) -> None:
        self._messenger, self._settings, self._api, self._position = messenger, messenger.settings, api, position
        self.lanes, self._on_message = lanes, on_message
        self.me = ""
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


READERS = 4
"""Channels that are read at the same time."""
MAX_WAITED_FOR = 40
"""Channels where someone wrote to us lately: new messages there wait for the missed ones."""
MAX_OTHER_CHANNELS = 200
"""Other channels at most; Slack allows about fifty calls a minute."""
THREAD_LOOKBACK = 3 * 86_400 * 1_000_000
"""How far back threads are looked for that may have new replies, in microseconds."""
MAX_ATTEMPTS = 6
KINDS = "im,mpim,public_channel,private_channel"


class SlackBackfill:
    """Reads the gaps. The read position does not move meanwhile, so an interrupted backfill starts again."""

    def __init__(self, api: SlackApi, position: SlackReadPosition, receiver: SlackReceiver) -> None:
        self._api, self._position, self._receiver = api, position, receiver
        self._few = asyncio.Semaphore(READERS)
        self._since = 0
        self._read: set[str] = set()
        """Channels that were read since the gap, or will be before anything else happens there."""
        receiver.before = self.before

    def read(self) -> None:
        """Start after a gap, when a socket is open again: missed messages go first in each lane."""
        self._since, self._read = self._position.since(), set()
        known = list(dict.fromkeys(place.partition("/")[0] for place in reversed(self._position.places)))
        for channel in known[:MAX_WAITED_FOR]:
            self._put(channel, MAX_ATTEMPTS)
        held = self._position.hold()
        self._receiver.lanes.put("other channels", partial(self._read_other_channels, known, held))

    def before(self, channel: str) -> None:
        """A message arrived in a channel: read the missed ones before it."""
        if channel not in self._read:
            self._put(channel, 1)

    def _put(self, channel: str, tries: int) -> None:
        self._read.add(channel)
        since, held = self._since, self._position.hold()
        self._receiver.lanes.put(channel, partial(self._read_channel, channel, since, held, tries))

    async def _read_channel(self, channel: str, since: int, held: int, tries: int) -> None:
        async with self._few:
            missed = await self._try_find(channel, since, tries)
        if missed is None and tries < MAX_ATTEMPTS:
            self._read.discard(channel)  # nobody waits for it now: `_read_other_channels` reads it later
            missed = []
        await self._deliver(missed, held)

    async def _read_other_channels(self, known: list[str], held: int) -> None:
        """Someone may have mentioned us in a channel that we did not know."""
        since = self._since
        try:
            found = await self._with_retries(
                MAX_ATTEMPTS, "users_conversations", "channels", types=KINDS, exclude_archived=True
            )
        except DeliveryError as error:
            log.warning("listing the channels in Slack failed: %s", error)
            found = []
        others = [str(each["id"]) for each in found if each["id"] not in known]
        for channel in [*known[MAX_WAITED_FOR:], *others[:MAX_OTHER_CHANNELS]]:
            if channel not in self._read:
                missed, mine = await self._try_find(channel, since, MAX_ATTEMPTS), self._position.hold()
                self._read.add(channel)
                self._receiver.lanes.put(channel, partial(self._deliver, missed, mine))
        self._position.finish(held)

    async def _deliver(self, missed: list[SlackMessage] | None, held: int) -> None:
        if missed is None:
            return  # the position stays, so that it is read at the next occasion
        for message in missed:
            await self._receiver.deliver(message, self._position.start(to_micros(message.ts)))
        self._position.finish(held)

    async def _try_find(self, channel: str, since: int, tries: int) -> list[SlackMessage] | None:
        """Missed messages of a channel; None if reading failed."""
        try:
            return await self._find_missed(channel, since, tries)
        except Undeliverable:
            self._position.forget(channel)
        except DeliveryError as error:
            log.warning("reading missed messages in %s failed: %s", channel, error)
            return [] if error_code(error) == "missing_scope" else None
        return []

    async def _find_missed(self, channel: str, since: int, tries: int) -> list[SlackMessage]:
        early = since - THREAD_LOOKBACK
        around = await self._with_retries(
            tries,
            "conversations_history",
            "messages",
            channel=channel,
            oldest=to_timestamp(early),
            enough=lambda last: to_micros(last["ts"]) <= since,  # newest first
        )
        threads = {each["ts"] for each in around if to_micros(each.get("latest_reply") or "0") > since}
        mine = (place.partition("/") for place in self._position.places)
        threads |= {ts for here, _, ts in mine if here == channel and ts and to_micros(ts) < early}
        found = {each["ts"]: each for each in around}
        for thread in sorted(threads):
            replies = await self._with_retries(
                tries, "conversations_replies", "messages", channel=channel, ts=thread, oldest=to_timestamp(since)
            )
            found |= {each["ts"]: each for each in replies}
        missed = sorted((ts for ts in found if to_micros(ts) > since), key=to_micros)
        return [SlackMessage(channel, found[ts]) for ts in missed if parse.is_from_person(found[ts], self._receiver.me)]

    async def _with_retries(self, tries: int, method: str, what: str, **arguments: Any) -> list[dict[str, Any]]:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._api.pages("reading messages", method, what, **arguments)
            except Undeliverable:
                raise
            except DeliveryError as error:
                if attempt == tries or error_code(error) == "missing_scope":
                    raise
                await asyncio.sleep(backoff(attempt) if error.retry_after is None else error.retry_after)
