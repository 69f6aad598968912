"""One time of listening to Slack: envelopes become arrivals, in order per channel; then Slack is told so."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from slack_sdk.socket_mode.request import SocketModeRequest

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Arrival, Take, Welcome
from alipes.platforms.connection import Job, Lanes
from alipes.platforms.slack import parse
from alipes.platforms.slack.files import Files
from alipes.platforms.slack.markup import escape
from alipes.platforms.slack.parse import Heard, People, mentions
from alipes.platforms.slack.settings import SlackSettings
from alipes.platforms.slack.socket import Line
from alipes.platforms.slack.web_api import Calls
from alipes.platforms.state_files import Progress, put, read

OLDEST = 86_400.0
"""Seconds after which a message that nobody heard is not answered any more."""
OVERLAP = 30.0
"""Seconds by which messages of different channels may overtake each other on their way to us."""
PLACES = 300
HANDED = 2000
SAID = 500
Part: TypeAlias = Literal["", "hangs", "ours", "called"]
"""What we have to do with a place: it is a channel; a thread that hangs from what was said to us, and nobody
spoke in it yet; the same, and someone did; a thread of others into which we were called."""


class Kept(Struct):
    mark: int = 0
    """Everything up to this moment (in millionths of a second, as Slack names messages) was handed over."""
    began: int = 0
    """Before this we were not there at all."""
    places: dict[str, Part] = {}
    """Channels, and threads (`CHANNEL/THREAD`), where someone spoke to us; the latest last."""
    said: dict[str, str] = {}
    """What people's own programs call a message, and what we do: Slack may tell of one twice, as of two."""


class Seen(Progress):
    """And where people write to us, and under which names."""

    def __init__(self, path: Path) -> None:
        self._kept = read(path, Kept)
        self._kept.began = self._kept.began or int(time.time() * 1_000_000)
        super().__init__(path, self._kept.mark)
        self._handed: dict[str, None] = {}
        self.changed.set()

    @property
    def places(self) -> dict[str, Part]:
        return dict(self._kept.places)

    def since(self) -> int:
        """The moment after which to read: nothing from before we were there, and nothing that is too old."""
        oldest = int((time.time() - OLDEST) * 1_000_000)
        return max(self.mark - int(OVERLAP * 1_000_000), oldest, self._kept.began)

    def handed(self, name: str) -> bool:
        """Was this one handed over before, by us and lately?"""
        return name in self._handed

    def hand(self, name: str) -> None:
        put(self._handed, name, None, HANDED)

    def said_as(self, client: str, name: str) -> str:
        """What we called the message first that someone's own program calls `client`."""
        if client and client not in self._kept.said:
            put(self._kept.said, client, name, SAID)
        return self._kept.said.get(client, name)

    def visit(self, place: str, part: Part = "") -> None:
        fresh = not part and place not in self._kept.places
        put(self._kept.places, place, part, PLACES)
        self.changed.set()
        if fresh:  # a channel that is known when the next line is up is read before what comes by it
            self.flush()

    def forget(self, place: str) -> None:
        for known in [each for each in self._kept.places if each.partition("/")[0] == place]:
            del self._kept.places[known]
        self.changed.set()

    def _encoded(self) -> bytes:
        kept = self._kept
        return msgspec.json.encode(Kept(self.mark, kept.began, kept.places, kept.said))


def moment(ts: str) -> int:
    """`1731686400.123456` as a number of millionths."""
    seconds, _, rest = ts.partition(".")
    return int(seconds) * 1_000_000 + int(f"{rest:0<6.6}" or 0)


def stamp(moment: int) -> str:
    return f"{moment // 1_000_000}.{moment % 1_000_000:06d}"


log = logging.getLogger(__name__)

EARLIER = 20
"""Messages of a thread, besides its first, that who is called into it is shown."""
LONG = 600
"""Characters of each of these."""
HEARD = 1000


class Door(Struct, frozen=True):
    """What is on the other side: who takes, and whose files are fetched."""

    take: Take
    welcome: Welcome


