"""Messages that arrive while a turn is at work: interrupt, queue, steer. None is lost, merged or answered twice."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Envelope, Reset, Said, SessionChanged, Steer, Stop, TurnEnded
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.store.sqlite.store import open_store
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.random_delays import check_transcript
from tests.world.session_harness import Running, inbound, make_agent, open_sessions

KEY = inbound("", "").address.key


class Gate:
    """A write tool that says when it runs, and continues when it may; each time again."""

    spec = ToolSpec("gate", "wait", {"type": "object", "properties": {}})

    def __init__(self):
        self.running, self.open = asyncio.Event(), asyncio.Event()

    async def run(self, args, act):
        self.running.set()
        await self.open.wait()
        self.open.clear()
        return "went through"


def call(n=1):
    return ToolCall(f"c{n}", "gate", {})


@asynccontextmanager
async def at_work(home, *script, **more):
    """A house with a turn inside its tool: alipes, the gate, the provider, the living turn's id."""
    gate, provider = Gate(), ScriptedProvider([call(), *script])
    async with open_sessions(home, provider, gate, **more) as house:
        turn = await house.sessions.submit(inbound("1", "first"))
        await gate.running.wait()
        yield house, gate, provider, turn


async def ended(house, turn):
    """How the turn ended, once it has."""
    async with house.sessions.follow(KEY, turn) as following:
        return [event async for event in following][-1]


def texts(request):
    return [message.text for message in request.messages if message.role != "tool"]


async def test_steered_messages_reach_the_living_turn_at_its_next_step_in_order(tmp_path):
    async with at_work(tmp_path, "done") as (house, gate, provider, turn):
        async with house.sessions.ask(inbound("2", "second"), busy="steer") as second:
            await house.sessions.submit(inbound("3", "third"), busy="steer")
            gate.open.set()
            assert [event async for event in second] == [TurnEnded(second.turn, "steered", turn)]
        assert (await ended(house, turn)).ending == "answered"
        assert texts(provider.asked[1]) == ["first", "", "second", "third"]
        await house.sessions.wait_idle()
        assert len(provider.asked) == 2, "nobody is answered twice"
        facts = await house.store.archive.turn(turn)
        assert [m.role for m in facts.said] == ["user", "assistant", "tool", "user", "user", "assistant"]


async def test_a_message_that_comes_with_the_last_word_is_still_answered_in_the_turn(tmp_path):
    speaking = asyncio.Event()
    provider = ScriptedProvider([("I am", speaking), "and now this"])
    async with open_sessions(tmp_path, provider) as house:
        turn = await house.sessions.submit(inbound("1", "first"))
        while not provider.asked:
            await asyncio.sleep(0.001)
        await house.sessions.submit(inbound("2", "second"), busy="steer")
        speaking.set()
        assert (await ended(house, turn)).ending == "answered"
        assert texts(provider.asked[1]) == ["first", "I am", "second"]
        facts = await house.store.archive.turn(turn)
        assert facts.said[-1].text == "and now this"


async def test_any_process_that_watches_sees_the_steered_words_in_the_living_turn_once(tmp_path):
    async with at_work(tmp_path, "done") as (house, gate, _, turn):
        async with house.sessions.follow(KEY, turn) as following:
            await house.sessions.submit(inbound("2", "second"), busy="steer")
            gate.open.set()
            said = [event.message async for event in following if isinstance(event, Said)]
        assert [m.text for m in said if m.role == "user"] == ["first", "second"]
        assert said == list((await house.store.archive.turn(turn)).said)


async def test_memory_and_journal_agree_on_what_was_taken_in(tmp_path):
    async with at_work(tmp_path, call(2)) as (house, gate, _, turn):
        gate.running.clear()
        await house.sessions.submit(inbound("2", "second"), busy="steer")
        gate.open.set()
        await gate.running.wait()
        said = (await house.store.archive.turn(turn)).said
        assert house.sessions._sessions[KEY]._running.said == said
        assert [message.text for message in said if message.role == "user"] == ["first", "second"]


