"""The four rules that carry the session; each test fails when its rule is removed."""

import asyncio

import pytest

from alipes.kernel.messages import ToolCall, ToolResult, user
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Notice, Said, Stop, TextDelta, TurnEnded, TurnStarted
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.sessions.sessions import Sessions
from alipes.store.sqlite.store import open_store
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.session_harness import Running, inbound, make_agent, open_sessions


class Nap:
    """A write tool that says when it runs, and sleeps until cancelled."""

    spec = ToolSpec("nap", "sleep", {"type": "object", "properties": {}})

    def __init__(self):
        self.running, self.cancelled, self.runs = asyncio.Event(), asyncio.Event(), 0

    async def run(self, args, act):
        self.runs += 1
        self.running.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


NAP = ToolCall("c1", "nap", {})


async def unfinished(house):
    return await house.store.turns.list_orphans()


async def test_a_question_is_answered_and_kept(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider(["hi"])) as house:
        end = await house.ask(inbound("1", "hello"))
        assert end.ending == "answered"
        said = [event.message.text for event in house.events if isinstance(event, Said)]
        assert said == ["hello", "hi"]
        facts = await house.store.archive.turn(end.turn)
        assert [message.text for message in facts.said] == said
        assert isinstance(house.events[0], TurnStarted)
        assert "".join(e.text for e in house.events if isinstance(e, TextDelta)) == "hi"


async def test_the_reason_of_a_broken_turn_shows_no_object_addresses(tmp_path):
    class Broken(ScriptedProvider):
        def stream(self, request):
            raise RuntimeError(f"cannot use {object()!r}")

    async with open_sessions(tmp_path, Broken([])) as house:
        end = await house.ask(inbound("1", "hello"))
    assert (end.ending, end.detail) == ("failed", "RuntimeError: cannot use <object object>")


async def test_the_same_inbound_is_lived_once(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider(["hi"])) as house:
        await house.ask(inbound("1", "hello"))
        assert await house.sessions.submit(inbound("1", "hello")) is None
        await house.sessions.wait_idle()


async def test_the_next_turn_knows_what_was_said_before(tmp_path):
    provider = ScriptedProvider(["one", "two"])
    async with open_sessions(tmp_path, provider) as house:
        await house.ask(inbound("1", "first"))
        await house.ask(inbound("2", "second"))
    assert [message.text for message in provider.asked[1].messages] == ["first", "one", "second"]


async def test_stop_ends_the_turn_and_the_next_one_runs(tmp_path):
    nap = Nap()
    async with open_sessions(tmp_path, ScriptedProvider([NAP, "hi"]), nap) as house:
        async with house.sessions.ask(inbound("1", "sleep")) as first:
            await house.sessions.submit(inbound("2", "hello"))
            await nap.running.wait()
            key = inbound("1", "").address.key
            await house.sessions.post(key, Stop("user_stop", "stop_command"))
            ends = [event async for event in first if isinstance(event, TurnEnded)]
        assert ends == [TurnEnded(first.turn, "stopped", "user_stop", ends[0].usage)]
        assert nap.cancelled.is_set()
        await house.sessions.wait_idle()
        facts = await house.store.archive.turn(first.turn)
        (result,) = facts.said[-1].parts
        assert isinstance(result, ToolResult) and result.outcome == "cancelled"
        assert await unfinished(house) == ()


async def test_stop_reaches_the_plugin_before_the_tool_is_cancelled(tmp_path):
    nap, order = Nap(), []

    async def agent_loop_stopped(reason):
        order.append(("hook", reason, nap.cancelled.is_set()))

    hooks = Hooks()
    hooks.add(PluginOwner("listener"), agent_loop_stopped)
    async with open_sessions(tmp_path, ScriptedProvider([NAP]), nap, hooks=hooks) as house:
        async with house.sessions.ask(inbound("1", "sleep")) as following:
            await nap.running.wait()
            for _ in range(2):  # the second stop finds the turn already marked
                await house.sessions.post(inbound("1", "").address.key, Stop())
            async for event in following:
                if isinstance(event, TurnEnded):
                    assert event.ending == "stopped"
    assert order == [("hook", "user_stop", False)]


