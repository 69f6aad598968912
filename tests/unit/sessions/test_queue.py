"""Queued messages at a stop: held, sent, dropped and taken back."""

import pytest
from msgspec import structs

from alipes.kernel.messages import Image
from alipes.kernel.turns import QueueChanged, QueuedMessage, Stop
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.sessions.test_steer import KEY, Gate, at_work, call, ended, texts
from tests.world.session_harness import inbound, open_sessions

USER_STOP = Stop("user_stop", "session_interrupt")


async def queue(house, *messages, busy="queue"):
    return [await house.sessions.submit(inbound(each, each), busy=busy) for each in messages]


async def stop(house, turn):
    stopped = await house.sessions.stop(KEY, USER_STOP)
    assert (await ended(house, turn)).ending == "stopped"
    await house.sessions.wait_idle()
    return stopped


async def held(house):
    return [each.text for each in await house.store.sessions.unfinished(KEY) if each.held]


async def test_a_stop_starts_no_queued_message(tmp_path):
    async with at_work(tmp_path, "no") as (house, _, provider, turn):
        await queue(house, "second", "third")
        stopped = await stop(house, turn)
        assert stopped.turn == turn and [each.text for each in stopped.held] == ["second", "third"]
        assert len(provider.asked) == 1 and await held(house) == ["second", "third"]


async def test_a_stop_holds_messages_that_were_meant_for_the_running_turn(tmp_path):
    async with at_work(tmp_path, "both") as (house, _, provider, turn):
        await queue(house, "second", "third", busy="steer")
        await stop(house, turn)
        assert len(provider.asked) == 1 and await held(house) == ["second", "third"]
        released = await house.sessions.release(KEY)
        assert (await ended(house, released[0].id)).ending == "answered"
        assert (await ended(house, released[1].id)).ending == "steered"
        assert texts(provider.asked[-1])[-2:] == ["second", "third"], "in order, in one turn"


async def test_released_messages_run_in_order_behind_messages_that_came_later(tmp_path):
    async with at_work(tmp_path, "new", "two", "three") as (house, _, provider, turn):
        await queue(house, "second", "third")
        await stop(house, turn)
        (new,) = await queue(house, "new")
        assert (await ended(house, new)).ending == "answered"
        assert await held(house) == ["second", "third"], "a new message does not send them"
        for each in await house.sessions.release(KEY):
            assert (await ended(house, each.id)).ending == "answered"
        assert [texts(each)[-1] for each in provider.asked] == ["first", "new", "second", "third"]
        undone = await house.store.sessions.undo(KEY, 2)
        assert [each.text for each in undone] == ["third", "second"], "the numbers follow the order of the turns"


async def test_held_messages_stay_held_in_the_next_process(tmp_path):
    async with at_work(tmp_path) as (house, _, _, turn):
        await queue(house, "second")
        await stop(house, turn)
    async with open_sessions(tmp_path, ScriptedProvider(["two"])) as house:
        assert house.sessions.recovered == () and await house.store.turns.list_orphans() == ()
        assert await held(house) == ["second"]
        (sent,) = await house.sessions.release(KEY)
        assert (await ended(house, sent.id)).ending == "answered"


async def test_an_interrupting_message_leaves_held_ones_alone(tmp_path):
    async with at_work(tmp_path, call(2), "last") as (house, gate, _, turn):
        await queue(house, "second")
        await stop(house, turn)
        gate.running.clear()
        (running,) = await queue(house, "third")
        await gate.running.wait()
        (last,) = await queue(house, "fourth", busy="interrupt")
        assert (await ended(house, running)).detail == "superseded"
        assert (await ended(house, last)).ending == "answered"
        assert await held(house) == ["second"]


async def test_taking_back_returns_the_newest_message_and_it_never_runs(tmp_path):
    async with at_work(tmp_path, "done") as (house, gate, provider, turn):
        second, third = await queue(house, "second", "third", busy="steer")
        taken = await house.sessions.take_back(KEY)
        assert (taken.id, taken.text) == (third, "third")
        assert (await ended(house, third)).detail == "taken_back"
        gate.open.set()
        assert (await ended(house, second)).ending == "steered"
        assert (await ended(house, turn)).ending == "answered"
        assert "third" not in texts(provider.asked[-1])
        assert await house.sessions.take_back(KEY) is None, "what was steered in or has ended stays"
        retried = await house.store.sessions.retry(KEY)
        assert retried.undone.text == "first", "a message that was taken back is not retried"


