"""One try at one debt, and what follows when it fails: later, never, or too late. It waits for nobody."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from weakref import WeakValueDictionary

from alipes.gateway.outbound.send import BEGUN, Payer
from alipes.gateway.platform_runner import Channel
from alipes.gateway.policy import Counts, Group, Rules
from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.formatting import brief, count, span
from alipes.kernel.outbox import Debt, Outbound
from alipes.store.store import Store

log = logging.getLogger(__name__)
LONGEST = 60.0
"""Seconds between two tries at most, unless the platform asks for more."""
FARTHEST = 900.0
"""Seconds that a try is put off at most, whatever the platform asks for: what is due later than that was not
put off by us, but the clock was set back."""
AT_ONCE = 64
"""Messages that are on their way on one platform at most."""
CUT_OFF = "cut off while it was being sent"
OUTAGE = 2
"""Chats in which nothing arrives, and nowhere else either: it is the platform, not what is sent."""


class Tries:
    """Decides what becomes of each debt; in which order they are tried is for others to say."""

    def __init__(
        self,
        store: Store,
        platforms: Collection[str],
        rules: Rules,
        *,
        counts: Counts,
        clock: Callable[[], float] = time.time,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._outbox, self._rules, self._counts = store.outbox, rules, counts
        self._clock, self._dice = clock, dice
        self._payer = Payer(store.outbox)
        self._limits = {name: asyncio.Semaphore(AT_ONCE) for name in platforms}
        self._failing: dict[str, set[str]] = {name: set() for name in platforms}
        """By platform, the chats in which something failed since the last thing arrived anywhere."""

    async def first(self, channel: Channel, lane: str) -> tuple[Debt | None, bool]:
        """Try the first of what is owed there, once; whether it was tried. What becomes of it is a row when
        this returns. The caller has the chat to itself."""
        async with self._limits[channel.name]:
            debt = await self._outbox.take(lane, self._plain)
            if debt is None or self.wait(debt.due) or self.late(debt):
                return debt, False
            if debt.state == "trying" or await self._passable(channel, debt):
                await self._pay(channel, debt)
            return debt, True

    def _plain(self, debt: Debt) -> bool:
        """May it be tried now, without further ado?"""
        return not self.wait(debt.due) and not debt.doubtful and not self.late(debt)

    def wait(self, due: float) -> float:
        """Seconds until then."""
        wait = due - self._clock()
        return wait if 0 < wait <= FARTHEST else 0.0

    async def _pay(self, channel: Channel, debt: Debt) -> None:
        debt = debt if debt.state == "trying" else await self._outbox.begin(debt)
        try:
            paid = await self._payer.pay(channel, debt)
        except DeliveryError as error:
            await self._failed(channel, debt, error)
            return
        self._counts.sent[channel.name] += 1
        self._counts.uncertain[channel.name] += paid.uncertain and not debt.uncertain
        self._failing[channel.name].clear()
        channel.sending = ""

    async def _passable(self, channel: Channel, debt: Debt) -> bool:
        """What may be there is sent again once only: so not into a hole, if that can be found out."""
        if not debt.doubtful or channel.talents.remembers or not channel.talents.typing:
            return True
        try:
            await channel.typing(debt.outbound.address)
        except DeliveryError as error:
            pause = LONGEST / 4 if error.retry_after is None else min(error.retry_after, FARTHEST)
            why = f"it may be there; nothing gets through now: {error}"
            await self._outbox.postpone(debt, self._clock() + pause, why)
            return False
        return True

    async def _failed(self, channel: Channel, debt: Debt, error: DeliveryError) -> None:
        debt = await self._outbox.find(debt.outbound.id) or debt  # some of it may have arrived
        name, now, uncertain = channel.name, self._clock(), error.uncertain and not channel.talents.remembers
        failing = self._failing[name]
        failing.add(debt.outbound.lane)
        outage = len(failing) >= OUTAGE
        channel.sending = str(error) if outage else channel.sending
        if isinstance(error, Gone):
            await self._bury(channel, debt, str(error))
        elif uncertain and debt.doubtful:
            await self._lose_track(channel, debt, str(error))
        elif debt.attempts >= self._rules.tries and error.retry_after is None and not outage:
            await self._bury(channel, debt, f"given up after {debt.attempts} tries: {error}")
        else:
            asked = error.retry_after
            pause = min(asked, FARTHEST) if asked is not None else self._pause(debt.attempts)
            counts = asked is None and not outage
            await self._outbox.postpone(debt, now + pause, str(error), uncertain=uncertain, counts=counts)
            self._counts.postponed[name] += 1
            self._counts.uncertain[name] += uncertain
            log.info("%s was not sent, and is tried again in %.1f s: %s", debt.outbound.id, pause, error)

    def _pause(self, attempts: int) -> float:
        return float(min(LONGEST, 2.0 ** max(0, min(attempts, 32) - 1)) * (0.5 + self._dice() / 2))

    async def cut_off(self, channel: Channel, debt: Debt) -> None:
        """It was being sent when an earlier process died. Once more it is sent, and not a third time; unless
        to send it again does no harm."""
        shown = sum(not each.startswith(BEGUN) for each in debt.drafts)
        harmless = channel.talents.remembers or len(debt.paid) < shown  # a draft is only changed
        self._counts.uncertain[channel.name] += not debt.uncertain
        if debt.doubtful and not harmless:
            await self._lose_track(channel, debt, CUT_OFF)
        else:
            await self._outbox.postpone(debt, 0.0, CUT_OFF, uncertain=True)

    async def _lose_track(self, channel: Channel, debt: Debt, why: str) -> None:
        """It was sent twice, and may be there once, twice or not at all: the chat is told."""
        if not debt.outbound.notice:
            await self._outbox.owe(_unsure(debt))
        await self._bury(channel, debt, f"it may be there, and was sent again once already: {why}")

    async def _bury(self, channel: Channel, debt: Debt, why: str) -> None:
        await self._outbox.give_up(debt, "dead", why)
        self._counts.dead[channel.name] += 1
        log.warning("%s is not sent any more: %s", debt.outbound.id, why)

    def late(self, debt: Debt) -> bool:
        """Is it too old to be sent?"""
        return self._clock() >= (debt.outbound.expires or debt.created + self._rules.expiry)

    async def expire(self, channel: Channel, lane: str) -> None:
        """Give up what is too old, all of it, and say so once; nobody misses a late notice."""
        missed: list[Debt] = []
        while (debt := await self._outbox.head(lane)) is not None and self.late(debt):
            await self._outbox.give_up(debt, "expired", "too old to be sent")
            self._counts.expired[channel.name] += 1
            if not debt.outbound.notice:
                missed.append(debt)
        if missed:
            notice = _notice(missed, self._clock())
            log.warning("%d messages to %s were too old to be sent", len(missed), lane)
            await self._outbox.owe(notice)


def _unsure(debt: Debt) -> Outbound:
    text = "I cannot tell whether my last message arrived here. If something is missing, ask me for it again."
    return Outbound(f"unsure:{debt.number}", debt.outbound.address, text, notice=True)


def _notice(missed: list[Debt], now: float) -> Outbound:
    first = missed[0]
    words = f": {brief(first.outbound.text)}" if first.outbound.text else ""
    more = f" The same goes for {count(len(missed) - 1, 'message')} after it." if len(missed) > 1 else ""
    old = span(now - first.created)
    text = f"A message from {old} ago could not be delivered in time and was dropped{words}.{more}"
    return Outbound(f"expired:{first.number}:{int(now)}", first.outbound.address, text, notice=True)


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
