"""What every `TurnStore` promises. Another implementation joins with one line in `STORES`."""

import asyncio
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.kernel.errors import Fenced, Held
from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Said, Stop, Take, ToolFinished, ToolStarted, Usage
from alipes.store.database import codec
from alipes.store.store import open_store

STORES = {"sqlite": open_store}
HERE, THERE = Address("cli", "here"), Address("cli", "there")
CALL = ToolCall("c1", "terminal", {"command": "ls", "deep": [1, 2.5, None, {"x": True}]})
RESULT = ToolResult("c1", "a file", images=(Image("image/png", b"\x89PNG\x00"),))


def said(id: str, address: Address = HERE, text: str = "hello") -> Inbound:
    return Inbound(id=id, address=address, sender="me", text=text)


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Calling it opens the store of one home; twice is two processes."""
    return partial(STORES[request.param], tmp_path / "home")


async def claimed(store, inbound: Inbound):
    await store.turns.accept(inbound)
    return await store.turns.next_turn(inbound.address.key)


async def test_what_was_accepted_waits_with_all_that_came_with_it(opened):
    inbound = Inbound("7", HERE, "me", "look", (Image("image/png", b"\0\xff"),), "p/m", "/tmp", True)
    async with opened() as store:
        id = await store.turns.accept(inbound)
        turn = await store.turns.next_turn(HERE.key)
    assert (turn.id, turn.inbound, turn.key) == (id, inbound, HERE.key)
    assert (turn.history, turn.said, turn.acts, turn.attempt) == ((), (), {}, 1)
    assert turn.began > 0


async def test_what_a_turn_begins_with_is_said_with_its_claim_and_known_as_untold(opened):
    def opening(turn):
        return (turn.inbound.message,) if turn.attempt == 1 else ()

    async with opened() as store:
        await store.turns.accept(said("7"))
        turn = await store.turns.next_turn(HERE.key, opening)
        assert turn.said == turn.fresh == (user("hello"),)
        assert (await store.archive.turn(turn.id)).said == (user("hello"),)
        again = await store.turns.next_turn(HERE.key, opening)
        assert (again.said, again.fresh) == ((user("hello"),), ())
        with pytest.raises(Fenced):
            await store.turns.record(turn, Said(assistant("too late")))


async def test_the_second_copy_is_refused_also_by_another_process_and_after_a_restart(opened):
    async with opened() as first, opened() as second:
        assert await first.turns.accept(said("7"))
        assert await first.turns.accept(said("7")) is None
        assert await second.turns.accept(said("7")) is None
    async with opened() as again:
        assert await again.turns.accept(said("7")) is None
        assert await again.turns.accept(said("8"))


async def test_two_platforms_may_use_the_same_id(opened):
    async with opened() as store:
        assert await store.turns.accept(said("7", Address("telegram", "1")))
        assert await store.turns.accept(said("7", Address("discord", "1")))


async def test_of_many_copies_that_arrive_at_once_one_is_taken(opened):
    async with opened() as first, opened() as second, asyncio.TaskGroup() as group:
        tries = [group.create_task(s.turns.accept(said("7"))) for s in (first, second) * 10]
    assert sum(task.result() is not None for task in tries) == 1


async def test_turns_come_one_by_one_in_the_order_they_were_accepted(opened):
    async with opened() as store:
        ids = [await store.turns.accept(said(str(n))) for n in range(3)]
        lived = []
        while turn := await store.turns.next_turn(HERE.key):
            lived.append(turn.id)
            assert (await store.turns.next_turn(HERE.key)).id == turn.id, (
                "the head stays until it is finished"
            )
            turn = await store.turns.next_turn(HERE.key)
            await store.turns.finish(turn, "answered", "")
        assert lived == ids
        assert await store.turns.next_turn(THERE.key) is None


async def test_a_turn_knows_whether_it_was_alone_when_it_was_claimed(opened):
    async with opened() as store:
        await store.turns.accept(said("other", THERE))
        turn = await claimed(store, said("1"))
        assert turn.alone
        await store.turns.finish(turn, "answered", "")
        await store.turns.accept(said("2"))
        assert not (await claimed(store, said("3"))).alone, "a message waits behind it"
    async with opened() as store:
        turn = await claimed(store, said("4", Address("cli", "elsewhere")))
        await store.turns.put_control(turn.key, Stop("user", "stop_command", turn.id))
        assert not (await store.turns.next_turn(turn.key)).alone, "an op waits for it"


async def test_a_conversation_goes_on_in_one_session_and_strangers_have_another(opened):
    async with opened() as store:
        first = await claimed(store, said("1"))
        await store.turns.record(first, Said(user("one"), "p/m", Usage(1, 2)))
        await store.turns.finish(first, "answered", "", assistant(Text("uno")))
        other = await claimed(store, said("2", THERE))
        second = await claimed(store, said("3"))
    assert second.session == first.session != other.session
    assert second.history == (user("one"), assistant(Text("uno")))
    assert second.began == first.began
    assert (second.said, other.history) == ((), ())


async def test_a_turn_that_was_cut_off_comes_back_with_what_it_did(opened):
    asked = Message("assistant", (Thinking("hm", "seal", "p/m"), CALL, ToolCall("c2", "write", {})))
    async with opened() as store:
        turn = await claimed(store, said("1"))
        await store.turns.record(turn, Said(user("hello")))
        await store.turns.record(turn, Said(asked))
        await store.turns.record(turn, ToolStarted(CALL))
        await store.turns.record(turn, ToolStarted(asked.calls[1]))
        await store.turns.record(turn, ToolFinished(CALL, RESULT, 0.5))
    async with opened() as again:
        assert await again.turns.orphans() == (HERE.key,)
        resumed = await again.turns.next_turn(HERE.key)
    assert resumed.said == (user("hello"), asked)
    assert resumed.acts == {"c1": RESULT, "c2": None}
    assert (resumed.id, resumed.attempt, resumed.history) == (turn.id, 2, ())
    assert resumed.epoch > turn.epoch


async def test_a_call_id_used_again_does_not_get_the_old_result(opened):
    async with opened() as store:
        turn = await claimed(store, said("1"))
        await store.turns.record(turn, Said(assistant(CALL)))
        await store.turns.record(turn, ToolFinished(CALL, RESULT))
        await store.turns.record(turn, Said(Message("tool", (RESULT,))))
        await store.turns.record(turn, Said(assistant(CALL)))
        assert (await store.turns.next_turn(HERE.key)).acts == {}


async def test_a_call_begun_again_is_not_finished(opened):
    async with opened() as store:
        turn = await claimed(store, said("1"))
        await store.turns.record(turn, ToolFinished(CALL, RESULT))
        await store.turns.record(turn, ToolStarted(CALL))
        assert (await store.turns.next_turn(HERE.key)).acts == {"c1": None}


@pytest.mark.parametrize("event", [Said(user("late")), ToolStarted(CALL), ToolFinished(CALL, RESULT)])
async def test_a_late_writer_is_fenced(opened, event):
    async with opened() as store:
        old = await claimed(store, said("1"))
        new = await store.turns.next_turn(HERE.key)
        with pytest.raises(Fenced):
            await store.turns.record(old, event)
        with pytest.raises(Fenced):
            await store.turns.finish(old, "failed", "late", user("late"))
        await store.turns.record(new, Said(user("mine")))
        await store.turns.finish(new, "answered", "")
        with pytest.raises(Fenced):
            await store.turns.record(new, event)
        with pytest.raises(Fenced):
            await store.turns.finish(new, "stopped", "twice")
        facts = await store.archive.turn(new.id)
    assert (facts.ending, facts.said) == ("answered", (user("mine"),))


async def test_one_who_gave_up_the_session_is_fenced_by_the_next_who_claims_it(opened):
    async with opened() as first, opened() as second:
        old = await claimed(first, said("1"))
        await first.turns.release(HERE.key)
        new = await second.turns.next_turn(HERE.key)
        with pytest.raises(Fenced):
            await first.turns.record(old, Said(user("late")))
        await second.turns.record(new, Said(user("mine")))


async def test_a_session_is_lived_by_one_process_at_a_time(opened):
    async with opened() as other:
        async with opened() as holder:
            turn = await claimed(holder, said("1"))
            assert await other.turns.holder(HERE.key) == await holder.turns.holder(HERE.key) == holder.host
            with pytest.raises(Held) as refused:
                await other.turns.next_turn(HERE.key)
            assert (refused.value.key, refused.value.host) == (HERE.key, holder.host)
            await other.turns.release(HERE.key)
            assert await other.turns.holder(HERE.key) == holder.host, "only who holds it can give it up"
            assert await other.turns.orphans() == ()
            assert (await claimed(other, said("2", THERE))).key == THERE.key
        assert await other.turns.holder(HERE.key) is None
        assert await other.turns.orphans() == (HERE.key,)
        assert (await other.turns.next_turn(HERE.key)).id == turn.id


async def test_where_nothing_waits_nobody_is_refused(opened):
    async with opened() as holder, opened() as other:
        turn = await claimed(holder, said("1"))
        await holder.turns.finish(turn, "answered", "")
        assert await other.turns.next_turn(HERE.key) is None
        assert await other.turns.holder(HERE.key) == holder.host


async def test_a_session_given_up_may_be_taken_by_another(opened):
    async with opened() as first, opened() as second:
        turn = await claimed(first, said("1"))
        await first.turns.finish(turn, "answered", "")
        await first.turns.release(HERE.key)
        assert await first.turns.holder(HERE.key) is None
        assert (await claimed(second, said("2"))).inbound.id == "2"
        assert await first.turns.holder(HERE.key) == second.host


async def test_of_two_processes_that_claim_at_once_one_gets_the_turn(opened):
    async with opened() as first, opened() as second:
        for n in range(20):
            address = Address("cli", f"chat {n}")
            await first.turns.accept(said(f"id {n}", address))
            async with asyncio.TaskGroup() as group:
                claims = [group.create_task(_claim(s, address.key)) for s in (first, second)]
            assert sorted(type(task.result()).__name__ for task in claims) == ["Held", "Turn"]


async def _claim(store, key):
    try:
        return await store.turns.next_turn(key)
    except Held as held:
        return held


async def test_orphans_are_listed_once_each_oldest_first(opened):
    async with opened() as store:
        for n, address in enumerate([THERE, HERE, THERE]):
            await store.turns.accept(said(str(n), address))
        assert await store.turns.orphans() == (THERE.key, HERE.key)


async def test_ops_left_for_a_session_are_given_out_once_in_order(opened):
    stops = [Stop("user_stop", f"number {n}") for n in range(3)]
    async with opened() as store:
        for stop in stops:
            await store.turns.put_control(HERE.key, stop)
        await store.turns.put_control(HERE.key, Take())
        await store.turns.put_control(THERE.key, Stop())
    async with opened() as again:
        assert await again.turns.drain_control(HERE.key) == (*stops, Take())
        assert await again.turns.drain_control(HERE.key) == ()
        assert await again.turns.drain_control(THERE.key) == (Stop(),)


async def test_only_the_holder_takes_the_ops_of_a_held_session(opened):
    async with opened() as holder, opened() as other:
        await claimed(holder, said("1"))
        await other.turns.put_control(HERE.key, Stop())
        with pytest.raises(Held):
            await other.turns.drain_control(HERE.key)
        assert await holder.turns.drain_control(HERE.key) == (Stop(),)


async def test_a_stop_that_found_nothing_does_not_meet_a_later_turn(opened):
    async with opened() as store:
        await store.turns.put_control(HERE.key, Stop())
        await store.turns.accept(said("1"))
        assert await store.turns.drain_control(HERE.key) == ()
        await store.turns.put_control(HERE.key, Stop())
        await store.turns.accept(said("2"))
        assert await store.turns.drain_control(HERE.key) == (Stop(),), "the first turn still waits for it"


async def test_a_stop_for_a_turn_that_waits_behind_another_waits_with_it(opened):
    async with opened() as store:
        first, second, third = [await store.turns.accept(said(str(n))) for n in range(3)]
        for turn in (third, second, first, "long gone"):
            await store.turns.put_control(HERE.key, Stop(turn=turn))
        assert await store.turns.drain_control(HERE.key) == (Stop(turn=first), Stop(turn="long gone"))
        for turn in (second, third):
            await store.turns.finish(await store.turns.next_turn(HERE.key), "answered", "")
            assert await store.turns.drain_control(HERE.key) == (Stop(turn=turn),)


async def test_the_ending_and_the_closing_words_are_one(opened):
    answer = Message("tool", (ToolResult("c1", "stopped", "cancelled"),))
    async with opened() as store:
        turn = await claimed(store, said("1"))
        await store.turns.record(turn, Said(assistant(CALL)))
        await store.turns.finish(turn, "stopped", "by the user", answer, assistant(Text("I stopped.")))
        facts = await store.archive.turn(turn.id)
    assert (facts.ending, facts.detail) == ("stopped", "by the user")
    assert facts.said == (assistant(CALL), answer, assistant(Text("I stopped.")))
    assert facts.ended >= facts.created


async def test_a_write_happens_though_its_writer_is_cancelled(opened):
    async with opened() as store:
        turn = await claimed(store, said("1"))
        writing = asyncio.create_task(store.turns.record(turn, Said(user("kept"))))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await store.turns.record(turn, Said(user("after")))
        assert (await store.archive.turn(turn.id)).said == (user("kept"), user("after"))


async def test_half_a_character_costs_only_itself(opened):
    async with opened() as store:
        turn = await claimed(store, said("1", text="caf\udcc3 ok"))
        assert turn.inbound.text == "caf? ok"
        await store.turns.record(
            turn, Said(assistant(Text("\udcff"), ToolCall("c", "t", {"\ud800": ["\udc00"]})))
        )
        await store.turns.finish(turn, "failed", "\udcff")
        facts = await store.archive.turn(turn.id)
    assert facts.said == (assistant(Text("?"), ToolCall("c", "t", {"?": ["?"]})),)


@pytest.mark.deadline(60)
async def test_a_thousand_idle_sessions_cost_nothing_but_rows(opened):
    async with opened() as store, opened() as other:
        addresses = [Address("cli", str(n)) for n in range(1000)]

        async def live(address):
            turn = await claimed(store, said(f"to {address.chat}", address))
            await store.turns.finish(turn, "answered", "")

        async with asyncio.TaskGroup() as group:
            for address in addresses:
                group.create_task(live(address))
        assert len(asyncio.all_tasks()) == 1, "no task sits on an idle session"
        assert await other.turns.orphans() == ()
        assert await other.turns.holder(addresses[999].key) == store.host


texts = st.text(max_size=50)
parts = st.one_of(
    st.builds(Text, texts),
    st.builds(Image, texts, st.binary(max_size=50)),
    st.builds(Thinking, texts, texts, texts),
    st.builds(
        ToolCall,
        texts,
        texts,
        st.dictionaries(
            texts, st.none() | st.booleans() | texts | st.floats(allow_nan=False, allow_infinity=False)
        ),
    ),
    st.builds(ToolResult, texts, texts, st.sampled_from(["ok", "failed", "denied", "cancelled", "unknown"])),
)


@given(
    st.builds(
        Message,
        st.sampled_from(["user", "assistant", "tool", "notice"]),
        st.lists(parts, max_size=5).map(tuple),
    )
)
@settings(max_examples=200, deadline=None)
def test_what_is_kept_is_what_was_said(message):
    assert codec.messages.decode(codec.dump(message)) == message