async def test_who_comes_late_hears_nothing_twice(tmp_path):
    async with at_work(tmp_path, "done") as (house, gate, _, turn):
        async with house.sessions.follow(KEY, turn) as following:
            facts = await house.store.archive.turn(turn)
            for message in facts.said:  # kept just before we looked, and reported just after
                house.store.bus.publish(Envelope(KEY, turn, Said(message)))
            gate.open.set()
            said = [event.message async for event in following if isinstance(event, Said)]
        assert said == list((await house.store.archive.turn(turn)).said)


async def test_plugins_hear_of_steered_words_like_of_all_others(tmp_path):
    heard, hooks = [], Hooks()

    async def on_event(event):
        if isinstance(event, Said) and event.message.role == "user":
            heard.append(event.message.text)

    hooks.add(PluginOwner("listener"), on_event)
    async with at_work(tmp_path, "done", hooks=hooks) as (house, gate, _, turn):
        await house.sessions.submit(inbound("2", "second"), busy="steer")
        gate.open.set()
        await ended(house, turn)
    assert heard == ["first", "second"]


async def test_a_message_that_the_turn_did_not_take_in_runs_next(tmp_path):
    async with at_work(tmp_path, "for the second") as (house, _, provider, turn):
        second = await house.sessions.submit(inbound("2", "second"), busy="steer")
        await house.sessions.post(KEY, Stop(turn=turn))
        assert (await ended(house, turn)).ending == "stopped"
        assert (await ended(house, second)).ending == "answered"
        assert texts(provider.asked[-1])[-1] == "second"


async def test_without_a_living_turn_a_steered_message_is_an_ordinary_one(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider(["hi"]), busy="steer") as house:
        assert (await house.ask(inbound("1", "hello"))).ending == "answered"
        await house.sessions.post(KEY, Steer("nobody"))
        await house.sessions.wait_idle()


async def test_after_the_last_step_a_steered_message_gets_a_turn_of_its_own(tmp_path):
    gate, provider = Gate(), ScriptedProvider([call(), "summary", "for the second"])

    def agent(turn):
        return make_agent(provider, gate, max_steps=1)

    async with open_sessions(tmp_path, provider, agent=agent) as house:
        turn = await house.sessions.submit(inbound("1", "first"))
        await gate.running.wait()
        second = await house.sessions.submit(inbound("2", "second"), busy="steer")
        gate.open.set()
        assert (await ended(house, turn)).ending == "out_of_steps"
        assert (await ended(house, second)).ending == "answered"


async def test_a_queued_message_waits_until_the_turn_is_over(tmp_path):
    async with at_work(tmp_path, "one", "two") as (house, gate, provider, turn):
        second = await house.sessions.submit(inbound("2", "second"), busy="queue")
        gate.open.set()
        assert (await ended(house, turn)).ending == (await ended(house, second)).ending == "answered"
        assert texts(provider.asked[-1]) == ["first", "", "one", "second"]


async def test_an_interrupting_message_ends_the_turn_and_is_answered_next(tmp_path):
    seen, hooks = [], Hooks()

    async def agent_loop_stopped(reason, invalidation_reason):
        seen.append((reason, invalidation_reason))

    hooks.add(PluginOwner("listener"), agent_loop_stopped)
    async with at_work(tmp_path, "two", hooks=hooks, busy="interrupt") as (house, _, provider, turn):
        second = await house.sessions.submit(inbound("2", "second"))
        end = await ended(house, turn)
        assert (end.ending, end.detail) == ("stopped", "superseded")
        assert (await ended(house, second)).ending == "answered"
        assert texts(provider.asked[-1]) == ["first", "", "second"]
    assert seen == [("superseded", "superseded")]