async def test_a_message_is_taken_back_with_its_pictures(tmp_path):
    async with at_work(tmp_path) as (house, _, _, _):
        picture = Image("image/png", b"x")
        await house.sessions.submit(inbound("2", "look", attachments=(picture,)), busy="queue")
        assert (await house.sessions.take_back(KEY)).attachments == (picture,)


async def test_a_running_turn_cannot_be_taken_back_or_dropped(tmp_path):
    async with at_work(tmp_path, "done") as (house, gate, _, turn):
        assert await house.sessions.take_back(KEY) is None
        assert await house.sessions.drop(KEY) == await house.sessions.drop(KEY, turn) == ()
        gate.open.set()
        assert (await ended(house, turn)).ending == "answered"


async def test_every_change_of_the_queue_is_published(tmp_path):
    async with at_work(tmp_path, "two") as (house, _, _, turn):
        (second,) = await queue(house, "second")
        seen = []
        async with house.sessions.watch(KEY) as events:
            await stop(house, turn)
            (third,) = await queue(house, "third", busy="queue")
            await ended(house, third)
            await house.sessions.drop(KEY)
            async for envelope in events:
                if isinstance(envelope.event, QueueChanged):
                    seen.append((envelope.turn, envelope.event.messages))
                if len(seen) == 2:
                    break
        assert seen == [("", (QueuedMessage(second, "second", held=True),)), ("", ())]


async def test_a_stop_by_name_of_a_queued_message_holds_nothing(tmp_path):
    async with at_work(tmp_path, "done", "three") as (house, gate, _, turn):
        second, third = await queue(house, "second", "third")
        stopped = await house.sessions.stop(KEY, structs.replace(USER_STOP, turn=second))
        assert (stopped.turn, stopped.held) == ("", ())
        gate.open.set()
        assert [(await ended(house, each)).ending for each in (turn, second, third)] == [
            "answered",
            "stopped",
            "answered",
        ]


async def test_a_stop_by_name_of_a_held_message_drops_it(tmp_path):
    async with at_work(tmp_path) as (house, _, _, turn):
        second, _ = await queue(house, "second", "third")
        await stop(house, turn)
        await house.sessions.stop(KEY, structs.replace(USER_STOP, turn=second))
        assert (await ended(house, second)).detail == "dropped" and await held(house) == ["third"]


async def test_held_messages_move_with_their_conversation(tmp_path):
    async with at_work(tmp_path, "two") as (house, _, _, turn):
        await queue(house, "second")
        await stop(house, turn)
        old = (await house.store.sessions.active(KEY)).session
        elsewhere = structs.replace(inbound("", "").address, chat="elsewhere")
        await house.store.sessions.switch(elsewhere, old)
        assert await held(house) == []
        (sent,) = await house.sessions.release(elsewhere.key)
        async with house.sessions.follow(elsewhere.key, sent.id) as following:
            assert [event async for event in following][-1].ending == "answered"


async def test_a_new_conversation_ends_held_messages(tmp_path):
    async with at_work(tmp_path) as (house, _, _, turn):
        (second,) = await queue(house, "second")
        await stop(house, turn)
        left = await house.store.sessions.reset(KEY)
        assert left.dropped == (second,) and left.running_turn == ""


async def test_a_kept_notice_is_recorded_although_the_queue_is_held(tmp_path):
    async with at_work(tmp_path) as (house, _, provider, turn):
        note = structs.replace(inbound("note", "a job has ended"), notice="kept")
        kept = await house.sessions.submit(note, busy="queue")
        await stop(house, turn)
        assert (await ended(house, kept)).ending == "answered" and len(provider.asked) == 1


@pytest.mark.parametrize(
    "own", [{"model": "p/other"}, {"only": ()}, {"instructions": "Be brief."}], ids=["model", "tools", "instructions"]
)
async def test_a_message_with_settings_of_its_own_is_queued_instead_of_steered(own, tmp_path):
    async with at_work(tmp_path, "done", "mine", busy="steer") as (house, gate, _, turn):
        joined = await house.sessions.submit(inbound("2", "second"))
        own_turn = await house.sessions.submit(inbound("3", "third", **own))
        gate.open.set()
        assert [(await ended(house, each)).ending for each in (turn, joined, own_turn)] == [
            "answered",
            "steered",
            "answered",
        ]


async def test_a_stop_while_nothing_runs_holds_nothing_new(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider(["one"]), Gate()) as house:
        await house.ask(inbound("1", "hello"))
        stopped = await house.sessions.stop(KEY, USER_STOP)
        assert (stopped.turn, stopped.held) == ("", ())
