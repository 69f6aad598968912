"""Delivers the outbox: one ordered lane per chat, part by part; failed messages are retried, dropped or reported."""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Collection, Mapping
from weakref import WeakValueDictionary

from msgspec import structs

from alipes.gateway.platform_runner import PlatformRunner
from alipes.gateway.policy import GatewayCounters, GatewayPolicy, LateTaskGroup
from alipes.kernel.errors import DeliveryError, FileStoreError, Undeliverable
from alipes.kernel.formatting import format_count, format_duration, format_excerpt
from alipes.kernel.outbox import Delivery, Media, Outbound
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Envelope, HomeChanged
from alipes.runtime.blobs.chat_files import ChatFiles
from alipes.runtime.subscription import HomeSubscription
from alipes.store.sql.store import Store

MAX_DRAFT_AGE = 3600.0
"""Seconds by which a draft may be older than the message it becomes."""
UNCONFIRMED = "?"
"""Prefix of a draft row whose send was started: its message id is not known yet."""


class Sender:
    """Stores each part before it sends the next, so that another process knows what was delivered."""

    def __init__(self, store: Store, files: ChatFiles | None, before_mark: Callable[[str], object]) -> None:
        """`files`: fetches the files of messages that other workers queued. `before_mark(lane)` is called before a
        delivery is stored as sent."""
        self.outbox, self._store, self._files, self._before_mark = store.outbox, store, files, before_mark

    async def send(self, runner: PlatformRunner, delivery: Delivery) -> Delivery:
        """Send a delivery that is marked as `sending`. Raises `DeliveryError`; delivered parts are stored."""
        outbound = await self._with_files(delivery.outbound)
        texts = await _format_text(runner, outbound)
        files = (_format_file(each, runner) for each in outbound.media)
        parts = [structs.replace(each, id=f"{outbound.id}#{n}") for n, each in enumerate((*texts, *files))]
        drafts = await self._find_drafts(runner, delivery, texts)
        # a draft whose message id we never learned may still be in the chat
        stray = not runner.capabilities.deduplicates and any(each.startswith(UNCONFIRMED) for each in delivery.drafts)
        first, was_tried = len(delivery.paid), delivery.doubtful or delivery.attempts > 1 or bool(delivery.why)
        for index in range(first, len(parts)):
            draft = drafts[index] if index < min(len(drafts), len(texts)) else ""
            self._store.check_lease()
            part = parts[index]
            if index == first and was_tried:
                part = structs.replace(part, tried_since=delivery.created)
            id = await self._send_part(runner, outbound, part, draft)
            rest = index + 1 < len(parts)
            self._before_mark(outbound.lane)
            delivery = await self.outbox.mark_sent(delivery, id, rest=rest, uncertain=stray)
        if delivery.state != "sent":  # there was nothing to send
            delivery = await self.outbox.mark_sent(delivery)
        await self._remove_drafts(runner, outbound, drafts[len(texts) :])
        return delivery

    async def _with_files(self, outbound: Outbound) -> Outbound:
        """The message with files of other workers fetched."""
        if self._files is None:
            return outbound
        try:
            return await self._files.fetch_outbound(outbound)
        except FileStoreError as error:
            raise DeliveryError(f"its file could not be fetched: {error}") from error

    async def _find_drafts(
        self, runner: PlatformRunner, delivery: Delivery, texts: tuple[MessagePart, ...]
    ) -> list[str]:
        """Message ids of the drafts. An unconfirmed one is sent again under its id where the platform
        deduplicates: that returns the existing message."""
        found = [each for each in delivery.drafts if not each.startswith(UNCONFIRMED)]
        names = [each.removeprefix(UNCONFIRMED) for each in delivery.drafts if each.startswith(UNCONFIRMED)]
        for name in names if texts and runner.capabilities.deduplicates else ():
            since = delivery.created - MAX_DRAFT_AGE
            part = structs.replace(texts[min(len(found), len(texts) - 1)], id=name, tried_since=since)
            id = await runner.send(delivery.outbound.address, part)
            found += [id] if id not in found else []
        return found

    async def _send_part(self, runner: PlatformRunner, outbound: Outbound, part: MessagePart, draft: str) -> str:
        if draft:
            try:
                await runner.edit(outbound.address, draft, part)
            except Undeliverable:
                pass  # the draft was deleted: send a new message
            except DeliveryError as error:  # never uncertain: editing again is harmless
                raise DeliveryError(str(error), retry_after=error.retry_after) from error
            else:
                return draft
        return await runner.send(outbound.address, part)

    async def _remove_drafts(self, runner: PlatformRunner, outbound: Outbound, left: list[str]) -> None:
        """The drafts had more messages than the final text."""
        for message in left:
            try:
                if runner.capabilities.can_delete:
                    await runner.delete(outbound.address, message)
                else:
                    await runner.edit(outbound.address, message, MessagePart(text="…", plain="…"))
            except DeliveryError:
                continue  # a leftover draft repeats only what was said


