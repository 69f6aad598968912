"""A platform adapter with the oldest signatures: every call into it passes only what it takes."""

import asyncio

import pytest

from alipes.compat.hermes.platform.adapter import call_plugin as fitting
from alipes.compat.hermes.platform.values import MessageEvent, Platform, SendResult
from alipes.gateway.policy import PlatformPolicy
from alipes.testing import call, stall
from tests.compat.chat_harness import KEY, open_chat

pytestmark = pytest.mark.deadline(40)


async def test_it_is_connected_reported_of_a_turn_answered_through_and_let_go(home):
    waits = stall()
    async with open_chat(home, [(waits, "hello yourself")]) as chat:
        adapter = chat.adapter
        assert adapter.is_connected and adapter.name == "Oldchat" and adapter.config.extra == {}
        await chat.say("hello")
        await chat.until(lambda: "typing" in adapter.happened)
        waits.go()
        await chat.until("hello yourself")
        await chat.until(lambda: "end True" in adapter.happened)
        assert adapter.happened[0] == "connect"
        assert adapter.happened.index("begin hello") < adapter.happened.index("end True")
        assert "quiet" in adapter.happened, "typing is over"
        assert await adapter.get_chat_info("42") == {"name": "chat 42", "type": "dm"}
    assert adapter.happened[-1] == "disconnect" and not adapter.is_connected


async def test_newer_keywords_never_reach_old_methods(home):
    """As the host and the base class call them: `play_tts`, `send_voice`, `send`, with all that is known today."""
    async with open_chat(home, []) as chat:
        adapter = chat.adapter
        newer = {"metadata": {"thread_id": "5"}, "reply_to": "n1", "caption": "listen"}
        assert (await fitting(adapter.play_tts, "42", "a.ogg", **newer)).success
        assert (await fitting(adapter.send_voice, "42", "b.ogg", **newer)).success
        assert chat.adapter.spoken == [("tts", "42", "a.ogg"), ("voice", "42", "b.ogg")]
        await fitting(adapter.send_typing, "42", metadata={"thread_id": "5"})
        assert (await fitting(adapter.connect, is_reconnect=True)) is True
        assert isinstance(await chat.adapter.send_image("42", "http://x/a.png", caption="look"), SendResult)
        assert chat.heard[-1] == "look\nhttp://x/a.png", "what it cannot do is reported as text"
        refused = await chat.adapter.send_document("42", "a.pdf")
        assert not refused.success and "cannot send a file" in refused.error


async def test_what_an_adapter_is_given_to_build_on(home):
    async with open_chat(home, []) as chat:
        adapter = chat.adapter
        source = adapter.build_source(
            chat_id=42, chat_name="a", chat_type="group", user_id=7, user_name="Ada", thread_id=None
        )
        assert (source.platform, source.chat_id, source.user_id) == (Platform("oldchat"), "42", "7")
        assert adapter.format_message("*x*") == "*x*"
        assert adapter.truncate_message("word " * 100, 50)[0].startswith("word")
        assert adapter._running and adapter._auto_tts_disabled_chats == set()
        adapter._set_fatal_error("gone", "the server is gone", retryable=True)
        assert not adapter._running and adapter.fatal_error_message == "the server is gone"
        adapter._mark_connected()
        assert adapter._running and not adapter.has_fatal_error


async def test_an_adapter_may_hand_over_messages_from_tasks_of_its_own_and_cancel_what_is_running(home, hook_log):
    waits = stall()
    async with open_chat(home, [(waits, "never"), "next"]) as chat:
        handing = asyncio.get_running_loop().create_task(chat.adapter.handle_message(chat.event("think")))
        await handing
        await waits.reached.wait()
        assert [*chat.adapter._active_sessions] == [KEY]
        await chat.adapter.cancel_session_processing(KEY)
        await hook_log.until("on_session_end")
        assert hook_log.last("agent_loop_stopped")["session_key"] == KEY
        assert hook_log.last("agent_loop_stopped")["platform"] == "oldchat"
        assert not chat.adapter._active_sessions
        await chat.say("and now?")
        await chat.until("next")


async def test_a_hook_sees_the_very_event_that_the_adapter_made(home, folder):
    source = """
    calls = []
    def look(event, gateway, session_store):
        calls.append((event, [each.name for each in gateway.adapters.values()]))
    def register(ctx):
        ctx.register_hook("pre_gateway_dispatch", look)
    """
    async with open_chat(home, ["one"], folder("looker", source)) as chat:
        event: MessageEvent = chat.event("hello", raw_message={"of": "the platform"})
        await chat.adapter.handle_message(event)
        await chat.until("one")
        from tests.compat.plugin_files import plugin_module

        assert plugin_module("looker").calls == [(event, ["Oldchat"])]


async def test_the_prompt_and_skills_of_a_channel_reach_the_model(home, folder, tmp_path):
    (tmp_path / "birds.md").write_text("Larks sing.")
    source = f"""
    def register(ctx):
        ctx.register_skill("birds", {str(tmp_path / "birds.md")!r}, "about birds")
    """
    async with open_chat(home, ["one", "two"], folder("feeder", source)) as chat:
        await chat.say("hello", channel_prompt="Only rhymes here.", auto_skill=["birds"])
        await chat.until("one")
        await chat.say("hello again", media_urls=None, media_types=None)
        await chat.until("two")
        first, second = (request.system for request in chat.agent.model.requests)
        assert "Short lines, please." in first and "Only rhymes here." in first and "birds.md" in first
        assert "Short lines, please." in second and "Only rhymes here." not in second


async def test_access_is_asked_after_the_hook_and_also_while_a_turn_runs(home, hook_log, monkeypatch):
    monkeypatch.delenv("OLDCHAT_ALLOWED", raising=False)
    (home / ".env").write_text("OLDCHAT_ALLOWED=7\n")
    waits = stall()
    async with open_chat(home, [(waits, "done"), "more"], manners=PlatformPolicy(progress="off")) as chat:
        await chat.say("hello")
        await waits.reached.wait()
        for text in ("let me in", "/stop", "/new"):
            await chat.say(text, user="66")
        waits.go()
        await chat.until("done")
        await hook_log.until("pre_gateway_dispatch", 4)
        assert "agent_loop_stopped" not in hook_log.names and "on_session_reset" not in hook_log.names
        assert [text for text in chat.heard if text != "done"] == []
    monkeypatch.delenv("OLDCHAT_ALLOWED", raising=False)


async def test_an_answer_to_a_question_of_alipes_comes_from_the_chat(home, hook_log):
    script = [call("terminal", command="rm -rf /nowhere/at/all"), "so be it"]
    async with open_chat(home, script) as chat:
        await chat.say("clean up")
        await chat.until("Answer _yes_")
        await chat.say("/deny")
        await chat.until("so be it")
        seen = hook_log.last("post_approval_response")
        assert (seen["choice"], seen["decided_by"], seen["surface"]) == ("deny", "7", "gateway")
        assert hook_log.last("post_tool_call")["status"] == "blocked"