async def test_of_a_burst_the_last_is_answered_and_all_are_heard_in_order(tmp_path):
    gate, provider = Gate(), ScriptedProvider()
    async with open_sessions(tmp_path, provider, gate, busy="interrupt") as house:
        turns = [await house.sessions.submit(inbound("1", "!call gate"))]
        await gate.running.wait()
        endless = [f"!wait 600\nm{n}" for n in (2, 3, 4)]
        for n, text in enumerate((*endless, "m5"), 2):
            turns.append(await house.sessions.submit(inbound(str(n), text)))
        assert await house.sessions.submit(inbound("3", endless[1])) is None
        assert (await ended(house, turns[-1])).ending == "answered"
        assert {(await ended(house, each)).ending for each in turns[:-1]} == {"stopped"}
        said = [text for text in texts(provider.asked[-1]) if text]
        assert said == ["!call gate", *endless, "m5"]


async def test_what_was_queued_on_purpose_keeps_its_place_before_an_interrupting_message(tmp_path):
    async with at_work(tmp_path, "queued", "last", busy="interrupt") as (house, _, provider, turn):
        queued = await house.sessions.submit(inbound("2", "queued"), busy="queue")
        last = await house.sessions.submit(inbound("3", "last"))
        assert (await ended(house, turn)).ending == "stopped"
        assert (await ended(house, queued)).ending == (await ended(house, last)).ending == "answered"
        assert texts(provider.asked[-1])[-3:] == ["queued", "queued", "last"]


async def test_an_interrupting_message_never_ends_itself_however_late_its_stop_comes(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider(["one", "two", "three"]), busy="interrupt") as house:
        first = await house.ask(inbound("1", "first"))
        await house.sessions.post(KEY, Stop("superseded", "superseded", first.turn))
        assert (await house.ask(inbound("2", "second"))).ending == "answered"
        assert (await house.ask(inbound("3", "third"))).ending == "answered"


async def test_the_mode_of_the_session_counts_unless_the_message_brings_its_own(tmp_path):
    async with at_work(tmp_path, "one", busy="interrupt") as (house, gate, provider, turn):
        session = (await house.store.sessions.active(KEY)).session
        await house.store.sessions.configure(session, busy="steer")
        await house.sessions.submit(inbound("2", "second"))
        gate.open.set()
        assert (await ended(house, turn)).ending == "answered"
        assert texts(provider.asked[-1])[-1] == "second"


async def test_a_new_conversation_ends_the_old_ones_turn_and_what_is_queued_and_says_so(tmp_path):
    reported, hooks = [], Hooks()

    async def agent_loop_stopped(reason, invalidation_reason):
        reported.append((reason, invalidation_reason))

    async def session_left(session, reason):
        facts = await house.store.archive.turn(turn)
        reported.append((session, reason, facts.ending))

    hooks.add(PluginOwner("listener"), agent_loop_stopped)
    hooks.add(PluginOwner("listener"), session_left)
    async with at_work(tmp_path, "fresh", hooks=hooks) as (house, _, provider, turn):
        async with house.sessions.watch(KEY) as events:
            waits = await house.sessions.submit(inbound("2", "second"))
            left = await house.store.sessions.reset(KEY)
            await house.sessions.announce_switch(KEY, left, "new")
            third = await house.sessions.submit(inbound("3", "third"))
            seen = {}
            while third not in seen:
                envelope = await anext(events)
                if isinstance(envelope.event, TurnEnded | SessionChanged):
                    seen[envelope.turn] = envelope.event
        assert seen[""] == SessionChanged(left.old, left.new, "new")
        assert (seen[turn].ending, seen[turn].detail) == ("stopped", "reset")
        assert (seen[waits].ending, seen[third].ending) == ("stopped", "answered")
        assert texts(provider.asked[-1]) == ["third"]
    ends = [(left.old, "reset", "stopped"), (left.new, "shutdown", "stopped")]
    assert reported == [("reset", "new_command"), *ends]


