"""Behaviour that plugin authors rely on: one test for each sentence of the contract's last section.

That no raising callback stops the others is in
`test_callbacks`, that contexts are concatenated in `test_answers`, that interrupted turns are not synced in
`test_memory`, that strangers are dropped on the busy path in `test_adapter`.
"""

import asyncio
import struct
import zlib
from functools import partial

import pytest

from alipes.compat.hermes.platform.values import MessageType
from alipes.kernel.turns import ApprovalAnswered, ApprovalAsked
from alipes.sessions.sessions import SessionDefaults
from alipes.testing import call, open_agent, stall
from tests.compat.chat_harness import open_chat
from tests.compat.hook_log import PLUGINS
from tests.compat.plugin_files import plugin_module
from tests.compat.turn_scripts import DANGEROUS
from tests.world.environment import LIMIT_S

pytestmark = pytest.mark.deadline(40)
RECORDER = PLUGINS / "recorder"


async def test_finalize_carries_the_old_id_on_new_and_reset_follows_with_the_new_one(home, hook_log):
    async with open_agent(home=home, plugins=[RECORDER], model=["one", "two"]) as agent:
        await agent.say("first")
        old = hook_log.last("on_session_start")["session_id"]
        await agent.command("/new")
        await hook_log.until("on_session_reset")
        final, reset = hook_log.last("on_session_finalize"), hook_log.last("on_session_reset")
        assert hook_log.names.index("on_session_finalize") < hook_log.names.index("on_session_reset")
        assert (final["session_id"], final["old_session_id"]) == (old, old)
        await agent.say("second")
        await hook_log.until("on_session_start", 2)
        assert hook_log.last("on_session_start")["session_id"] == reset["session_id"] == final["new_session_id"]


async def test_an_approval_that_waits_ends_as_deny_when_the_turn_is_stopped(home, hook_log):
    script = [call("terminal", command=DANGEROUS), "next"]
    async with open_chat(home, script) as chat:
        await chat.say("clean up")
        await chat.until("Answer _yes_")
        await chat.say("/stop")
        await hook_log.until("on_session_end")
        assert (hook_log.last("post_approval_response")["choice"]) == "deny"
        assert hook_log.last("post_approval_response")["decided_by"] == "stop"
        assert hook_log.last("post_tool_call")["status"] == "cancelled"
        assert "transform_terminal_output" not in hook_log.names, "it was not run"
        await chat.say("/approve")
        await chat.until("There is nothing to approve.")
        await chat.say("and now?")
        await chat.until("next")


async def test_the_same_without_a_platform(home, hook_log):
    async with open_agent(
        home=home, plugins=[RECORDER], model=[call("terminal", command=DANGEROUS)], person="session"
    ) as agent:
        agent._person = "nobody"  # somebody is there, and says nothing
        running = await agent.start("clean up")
        await running.wait_for(ApprovalAsked)
        reply = await running.stop()
        assert [each.choice for each in reply.of(ApprovalAnswered)] == ["no"]
        await hook_log.until("on_session_end")
        assert hook_log.last("post_approval_response")["choice"] == "deny"


@pytest.mark.parametrize("state", ["idle", "running", "pending"])
async def test_the_text_new_never_becomes_user_input(home, hook_log, state):
    waits = stall()
    script = {"idle": ["one", "two"], "running": [(waits, "never"), "two"], "pending": ["two"]}[state]
    async with open_chat(home, script) as chat:
        if state == "pending":
            (home / "hold").touch()
        await chat.say("first")
        if state == "idle":
            await chat.until("one")
        elif state == "running":
            await waits.reached.wait()
        else:
            await hook_log.until("being set up")
        await chat.say("/new")
        (home / "hold").unlink(missing_ok=True)
        await hook_log.until("on_session_reset")
        await chat.say("second")
        await chat.until("two")
        said = [message.text for message in chat.agent.model.requests[-1].messages]
        assert said == ["second"]
        assert not any("/new" in m.text for r in chat.agent.model.requests for m in r.messages)


async def test_an_old_run_that_unwinds_late_cannot_touch_what_a_newer_one_has(folder, home, hook_log):
    source = """
    import asyncio
    calls, begun, late = [], asyncio.Event(), asyncio.Event()

    async def stubborn(args):
        begun.set()
        while not late.is_set():
            try:
                await late.wait()
            except asyncio.CancelledError:
                calls.append("cancelled")
        calls.append("unwound")

    def register(ctx):
        ctx.register_tool("stubborn", "s", {"type": "object", "properties": {}}, stubborn)
    """
    waits = stall()
    plugins = [folder("slow", source), RECORDER]
    async with open_agent(home=home, plugins=plugins, model=[call("stubborn"), (waits, "mine")]) as agent:
        await agent.start("first")
        await plugin_module("slow").begun.wait()
        assert (await agent.stop()).ending == "stopped"
        second = await agent.start("second")
        await waits.reached.wait()
        plugin_module("slow").late.set()
        async with asyncio.timeout(LIMIT_S):
            while "unwound" not in plugin_module("slow").calls:
                await asyncio.sleep(0.01)
        assert agent.app.sessions.is_busy(agent.key), "the newer one still lives"
        waits.go()
        assert (await second).text == "mine"
        await agent.wait_until_idle()
        ends = [line.received for line in hook_log.hooks if line.what == "on_session_end"]
        assert [each["completed"] for each in ends] == [False, True]
        assert hook_log.names.count("agent_loop_stopped") == 1


