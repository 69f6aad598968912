"""Delivery of the outbox: in order, once, retried, given up; also across crashes."""

import asyncio
import time

import pytest
from msgspec import structs

from alipes.gateway.outbound.delivery import OutboxWorker
from alipes.gateway.platform_runner import MAX_PREPARED, PlatformRunner
from alipes.gateway.policy import GatewayPolicy
from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.outbox import Button, Media, Outbound, lane
from alipes.kernel.platform import Capabilities
from alipes.kernel.turns import Address
from alipes.store.sql.outbox import SqlOutbox
from alipes.store.sqlite.store import open_store
from tests.world.fake_platform import TALENTS, FakePlatform, ReplyLost

ME, YOU = Address("test", "me"), Address("test", "you")
REMEMBERS = Capabilities(deduplicates=True, can_edit=True)


def word(id, address=ME, text="", **more):
    return Outbound(id, address, text or f"text {id}", **more)


class DeliveryHarness:
    """A running outbox worker on a store and a fake messenger."""

    def __init__(self, store, messenger, rules, clock):
        self.store, self.messenger, self.outbox = store, messenger, store.outbox
        self.runner = PlatformRunner(messenger)
        self.delivery = OutboxWorker(store, {"test": self.runner}, rules, clock=clock, dice=lambda: 0.0)
        self._serving = None

    async def __aenter__(self):
        self._serving = asyncio.create_task(self.delivery.run())
        return self

    async def __aexit__(self, *_):
        await self.kill()

    async def kill(self):
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    def ready(self):
        self.runner.set_status("ready")

    async def enqueue(self, *outbounds):
        await self.delivery.enqueue(*outbounds)

    async def states(self):
        return {debt.outbound.id: debt.state for debt in await self.outbox.list_deliveries()}

    async def is_now(self, id, state):
        return (await self.outbox.find(id)).state == state

    async def until(self, id, state):
        """Polls the row."""
        deadline = time.monotonic() + 8
        while (debt := await self.outbox.find(id)) is None or debt.state != state:
            assert time.monotonic() < deadline, debt
            await asyncio.sleep(0.005)
        return debt


async def hurry(now, met):
    """Advance the clock until it holds."""
    deadline = time.monotonic() + 8
    while not await met():
        assert time.monotonic() < deadline
        now[0] += 61
        await asyncio.sleep(0.01)


def post(store, messenger=None, *, ready=True, clock=time.time, **rules):
    made = DeliveryHarness(
        store, messenger or FakePlatform(), GatewayPolicy(**{"poll_interval": 0.02, "expiry": 1e6, **rules}), clock
    )
    if ready:
        made.ready()
    return made