async def test_stop_with_nothing_running_is_harmless(tmp_path):
    seen = []

    async def agent_loop_stopped(reason):
        seen.append(reason)

    hooks = Hooks()
    hooks.add(PluginOwner("listener"), agent_loop_stopped)
    async with open_sessions(tmp_path, ScriptedProvider(["hi", "again"]), hooks=hooks) as house:
        await house.sessions.post(inbound("1", "").address.key, Stop())
        assert (await house.ask(inbound("1", "hello"))).ending == "answered"
        await house.sessions.post(inbound("1", "").address.key, Stop())
        assert (await house.ask(inbound("2", "hello"))).ending == "answered"
    assert seen == []


async def test_a_turn_that_waits_can_be_stopped_before_it_begins(tmp_path):
    gate = asyncio.Event()
    provider = ScriptedProvider([gate, "first"])
    async with open_sessions(tmp_path, provider) as house:
        one = await house.sessions.submit(inbound("1", "first"))
        async with house.sessions.ask(inbound("2", "second")) as second:
            await house.sessions.post(inbound("1", "").address.key, Stop(turn=second.turn))
            while not provider.asked:
                await asyncio.sleep(0)
            gate.set()
            ends = [event async for event in second if isinstance(event, TurnEnded)]
        assert ends[0].ending == "stopped"
        assert (await house.store.archive.turn(one)).ending == "answered"


async def test_shutdown_leaves_the_turn_unfinished_and_the_next_start_finishes_it(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider([asyncio.Event()])) as house:
        async with house.sessions.ask(inbound("1", "hello")) as following:
            async for event in following:
                if isinstance(event, Said):
                    break
    provider = ScriptedProvider(["hi again"])
    async with open_sessions(tmp_path, provider) as house:
        await house.sessions.wait_idle()
        assert house.sessions.recovered == (inbound("1", "").address.key,)
        facts = await house.store.archive.turn(following.turn)
        assert facts.ending == "answered"
        assert [message.text for message in facts.said] == ["hello", "hi again"]
    assert [message.text for message in provider.asked[0].messages] == ["hello"]


async def test_a_write_tool_cut_off_by_the_end_of_the_process_is_not_run_again(tmp_path):
    nap = Nap()
    async with open_sessions(tmp_path, ScriptedProvider([NAP]), nap) as house:
        turn = await house.sessions.submit(inbound("1", "sleep"))
        await nap.running.wait()
    again = Nap()
    async with open_sessions(tmp_path, ScriptedProvider(["I cannot tell."]), again) as house:
        await house.sessions.wait_idle()
        facts = await house.store.archive.turn(turn)
        assert facts.ending == "answered"
        (result,) = facts.said[2].parts
        assert result.outcome == "unknown"
    assert again.runs == 0


async def test_a_turn_is_given_up_after_three_attempts_and_says_so(tmp_path):
    turn = None
    for _ in range(3):
        provider = ScriptedProvider([asyncio.Event()])
        async with open_sessions(tmp_path, provider) as house:
            turn = await house.sessions.submit(inbound("1", "hello")) or turn
            while not provider.asked:
                await asyncio.sleep(0.001)
    async with open_sessions(tmp_path, ScriptedProvider([])) as house:
        await house.sessions.wait_idle()
        facts = await house.store.archive.turn(turn)
        assert facts.ending == "failed" and "3 attempts" in facts.detail


async def test_a_broken_turn_ends_as_failed_and_the_session_lives_on(tmp_path):
    class Broken:
        def stream(self, request):
            raise ZeroDivisionError("oh")

    provider = ScriptedProvider(["fine"])
    seen = []

    class First:
        def stream(self, request):
            seen.append(request)
            return (Broken() if len(seen) == 1 else provider).stream(request)

    async with open_sessions(tmp_path, First()) as house:
        end = await house.ask(inbound("1", "hello"))
        assert end.ending == "failed" and "ZeroDivisionError" in end.detail
        assert (await house.ask(inbound("2", "again"))).ending == "answered"


async def test_a_tool_that_cancels_itself_fails_the_turn_and_stops_nobody_else(tmp_path):
    class Odd:
        spec = ToolSpec("odd", "", {"type": "object", "properties": {}})

        async def run(self, args, act):
            raise asyncio.CancelledError

    async with open_sessions(tmp_path, ScriptedProvider([ToolCall("c", "odd", {}), "ok"]), Odd()) as house:
        end = await house.ask(inbound("1", "hello"))
        assert end.ending in ("failed", "answered")
        assert (await house.store.turns.list_orphans()) == ()