async def test_a_late_word_that_a_conversation_was_left_ends_nothing_of_the_next(tmp_path):
    async with at_work(tmp_path, "done") as (house, gate, _, turn):
        await house.sessions.post(KEY, Reset(session="another"))
        gate.open.set()
        assert (await ended(house, turn)).ending == "answered"


async def test_a_turn_of_a_conversation_that_was_left_while_its_process_died_is_not_resumed(tmp_path):
    async with at_work(tmp_path) as (house, _, _, turn):
        left = await house.store.sessions.reset(KEY)
        assert left.running_turn == turn
    async with open_sessions(tmp_path, ScriptedProvider([])) as house:
        await house.sessions.wait_idle()
        facts = await house.store.archive.turn(turn)
        assert (facts.ending, facts.detail) == ("stopped", "reset")


async def test_an_idle_session_is_forgotten_unless_something_of_it_still_runs(tmp_path):
    left, hooks, running = [], Hooks(), {True}

    async def session_left(session, session_key, reason):
        left.append((session_key, reason))

    hooks.add(PluginOwner("listener"), session_left)
    background = Running(lambda: "a job" if running else "")
    async with open_sessions(
        tmp_path, ScriptedProvider(["hi"]), hooks=hooks, idle_seconds=0.01, background=background
    ) as house:
        await house.ask(inbound("1", "hello"))
        await asyncio.sleep(0.05)
        assert house.sessions._sessions and left == []
        running.clear()
        while house.sessions._sessions:
            await asyncio.sleep(0.005)
        assert left == [(KEY, "idle")]


@pytest.mark.parametrize("command", ["running", "set up"])
async def test_a_stop_command_says_whether_the_turn_was_already_set_up(tmp_path, command):
    seen, hooks, asked, ready = [], Hooks(), asyncio.Event(), asyncio.Event()

    async def agent_loop_stopped(invalidation_reason):
        seen.append(invalidation_reason)

    async def agent(turn):
        asked.set()
        await ready.wait()
        return make_agent(provider, hooks=hooks.dispatcher)

    provider = ScriptedProvider([asyncio.Event()])
    hooks.add(PluginOwner("listener"), agent_loop_stopped)
    async with open_sessions(tmp_path, provider, hooks=hooks, agent=agent) as house:
        if command == "running":
            ready.set()
        async with house.sessions.ask(inbound("1", "hello")) as following:
            if command == "running":
                await anext(following)
            await asked.wait()
            await house.sessions.post(KEY, Stop("user_stop", "stop_command", following.turn))
            assert [event async for event in following][-1].ending == "stopped"
    assert seen == ["stop_command" if command == "running" else "stop_command_pending"]


OTHER = """
import asyncio, sys
from pathlib import Path
from alipes.testing.scripted_provider import ScriptedProvider as Scripted
from tests.world.session_harness import inbound, open_sessions as open_house
from tests.unit.sessions.test_steer import Gate, call

async def main(home):
    gate, provider = Gate(), Scripted([call(), "done", "more"])
    async with open_house(Path(home), provider, gate) as house:
        await house.sessions.submit(inbound("1", "first"))
        await gate.running.wait()
        print("running", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        gate.open.set()
        await house.sessions.wait_idle()
        for request in provider.asked:
            print([m.text for m in request.messages if m.role != "tool"], flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main(sys.argv[1]))
"""


