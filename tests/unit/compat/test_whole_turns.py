"""A Hermes plugin on a whole app: every hook on every path, tools that are stopped, words that are injected."""

import asyncio
import sys
import textwrap

import pytest

from alipes.kernel.errors import OutOfCredit
from alipes.plugins.registry import CommandContribution
from alipes.testing import call, open_agent, stall
from tests.unit.compat.plugin_harness import FAR
from tests.world.environment import LIMIT_S
from tests.world.wait import until

RECORDER = """
    import asyncio, threading
    from hermes_cli.plugins import VALID_HOOKS
    calls = []

    async def nap(args, **kw):
        calls.append(("nap", {"begun": True}))
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            calls.append(("nap", {"cancelled": True}))
            raise

    def greet(args, session_id=None, user_task=None):
        return {"hello": args.get("name"), "task": user_task}

    def register(ctx):
        global ctx_
        ctx_ = ctx
        for name in sorted(VALID_HOOKS):
            def callback(hook=name, **kwargs):
                calls.append((hook, kwargs))
            ctx.register_hook(name, callback)
        ctx.register_tool("nap", "rest", {"parameters": {"type": "object"}}, nap, is_async=True)
        ctx.register_tool("greet", "rest", {"parameters": {"type": "object"}}, greet)
        ctx.register_command("shout", lambda raw: raw.upper())
"""


@pytest.fixture
def plugin(tmp_path):
    """The folder of a plugin with this code."""

    def make(source=RECORDER, name="recorder"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "plugin.yaml").write_text(f"name: {name}\nversion: '1.0'\n")
        (folder / "__init__.py").write_text(textwrap.dedent(source))
        return folder

    return make


def calls(name="recorder"):
    return sys.modules[f"hermes_plugins.{name}"].calls


def names():
    return [name for name, _ in calls()]


def last(name):
    return next(kwargs for each, kwargs in reversed(calls()) if each == name)


async def heard(name):
    async with asyncio.timeout(LIMIT_S):
        while name not in names():
            await asyncio.sleep(0.001)


async def test_an_answered_turn_is_described_in_order(plugin):
    script = [call("greet", name="Ada"), "done"]
    async with open_agent(plugins=[plugin()], model=script) as agent:
        reply = await agent.say("greet her")
        assert reply.text == "done"
        assert reply.result("greet").text == '{"hello": "Ada", "task": "greet her"}'
        await heard("post_llm_call")  # called in parallel with the next
        await heard("on_session_end")
        assert [name for name in names() if name not in ("post_llm_call", "on_session_end")] == [
            *("pre_gateway_dispatch", "on_session_start", "pre_llm_call"),
            *("pre_api_request", "post_api_request", "pre_tool_call", "post_tool_call"),
            *("transform_tool_result", "pre_api_request", "post_api_request", "transform_llm_output"),
        ]
        assert last("post_llm_call")["assistant_response"] == "done"
        assert last("post_tool_call")["status"] == "ok"
        assert last("post_tool_call")["api_request_id"] == calls()[3][1]["api_request_id"]
        end = last("on_session_end")
        assert (end["completed"], end["interrupted"]) == (True, False)


async def test_a_stop_tells_the_plugin_first_cancels_its_tool_and_the_next_message_is_answered(plugin):
    async with open_agent(plugins=[plugin()], model=[call("nap"), "awake"]) as agent:
        running = await agent.start("rest")
        await heard("nap")
        reply = await running.stop("user_stop", "stop_command")
        assert reply.ending == "stopped"
        await heard("on_session_end")
        order = [each for each in names() if each in ("agent_loop_stopped", "nap", "post_tool_call", "on_session_end")]
        assert order == ["nap", "agent_loop_stopped", "nap", "post_tool_call", "on_session_end"]
        seen = last("agent_loop_stopped")
        assert (seen["reason"], seen["invalidation_reason"]) == ("user_stop", "stop_command")
        assert seen["session_key"] == agent.key
        assert last("post_tool_call")["status"] == "cancelled"
        assert last("on_session_end")["interrupted"] is True
        assert "post_llm_call" not in names()
        assert (await agent.say("still there?")).text == "awake"


