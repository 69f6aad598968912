"""Reads messages that were missed while Slack was disconnected, channel by channel, before newer ones."""

import asyncio
import logging
from functools import partial
from typing import Any

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.platforms.slack import parse
from alipes.platforms.slack.parse import SlackMessage
from alipes.platforms.slack.receive import SlackReadPosition, SlackReceiver, to_micros, to_timestamp
from alipes.platforms.slack.web_api import SlackApi, error_code
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

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