@asynccontextmanager
async def another_process(home):
    """A process of the same home with a turn inside its tool."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OTHER,
        str(home),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": "src:."},
    )
    try:
        assert await child.stdout.readline() == b"running\n"
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


@pytest.mark.deadline(60)
@pytest.mark.parametrize("mode", ["steer", "interrupt"])
async def test_the_modes_reach_a_turn_that_lives_in_another_process(tmp_path, mode):
    async with another_process(tmp_path) as child, open_sessions(tmp_path, ScriptedProvider([])) as house:
        async with house.sessions.ask(inbound("2", "second"), busy=mode) as following:
            child.stdin.write(b"\n")
            end = [event async for event in following][-1]
            first = await child.stdout.readline(), await child.stdout.readline()
        if mode == "steer":
            assert end.ending == "steered"
            assert first[1] == b"['first', '', 'second']\n"
        else:
            assert end.ending == "answered"
            assert first[1] == b"['first', '', 'second']\n"
            (one, two) = [await house.store.archive.turn(id) for id in await turns(house)]
            assert (one.ending, one.detail, two.ending) == ("stopped", "superseded", "answered")


async def turns(house):
    session = (await house.store.sessions.active(KEY)).session
    exported = await house.store.archive.export(session)
    return [turn["id"] for turn in exported["turns"]]


@pytest.mark.deadline(60)
async def test_a_kill_between_acceptance_and_absorption_loses_nothing(tmp_path):
    async with another_process(tmp_path) as child:
        async with open_sessions(tmp_path, ScriptedProvider([])) as house:
            steered = [await house.sessions.submit(inbound(str(n), f"m{n}"), busy="steer") for n in (2, 3)]
            child.send_signal(signal.SIGKILL)
            await child.wait()
        provider = ScriptedProvider(["done"])
        async with open_sessions(tmp_path, provider, Gate()) as house:
            await house.sessions.wait_idle()
            facts = [await house.store.archive.turn(id) for id in await turns(house)]
    assert [fact.id for fact in facts[1:]] == steered
    assert [fact.ending for fact in facts] == ["answered", "steered", "steered"]
    assert texts(provider.asked[0]) == ["first", "", "m2", "m3"]
    check_transcript(facts[0].said)


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", range(25))
async def test_at_any_moment_each_message_is_heard_once_and_in_order(seed, tmp_path):
    """Random modes, stops and moments: every message is in the transcript once, those of one mode in order."""
    import random

    from tests.world.random_delays import SlowModel, SlowTool

    dice = random.Random(seed)
    async with open_sessions(tmp_path, SlowModel(dice), SlowTool(), busy="interrupt") as house:
        accepted = []
        for n in range(12):
            mode = dice.choice(["interrupt", "queue", "steer"])
            accepted.append((await house.sessions.submit(inbound(str(n), f"q{n}"), busy=mode), mode))
            await asyncio.sleep(dice.random() * 0.006)
            if dice.random() < 0.2:
                await house.sessions.post(KEY, Stop())
        await house.sessions.wait_idle()
        facts = {id: await house.store.archive.turn(id) for id, _ in accepted}
        assert await house.store.turns.list_orphans() == ()
        assert {fact.ending for fact in facts.values()} <= {"answered", "stopped", "steered"}
        session = (await house.store.sessions.active(KEY)).session
        messages = await house.store.archive.messages(session)
        check_transcript(messages)
        heard = [message.text for message in messages if message.role == "user"]
        unbegun = {facts[id].inbound.text for id, _ in accepted if _dropped(facts[id])}
        assert sorted([*heard, *unbegun]) == sorted(f"q{n}" for n in range(12))
        for mode in ("interrupt", "queue", "steer"):
            numbers = [n for n, (_, accepted_as) in enumerate(accepted) if accepted_as == mode]
            assert [int(text[1:]) for text in heard if int(text[1:]) in numbers] == sorted(
                n for n in numbers if f"q{n}" in heard
            )


def _dropped(fact):
    """Stopped by a person before it said anything."""
    return fact.ending == "stopped" and fact.detail == "user_stop" and not fact.said


async def test_a_steered_message_outlives_its_process_as_rows(tmp_path):
    async with at_work(tmp_path, "done") as (house, gate, _, turn):
        second = await house.sessions.submit(inbound("2", "second"), busy="steer")
        gate.open.set()
        await ended(house, turn)
    async with open_store(tmp_path) as store:
        assert (await store.archive.turn(second)).detail == turn
