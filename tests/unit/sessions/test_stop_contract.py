"""The stop contract, any client that asks: mark, tell, yield once, cancel, write the end. Once, and nothing after it."""

import asyncio
import logging

import pytest

from alipes.kernel.messages import ToolCall, ToolResult, user
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import AnswerApproval, ApprovalAnswered, ApprovalAsked, Notice, Said, Stop, TurnEnded
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.sessions import session as actor
from alipes.sessions.commands import conversation
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.random_delays import check_transcript
from tests.world.session_harness import inbound, make_agent, open_sessions

KEY = inbound("", "").address.key
CALL = ToolCall("c1", "remote", {})


class Remote:
    """A plugin's tool that waits for an answer from far away."""

    spec = ToolSpec("remote", "ask far away", {"type": "object", "properties": {}})

    def __init__(self, diary):
        self.running, self.answer, self._diary = asyncio.Event(), asyncio.Event(), diary

    async def run(self, args, act):
        self.running.set()
        try:
            await self.answer.wait()
        finally:
            self._diary.append("tool over")
        return "an answer"


class Diary(list):
    """What the plugin was sent, in order."""

    def __init__(self, *names):
        super().__init__()
        self.hooks, self.owner = Hooks(), PluginOwner("diarist")
        for name in names or ("agent_loop_stopped", "after_tool", "turn_ended"):
            self.hooks.add(self.owner, getattr(self, f"_{name}"), name=name)

    async def _agent_loop_stopped(self, reason, invalidation_reason, tool_call_ids, partial_text):
        self.append(("stopped", reason, invalidation_reason, tool_call_ids, partial_text))

    async def _after_tool(self, call, result, error):
        self.append(("tool", call.id, result.outcome))

    async def _turn_ended(self, turn, ending, detail):
        self.append(("ended", turn.inbound.text, ending, detail))

    async def _session_left(self, reason, successor):
        self.append(("left", reason, bool(successor)))

    async def _session_reset(self, session, predecessor):
        self.append(("reset", session != predecessor))

    async def _on_event(self, event):
        if isinstance(event, ApprovalAsked | ApprovalAnswered):
            self.append(event)


def house(home, diary, *script, tool=None, **more):
    diary.tool = tool or Remote(diary)
    return open_sessions(home, ScriptedProvider([CALL, *script]), diary.tool, hooks=diary.hooks, **more)


async def ended(alipes, turn):
    async with alipes.sessions.follow(KEY, turn) as following:
        return [event async for event in following][-1]


def stopped(why, invalidation):
    return [
        ("stopped", why, invalidation, ("c1",), ""),
        "tool over",
        ("tool", "c1", "cancelled"),
        ("ended", "first", "stopped", why),
    ]