async def test_each_chat_is_delivered_in_order_and_a_slow_one_does_not_delay_others(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, held = FakePlatform(), asyncio.Event()
        messenger.fail("send", held)
        async with post(store, messenger) as p:
            await p.enqueue(word("1"), word("2"))
            await messenger.until(lambda: messenger.log)
            await p.enqueue(word("3", YOU), word("4", YOU))
            await messenger.until_said("text 3", "text 4", chat="you")
            assert messenger.said() == []
            held.set()
            await messenger.until_said("text 1", "text 2")
            await p.delivery.wait_idle()
            assert set((await p.states()).values()) == {"sent"}


async def test_nothing_is_sent_before_the_platform_is_ready(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = FakePlatform()
        async with post(store, messenger, ready=False) as p:
            await p.enqueue(word("1"))
            await asyncio.sleep(0.1)
            assert messenger.log == []
            p.ready()
            await p.delivery.notify_ready("test")
            await messenger.until_said("text 1")


async def test_messages_queued_by_another_process_are_found(tmp_path):
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        async with post(store) as p:
            await other.outbox.enqueue(word("1"))
            await p.messenger.until_said("text 1")


async def test_a_requested_wait_is_kept_and_does_not_count_as_an_attempt(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = FakePlatform()
        messenger.fail("send", *(DeliveryError("flood", retry_after=0.01) for _ in range(12)))
        async with post(store, messenger, max_attempts=2) as p:
            await p.enqueue(word("1"), word("2"))
            await messenger.until_said("text 1", "text 2")
            debt = await p.until("1", "sent")
            assert debt.attempts == 1 and not debt.uncertain


async def test_a_clock_set_back_delays_nothing(tmp_path):
    now = [1_000_000.0]
    messenger = FakePlatform()
    messenger.fail("send", DeliveryError("no"), DeliveryError("flood", retry_after=1e5))
    async with open_store(tmp_path) as store, post(store, messenger, clock=lambda: now[0]) as p:
        await p.enqueue(word("a"))
        await p.until("a", "queued")
        while not (await p.outbox.find("a")).due:
            await asyncio.sleep(0.005)
        now[0] -= 8 * 3600  # retried, asked to wait for a day, and retried sooner
        await hurry(now, lambda: p.is_now("a", "sent"))
        assert now[0] < 1_000_000.0 and messenger.said() == ["text a"]


async def test_a_failure_is_retried_later_and_later_messages_wait(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = FakePlatform()
        messenger.fail("send", DeliveryError("no"), RuntimeError("a bug"))
        now = [time.time()]
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.enqueue(word("1"), word("2"))
            await messenger.until(lambda: messenger.log)
            debt = await p.until("1", "queued")
            assert debt.why == "no" and debt.due == pytest.approx(now[0] + 0.5)
            assert messenger.said() == []
            now[0] += 10
            p.delivery.notify("test", lane(ME))
            await messenger.until(lambda: len(messenger.log) == 2)
            debt = await p.until("1", "queued")
            assert "RuntimeError: a bug" in debt.why and debt.uncertain, "something unexpected"
            now[0] += 10
            p.delivery.notify("test", lane(ME))
            await messenger.until_said("text 1", "text 2")


async def test_after_the_last_attempt_a_message_fails_and_the_next_is_sent(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = FakePlatform(), [time.time()]
        messenger.fail("send", *(DeliveryError(f"no {n}") for n in range(3)))
        async with post(store, messenger, clock=lambda: now[0], max_attempts=3) as p:
            await p.enqueue(word("1"), word("2"))
            await hurry(now, lambda: p.is_now("1", "failed"))
            await messenger.until_said("text 2")
            dead = await p.until("1", "failed")
            assert dead.why == "gave up after 3 attempts: no 2"
            assert await p.outbox.requeue(dead.number)
            p.delivery.notify("test", lane(ME))
            await messenger.until_said("text 2", "text 1")


async def test_during_an_outage_nothing_is_given_up(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = FakePlatform(), [time.time()]
        messenger.fail("send", *(DeliveryError("no route") for _ in range(20)))
        async with post(store, messenger, clock=lambda: now[0], max_attempts=3) as p:
            await p.enqueue(word("1"), word("2", YOU))
            await messenger.until(lambda: len(messenger.log) == 2)
            await p.until("2", "queued")
            assert p.runner.state.sending == "no route"
            await hurry(now, lambda: p.is_now("1", "sent"))
            await hurry(now, lambda: p.is_now("2", "sent"))
            assert p.runner.state.sending == "" and not messenger.faults["send"]


async def test_a_message_to_a_missing_chat_is_given_up(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = FakePlatform()
        messenger.fail("send", Undeliverable("the bot was blocked"))
        async with post(store, messenger) as p:
            await p.enqueue(word("1"), word("2"))
            await messenger.until_said("text 2")
            assert (await p.until("1", "failed")).why == "the bot was blocked"


async def test_an_uncertain_message_is_sent_once_more_and_marked(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = FakePlatform(), [time.time()]
        messenger.fail("send", ReplyLost(), ReplyLost())
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.enqueue(word("1"), word("2"))
            await messenger.until(lambda: len(messenger.log) == 1)
            assert (await p.until("1", "queued")).uncertain
            now[0] += 100
            p.delivery.notify("test", lane(ME))
            dead = await p.until("1", "failed")
            assert "it may have been delivered" in dead.why
            await messenger.until_said("text 1", "text 1", "text 2", UNSURE)


async def test_a_deduplicating_platform_gets_the_message_again(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = FakePlatform(talents=REMEMBERS), [time.time()]
        messenger.fail("send", ReplyLost())
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.enqueue(word("1"))
            await messenger.until(lambda: messenger.log)
            assert not (await p.until("1", "queued")).uncertain
            now[0] += 100
            await p.until("1", "sent")
            assert messenger.said() == ["text 1"]


async def test_a_long_text_is_several_messages_and_continues_after_an_interruption(tmp_path):
    long = "a" * 200 + "b" * 200 + "c" * 10
    async with open_store(tmp_path) as store:
        messenger = FakePlatform()
        messenger.fail("send", None, DeliveryError("flood", retry_after=0.01))
        async with post(store, messenger) as p:
            await p.enqueue(word("1", text=long, reply_to="9", buttons=(Button("Yes", "y"),)))
            await messenger.until_said("a" * 200, "b" * 200, "c" * 10)
            first, _, last = (bubble.piece for bubble in messenger.bubbles)
            assert first.reply_to == "9" and not first.buttons
            assert last.buttons == (Button("Yes", "y"),) and not last.reply_to
            assert (await p.until("1", "sent")).paid == ("m1", "m2", "m3")


@pytest.mark.parametrize("arrived", [False, True], ids=["before it arrived", "after it arrived"])
async def test_a_crash_during_a_send_repeats_at_most_that_send(arrived, tmp_path):
    """The one window in which the result is unknown: marked, and only there a message may appear twice."""
    messenger, stuck = FakePlatform(), asyncio.Event()
    async with open_store(tmp_path) as store:
        first = post(store, messenger)
        if arrived:
            sending = messenger.send

            async def send(address, piece):
                await sending(address, piece)
                await stuck.wait()

            messenger.send = send
        else:
            messenger.fail("send", stuck)
        async with first:
            await first.enqueue(word("1"), word("2"))
            await messenger.until(lambda: len(messenger.bubbles if arrived else messenger.log) == 1)
    if arrived:
        del messenger.send
    async with open_store(tmp_path) as store, post(store, messenger) as p:
        await messenger.until_said(*["text 1"] * (2 if arrived else 1), "text 2")
        assert (await p.until("1", "sent")).uncertain
        assert not (await p.until("2", "sent")).uncertain


async def test_a_crash_before_or_after_a_send_doubles_nothing(tmp_path):
    """Queued but not started: sent once. Sent: not repeated."""
    messenger = FakePlatform()
    async with open_store(tmp_path) as dying:
        await dying.outbox.enqueue(word("1"), word("2"), word("3"))
        debt = await dying.outbox.mark_sending(await dying.outbox.head(lane(ME)))
        await dying.outbox.mark_sent(debt, await messenger.send(ME, (messenger.format_message("text 1"))[0]))
    async with open_store(tmp_path) as store, post(store, messenger) as p:
        await messenger.until_said("text 1", "text 2", "text 3")
        assert not any(debt.uncertain for debt in await p.outbox.list_deliveries())


async def test_a_crash_between_two_parts_sends_only_what_is_missing(tmp_path):
    messenger, long = FakePlatform(), "a" * 200 + "b" * 50
    async with open_store(tmp_path) as dying:
        await dying.outbox.enqueue(word("1", text=long))
        debt = await dying.outbox.mark_sending(await dying.outbox.head(lane(ME)))
        await dying.outbox.mark_sent(debt, await messenger.send(ME, messenger.format_message(long)[0]), rest=True)
    async with open_store(tmp_path) as store, post(store, messenger):
        await messenger.until_said("a" * 200, "b" * 50)


UNSURE = "My last message may not have been delivered. If something is missing, please ask again."


async def cut_off_again_and_again(home, outbound, times):
    """Processes that die one after the other while sending it."""
    async with open_store(home) as dying:
        await dying.outbox.enqueue(outbound)
        for _ in range(times):
            debt = await dying.outbox.mark_sending(await dying.outbox.head(lane(ME)))
            await dying.outbox.postpone(debt, 0.0, "cut off", uncertain=True)
        await dying.outbox.mark_sending(debt)


async def test_a_send_interrupted_twice_is_not_repeated_and_the_chat_gets_a_notice(tmp_path):
    await cut_off_again_and_again(tmp_path, word("1"), 1)
    async with open_store(tmp_path) as store, post(store) as p:
        dead = await p.until("1", "failed")
        await p.enqueue(word("2"))
        await p.messenger.until_said(UNSURE, "text 2")
        assert dead.uncertain and dead.why.startswith("it may have been delivered and was already sent twice")


async def test_a_harmless_send_is_repeated_after_every_crash(tmp_path):
    await cut_off_again_and_again(tmp_path, word("1"), 3)
    messenger = FakePlatform(talents=REMEMBERS)
    async with open_store(tmp_path) as store, post(store, messenger):
        await messenger.until_said("text 1")


async def test_a_draft_is_completed_after_every_crash(tmp_path):
    messenger = FakePlatform()
    draft = await messenger.send(ME, messenger.format_message("te…")[0])
    await cut_off_again_and_again(tmp_path, word("1", turn="t1"), 3)
    async with open_store(tmp_path) as store:
        await store.drafts.add(lane(ME), "t1", draft)
        async with post(store, messenger) as p:
            await p.until("1", "sent")
            assert messenger.said() == ["text 1"]


async def test_each_part_of_a_long_text_may_be_uncertain_once(tmp_path):
    messenger, now, long = FakePlatform(), [time.time()], "a" * 200 + "b" * 200 + "c" * 50
    async with open_store(tmp_path) as store:
        messenger.fail("send", ReplyLost(), None, ReplyLost(), None, ReplyLost())
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.enqueue(word("1", text=long))
            await hurry(now, lambda: p.is_now("1", "sent"))
            assert [each[0] for each in messenger.said()] == ["a", "a", "b", "b", "c", "c"]


async def test_an_uncertain_message_is_not_repeated_during_an_outage(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = FakePlatform(), [time.time()]
        messenger.fail("send", ReplyLost())
        messenger.fail("typing", *(DeliveryError("no answer", uncertain=True) for _ in range(5)))
        async with post(store, messenger, clock=lambda: now[0], max_attempts=2) as p:
            await p.enqueue(word("1"))
            await messenger.until(lambda: messenger.bubbles)
            await hurry(now, lambda: p.is_now("1", "sent"))
            assert messenger.said() == ["text 1"] * 2 and not messenger.faults["typing"]
            assert sum(verb == "send" for verb, *_ in messenger.log) == 2


async def test_expired_messages_are_dropped_with_one_notice(tmp_path):
    async with open_store(tmp_path) as store:
        long_ago = SqlOutbox(store.database, clock=lambda: time.time() - 15 * 3600)
        await long_ago.enqueue(word("1", text="the old answer"), word("2"), word("n", notice=True))
        async with post(store, expiry=12 * 3600.0) as p:
            await p.enqueue(word("3"))
            notice = (
                "A message from 15 h ago could not be delivered in time and was dropped: “the old answer”. "
                "1 message after it was dropped as well."
            )
            await p.messenger.until_said("text 3", notice)
            assert [(await p.until(id, "expired")).why for id in "12n"] == ["too old to be sent"] * 3


async def test_messages_have_their_own_expiry_and_late_notices_are_dropped_silently(tmp_path):
    async with open_store(tmp_path) as store:
        async with post(store) as p:
            await p.enqueue(word("1", expires=time.time() - 1, notice=True), word("2", expires=time.time() + 60))
            await p.messenger.until_said("text 2")
            await p.delivery.wait_idle()
            assert p.messenger.said() == ["text 2"]


async def test_a_draft_becomes_the_final_message(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = FakePlatform()
        drafts = [await messenger.send(ME, messenger.format_message(text)[0]) for text in ("par", "tly", "too much")]
        for id in drafts:
            await store.drafts.add(lane(ME), "t1", id)
            await asyncio.sleep(0.002)
        messenger.fail("edit", DeliveryError("flood", retry_after=0.01), DeliveryError("late", uncertain=True))
        now = [time.time()]
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.enqueue(word("1", text="a" * 200 + "b", turn="t1"))
            await hurry(now, lambda: p.is_now("1", "sent"))
            await messenger.until_said("a" * 200, "b")
            assert not (await p.until("1", "sent")).uncertain, "editing a message twice is harmless"
            assert await store.drafts.list_ids(lane(ME), "t1") == ()


async def test_a_deleted_draft_is_sent_as_a_new_message(tmp_path):
    async with open_store(tmp_path) as store:
        await store.drafts.add(lane(ME), "t1", "m77")
        async with post(store) as p:
            await p.enqueue(word("1", turn="t1"))
            await p.messenger.until_said("text 1")


async def test_an_unconfirmed_draft_makes_the_answer_uncertain(tmp_path):
    async with open_store(tmp_path) as store:
        await store.drafts.add(lane(ME), "t1", "?")
        async with post(store) as p:
            await p.enqueue(word("1", turn="t1"))
            await p.messenger.until_said("text 1")
            assert (await p.until("1", "sent")).uncertain


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_unconfirmed_draft_is_found_by_its_id_on_a_deduplicating_platform(tmp_path, arrived):
    messenger = FakePlatform(talents=REMEMBERS)
    if arrived:
        await messenger.send(ME, structs.replace(messenger.format_message("par")[0], id="its name"))
    async with open_store(tmp_path) as store:
        await store.drafts.add(lane(ME), "t1", "?its name")
        async with post(store, messenger) as p:
            await p.enqueue(word("1", turn="t1"))
            assert not (await p.until("1", "sent")).uncertain
            assert messenger.said() == ["text 1"]


async def test_a_crash_while_a_draft_is_completed_edits_it_again_and_sends_nothing_new(tmp_path):
    messenger = FakePlatform()
    async with open_store(tmp_path) as dying:
        id = await messenger.send(ME, messenger.format_message("par")[0])
        await dying.drafts.add(lane(ME), "t1", id)
        await dying.outbox.enqueue(word("1", turn="t1"))
        await dying.outbox.mark_sending(await dying.outbox.head(lane(ME)))
        await messenger.edit(ME, id, messenger.format_message("text 1")[0])
    async with open_store(tmp_path) as store, post(store, messenger) as p:
        await p.until("1", "sent")
        assert messenger.said() == ["text 1"]
        assert await store.drafts.list_ids(lane(ME), "t1") == (), "the next text of the turn is another message"


async def test_files_are_sent_in_the_way_the_platform_supports(tmp_path):
    (tmp_path / "x.png").write_bytes(b"x")
    media = tuple(Media(str(tmp_path / name), kind, name) for name, kind in (("x.png", "image"), ("gone.png", "image")))
    async with open_store(tmp_path) as store:
        async with post(store) as p:
            await p.enqueue(word("1", media=media))
            await p.messenger.until_said("text 1", "<image x.png>", "(gone.png no longer exists and was not sent.)")
        plain = FakePlatform(talents=Capabilities())
        async with post(store, plain) as p:
            await p.enqueue(word("2", media=media[:1]))
            await plain.until(lambda: len(plain.bubbles) == 2)
            assert "can't be sent on this platform" in plain.said()[1]


async def test_an_empty_text_is_marked_sent_without_a_message(tmp_path):
    async with open_store(tmp_path) as store:
        async with post(store) as p:
            await p.enqueue(Outbound("1", ME, "  "), word("2"))
            await p.messenger.until_said("text 2")
            await p.until("1", "sent")


async def test_a_text_that_breaks_the_platform_does_not_block_the_chat(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = FakePlatform(talents=TALENTS), [time.time()]
        messenger.faults["pieces"] = None
        async with post(store, messenger, clock=lambda: now[0], max_attempts=2) as p:
            await p.enqueue(word("1", text="POISON"), word("2"))
            await hurry(now, lambda: p.is_now("1", "failed"))
            await messenger.until_said("text 2")


async def test_prepared_parts_are_reused_and_a_failed_preparation_is_reported_later():
    messenger, asked = FakePlatform(talents=TALENTS), []
    runner, make = PlatformRunner(messenger), messenger.format_message
    messenger.format_message = lambda text: asked.append(text) or make(text)
    messenger.faults["pieces"] = None
    for text in ("hello", "POISON"):
        await runner.prepare(text)
    assert await runner.format_message("hello") == make("hello")
    with pytest.raises(DeliveryError):
        await runner.format_message("POISON")
    assert await runner.format_message("hello") == make("hello")
    assert asked == ["hello", "POISON", "POISON", "hello"]


async def test_unused_prepared_parts_are_dropped():
    runner = PlatformRunner(FakePlatform(talents=TALENTS))
    for number in range(MAX_PREPARED + 5):
        await runner.prepare(f"text {number}")
    assert len(runner._prepared) == MAX_PREPARED
