"""What was said in Slack while no line was open: read channel by channel, before what comes afterwards."""

import asyncio
import logging
from typing import Any

from alipes.kernel.errors import DeliveryError, Gone
from alipes.platforms import slack_inbound as inbound
from alipes.platforms.slack_calls import Calls
from alipes.platforms.slack_inbound import Heard
from alipes.platforms.slack_listening import Listening
from alipes.platforms.slack_seen import Seen, moment, stamp
from alipes.runtime.retry import backoff

log = logging.getLogger(__name__)

READERS = 4
"""Channels that are read at once."""
CHANNELS = 200
PAGES = 5
PAGE = 200
AROUND = 3 * 86_400 * 1_000_000
"""So far back messages are looked at from which a thread may hang that went on meanwhile."""
TRIES = 6
KINDS = "im,mpim,public_channel,private_channel"


class Gaps:
    """Reading holds the mark: if it is cut off, it begins again at the next start."""

    def __init__(self, calls: Calls, seen: Seen, listening: Listening) -> None:
        self._calls, self._seen, self._listening = calls, seen, listening
        self._few = asyncio.Semaphore(READERS)

    def read(self) -> None:
        """Now, and first in each lane: old before new."""
        since = self._seen.since()
        known = list(dict.fromkeys(place.partition("/")[0] for place in reversed(self._seen.places)))
        held = self._seen.hold()
        for channel in known:
            self._put(channel, since)
        self._listening.lanes.put("where we are", lambda: self._look_around(set(known), since, held))

    def _put(self, channel: str, since: int) -> None:
        held = self._seen.hold()
        self._listening.lanes.put(channel, lambda: self._read(channel, since, held))

    async def _look_around(self, known: set[str], since: int, held: int) -> None:
        """Where nobody spoke to us before, someone may have called us meanwhile."""
        try:
            found = await self._pages(
                "users_conversations", "channels", types=KINDS, exclude_archived=True, limit=PAGE
            )
        except DeliveryError as error:
            log.warning("where else we are in Slack could not be read: %s", error)
            found = []
        for channel in [str(each["id"]) for each in found if each["id"] not in known][:CHANNELS]:
            self._put(channel, since)
        self._seen.done(held)

    async def _read(self, channel: str, since: int, held: int) -> None:
        async with self._few:
            try:
                missed = await self._missed(channel, since)
            except Gone:
                self._seen.forget(channel)
                missed = []
            except DeliveryError as error:
                log.warning("reading what was said in %s meanwhile failed: %s", channel, error)
                missed = []
        for said in missed:
            await self._listening.hand_over(said, self._seen.begin(moment(said.ts)))
        self._seen.done(held)

    async def _missed(self, channel: str, since: int) -> list[Heard]:
        early = since - AROUND
        around = await self._pages(
            "conversations_history", "messages", channel=channel, oldest=stamp(early), limit=PAGE
        )
        threads = {each["ts"] for each in around if moment(each.get("latest_reply") or "0") > since}
        mine = (place.partition("/") for place in self._seen.places)
        threads |= {ts for here, _, ts in mine if here == channel and ts and moment(ts) < early}
        found = {each["ts"]: each for each in around}
        for thread in sorted(threads):
            found |= await self._replies(channel, thread, since)
        missed = sorted((ts for ts in found if moment(ts) > since), key=moment)
        return [Heard(channel, found[ts]) for ts in missed if inbound.spoken(found[ts], self._listening.me)]

    async def _replies(self, channel: str, thread: str, since: int) -> dict[str, dict[str, Any]]:
        replies = await self._pages(
            "conversations_replies", "messages", channel=channel, ts=thread, oldest=stamp(since), limit=PAGE
        )
        return {each["ts"]: each for each in replies}

    async def _pages(self, method: str, what: str, **arguments: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for _ in range(PAGES):
            told = await self._patiently(method, **arguments)
            found += told[what]
            cursor = (told.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                break
            arguments["cursor"] = cursor
        return found

    async def _patiently(self, method: str, **arguments: Any) -> dict[str, Any]:
        for attempt in range(1, TRIES):
            try:
                return await self._calls("reading what was said", method, **arguments)
            except Gone:
                raise
            except DeliveryError as error:
                await asyncio.sleep(backoff(attempt) if error.retry_after is None else error.retry_after)
        return await self._calls("reading what was said", method, **arguments)
