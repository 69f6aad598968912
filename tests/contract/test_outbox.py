"""What every `Outbox` promises. Another implementation joins with one line in `STORES`."""

import asyncio
import time

import pytest

from alipes.kernel.errors import Fenced
from alipes.kernel.messages import assistant
from alipes.kernel.outbox import Button, Media, Outbound, lane
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store.store import open_store

STORES = {"sqlite": open_store}
HERE, THERE = Address("telegram", "1"), Address("telegram", "2")
pytestmark = pytest.mark.parametrize("opened", STORES.values(), ids=STORES)


def word(id: str, address: Address = HERE, **more) -> Outbound:
    return Outbound(id, address, f"text {id}", **more)


async def paid(outbox, debt, *ids):
    return await outbox.pay(await outbox.begin(debt), *ids)


async def order(outbox, place):
    found = []
    while (debt := await outbox.head(place)) is not None:
        found.append(debt.outbound.id)
        await paid(outbox, debt, "x")
    return found


async def test_debts_are_paid_in_the_order_they_were_owed_each_place_by_itself(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.owe(word("a"), word("b", THERE), word("c"))
        await store.outbox.owe(word("d"))
        assert await store.outbox.lanes("telegram") == {lane(HERE): 0.0, lane(THERE): 0.0}
        assert await store.outbox.lanes("discord") == {}
        assert await order(store.outbox, lane(HERE)) == ["a", "c", "d"]
        assert await order(store.outbox, lane(THERE)) == ["b"]
        assert await store.outbox.lanes("telegram") == {}


async def test_a_debt_keeps_all_that_it_was_owed_with(opened, tmp_path):
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
        await store.outbox.owe(whole)
    async with opened(tmp_path) as store:
        assert (await store.outbox.head(whole.lane)).outbound == whole


async def test_what_was_owed_or_paid_already_is_not_owed_again(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.owe(word("a"), word("a"))
        await paid(store.outbox, await store.outbox.head(lane(HERE)), "1")
        await store.outbox.owe(word("a"))
        assert await store.outbox.head(lane(HERE)) is None


async def test_what_is_said_and_what_is_owed_for_it_are_one_write(opened, tmp_path):
    inbound = Inbound("1", HERE, "me", "hello")
    async with opened(tmp_path) as store:
        await store.turns.accept(inbound)
        turn = await store.turns.next_turn(HERE.key)
        await store.turns.record(turn, Said(assistant("hi")), word("a"))
        await store.turns.finish(turn, "answered", "", owed=(word("b"),))
        with pytest.raises(Fenced):
            await store.turns.record(turn, Said(assistant("late")), word("c"))
        assert await order(store.outbox, lane(HERE)) == ["a", "b"]


async def test_who_is_first_keeps_the_others_waiting_until_it_is_due(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.owe(word("a"), word("b"))
        debt = await store.outbox.begin(await store.outbox.head(lane(HERE)))
        await store.outbox.postpone(debt, 99.0, "429")
        assert await store.outbox.lanes("telegram") == {lane(HERE): 99.0}
        head = await store.outbox.head(lane(HERE))
        assert (head.outbound.id, head.attempts, head.why, head.uncertain) == ("a", 1, "429", False)


async def test_the_first_is_begun_as_it_is_looked_at_if_it_is_owed_and_ready(opened, tmp_path):
    async with opened(tmp_path) as store:
        assert await store.outbox.take(lane(HERE), lambda debt: True) is None
        await store.outbox.owe(word("a", turn="t1"), word("b"))
        await store.drafts.add(lane(HERE), "t1", "m1")
        await store.drafts.add(lane(HERE), "t2", "m2")
        kept = await store.outbox.take(lane(HERE), lambda debt: debt.attempts > 0)
        assert (kept.outbound.id, kept.state, kept.attempts) == ("a", "owed", 0)
        begun = await store.outbox.take(lane(HERE), lambda debt: debt.due == 0.0)
        assert (begun.outbound.id, begun.state, begun.attempts) == ("a", "trying", 1)
        assert begun.drafts == ("m1",), "what its turn was shown by"
        again = await store.outbox.take(lane(HERE), lambda debt: True)
        assert (again.state, again.attempts) == ("trying", 1), "it is being tried: nobody begins it twice"


async def test_a_long_text_is_paid_part_by_part_and_goes_on_where_it_was(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.owe(word("a"))
        debt = await store.outbox.begin(await store.outbox.head(lane(HERE)))
        debt = await store.outbox.pay(debt, "1", rest=True)
    async with opened(tmp_path) as store:
        debt = await store.outbox.head(lane(HERE))
        assert (debt.state, debt.paid) == ("trying", ("1",))
        assert (await store.outbox.pay(debt, "2")).paid == ("1", "2")


async def test_a_send_that_a_crash_cut_off_is_known_and_may_be_owed_again_as_uncertain(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.owe(word("a", turn="t1"), word("b"))
        await store.drafts.add(lane(HERE), "t1", "m1")
        await store.outbox.begin(await store.outbox.head(lane(HERE)))
    async with opened(tmp_path) as store:
        assert await store.outbox.cut_off("discord") == ()
        (debt,) = await store.outbox.cut_off("telegram")
        assert (debt.outbound.id, debt.state, debt.drafts) == ("a", "trying", ("m1",))
        await store.outbox.postpone(debt, 0.0, "cut off", uncertain=True)
        head = await store.outbox.head(lane(HERE))
        assert (head.outbound.id, head.state, head.uncertain, head.doubtful) == ("a", "owed", True, True)
        assert (await paid(store.outbox, head, "1")).uncertain, "for good: it is counted"


async def test_only_the_part_that_was_in_doubt_is_doubtful(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.owe(word("a"))
        debt = await store.outbox.begin(await store.outbox.head(lane(HERE)))
        await store.outbox.postpone(debt, 0.0, "no answer", uncertain=True)
        debt = await store.outbox.begin(await store.outbox.head(lane(HERE)))
        assert debt.doubtful
        debt = await store.outbox.pay(debt, "1", rest=True)
        assert (debt.uncertain, debt.doubtful) == (True, False), "the next part goes out for the first time"
        await store.outbox.postpone(debt, 0.0, "no answer", uncertain=True)
        assert (await store.outbox.head(lane(HERE))).doubtful


async def test_what_is_fleeting_is_withdrawn_when_who_owed_it_is_gone(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.owe(word("a", fleeting=True), word("b"), word("c", fleeting=True))
        await store.outbox.begin(await store.outbox.head(lane(HERE)))
    async with opened(tmp_path) as store:
        assert await store.outbox.withdraw("discord") == 0
        assert await store.outbox.withdraw("telegram") == 2
        gone = {debt.outbound.id: debt.uncertain for debt in await store.outbox.look("expired")}
        assert gone == {"a": True, "c": False}, "one of them may be there"
        assert (await store.outbox.head(lane(HERE))).outbound.id == "b"


async def test_what_is_given_up_holds_nobody_up_and_may_be_owed_again(opened, tmp_path):
    async with opened(tmp_path) as store:
        await store.outbox.owe(word("a", expires=1.0), word("b"))
        head = await store.outbox.head(lane(HERE))
        await store.outbox.give_up(head, "expired", "15 hours old")
        assert (await store.outbox.head(lane(HERE))).outbound.id == "b"
        (seen,) = await store.outbox.look("dead", "expired")
        assert (seen.outbound.id, seen.why) == ("a", "15 hours old")
        assert await store.outbox.again(seen.number)
        assert not await store.outbox.again(seen.number)
        head = await store.outbox.head(lane(HERE))
        assert (head.outbound.id, head.outbound.expires, head.attempts) == ("a", 0.0, 0)
        assert time.time() - head.created < 60


async def test_drafts_are_known_to_the_next_process(opened, tmp_path):
    async with opened(tmp_path) as store:
        for message in ("7", "8", "7"):
            await store.drafts.add(lane(HERE), "t1", message)
            await asyncio.sleep(0.002)
        await store.drafts.add(lane(HERE), "t2", "9")
    async with opened(tmp_path) as store:
        assert await store.drafts.of(lane(HERE), "t1") == ("7", "8")
        await store.drafts.drop(lane(HERE), "t1", "7", "8")
        assert await store.drafts.of(lane(HERE), "t1") == ()
        assert await store.drafts.of(lane(HERE), "t2") == ("9",)
