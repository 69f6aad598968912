"""One time of listening to Slack: envelopes become arrivals, in order per channel; then Slack is told so."""

import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from slack_sdk.socket_mode.request import SocketModeRequest

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platforms import Arrival, Take, Welcome
from alipes.platforms.kept import put
from alipes.platforms.lanes import Job, Lanes
from alipes.platforms.slack import SlackSettings, inbound
from alipes.platforms.slack.calls import Calls
from alipes.platforms.slack.files import Files
from alipes.platforms.slack.inbound import Heard
from alipes.platforms.slack.markup import escape
from alipes.platforms.slack.seen import Seen, moment
from alipes.platforms.slack.socket import Line
from alipes.platforms.slack.words import People, mentions

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
                if said := inbound.heard(event, self.me):
                    self._said(said, lambda: line.acknowledge(envelope))
                    return
            case "interactive":
                if made := inbound.pressed(payload, per_user=self._settings.per_user):
                    self._chosen(made, lambda: line.acknowledge(envelope))
                    return
            case "slash_commands":
                made = inbound.chosen(payload, self.known, per_user=self._settings.per_user)
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
        made = inbound.arrival(said, addressed=self._meant(said), per_user=self._settings.per_user)
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
            for who, text in inbound.passed_on(said.wire)
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