async def _format_text(runner: PlatformRunner, outbound: Outbound) -> tuple[MessagePart, ...]:
    texts = await runner.format_message(outbound.text) if outbound.text.strip() else ()
    if not texts:
        return ()
    texts = (structs.replace(texts[0], reply_to=outbound.reply_to), *texts[1:])
    return (*texts[:-1], structs.replace(texts[-1], buttons=outbound.buttons))


def _format_file(media: Media, runner: PlatformRunner) -> MessagePart:
    name = media.name or os.path.basename(media.path)
    if not os.path.isfile(media.path):
        text = f"({name} no longer exists and was not sent.)"
    elif media.kind in runner.capabilities.media:
        return MessagePart(media=media)
    elif "file" in runner.capabilities.media:
        return MessagePart(media=structs.replace(media, kind="file"))
    else:
        text = f"({name} can't be sent on this platform. It is saved at {media.path}.)"
    return MessagePart(text=text, plain=text)


log = logging.getLogger(__name__)
MAX_RETRY_PAUSE = 60.0
"""Seconds between two attempts at most, unless the platform asks for more; also the longest timer."""
MAX_POSTPONE = 900.0
"""Seconds that an attempt is postponed at most. A later due time means that the clock was set back."""
MAX_CONCURRENT = 64
"""Messages per platform that are being sent at the same time."""
INTERRUPTED = "interrupted while being sent"
OUTAGE_LANES = 2
"""If sends fail in this many chats and succeed nowhere, the whole platform counts as down."""