async def test_sessions_do_not_wait_for_each_other(tmp_path):
    class Picky:
        def __init__(self):
            self.slow, self.fast = ScriptedProvider([asyncio.Event()]), ScriptedProvider(["quick"])

        def stream(self, request):
            return (self.slow if request.messages[-1].text == "slow" else self.fast).stream(request)

    async with open_sessions(tmp_path, Picky()) as house:
        await house.sessions.submit(inbound("1", "slow", chat="a"))
        assert (await house.ask(inbound("2", "fast", chat="b"))).ending == "answered"


async def test_an_idle_session_leaves_memory_and_comes_back(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider(["one", "two"]), idle_seconds=0.01) as house:
        await house.ask(inbound("1", "hello"))
        while house.sessions._sessions:
            await asyncio.sleep(0.005)
        assert (await house.ask(inbound("2", "hello"))).ending == "answered"


async def test_words_of_alipes_are_shown_and_not_kept(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider(["hi"])) as house:
        end = await house.ask(inbound("1", "hello"))
        facts = await house.store.archive.turn(end.turn)
        assert facts.said[0] == user("hello")
        assert not any(isinstance(event, Notice) for event in house.events)


@pytest.mark.parametrize("seed", range(40))
async def test_any_moment_is_a_good_moment_to_stop(seed, tmp_path):
    """Memory and journal tell the same story, and every call is answered before anything else is said."""
    import random

    from tests.world.random_delays import SlowModel, SlowTool, check_transcript

    dice = random.Random(seed)
    async with open_sessions(tmp_path, SlowModel(dice), SlowTool()) as house:
        key, turns = inbound("0", "").address.key, []
        for n in range(8):
            turns.append(await house.sessions.submit(inbound(str(n), f"q{n}")))
            await asyncio.sleep(dice.random() * 0.008)
            await house.sessions.post(key, Stop())
        await house.sessions.wait_idle()
        facts = [await house.store.archive.turn(turn) for turn in turns]
        assert {fact.ending for fact in facts} <= {"answered", "stopped"}
        assert await unfinished(house) == ()
        check_transcript([message for fact in facts for message in fact.said])


class Slow:
    """Turns of a store, which give up a session only after somebody has said something more."""

    def __init__(self, turns, meanwhile):
        self._turns, self._meanwhile = turns, meanwhile

    def __getattr__(self, name):
        return getattr(self._turns, name)

    async def claim_next(self, key, opening, *, release):
        turn = await self._turns.claim_next(key, opening)
        if turn is None:
            await self._meanwhile()
            await self._turns.release(key)
        return turn


async def test_a_sessions_is_not_settled_while_something_came_at_the_last_moment(tmp_path):
    gate, turns = asyncio.Event(), []

    async def meanwhile():
        if len(turns) < 2:
            turns.append(await sessions.submit(inbound("2", "second")))

    async def agent(turn):
        return make_agent(ScriptedProvider(["one"]) if not turn.history else ScriptedProvider([gate, "two"]))

    async with open_store(tmp_path) as store, asyncio.TaskGroup() as group:
        store.turns = Slow(store.turns, meanwhile)
        sessions = Sessions(store, hooks=Hooks(), agent=agent)
        serving = group.create_task(sessions.run())
        turns.append(await sessions.submit(inbound("1", "first")))
        settled = group.create_task(sessions.wait_idle())
        while len(turns) < 2 or (await store.archive.turn(turns[1])).attempts == 0:
            await asyncio.sleep(0.005)
        assert not settled.done()
        gate.set()
        await settled
        assert (await store.archive.turn(turns[1])).ending == "answered"
        serving.cancel()


async def test_what_continues_after_a_stop_is_named(tmp_path):
    nap = Nap()
    async with open_sessions(
        tmp_path, ScriptedProvider([NAP]), nap, background=Running(lambda: "in the background: p1")
    ) as house:
        async with house.sessions.ask(inbound("1", "sleep")) as following:
            await nap.running.wait()
            await house.sessions.post(inbound("1", "").address.key, Stop())
            seen = [event async for event in following if isinstance(event, Notice | TurnEnded)]
    assert [type(event) for event in seen] == [Notice, TurnEnded]
    assert seen[0].text == "still running in the background: p1"


async def test_a_message_whose_bringer_was_cut_off_is_answered_when_it_is_brought_again(tmp_path):
    async with open_sessions(tmp_path, ScriptedProvider(["hello"])) as house:
        turn = await house.store.turns.accept(inbound("1", "hi"))  # and then its platform broke
        assert await house.sessions.submit(inbound("1", "hi")) is None
        await house.sessions.wait_idle()
        assert (await house.store.archive.turn(turn)).ending == "answered"
