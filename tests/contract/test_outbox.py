"""Contract of every outbox. Add another implementation to `STORES`."""

import asyncio
import time

import pytest

from alipes.kernel.errors import Fenced
from alipes.kernel.messages import assistant
from alipes.kernel.outbox import Button, Media, Outbound, lane
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store.store import open_store
from tests.world.postgres_server import open_postgres_store

STORES = {"sqlite": open_store, "postgres": open_postgres_store}
HERE, THERE = Address("telegram", "1"), Address("telegram", "2")
pytestmark = pytest.mark.parametrize("opened", STORES.values(), ids=STORES)


def make_outbound(id: str, address: Address = HERE, **more) -> Outbound:
    return Outbound(id, address, f"text {id}", **more)


async def send(outbox, delivery, *ids):
    return await outbox.mark_sent(await outbox.mark_sending(delivery), *ids)


async def send_all(outbox, lane_name):
    found = []
    while (delivery := await outbox.head(lane_name)) is not None:
        found.append(delivery.outbound.id)
        await send(outbox, delivery, "x")
    return found


async def test_each_lane_is_sent_in_the_order_it_was_queued(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(make_outbound("a"), make_outbound("b", THERE), make_outbound("c"))
        await store.outbox.enqueue(make_outbound("d"))
        assert await store.outbox.lanes("telegram") == {lane(HERE): 0.0, lane(THERE): 0.0}
        assert await store.outbox.lanes("discord") == {}
        assert await send_all(store.outbox, lane(HERE)) == ["a", "c", "d"]
        assert await send_all(store.outbox, lane(THERE)) == ["b"]
        assert await store.outbox.lanes("telegram") == {}


async def test_a_queued_message_keeps_all_its_fields(opened, tmp_path):
    whole = Outbound(
        "a",
        Address("telegram", "-100:7", "group", "4", "me"),
        "*hello*",
        reply_to="9",
        media=(Media("/tmp/x.png", "image", "x.png", "look"),),
        buttons=(Button("Yes", "yes"),),
        turn="t1",
        expires=5.0,
    )
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(whole)
    async with opened(tmp_path) as store:
        assert (await store.outbox.head(whole.lane)).outbound == whole


async def test_an_id_that_is_queued_or_sent_is_not_queued_again(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(make_outbound("a"), make_outbound("a"))
        await send(store.outbox, await store.outbox.head(lane(HERE)), "1")
        await store.outbox.enqueue(make_outbound("a"))
        assert await store.outbox.head(lane(HERE)) is None


async def test_a_message_and_its_outbox_row_are_one_write(opened, tmp_path):
    inbound = Inbound("1", HERE, "me", "hello")
    async with opened(tmp_path) as store:
        await store.turns.accept(inbound)
        turn = await store.turns.claim_next(HERE.key)
        await store.turns.record(turn, Said(assistant("hi")), make_outbound("a"))
        await store.turns.finish(turn, "answered", "", owed=(make_outbound("b"),))
        with pytest.raises(Fenced):
            await store.turns.record(turn, Said(assistant("late")), make_outbound("c"))
        assert await send_all(store.outbox, lane(HERE)) == ["a", "b"]


async def test_the_first_of_a_lane_holds_back_the_others_until_it_is_due(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(make_outbound("a"), make_outbound("b"))
        delivery = await store.outbox.mark_sending(await store.outbox.head(lane(HERE)))
        await store.outbox.postpone(delivery, 99.0, "429")
        assert await store.outbox.lanes("telegram") == {lane(HERE): 99.0}
        head = await store.outbox.head(lane(HERE))
        assert (head.outbound.id, head.attempts, head.why, head.uncertain) == ("a", 1, "429", False)


async def test_the_first_row_is_claimed_when_read_if_it_is_due(opened, tmp_path):
    async with opened(tmp_path) as store:
        assert await store.outbox.take(lane(HERE), lambda delivery: True) is None
        await store.outbox.enqueue(make_outbound("a", turn="t1"), make_outbound("b"))
        await store.drafts.add(lane(HERE), "t1", "m1")
        await store.drafts.add(lane(HERE), "t2", "m2")
        kept = await store.outbox.take(lane(HERE), lambda delivery: delivery.attempts > 0)
        assert (kept.outbound.id, kept.state, kept.attempts) == ("a", "queued", 0)
        begun = await store.outbox.take(lane(HERE), lambda delivery: delivery.due == 0.0)
        assert (begun.outbound.id, begun.state, begun.attempts) == ("a", "sending", 1)
        assert begun.drafts == ("m1",), "what its turn was shown by"
        again = await store.outbox.take(lane(HERE), lambda delivery: True)
        assert (again.state, again.attempts) == ("sending", 1), "it is being tried: nobody begins it twice"


async def test_a_long_text_is_sent_in_parts_and_resumes_at_the_right_part(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(make_outbound("a"))
        delivery = await store.outbox.mark_sending(await store.outbox.head(lane(HERE)))
        delivery = await store.outbox.mark_sent(delivery, "1", rest=True)
    async with opened(tmp_path) as store:
        delivery = await store.outbox.head(lane(HERE))
        assert (delivery.state, delivery.paid) == ("sending", ("1",))
        assert (await store.outbox.mark_sent(delivery, "2")).paid == ("1", "2")


async def test_a_send_interrupted_by_a_crash_is_listed_and_can_be_postponed_as_uncertain(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(make_outbound("a", turn="t1"), make_outbound("b"))
        await store.drafts.add(lane(HERE), "t1", "m1")
        await store.outbox.mark_sending(await store.outbox.head(lane(HERE)))
    async with opened(tmp_path) as store:
        assert await store.outbox.list_interrupted("discord") == ()
        (delivery,) = await store.outbox.list_interrupted("telegram")
        assert (delivery.outbound.id, delivery.state, delivery.drafts) == ("a", "sending", ("m1",))
        await store.outbox.postpone(delivery, 0.0, "cut off", uncertain=True)
        head = await store.outbox.head(lane(HERE))
        assert (head.outbound.id, head.state, head.uncertain, head.doubtful) == ("a", "queued", True, True)
        assert (await send(store.outbox, head, "1")).uncertain, "final: it is counted"


async def test_only_the_interrupted_part_is_doubtful(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(make_outbound("a"))
        delivery = await store.outbox.mark_sending(await store.outbox.head(lane(HERE)))
        await store.outbox.postpone(delivery, 0.0, "no answer", uncertain=True)
        delivery = await store.outbox.mark_sending(await store.outbox.head(lane(HERE)))
        assert delivery.doubtful
        delivery = await store.outbox.mark_sent(delivery, "1", rest=True)
        assert (delivery.uncertain, delivery.doubtful) == (True, False), "the next part goes out for the first time"
        await store.outbox.postpone(delivery, 0.0, "no answer", uncertain=True)
        assert (await store.outbox.head(lane(HERE))).doubtful


async def test_fleeting_messages_of_a_dead_process_expire(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(
            make_outbound("a", fleeting=True), make_outbound("b"), make_outbound("c", fleeting=True)
        )
        await store.outbox.mark_sending(await store.outbox.head(lane(HERE)))
    async with opened(tmp_path) as store:
        assert await store.outbox.expire_fleeting("discord") == 0
        assert await store.outbox.expire_fleeting("telegram") == 2
        gone = {delivery.outbound.id: delivery.uncertain for delivery in await store.outbox.list_deliveries("expired")}
        assert gone == {"a": True, "c": False}, "one of them may be there"
        assert (await store.outbox.head(lane(HERE))).outbound.id == "b"


async def test_a_failed_message_blocks_no_other_and_can_be_queued_again(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.enqueue(make_outbound("a", expires=1.0), make_outbound("b"))
        head = await store.outbox.head(lane(HERE))
        await store.outbox.give_up(head, "expired", "15 hours old")
        assert (await store.outbox.head(lane(HERE))).outbound.id == "b"
        (seen,) = await store.outbox.list_deliveries("failed", "expired")
        assert (seen.outbound.id, seen.why) == ("a", "15 hours old")
        assert await store.outbox.requeue(seen.number)
        assert not await store.outbox.requeue(seen.number)
        head = await store.outbox.head(lane(HERE))
        assert (head.outbound.id, head.outbound.expires, head.attempts) == ("a", 0.0, 0)
        assert time.time() - head.created < 60


async def test_drafts_survive_a_restart(opened, tmp_path):
    async with opened(tmp_path) as store:
        for message in ("7", "8", "7"):
            await store.drafts.add(lane(HERE), "t1", message)
            await asyncio.sleep(0.002)
        await store.drafts.add(lane(HERE), "t2", "9")
    async with opened(tmp_path) as store:
        assert await store.drafts.list_ids(lane(HERE), "t1") == ("7", "8")
        await store.drafts.remove(lane(HERE), "t1", "7", "8")
        assert await store.drafts.list_ids(lane(HERE), "t1") == ()
        assert await store.drafts.list_ids(lane(HERE), "t2") == ("9",)