class Listening:
    """`hear` is called by the line at once and never waits; the rest happens in lanes."""

    def __init__(
        self, settings: SlackSettings, calls: Calls, seen: Seen, lanes: Lanes, *, door: Door
    ) -> None:
        self._settings, self._calls, self._seen, self._door = settings, calls, seen, door
        self.lanes = lanes
        self.me = ""
        """Our own id, as people mention us."""
        self.known: frozenset[str] = frozenset()
        """The names of our commands."""
        self.before: Callable[[str], None] = lambda channel: None
        """Called with a channel before something that was said there gets into its lane."""
        self.latest: dict[str, str] = {}
        """By the lane of a conversation: what was said to us there last."""
        self._people = People(calls)
        self.files = Files(
            calls,
            settings.token.reveal(),
            settings.folder / "files",
            largest=settings.largest,
            picture=settings.picture,
        )

    def hear(self, line: Line, request: SocketModeRequest) -> None:
        payload, envelope = request.payload, request.envelope_id
        match request.type:
            case "events_api":
                event = payload.get("event") or {}
                if said := parse.heard(event, self.me):
                    self._said(said, lambda: line.acknowledge(envelope))
                    return
            case "interactive":
                if made := parse.pressed(payload, per_user=self._settings.per_user):
                    self._chosen(made, lambda: line.acknowledge(envelope))
                    return
            case "slash_commands":
                made = parse.chosen(payload, self.known, per_user=self._settings.per_user)
                # It is not shown to anybody that a command was given, unless we do.
                told = {"response_type": "ephemeral", "text": escape(made.text)[:500]}
                self._chosen(made, lambda: line.acknowledge(envelope, told))
                return
        self.lanes.put(f"nothing in {envelope}", lambda: line.acknowledge(envelope))

    def _said(self, said: Heard, acknowledge: Job) -> None:
        begun = self._seen.begin(moment(said.ts))

        async def job() -> None:
            await self.hand_over(said, begun)
            await acknowledge()

        self.before(said.channel)
        self.lanes.put(said.channel, job)

    def _chosen(self, made: Arrival, acknowledge: Job) -> None:
        async def job() -> None:
            await self._door.take(made)
            await acknowledge()

        # Slack tells the person after three seconds that it failed, however long the channel's lane is.
        self.lanes.put(f"choices in {made.address.chat}", job)

    async def hand_over(self, said: Heard, begun: int) -> None:
        """Returns when it is kept. `begun`: as `Seen` counts it."""
        seen, wire = self._seen, said.wire
        made = parse.arrival(said, addressed=self._meant(said), per_user=self._settings.per_user)
        again = seen.said_as(str(wire.get("client_msg_id", "")), said.name) != said.name
        if not again and not seen.handed(made.id):
            if made.addressed or self._settings.group == "all":
                made = await self._whole(made, said)
            else:
                text = str(wire.get("text", ""))
                made = replace(made, text=await self._people.words(text, asks=False))
            await self._door.take(made)
            for name in said.names:
                seen.hand(name)
        # Not if it failed or was cut off: then it is read again.
        seen.done(begun)

    def _meant(self, said: Heard) -> bool:
        """In a channel: it mentions us, answers us, or is in a thread that hangs from what was said to us."""
        if mentions(str(said.wire.get("text", "")), self.me):
            return True
        if not said.thread:
            return False
        part = self._seen.places.get(f"{said.channel}/{said.thread}")
        return said.wire.get("parent_user_id") == self.me or part in ("hangs", "ours")

    async def _whole(self, made: Arrival, said: Heard) -> Arrival:
        """With its words, and for who may speak also with what is around them."""
        people, wire = self._people, said.wire
        name = await people.name(made.sender)
        text = await people.words(str(wire.get("text", "")), self.me)
        made = replace(made, name=name, text=text, quoted=await self._passed_on(said))
        if not await self._door.welcome(made):
            return made
        quoted = made.quoted or await self._so_far(said)
        self._visit(said)
        images, files, missing = await self.files.fetch(said.files)
        text = "\n".join(filter(None, (text, *missing)))
        return replace(made, images=images, files=files, text=text, quoted=quoted)

    def _visit(self, said: Heard) -> None:
        seen = self._seen
        seen.visit(said.channel)
        if said.thread:
            thread = f"{said.channel}/{said.thread}"
            hangs = seen.places.get(thread) in ("hangs", "ours") or said.wire.get("parent_user_id") == self.me
            seen.visit(thread, "ours" if hangs else "called")
        elif not said.direct:
            seen.visit(f"{said.channel}/{said.ts}", "hangs")
        put(self.latest, f"{said.channel}/{said.thread}", said.ts, HEARD)

    async def _passed_on(self, said: Heard) -> str:
        shared = [
            f"{who}: {await self._people.words(text)}" if who else await self._people.words(text)
            for who, text in parse.passed_on(said.wire)
        ]
        return "Forwarded:\n" + "\n".join(shared) if shared else ""

    async def _so_far(self, said: Heard) -> str:
        """What was said in a thread before we were called into it."""
        known = self._seen.places.get(f"{said.channel}/{said.thread}", "hangs")
        if not said.thread or known != "hangs" or said.changed:
            return ""
        try:
            messages = await self._calls.pages(
                "reading a thread", "conversations_replies", "messages", channel=said.channel, ts=said.thread
            )
        except DeliveryError as error:
            log.info("what was said before in a thread of %s could not be read: %s", said.channel, error)
            return ""
        before = [each for each in messages if moment(each["ts"]) < moment(said.ts)]
        lines = [await self._line(each) for each in (*before[:1], *before[1:][-EARLIER:])]
        return "\n".join(line for line in lines if line)

    async def _line(self, wire: dict[str, Any]) -> str:
        text = await self._people.words(str(wire.get("text", "")))
        if not text or wire.get("subtype") == "tombstone":
            return ""
        person = wire.get("user", "")
        who = await self._people.name(person) if person else str(wire.get("username", "a program"))
        return f"{who}: {text[:LONG]}{' …' if len(text) > LONG else ''}"