class DeliveryAttempts:
    """Makes single attempts and decides what happens when one fails. It does not choose the order."""

    def __init__(
        self,
        sender: Sender,
        platforms: Collection[str],
        policy: GatewayPolicy,
        *,
        counters: GatewayCounters,
        clock: Callable[[], float] = time.time,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._sender, self._outbox, self._policy, self._counters = sender, sender.outbox, policy, counters
        self._clock, self._dice = clock, dice
        self._limits = {name: asyncio.Semaphore(MAX_CONCURRENT) for name in platforms}
        self._failing: dict[str, set[str]] = {name: set() for name in platforms}
        """By platform, the lanes that failed since the last success anywhere on it."""

    async def try_first(self, runner: PlatformRunner, lane: str) -> tuple[Delivery | None, bool]:
        """Try the first delivery of a lane once. Returns it, and whether it was tried. The caller holds the
        lane's lock; the result is stored before this returns."""
        async with self._limits[runner.name]:
            delivery = await self._outbox.take(lane, self._may_start)
            if delivery is None or self.wait_time(delivery.due) or self.is_late(delivery):
                return delivery, False
            if delivery.state == "sending" or await self._is_reachable(runner, delivery):
                delivery = await self._send(runner, delivery)
            return delivery, True

    def _may_start(self, delivery: Delivery) -> bool:
        return not self.wait_time(delivery.due) and not delivery.doubtful and not self.is_late(delivery)

    def wait_time(self, due: float) -> float:
        """Seconds until `due`; zero if it is now."""
        wait = due - self._clock()
        return wait if 0 < wait <= MAX_POSTPONE else 0.0

    async def _send(self, runner: PlatformRunner, delivery: Delivery) -> Delivery:
        if delivery.state != "sending":
            taken = await self._outbox.mark_sending(delivery)
            if taken is None:  # another worker sends it
                return delivery
            delivery = taken
        try:
            sent = await self._sender.send(runner, delivery)
        except DeliveryError as error:
            await self._handle_failure(runner, delivery, error)
            return delivery
        self._counters.sent[runner.name] += 1
        self._counters.uncertain[runner.name] += sent.uncertain and not delivery.uncertain
        self._failing[runner.name].clear()
        runner.set_sending_problem("")
        return sent

    async def _is_reachable(self, runner: PlatformRunner, delivery: Delivery) -> bool:
        """Probe before a doubtful message is sent again: that is done only once, so not during an outage."""
        capabilities = runner.capabilities
        if not delivery.doubtful or capabilities.deduplicates or not capabilities.typing_seconds:
            return True
        try:
            await runner.typing(delivery.outbound.address)
        except DeliveryError as error:
            pause = MAX_RETRY_PAUSE / 4 if error.retry_after is None else min(error.retry_after, MAX_POSTPONE)
            why = f"it may have been delivered; the platform is not reachable now: {error}"
            await self._outbox.postpone(delivery, self._clock() + pause, why)
            return False
        return True

    async def _handle_failure(self, runner: PlatformRunner, delivery: Delivery, error: DeliveryError) -> None:
        delivery = await self._outbox.find(delivery.outbound.id) or delivery  # parts may have arrived
        name, now = runner.name, self._clock()
        uncertain = error.uncertain and not runner.capabilities.deduplicates
        failing = self._failing[name]
        failing.add(delivery.outbound.lane)
        outage = len(failing) >= OUTAGE_LANES
        if outage:
            runner.set_sending_problem(str(error))
        if isinstance(error, Undeliverable):
            await self._give_up(runner, delivery, str(error))
        elif uncertain and delivery.doubtful:
            await self._give_up_doubtful(runner, delivery, str(error))
        elif delivery.attempts >= self._policy.max_attempts and error.retry_after is None and not outage:
            await self._give_up(runner, delivery, f"gave up after {delivery.attempts} attempts: {error}")
        else:
            asked = error.retry_after
            pause = min(asked, MAX_POSTPONE) if asked is not None else self._retry_pause(delivery.attempts)
            counts = asked is None and not outage
            await self._outbox.postpone(delivery, now + pause, str(error), uncertain=uncertain, counts=counts)
            self._counters.postponed[name] += 1
            self._counters.uncertain[name] += uncertain
            log.info("%s was not sent; retrying in %.1f s: %s", delivery.outbound.id, pause, error)

    def _retry_pause(self, attempts: int) -> float:
        longest = min(MAX_RETRY_PAUSE, 2.0 ** max(0, min(attempts, 32) - 1))
        return float(longest * (0.5 + self._dice() / 2))

    async def handle_interrupted(self, runner: PlatformRunner, delivery: Delivery) -> None:
        """An earlier process died while sending this. It is sent once more and not a third time, unless
        sending again is harmless."""
        drafts = sum(not each.startswith(UNCONFIRMED) for each in delivery.drafts)
        harmless = runner.capabilities.deduplicates or len(delivery.paid) < drafts  # a draft is only edited
        self._counters.uncertain[runner.name] += not delivery.uncertain
        if delivery.doubtful and not harmless:
            await self._give_up_doubtful(runner, delivery, INTERRUPTED)
        else:
            await self._outbox.postpone(delivery, 0.0, INTERRUPTED, uncertain=True)

    async def _give_up_doubtful(self, runner: PlatformRunner, delivery: Delivery, why: str) -> None:
        """It was sent twice and may have arrived once, twice or not at all: tell the chat."""
        if not delivery.outbound.notice:
            text = "My last message may not have been delivered. If something is missing, please ask again."
            notice = Outbound(f"unsure:{delivery.number}", delivery.outbound.address, text, notice=True)
            await self._outbox.enqueue(notice)
        await self._give_up(runner, delivery, f"it may have been delivered and was already sent twice: {why}")

    async def _give_up(self, runner: PlatformRunner, delivery: Delivery, why: str) -> None:
        await self._outbox.give_up(delivery, "failed", why)
        self._counters.failed[runner.name] += 1
        log.warning("%s will not be sent: %s", delivery.outbound.id, why)

    def is_late(self, delivery: Delivery) -> bool:
        """True if it is too old to be sent."""
        return self._clock() >= (delivery.outbound.expires or delivery.created + self._policy.expiry)

    async def expire(self, runner: PlatformRunner, lane: str) -> None:
        """Drop what is too old in a lane and tell the chat once. Late notices are not reported."""
        missed: list[Delivery] = []
        while (delivery := await self._outbox.head(lane)) is not None and self.is_late(delivery):
            if not await self._outbox.give_up(delivery, "expired", "too old to be sent"):
                break  # another worker did
            self._counters.expired[runner.name] += 1
            if not delivery.outbound.notice:
                missed.append(delivery)
        if missed:
            log.warning("%d messages to %s were too old to be sent", len(missed), lane)
            await self._outbox.enqueue(_expired_notice(missed, self._clock()))


def _expired_notice(missed: list[Delivery], now: float) -> Outbound:
    first = missed[0]
    excerpt = f": {format_excerpt(first.outbound.text)}" if first.outbound.text else ""
    rest = len(missed) - 1
    was = "was" if rest == 1 else "were"
    more = f" {format_count(rest, 'message')} after it {was} dropped as well." if rest else ""
    age = format_duration(now - first.created)
    text = f"A message from {age} ago could not be delivered in time and was dropped{excerpt}.{more}"
    return Outbound(f"expired:{first.number}:{int(now)}", first.outbound.address, text, notice=True)


def outbox_key(platform: str) -> str:
    """The key under which processes that cannot send to a platform announce messages to it."""
    return f"outbox:{platform}"


class OutboxWorker:
    """Sends what is in the outbox, with one task per chat that has something due."""

    def __init__(
        self,
        store: Store,
        runners: Mapping[str, PlatformRunner],
        policy: GatewayPolicy,
        *,
        files: ChatFiles | None = None,
        clock: Callable[[], float] = time.time,
        dice: Callable[[], float] = random.random,
    ) -> None:
        """`files`: fetches the files of messages that other workers queued."""
        self._outbox, self._runners, self._policy = store.outbox, runners, policy
        self._bus, self._clustered = store.bus, store.clustered
        self.counters = GatewayCounters()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks = LateTaskGroup()
        self._busy: set[str] = set()
        self._notified: set[str] = set()
        """Busy lanes that got something new since they were last looked at. The write that stores a message as sent
        looks too, and finds everything announced before it."""
        sender = Sender(store, files, self._notified.discard)
        self._attempts = DeliveryAttempts(sender, runners, policy, counters=self.counters, clock=clock, dice=dice)
        self._lane_done = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled. First, queue again what an earlier process was sending when it ended."""
        if not self._clustered:  # there was one process before this one
            for name in self._runners:
                await self._recover(name)
        async with asyncio.TaskGroup() as tasks:
            self._tasks.open(tasks)
            while True:
                if self._clustered:  # a worker may be gone
                    await self._recover_ready()
                await self._notify_due()
                await asyncio.sleep(self._policy.poll_interval)

    def lock(self, lane: str) -> asyncio.Lock:
        """Only the holder may send to this chat."""
        return self._locks.setdefault(lane, asyncio.Lock())

    async def enqueue(self, *outbounds: Outbound) -> None:
        """Add messages to the outbox and send them as soon as possible."""
        await self._outbox.enqueue(*outbounds)
        for outbound in outbounds:
            self.notify(outbound.address.platform, outbound.lane)

    def notify(self, platform: str, lane: str) -> None:
        """There may be something to send in this lane now."""
        runner = self._runners.get(platform)
        if runner is None or not runner.ready:  # `notify_ready` looks for everything
            if self._clustered:
                self._bus.publish(Envelope(outbox_key(platform), "", HomeChanged("outbox", lane)))
            return
        if lane in self._busy:
            self._notified.add(lane)
            return
        if self._tasks.start(self._serve(runner, lane), f"lane {lane}"):
            self._busy.add(lane)

    async def follow(self, platform: str) -> None:
        """Send what other processes queue for a platform that only this one can send to, until cancelled."""
        async with self._bus.subscribe(outbox_key(platform), HomeSubscription()) as changes:
            await self.notify_ready(platform)
            async for envelope in changes:
                if isinstance(envelope.event, HomeChanged):
                    self.notify(platform, envelope.event.id)

    async def notify_ready(self, platform: str) -> int:
        """A platform is ready: send what is due there. Returns in how many lanes."""
        lanes = await self._outbox.lanes(platform)
        due_lanes = [lane for lane, due in lanes.items() if not self._attempts.wait_time(due)]
        for lane in due_lanes:
            self.notify(platform, lane)
        return len(due_lanes)

    async def wait_idle(self) -> None:
        """Return once nothing is being sent and nothing is left that could be sent now."""
        while self._tasks.is_open and (await self._notify_due() or self._busy):
            self._lane_done.clear()
            if self._busy:
                await self._lane_done.wait()

    async def _notify_due(self) -> int:
        return sum([await self.notify_ready(name) for name, runner in self._runners.items() if runner.ready])

    async def _recover_ready(self) -> None:
        """Queue again what workers that are gone were sending, on the platforms that this one can send to."""
        for name, runner in self._runners.items():
            if runner.ready:
                await self._outbox.expire_fleeting(name)
                await self._recover(name)

    async def _recover(self, name: str) -> None:
        interrupted = await self._outbox.list_interrupted(name)
        for delivery in interrupted:
            await self._attempts.handle_interrupted(self._runners[name], delivery)
        if interrupted:
            count = len(interrupted)
            log.warning("%d messages on %s were interrupted while being sent; they may arrive twice", count, name)

    async def _serve(self, runner: PlatformRunner, lane: str) -> None:
        try:
            while runner.ready:
                self._notified.discard(lane)
                async with self.lock(lane):
                    delivery, tried = await self._attempts.try_first(runner, lane)
                if tried and not (delivery is not None and delivery.emptied_lane):
                    continue
                if delivery is None or tried:
                    if lane in self._notified:
                        continue
                    return
                if wait := self._attempts.wait_time(delivery.due):
                    loop = asyncio.get_running_loop()
                    loop.call_later(min(wait, MAX_RETRY_PAUSE), self.notify, runner.name, lane)
                    return
                if self._attempts.is_late(delivery):
                    await self._attempts.expire(runner, lane)
        finally:
            self._busy.discard(lane)
            self._lane_done.set()