async def test_a_new_conversation_ends_the_old_one_and_names_both(plugin):
    async with open_agent(plugins=[plugin()], model=["one", "two"]) as agent:
        await agent.say("first")
        old = last("on_session_start")["session_id"]
        await agent.command("/new")
        await heard("on_session_reset")
        assert names().index("on_session_finalize") < names().index("on_session_reset")
        new = last("on_session_reset")["session_id"]
        final = last("on_session_finalize")
        assert (final["session_id"], final["new_session_id"]) == (old, new)
        await agent.say("second")
        assert last("on_session_start")["session_id"] == new


async def test_a_failed_turn_is_reported_as_failed(plugin):
    async with open_agent(plugins=[plugin()], model=[OutOfCredit("pay first")]) as agent:
        assert (await agent.say("hello")).ending == "failed"
        await heard("on_session_end")
        assert last("api_request_error")["reason"] == "billing"
        assert last("on_session_end")["completed"] is False
        assert "post_llm_call" not in names()


async def test_the_end_of_the_process_is_reported(plugin):
    async with open_agent(plugins=[plugin()], model=["one", stall()]) as agent:
        await agent.say("first")
        recorded = calls()
        await agent.start("second")
    seen = [name for name, _ in recorded]
    assert "on_session_finalize" in seen
    assert dict(recorded)["on_session_finalize"]["reason"] == "shutdown"


async def test_approvals_are_reported_and_answered(plugin):
    gate = """
    calls = []
    def gate(tool_name, **kw):
        if tool_name == "greet":
            return {"action": "approve", "message": "greet whom?"}
        return {"action": "block", "message": "no naps"}
    def register(ctx):
        ctx.register_hook("pre_tool_call", gate)
    """
    script = [call("greet", name="Ada"), call("nap"), "done"]
    plugins = [plugin(), plugin(gate, "gate")]
    async with open_agent(plugins=plugins, model=script, person="once") as agent:
        reply = await agent.say("greet her")
        assert reply.result("greet").outcome == "ok"
        assert (reply.result("nap").outcome, reply.result("nap").text) == ("denied", "no naps")
        assert last("pre_approval_request")["description"] == "greet whom?"
        assert last("post_approval_response")["choice"] == "once"
        assert last("post_tool_call")["status"] == "blocked"


async def test_commands_and_injected_words_reach_the_conversation(plugin):
    async with open_agent(plugins=[plugin()], model=["one", "two"]) as agent:
        shout = agent.app.contributions.find(CommandContribution, "shout")
        assert await shout.act("loud", FAR) == "LOUD"
        before = names().count("on_session_end")
        await agent.say("first")
        await until(lambda: names().count("on_session_end") == before + 1)  # it may follow the answer
        ctx = sys.modules["hermes_plugins.recorder"].ctx_
        assert await asyncio.to_thread(ctx.inject_message, "by the way")
        await until(lambda: names().count("on_session_end") == before + 2)
        assert last("pre_llm_call")["user_message"] == "by the way"


async def test_a_tool_may_ask_the_model_and_use_tools(plugin):
    source = """
    calls = []
    def wise(args, **kw):
        answer = ctx_.llm.complete([{"role": "user", "content": "why"}]).text
        return answer + " / " + ctx_.dispatch_tool("terminal", {"command": "echo because"})
    def register(ctx):
        global ctx_
        ctx_ = ctx
        ctx.register_tool("wise", "t", {"type": "object", "properties": {}}, wise)
    """
    script = [call("wise"), "aside", "done"]
    async with open_agent(plugins=[plugin(source, "sage")], model=script) as agent:
        reply = await agent.say("think")
        assert reply.text == "done"
        said = reply.result("wise")
        assert said.outcome == "ok", said.text
        assert said.text.startswith("aside / ")
        assert "because" in said.text