WAYS = {
    "a stop of the running turn": (Stop("user_stop", "stop_command"), "user_stop", "stop_command"),
    "Ctrl-C": (Stop("user_stop", "session_interrupt"), "user_stop", "session_interrupt"),
    "a delegation's cancel": (Stop("cancelled", "cancelled"), "cancelled", "cancelled"),
    "a client that is gone": (Stop("disconnected", "disconnected"), "disconnected", "disconnected"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_way_to_stop_is_the_same_five_steps(way, tmp_path):
    op, reason, invalidation = WAYS[way]
    diary = Diary()
    async with house(tmp_path, diary, "next") as the:
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        await the.sessions.post(KEY, op)
        assert (await ended(the, turn)).ending == "stopped"
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
        facts = await the.store.archive.turn(turn)
        assert [part.outcome for part in facts.said[-1].parts if isinstance(part, ToolResult)] == ["cancelled"]
        check_transcript(facts.said)
    assert diary == [*stopped(reason, invalidation), ("ended", "second", "answered", "")]


async def test_the_stop_command_is_reported_from_one_that_the_handler_found(tmp_path):
    for found, command in ((True, "stop_command"), (False, "stop_command_handler")):
        diary = Diary("agent_loop_stopped")
        home = tmp_path / command
        home.mkdir()
        async with house(home, diary) as the:
            turn = await the.sessions.submit(inbound("1", "first"))
            await diary.tool.running.wait()
            context = Surface(the, found)
            assert (await conversation.stop(context, "")).text == "Stopped."
            assert (await ended(the, turn)).ending == "stopped"
            assert (await conversation.stop(context, "")).text == "Nothing is running."
        assert diary[0] == ("stopped", "user_stop", command, ("c1",), "")
        assert diary[1:] == ["tool over"]


class Surface:
    """What the command needs of its context; `found`: the surface knows that a turn is at work."""

    key = KEY

    def __init__(self, the, found):
        self.store, self.sessions, self._the, self._found = the.store, self, the, found
        self.subagents = the.sessions.subagents

    def is_busy(self, key):
        return self._found

    async def stop(self, key, op):
        return await self._the.sessions.stop(key, op)


async def test_a_turn_that_is_still_being_set_up_is_stopped_and_reported_as_such(tmp_path):
    diary, asked, ready = Diary("agent_loop_stopped", "turn_ended"), asyncio.Event(), asyncio.Event()

    async def agent(turn):
        asked.set()
        await ready.wait()
        return make_agent(ScriptedProvider(["hi"]), hooks=diary.hooks.dispatcher)

    async with open_sessions(tmp_path, ScriptedProvider([]), hooks=diary.hooks, agent=agent) as the:
        async with the.sessions.ask(inbound("1", "first")) as following:
            await asked.wait()
            await the.sessions.post(KEY, Stop("user_stop", "stop_command"))
            events = [event async for event in following]
        assert events[:-1] == [Said(user("first"))] and events[-1].ending == "stopped"
        ready.set()
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
    assert diary == [
        ("stopped", "user_stop", "stop_command_pending", (), ""),
        ("ended", "first", "stopped", "user_stop"),
        ("ended", "second", "answered", ""),
    ]


async def test_a_new_conversation_stops_the_turn_and_tells_of_both_conversations(tmp_path):
    diary = Diary("agent_loop_stopped", "after_tool", "turn_ended", "session_left", "session_reset")
    async with house(tmp_path, diary, "fresh") as the:
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        await the.sessions.announce_switch(KEY, await the.store.sessions.reset(KEY), "new")
        assert (await ended(the, turn)).detail == "reset"
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
        while ("reset", True) not in diary:
            await asyncio.sleep(0.01)
    assert diary[:4] == stopped("reset", "new_command")
    assert sorted(map(str, diary[4:7])) == sorted(
        map(str, [("left", "reset", True), ("reset", True), ("ended", "second", "answered", "")])
    )
    assert diary.index(("left", "reset", True)) < diary.index(("reset", True))


async def test_a_new_conversation_on_an_idle_one_tells_of_it_without_a_stop(tmp_path):
    diary, said = Diary("agent_loop_stopped", "session_left", "session_reset"), ScriptedProvider(["hi"])
    async with open_sessions(tmp_path, said, hooks=diary.hooks, idle_seconds=0.01) as the:
        assert (await the.ask(inbound("1", "first"))).ending == "answered"
        while not diary:  # idle for long: it is left in memory, not in the store
            await asyncio.sleep(0.01)
        await the.sessions.announce_switch(KEY, await the.store.sessions.reset(KEY), "new")
        while ("reset", True) not in diary:
            await asyncio.sleep(0.01)
    assert diary == [("left", "idle", False), ("left", "reset", True), ("reset", True)]


async def test_a_message_in_interrupt_mode_stops_the_turn_and_is_answered(tmp_path):
    diary = Diary()
    async with house(tmp_path, diary, "second answer", busy="interrupt") as the:
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
        assert (await ended(the, turn)).detail == "superseded"
    assert diary == [*stopped("superseded", "superseded"), ("ended", "second", "answered", "")]


async def test_a_turn_that_tells_nothing_for_too_long_is_stopped(tmp_path):
    diary = Diary()
    async with house(tmp_path, diary, "next", max_silence=0.15) as the:
        async with the.sessions.ask(inbound("1", "first")) as following:
            events = [event async for event in following]
        assert (events[-1].ending, events[-1].detail) == ("stopped", "timeout")
        assert [event.text for event in events if isinstance(event, Notice)] == ["stopped: no activity for 0 s"]
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
    assert diary == [*stopped("timeout", "timeout"), ("ended", "second", "answered", "")]


async def test_who_waits_for_a_person_is_not_silent(tmp_path):
    async def ask(call, turn):
        await the.sessions.questions.ask_approval(call, "it explodes", turn)

    diary = Diary("agent_loop_stopped")
    diary.hooks.add(diary.owner, ask, name="before_tool", patient=True)
    async with house(tmp_path, diary, max_silence=0.6, interactive=True) as the:
        async with the.sessions.ask(inbound("1", "first")) as following:
            async for event in following:
                if isinstance(event, ApprovalAsked):
                    await asyncio.sleep(1.0)
                    await the.sessions.post(KEY, AnswerApproval(event.ask, "once"))
                    diary.tool.answer.set()
                    break
        await diary.tool.running.wait()
    assert [entry[:2] for entry in diary if isinstance(entry, tuple)] in ([], [("stopped", "shutdown")])


async def test_shutdown_tells_the_plugin_writes_nothing_and_the_turn_continues_at_the_next_start(tmp_path):
    diary = Diary("agent_loop_stopped", "after_tool", "turn_ended", "session_left")
    async with house(tmp_path, diary) as the:
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
    assert diary == [
        ("stopped", "shutdown", "shutdown", ("c1",), ""),
        "tool over",
        ("tool", "c1", "cancelled"),
        ("ended", "first", "suspended", "shutdown"),
        ("left", "shutdown", False),
    ]
    again = Diary()
    async with open_sessions(tmp_path, ScriptedProvider(["done"]), Remote(again), hooks=again.hooks) as the:
        assert (await ended(the, turn)).ending == "answered"
    assert again == [("tool", "c1", "unknown"), ("ended", "first", "answered", "")]


async def test_stop_twice_and_with_nothing_running_tells_once_and_never(tmp_path):
    diary = Diary("agent_loop_stopped")
    async with house(tmp_path, diary, "next") as the:
        await the.sessions.post(KEY, Stop())
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        for _ in range(3):
            await the.sessions.post(KEY, Stop())
        assert (await ended(the, turn)).ending == "stopped"
        await the.sessions.post(KEY, Stop())
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
    assert diary == [("stopped", "user_stop", "session_interrupt", ("c1",), ""), "tool over"]


async def test_stop_while_a_person_is_asked_is_a_no_and_the_plugin_hears_it(tmp_path):
    async def ask(call, turn):
        await the.sessions.questions.ask_approval(call, "it explodes", turn)

    diary = Diary("on_event", "agent_loop_stopped", "after_tool")
    diary.hooks.add(diary.owner, ask, name="before_tool", patient=True)
    async with house(tmp_path, diary, interactive=True) as the:
        async with the.sessions.ask(inbound("1", "first")) as following:
            async for event in following:
                if isinstance(event, ApprovalAsked):
                    await the.sessions.post(KEY, Stop())
                if isinstance(event, ApprovalAnswered):
                    assert (event.choice, event.by) == ("no", "stop")
                if isinstance(event, TurnEnded):
                    assert event.ending == "stopped"
    asked, hook, answered, tool = diary
    assert isinstance(asked, ApprovalAsked) and hook[:2] == ("stopped", "user_stop")
    assert answered == ApprovalAnswered(asked.ask, "no", "stop")
    assert tool == ("tool", "c1", "cancelled")
    assert not diary.tool.running.is_set()


async def test_what_the_model_had_said_so_far_is_reported(tmp_path):
    diary, gate = Diary("agent_loop_stopped"), asyncio.Event()
    async with open_sessions(tmp_path, ScriptedProvider([("Half an ", "answer", gate)]), hooks=diary.hooks) as the:
        async with the.sessions.ask(inbound("1", "first")) as following:
            async for event in following:
                if getattr(event, "text", "") == "answer":
                    await the.sessions.post(KEY, Stop())
    assert diary == [("stopped", "user_stop", "session_interrupt", (), "Half an answer")]


async def test_stopping_one_session_leaves_the_others_alone(tmp_path):
    diary = Diary("agent_loop_stopped")
    tool = Remote(diary)
    async with open_sessions(tmp_path, ScriptedProvider([CALL, CALL, "other"]), tool, hooks=diary.hooks) as the:
        other = inbound("2", "other", chat="someone else")
        one = await the.sessions.submit(inbound("1", "first"))
        two = await the.sessions.submit(other)
        await tool.running.wait()
        await the.sessions.post(KEY, Stop())
        assert (await ended(the, one)).ending == "stopped"
        tool.answer.set()
        async with the.sessions.follow(other.address.key, two) as following:
            assert [event async for event in following][-1].ending == "answered"
    assert len([entry for entry in diary if entry != "tool over"]) == 1


class Stubborn(Remote):
    """Keeps its cancellation to itself: once, or for as long as `answer` is not set."""

    def __init__(self, diary, forever):
        super().__init__(diary)
        self._forever = forever

    async def run(self, args, act):
        self.running.set()
        while not self.answer.is_set():
            try:
                await self.answer.wait()
            except asyncio.CancelledError:
                if not self._forever:
                    return "never mind"
        return "at last"


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
async def test_a_tool_that_swallows_its_cancellation_holds_nobody_up(forever, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(actor, "GRACE", 0.05)
    diary = Diary()
    tool = Stubborn(diary, forever)
    with caplog.at_level(logging.INFO):
        async with house(tmp_path, diary, "next", tool=tool) as the:
            turn = await the.sessions.submit(inbound("1", "first"))
            await tool.running.wait()
            await the.sessions.post(KEY, Stop())
            assert (await ended(the, turn)).ending == "stopped"
            assert (await the.ask(inbound("2", "second"))).ending == "answered"
            facts = await the.store.archive.turn(turn)
            check_transcript(facts.said)
            assert "never mind" not in str(facts.said)
            tool.answer.set()
    assert diary == [
        ("stopped", "user_stop", "session_interrupt", ("c1",), ""),
        ("tool", "c1", "cancelled"),
        ("ended", "first", "stopped", "user_stop"),
        ("ended", "second", "answered", ""),
    ]
    said = "was abandoned" if forever else "after its stop, from remote, was dropped"
    assert said in caplog.text


async def test_a_hook_that_raises_or_hangs_does_not_delay_the_stop(tmp_path, caplog):
    diary, release, heard = Diary("agent_loop_stopped"), asyncio.Event(), []
    raising, hanging = PluginOwner("raising"), PluginOwner("hanging")

    async def raises():
        raise RuntimeError("no")

    async def hangs():
        heard.append("begun")
        await release.wait()
        heard.append("over")

    diary.hooks.add(raising, raises, name="agent_loop_stopped")
    for _ in range(10):
        diary.hooks.add(hanging, hangs, name="agent_loop_stopped", deadline=600.0)
    async with house(tmp_path, diary, "next") as the:
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        await the.sessions.post(KEY, Stop())
        assert (await ended(the, turn)).ending == "stopped"
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
        assert heard == ["begun"] * 10, "they still run beside the next turn"
        release.set()
        await hanging.wait_unused()
        assert heard == ["begun"] * 10 + ["over"] * 10
    assert diary == [("stopped", "user_stop", "session_interrupt", ("c1",), ""), "tool over"]
    assert (raising.strikes, hanging.strikes, diary.owner.strikes) == (1, 0, 0)
    assert "plugin raising failed in agent_loop_stopped" in caplog.text


async def test_a_hook_that_hangs_ends_at_its_deadline_beside_the_next_turn(tmp_path, caplog):
    diary, hanging = Diary("agent_loop_stopped"), PluginOwner("hanging")

    async def hangs():
        await asyncio.Event().wait()

    diary.hooks.add(hanging, hangs, name="agent_loop_stopped", deadline=0.1)
    async with house(tmp_path, diary, "next") as the:
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        await the.sessions.post(KEY, Stop())
        assert (await ended(the, turn)).ending == "stopped"
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
        await hanging.wait_unused()
    assert hanging.strikes == 1
    assert "plugin hanging failed in agent_loop_stopped: took longer than 0.1 s" in caplog.text


async def test_at_shutdown_a_slow_hook_is_waited_for_until_its_deadline(tmp_path):
    diary, slow, heard = Diary("agent_loop_stopped"), PluginOwner("slow"), []

    async def notifies_slowly():
        await asyncio.sleep(0.2)
        heard.append("notified")

    diary.hooks.add(slow, notifies_slowly, name="agent_loop_stopped")
    async with house(tmp_path, diary) as the:
        await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
    assert heard == ["notified"]


async def test_who_leaves_after_a_stop_waits_for_what_hooks_still_do_about_it(tmp_path):
    diary, slow, heard = Diary("agent_loop_stopped"), PluginOwner("slow"), []
    release = asyncio.Event()

    async def notifies_slowly():
        try:
            await release.wait()
        finally:
            heard.append("notified" if release.is_set() else "cut off")

    diary.hooks.add(slow, notifies_slowly, name="agent_loop_stopped")
    async with house(tmp_path, diary) as the:
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        await the.sessions.post(KEY, Stop())
        assert (await ended(the, turn)).ending == "stopped"
        asyncio.get_running_loop().call_later(0.1, release.set)
    assert heard == ["notified"]


async def test_who_leaves_waits_for_a_hook_no_longer_than_a_process_may_take(tmp_path, monkeypatch):
    monkeypatch.setattr(actor, "LEAVE_SECONDS", 0.05)
    diary, hanging, heard = Diary("agent_loop_stopped"), PluginOwner("hanging"), []

    async def hangs():
        try:
            await asyncio.Event().wait()
        finally:
            heard.append("cut off")

    diary.hooks.add(hanging, hangs, name="agent_loop_stopped", deadline=600.0)
    async with house(tmp_path, diary) as the:
        await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        await the.sessions.post(KEY, Stop())
    assert heard == ["cut off"]


async def test_the_turn_keeps_the_plugins_it_began_with_until_its_end_is_reported(tmp_path):
    diary = Diary()
    async with house(tmp_path, diary, "next") as the:
        turn = await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        diary.hooks.remove(diary.owner)  # as a reload does
        waiting = asyncio.create_task(diary.owner.wait_unused())
        await the.sessions.post(KEY, Stop())
        assert (await ended(the, turn)).ending == "stopped"
        await waiting
        assert diary == stopped("user_stop", "session_interrupt")
        assert (await the.ask(inbound("2", "second"))).ending == "answered"
    assert len(diary) == 4, "the next turn does not know the old plugin"


async def test_what_was_kept_is_shown_also_if_the_stop_comes_while_a_plugin_hears_of_it(tmp_path):
    heard, hooks = asyncio.Event(), Hooks()

    async def on_event(event):
        if isinstance(event, Said) and event.message.role == "assistant":
            heard.set()
            await asyncio.Event().wait()

    hooks.add(PluginOwner("slow"), on_event)
    async with open_sessions(tmp_path, ScriptedProvider(["the answer"]), hooks=hooks) as the:
        async with the.sessions.ask(inbound("1", "first")) as following:
            await heard.wait()
            await the.sessions.post(KEY, Stop())
            said = [event.message.text async for event in following if isinstance(event, Said)]
        facts = await the.store.archive.turn(following.turn)
    assert said == [message.text for message in facts.said] == ["first", "the answer"]


async def test_a_stop_that_arrives_after_the_turn_was_suspended_is_kept_for_the_next_process(tmp_path):
    diary = Diary("turn_ended")
    async with house(tmp_path, diary) as the:
        await the.sessions.submit(inbound("1", "first"))
        await diary.tool.running.wait()
        await the.sessions.suspend()
        await the.sessions.post(KEY, Stop(turn=(await the.sessions.unfinished(KEY))[0]))
    async with house(tmp_path, diary) as the:
        await the.sessions.wait_idle()
    assert [each[2] for each in diary if each[0] == "ended"] == ["suspended", "stopped"]