async def test_texts_sent_while_busy_stay_in_order_and_are_never_merged_and_photos_are(home, tmp_path):
    waits = stall()
    async with open_chat(home, [(waits, "one"), "pictures", "two", "three"]) as chat:
        await chat.say("/busy queue")
        await chat.say("first")
        await waits.reached.wait()
        for number in range(3):
            photo = a_picture(tmp_path / f"{number}.png")
            more = {"media_urls": [photo], "media_types": ["image/png"], "message_type": MessageType.PHOTO}
            await chat.say("look" if not number else "", **more)
        await chat.say("second")
        await chat.say("third")
        waits.go()
        await chat.until("three")
        said = [message for message in chat.agent.model.requests[-1].messages if message.role == "user"]
        assert [message.text for message in said] == ["first", "look", "second", "third"]
        assert len(said[1].parts) == 4, "one message, three pictures"


def a_picture(path):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b""))
    return str(path)


async def test_every_command_bypasses_the_queue_and_paths_are_user_text(home, folder):
    source = """
    def register(ctx):
        ctx.register_command("mine", lambda raw: f"mine: {raw}")
    """
    waits = stall()
    async with open_chat(home, [(waits, "one"), "two"], folder("own", source)) as chat:
        await chat.say("/busy queue")
        await chat.say("first")
        await waits.reached.wait()
        await chat.say("/unknown thing")
        await chat.until("Unknown command /unknown.")
        await chat.say("/etc/hosts is a file")
        await chat.say("/mine now")
        await chat.until("mine: now")
        await chat.say("/status")
        await chat.say("/help")
        await chat.until("/help [COMMAND]")
        assert len(chat.agent.model.requests) == 1, "none of it waited, none of it was said to the model"
        waits.go()
        await chat.until("two")
        said = [m.text for m in chat.agent.model.requests[-1].messages if m.role == "user"]
        assert said == ["first", "/etc/hosts is a file"]


async def test_a_session_begins_for_plugins_also_if_its_first_turn_was_cut_off_before_it_began(home, hook_log):
    """`on_session_start` belongs to the first turn of a session that really begins."""
    async with open_agent(home=home, plugins=[RECORDER], model=["next"] * 3, person="once") as agent:
        (home / "hold").touch()
        await agent.start("never begun")
        await hook_log.until("being set up")
        second = await agent.start("and this one supersedes it")
        (home / "hold").unlink()
        assert (await second).text == "next"
        await hook_log.until("on_session_end", 2)
        assert hook_log.names.count("on_session_start") == 1


async def test_a_session_begins_once_for_plugins_also_if_its_first_turn_is_stopped_as_that_is_reported(
    folder, home, hook_log
):
    source = """
    import asyncio
    begun = asyncio.Event()
    async def slow(**kw):
        begun.set()
        await asyncio.sleep(60)
    def register(ctx):
        ctx.register_hook("on_session_start", slow)
    """
    plugins = [RECORDER, folder("slow", source)]
    async with open_agent(home=home, plugins=plugins, model=["next"]) as agent:
        await agent.start("first")
        await plugin_module("slow").begun.wait()
        assert (await agent.stop()).ending == "stopped"
        assert (await agent.say("second")).text == "next"
        assert hook_log.names.count("on_session_start") == 1


async def test_a_conversation_that_rests_for_long_is_reported_as_over_and_may_go_on_all_the_same(
    home, hook_log, monkeypatch
):
    monkeypatch.setattr("alipes.app.SessionDefaults", partial(SessionDefaults, idle_seconds=0.2))
    async with open_agent(home=home, plugins=[RECORDER], model=["one", "two"]) as agent:
        await agent.say("first")
        await hook_log.until("on_session_finalize")
        over = hook_log.last("on_session_finalize")
        assert (over["reason"], over["new_session_id"]) == ("idle", None)
        assert (await agent.say("second")).text == "two"
        await hook_log.until("on_session_finalize", 2)
        assert hook_log.last("on_session_finalize")["session_id"] == over["session_id"]
        assert hook_log.names.count("on_session_start") == 1 and "on_session_reset" not in hook_log.names


async def test_subagent_stop_is_reported_once_for_each_child_also_when_it_is_stopped(home, hook_log):
    both = call("delegate_task", tasks=[{"goal": "one"}, {"goal": "two"}])
    waiting = ((stall(), "one is done"), (stall(), "two is done"))
    async with open_agent(home=home, plugins=[RECORDER], model=[both, *waiting]) as agent:
        running = await agent.start("go")
        await hook_log.until("subagent_start", 2)
        await running.stop()
        assert (await running).ending == "stopped"
        await hook_log.until("subagent_stop", 2)
        await agent.command("/new")
        await hook_log.until("on_session_reset")
    began, ended = (
        [line.received for line in hook_log.lines if line.what == what] for what in ("subagent_start", "subagent_stop")
    )
    assert {each["child_goal"] for each in began} == {"one", "two"}
    assert {each["child_role"] for each in began} == {"orchestrator"}
    assert sorted(each["child_session_id"] for each in ended) == sorted(each["child_session_id"] for each in began)
    assert {each["child_status"] for each in ended} == {"interrupted"}
    parent = hook_log.last("on_session_end")
    parents = {(each["parent_session_id"], each["parent_turn_id"]) for each in (*began, *ended)}
    assert parents == {(parent["session_id"], running.turn)}
