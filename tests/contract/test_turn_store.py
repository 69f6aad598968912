"""Contract of every store of turns."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.kernel.errors import Fenced, SessionHeld
from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Said, Stop, ToolFinished, ToolStarted, Usage, Wake
from alipes.store.sql.rows import Decoders, to_json

HERE, THERE = Address("cli", "here"), Address("cli", "there")
CALL = ToolCall("c1", "terminal", {"command": "ls", "deep": [1, 2.5, None, {"x": True}]})
RESULT = ToolResult("c1", "a file", images=(Image("image/png", b"\x89PNG\x00"),))


def make_inbound(id: str, address: Address = HERE, text: str = "hello") -> Inbound:
    return Inbound(id=id, address=address, sender="me", text=text)


async def accept_and_claim(store, inbound: Inbound):
    await store.turns.accept(inbound)
    return await store.turns.claim_next(inbound.address.key)


async def test_an_accepted_message_is_claimed_with_all_its_fields(opened):
    inbound = Inbound("7", HERE, "me", "look", (Image("image/png", b"\0\xff"),), "p/m", "/tmp", True)
    async with opened() as store:
        id = await store.turns.accept(inbound)
        turn = await store.turns.claim_next(HERE.key)
    assert (turn.id, turn.inbound, turn.key) == (id, inbound, HERE.key)
    assert (turn.history, turn.said, turn.tool_results, turn.attempt) == ((), (), {}, 1)
    assert turn.session_started > 0


async def test_opening_messages_are_recorded_with_the_claim_and_marked_unpublished(opened):
    def opening(turn):
        return (turn.inbound.message,) if turn.attempt == 1 else ()

    async with opened() as store:
        await store.turns.accept(make_inbound("7"))
        turn = await store.turns.claim_next(HERE.key, opening)
        assert turn.said == turn.unpublished == (user("hello"),)
        assert (await store.archive.turn(turn.id)).said == (user("hello"),)
        again = await store.turns.claim_next(HERE.key, opening)
        assert (again.said, again.unpublished) == ((user("hello"),), ())
        with pytest.raises(Fenced):
            await store.turns.record(turn, Said(assistant("too late")))


async def test_a_second_copy_is_rejected_by_another_process_and_after_a_restart(opened):
    async with opened() as first, opened() as second:
        assert await first.turns.accept(make_inbound("7"))
        assert await first.turns.accept(make_inbound("7")) is None
        assert await second.turns.accept(make_inbound("7")) is None
    async with opened() as again:
        assert await again.turns.accept(make_inbound("7")) is None
        assert await again.turns.accept(make_inbound("8"))


async def test_two_platforms_may_use_the_same_id(opened):
    async with opened() as store:
        assert await store.turns.accept(make_inbound("7", Address("telegram", "1")))
        assert await store.turns.accept(make_inbound("7", Address("discord", "1")))


async def test_of_many_simultaneous_copies_one_is_accepted(opened):
    async with opened() as first, opened() as second, asyncio.TaskGroup() as group:
        tries = [group.create_task(s.turns.accept(make_inbound("7"))) for s in (first, second) * 10]
    assert sum(task.result() is not None for task in tries) == 1


async def test_turns_are_claimed_one_by_one_in_the_order_they_were_accepted(opened):
    async with opened() as store:
        ids = [await store.turns.accept(make_inbound(str(n))) for n in range(3)]
        lived = []
        while turn := await store.turns.claim_next(HERE.key):
            lived.append(turn.id)
            assert (await store.turns.claim_next(HERE.key)).id == turn.id, "the head stays until it is finished"
            turn = await store.turns.claim_next(HERE.key)
            await store.turns.finish(turn, "answered", "")
        assert lived == ids
        assert await store.turns.claim_next(THERE.key) is None


async def test_a_claimed_turn_knows_whether_the_queue_was_empty(opened):
    async with opened() as store:
        await store.turns.accept(make_inbound("other", THERE))
        turn = await accept_and_claim(store, make_inbound("1"))
        assert turn.queue_empty
        await store.turns.finish(turn, "answered", "")
        await store.turns.accept(make_inbound("2"))
        assert not (await accept_and_claim(store, make_inbound("3"))).queue_empty, "a message waits behind it"
    async with opened() as store:
        turn = await accept_and_claim(store, make_inbound("4", Address("cli", "elsewhere")))
        await store.turns.put_op(turn.key, Stop("user", "stop_command", turn.id))
        assert not (await store.turns.claim_next(turn.key)).queue_empty, "an op waits for it"


async def test_a_conversation_stays_in_one_session_and_other_people_have_their_own(opened):
    async with opened() as store:
        first = await accept_and_claim(store, make_inbound("1"))
        await store.turns.record(first, Said(user("one"), "p/m", Usage(1, 2)))
        await store.turns.finish(first, "answered", "", assistant(Text("uno")))
        other = await accept_and_claim(store, make_inbound("2", THERE))
        second = await accept_and_claim(store, make_inbound("3"))
    assert second.session == first.session != other.session
    assert second.history == (user("one"), assistant(Text("uno")))
    assert second.session_started == first.session_started
    assert (second.said, other.history) == ((), ())


async def test_an_interrupted_turn_is_claimed_again_with_its_messages_and_results(opened):
    asked = Message("assistant", (Thinking("hm", "seal", "p/m"), CALL, ToolCall("c2", "write", {})))
    async with opened() as store:
        turn = await accept_and_claim(store, make_inbound("1"))
        await store.turns.record(turn, Said(user("hello")))
        await store.turns.record(turn, Said(asked))
        await store.turns.record(turn, ToolStarted(CALL))
        await store.turns.record(turn, ToolStarted(asked.calls[1]))
        await store.turns.record(turn, ToolFinished(CALL, RESULT, 0.5))
    async with opened() as again:
        assert await again.turns.list_orphans() == (HERE.key,)
        resumed = await again.turns.claim_next(HERE.key)
    assert resumed.said == (user("hello"), asked)
    assert resumed.tool_results == {"c1": RESULT, "c2": None}
    assert (resumed.id, resumed.attempt, resumed.history) == (turn.id, 2, ())
    assert resumed.epoch > turn.epoch


async def test_a_call_id_used_again_does_not_get_the_old_result(opened):
    async with opened() as store:
        turn = await accept_and_claim(store, make_inbound("1"))
        await store.turns.record(turn, Said(assistant(CALL)))
        await store.turns.record(turn, ToolFinished(CALL, RESULT))
        await store.turns.record(turn, Said(Message("tool", (RESULT,))))
        await store.turns.record(turn, Said(assistant(CALL)))
        assert (await store.turns.claim_next(HERE.key)).tool_results == {}


async def test_a_call_started_again_is_unfinished(opened):
    async with opened() as store:
        turn = await accept_and_claim(store, make_inbound("1"))
        await store.turns.record(turn, ToolFinished(CALL, RESULT))
        await store.turns.record(turn, ToolStarted(CALL))
        assert (await store.turns.claim_next(HERE.key)).tool_results == {"c1": None}


@pytest.mark.parametrize("event", [Said(user("late")), ToolStarted(CALL), ToolFinished(CALL, RESULT)])
async def test_a_late_writer_is_fenced(opened, event):
    async with opened() as store:
        old = await accept_and_claim(store, make_inbound("1"))
        new = await store.turns.claim_next(HERE.key)
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


async def test_after_a_release_the_next_claim_fences_the_old_one(opened):
    async with opened() as first, opened() as second:
        old = await accept_and_claim(first, make_inbound("1"))
        await first.turns.release(HERE.key)
        new = await second.turns.claim_next(HERE.key)
        with pytest.raises(Fenced):
            await first.turns.record(old, Said(user("late")))
        await second.turns.record(new, Said(user("mine")))


async def test_a_session_is_held_by_one_process_at_a_time(opened):
    async with opened() as other:
        async with opened() as holder:
            turn = await accept_and_claim(holder, make_inbound("1"))
            assert await other.turns.holder(HERE.key) == await holder.turns.holder(HERE.key) == holder.host
            with pytest.raises(SessionHeld) as refused:
                await other.turns.claim_next(HERE.key)
            assert (refused.value.key, refused.value.host) == (HERE.key, holder.host)
            await other.turns.release(HERE.key)
            assert await other.turns.holder(HERE.key) == holder.host, "only who holds it can give it up"
            assert await other.turns.list_orphans() == ()
            assert (await accept_and_claim(other, make_inbound("2", THERE))).key == THERE.key
        assert await other.turns.holder(HERE.key) is None
        assert await other.turns.list_orphans() == (HERE.key,)
        assert (await other.turns.claim_next(HERE.key)).id == turn.id


async def test_without_queued_turns_no_claim_is_refused(opened):
    async with opened() as holder, opened() as other:
        turn = await accept_and_claim(holder, make_inbound("1"))
        await holder.turns.finish(turn, "answered", "")
        assert await other.turns.claim_next(HERE.key) is None
        assert await other.turns.holder(HERE.key) == holder.host


async def test_a_released_session_can_be_claimed_by_another_process(opened):
    async with opened() as first, opened() as second:
        turn = await accept_and_claim(first, make_inbound("1"))
        await first.turns.finish(turn, "answered", "")
        await first.turns.release(HERE.key)
        assert await first.turns.holder(HERE.key) is None
        assert (await accept_and_claim(second, make_inbound("2"))).inbound.id == "2"
        assert await first.turns.holder(HERE.key) == second.host


async def test_of_two_processes_that_claim_at_once_one_gets_the_turn(opened):
    async with opened() as first, opened() as second:
        for n in range(20):
            address = Address("cli", f"chat {n}")
            await first.turns.accept(make_inbound(f"id {n}", address))
            async with asyncio.TaskGroup() as group:
                claims = [group.create_task(_claim(s, address.key)) for s in (first, second)]
            assert sorted(type(task.result()).__name__ for task in claims) == ["SessionHeld", "Turn"]


async def _claim(store, key):
    try:
        return await store.turns.claim_next(key)
    except SessionHeld as held:
        return held


async def test_orphans_are_listed_once_each_oldest_first(opened):
    async with opened() as store:
        for n, address in enumerate([THERE, HERE, THERE]):
            await store.turns.accept(make_inbound(str(n), address))
        assert await store.turns.list_orphans() == (THERE.key, HERE.key)


async def test_stored_ops_are_returned_once_and_in_order(opened):
    stops = [Stop("user_stop", f"number {n}") for n in range(3)]
    async with opened() as store:
        for stop in stops:
            await store.turns.put_op(HERE.key, stop)
        await store.turns.put_op(HERE.key, Wake())
        await store.turns.put_op(THERE.key, Stop())
    async with opened() as again:
        assert await again.turns.take_ops(HERE.key) == (*stops, Wake())
        assert await again.turns.take_ops(HERE.key) == ()
        assert await again.turns.take_ops(THERE.key) == (Stop(),)


async def test_only_the_holder_takes_the_ops_of_a_held_session(opened):
    async with opened() as holder, opened() as other:
        await accept_and_claim(holder, make_inbound("1"))
        await other.turns.put_op(HERE.key, Stop())
        with pytest.raises(SessionHeld):
            await other.turns.take_ops(HERE.key)
        assert await holder.turns.take_ops(HERE.key) == (Stop(),)


async def test_a_stop_without_a_turn_does_not_stop_a_later_one(opened):
    async with opened() as store:
        await store.turns.put_op(HERE.key, Stop())
        await store.turns.accept(make_inbound("1"))
        assert await store.turns.take_ops(HERE.key) == ()
        await store.turns.put_op(HERE.key, Stop())
        await store.turns.accept(make_inbound("2"))
        assert await store.turns.take_ops(HERE.key) == (Stop(),), "the first turn still waits for it"


async def test_a_stop_for_a_queued_turn_stays_until_that_turn_is_first(opened):
    async with opened() as store:
        first, second, third = [await store.turns.accept(make_inbound(str(n))) for n in range(3)]
        for turn in (third, second, first, "long gone"):
            await store.turns.put_op(HERE.key, Stop(turn=turn))
        assert await store.turns.take_ops(HERE.key) == (Stop(turn=first), Stop(turn="long gone"))
        for turn in (second, third):
            await store.turns.finish(await store.turns.claim_next(HERE.key), "answered", "")
            assert await store.turns.take_ops(HERE.key) == (Stop(turn=turn),)


async def test_the_ending_and_the_closing_messages_are_one_write(opened):
    answer = Message("tool", (ToolResult("c1", "stopped", "cancelled"),))
    async with opened() as store:
        turn = await accept_and_claim(store, make_inbound("1"))
        await store.turns.record(turn, Said(assistant(CALL)))
        await store.turns.finish(turn, "stopped", "by the user", answer, assistant(Text("I stopped.")))
        facts = await store.archive.turn(turn.id)
    assert (facts.ending, facts.detail) == ("stopped", "by the user")
    assert facts.said == (assistant(CALL), answer, assistant(Text("I stopped.")))
    assert facts.ended >= facts.created


async def test_a_write_completes_even_if_its_caller_is_cancelled(opened):
    async with opened() as store:
        turn = await accept_and_claim(store, make_inbound("1"))
        writing = asyncio.create_task(store.turns.record(turn, Said(user("kept"))))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await store.turns.record(turn, Said(user("after")))
        assert (await store.archive.turn(turn.id)).said == (user("kept"), user("after"))


async def test_a_lone_surrogate_is_replaced_and_nothing_else_changes(opened):
    async with opened() as store:
        turn = await accept_and_claim(store, make_inbound("1", text="caf\udcc3 ok"))
        assert turn.inbound.text == "caf? ok"
        await store.turns.record(turn, Said(assistant(Text("\udcff"), ToolCall("c", "t", {"\ud800": ["\udc00"]}))))
        await store.turns.finish(turn, "failed", "\udcff")
        facts = await store.archive.turn(turn.id)
    assert facts.said == (assistant(Text("?"), ToolCall("c", "t", {"?": ["?"]})),)


@pytest.mark.deadline(60)
async def test_a_thousand_idle_sessions_are_only_rows(opened):
    async with opened() as store, opened() as other:
        addresses = [Address("cli", str(n)) for n in range(1000)]

        async def live(address):
            turn = await accept_and_claim(store, make_inbound(f"to {address.chat}", address))
            await store.turns.finish(turn, "answered", "")

        async with asyncio.TaskGroup() as group:
            for address in addresses:
                group.create_task(live(address))
        assert len(asyncio.all_tasks()) < 100, "no task sits on an idle session"
        assert await other.turns.list_orphans() == ()
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
        st.dictionaries(texts, st.none() | st.booleans() | texts | st.floats(allow_nan=False, allow_infinity=False)),
    ),
    st.builds(ToolResult, texts, texts, st.sampled_from(["ok", "failed", "denied", "cancelled", "unknown"])),
)


@given(
    st.builds(Message, st.sampled_from(["user", "assistant", "tool", "notice"]), st.lists(parts, max_size=5).map(tuple))
)
@settings(max_examples=200, deadline=None)
def test_any_message_is_read_as_it_was_written(message):
    assert Decoders.message.decode(to_json(message)) == message
