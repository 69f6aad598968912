"""What was said in Slack while no line was open: read channel by channel, before what comes afterwards."""

import asyncio
import logging
from functools import partial
from typing import Any

from alipes.kernel.errors import DeliveryError, Gone
from alipes.platforms.slack import parse
from alipes.platforms.slack.parse import Heard
from alipes.platforms.slack.receive import Listening, Seen, moment, stamp
from alipes.platforms.slack.web_api import Calls, code
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

READERS = 4
"""Channels that are read at once."""
FIRST = 40
"""Channels where someone spoke to us lately: what is said there now waits for what was said before."""
CHANNELS = 200
"""Others, at most; Slack takes some fifty questions a minute, and nobody there shall wait so long."""
AROUND = 3 * 86_400 * 1_000_000
"""So far back messages are looked at from which a thread may hang that went on meanwhile."""
TRIES = 6
KINDS = "im,mpim,public_channel,private_channel"


class Gaps:
    """Reading holds the mark: if it is cut off, it begins again at the next start."""

    def __init__(self, calls: Calls, seen: Seen, listening: Listening) -> None:
        self._calls, self._seen, self._listening = calls, seen, listening
        self._few = asyncio.Semaphore(READERS)
        self._since = 0
        self._read: set[str] = set()
        """Channels that were read since the gap, or are before anything else happens there."""
        listening.before = self.before

    def read(self) -> None:
        """There was a gap, and now a line is up: first in each lane, old before new."""
        self._since, self._read = self._seen.since(), set()
        known = list(dict.fromkeys(place.partition("/")[0] for place in reversed(self._seen.places)))
        for channel in known[:FIRST]:
            self._put(channel, TRIES)
        held = self._seen.hold()
        self._listening.lanes.put("where we are", partial(self._look_around, known, held))

    def before(self, channel: str) -> None:
        """Something was said there just now: what was missed goes before it."""
        if channel not in self._read:
            self._put(channel, 1)

    def _put(self, channel: str, tries: int) -> None:
        self._read.add(channel)
        since, held = self._since, self._seen.hold()
        self._listening.lanes.put(channel, partial(self._read_here, channel, since, held, tries))

    async def _read_here(self, channel: str, since: int, held: int, tries: int) -> None:
        async with self._few:
            missed = await self._found(channel, since, tries)
        if missed is None and tries < TRIES:
            self._read.discard(channel)  # nobody waits for that now: `_look_around` comes by
            missed = []
        await self._hand_over(missed, held)

    async def _look_around(self, known: list[str], held: int) -> None:
        """Where nobody spoke to us before, someone may have called us meanwhile."""
        since = self._since
        try:
            found = await self._patiently(
                TRIES, "users_conversations", "channels", types=KINDS, exclude_archived=True
            )
        except DeliveryError as error:
            log.warning("where else we are in Slack could not be read: %s", error)
            found = []
        others = [str(each["id"]) for each in found if each["id"] not in known]
        for channel in [*known[FIRST:], *others[:CHANNELS]]:
            if channel not in self._read:
                missed, mine = await self._found(channel, since, TRIES), self._seen.hold()
                self._read.add(channel)
                self._listening.lanes.put(channel, partial(self._hand_over, missed, mine))
        self._seen.done(held)

    async def _hand_over(self, missed: list[Heard] | None, held: int) -> None:
        if missed is None:
            return  # the mark stays where it is, so that it is read at the next occasion
        for said in missed:
            await self._listening.hand_over(said, self._seen.begin(moment(said.ts)))
        self._seen.done(held)

    async def _found(self, channel: str, since: int, tries: int) -> list[Heard] | None:
        """What was missed there; None if that could not be learned."""
        try:
            return await self._missed(channel, since, tries)
        except Gone:
            self._seen.forget(channel)
        except DeliveryError as error:
            log.warning("reading what was said in %s meanwhile failed: %s", channel, error)
            return [] if code(error) == "missing_scope" else None
        return []

    async def _missed(self, channel: str, since: int, tries: int) -> list[Heard]:
        early = since - AROUND
        around = await self._patiently(
            tries,
            "conversations_history",
            "messages",
            channel=channel,
            oldest=stamp(early),
            enough=lambda last: moment(last["ts"]) <= since,  # the latest come first
        )
        threads = {each["ts"] for each in around if moment(each.get("latest_reply") or "0") > since}
        mine = (place.partition("/") for place in self._seen.places)
        threads |= {ts for here, _, ts in mine if here == channel and ts and moment(ts) < early}
        found = {each["ts"]: each for each in around}
        for thread in sorted(threads):
            found |= await self._replies(channel, thread, since, tries)
        missed = sorted((ts for ts in found if moment(ts) > since), key=moment)
        return [Heard(channel, found[ts]) for ts in missed if parse.spoken(found[ts], self._listening.me)]

    async def _replies(self, channel: str, thread: str, since: int, tries: int) -> dict[str, dict[str, Any]]:
        replies = await self._patiently(
            tries, "conversations_replies", "messages", channel=channel, ts=thread, oldest=stamp(since)
        )
        return {each["ts"]: each for each in replies}

    async def _patiently(self, tries: int, method: str, what: str, **arguments: Any) -> list[dict[str, Any]]:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._calls.pages("reading what was said", method, what, **arguments)
            except Gone:
                raise
            except DeliveryError as error:
                if attempt == tries or code(error) == "missing_scope":
                    raise
                await asyncio.sleep(backoff(attempt) if error.retry_after is None else error.retry_after)
