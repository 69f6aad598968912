"""Pays what is owed: each chat in its order, tried again, given up, never blindly twice. It owes nothing."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

from alipes.gateway.channels import Channel
from alipes.gateway.counts import Counts
from alipes.gateway.group import Group
from alipes.gateway.manners import Rules
from alipes.gateway.trying import Tries
from alipes.kernel.delivery import Outbound
from alipes.store.opening import Store

log = logging.getLogger(__name__)
LONGEST = 60.0
"""Seconds that a timer is set for at most: a clock may be changed meanwhile."""


class Delivery:
    """One task per chat with something due, none for the others."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[str, Channel],
        rules: Rules,
        *,
        counts: Counts | None = None,
        clock: Callable[[], float] = time.time,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._outbox, self._channels, self._rules = store.outbox, channels, rules
        self._counts = counts or Counts()
        self._tries = Tries(store, channels, rules, counts=self._counts, clock=clock, dice=dice)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._group = Group()
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._rested = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled. What was cut off by the end of an earlier process is owed again first."""
        for name in self._channels:
            await self._doubt(name)
        async with asyncio.TaskGroup() as tasks:
            self._group.open(tasks)
            while True:
                await self._look()
                await asyncio.sleep(self._rules.poll)

    def lock(self, lane: str) -> asyncio.Lock:
        """Who holds it is the only one who says something there."""
        return self._locks.setdefault(lane, asyncio.Lock())

    async def owe(self, *outbounds: Outbound) -> None:
        """Owe it, and pay as soon as may be."""
        await self._outbox.owe(*outbounds)
        for outbound in outbounds:
            self.nudge(outbound.address.platform, outbound.lane)

    def nudge(self, platform: str, lane: str) -> None:
        """Something may be owed there now."""
        channel = self._channels.get(platform)
        if channel is None or not channel.ready:
            return  # all is looked for when it is ready
        if lane in self._busy:
            self._again.add(lane)
            return
        if self._group.start(self._serve(channel, lane), f"lane {lane}"):
            self._busy.add(lane)

    async def ready(self, platform: str) -> None:
        """The platform can be used now."""
        for lane in await self._due(platform):
            self.nudge(platform, lane)

    async def drained(self) -> None:
        """Return once nothing is on its way and nothing is left that could be sent now."""
        while self._group.is_open and (await self._look() or self._busy):
            self._rested.clear()
            if self._busy:
                await self._rested.wait()

    async def _look(self) -> int:
        found = 0
        for name, channel in self._channels.items():
            if channel.ready:
                for lane in await self._due(name):
                    found += 1
                    self.nudge(name, lane)
        return found

    async def _due(self, platform: str) -> list[str]:
        owed = await self._outbox.lanes(platform)
        return [lane for lane, due in owed.items() if not self._tries.wait(due)]

    async def _doubt(self, name: str) -> None:
        cut_off = await self._outbox.cut_off(name)
        for debt in cut_off:
            await self._tries.cut_off(self._channels[name], debt)
        if cut_off:
            log.warning(
                "%d messages on %s were cut off while being sent; they may be there twice", len(cut_off), name
            )

    async def _serve(self, channel: Channel, lane: str) -> None:
        try:
            while channel.ready:
                self._again.discard(lane)
                async with self.lock(lane):
                    debt, tried = await self._tries.first(channel, lane)
                if tried:
                    continue
                if debt is None:
                    if lane in self._again:
                        continue
                    return
                if wait := self._tries.wait(debt.due):
                    loop = asyncio.get_running_loop()
                    loop.call_later(min(wait, LONGEST), self.nudge, channel.name, lane)
                    return
                if self._tries.late(debt):
                    await self._tries.expire(channel, lane)
        finally:
            self._busy.discard(lane)
            self._rested.set()
