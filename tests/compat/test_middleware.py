"""Middleware of the four kinds on a whole app: what is changed is what is done, and it is traced."""

import pytest

from alipes.testing import call, open_agent
from tests.compat.hook_log import PLUGINS
from tests.compat.plugin_files import plugin_module

BETWEEN, RECORDER = PLUGINS / "between", PLUGINS / "recorder"
pytestmark = pytest.mark.deadline(40)


async def test_all_four_kinds_have_their_say_in_one_turn(home, hook_log):
    script = [call("terminal", command="echo loud"), "a draft"]
    async with open_agent(home=home, plugins=[BETWEEN, RECORDER], model=script) as agent:
        reply = await agent.say("speak")
        assert reply.text == "the final words"
        assert "QUIET" in reply.result("terminal").text
        assert [request.messages[-1].text for request in agent.model.requests] == ["and be brief"] * 2
        assert agent.model.requests[0].extra == {"temperature": 0.1}
        assert hook_log.last("pre_tool_call")["args"] == {"command": "echo quiet"}
        (trace,) = hook_log.last("pre_tool_call")["middleware_trace"]
        assert trace["reason"] == "it was loud"
        assert [each[0] for each in plugin_module("between").calls] == [
            *("llm_request", "llm_execution before", "llm_execution after", "tool_request"),
            *("tool_execution before", "tool_execution after"),
            *("llm_request", "llm_execution before", "llm_execution after"),
        ]


@pytest.mark.parametrize("kind", ["llm_request", "tool_request", "llm_execution", "tool_execution"])
async def test_middleware_that_breaks_is_as_if_it_were_not_there(folder, kind, caplog):
    source = f"""
    def broken(**kwargs):
        raise RuntimeError("a bug of mine")
    def register(ctx):
        ctx.register_middleware("{kind}", broken)
    """
    script = [call("terminal", command="echo loud"), "a draft"]
    async with open_agent(plugins=[folder("clumsy", source), BETWEEN], model=script) as agent:
        reply = await agent.say("speak")
        assert reply.text == "the final words" and "QUIET" in reply.result("terminal").text
        assert len(agent.model.requests) == 2, "nothing is done twice"
    assert f"plugin clumsy failed in {kind}: RuntimeError: a bug of mine" in caplog.text


async def test_an_execution_that_never_calls_what_it_wraps_replaces_it(folder):
    source = """
    from types import SimpleNamespace as S
    def instead(request, next_call, **kw):
        message = S(role="assistant", content="by heart", tool_calls=None)
        return S(choices=[S(message=message, finish_reason="stop")])
    def register(ctx):
        ctx.register_middleware("llm_execution", instead)
    """
    async with open_agent(plugins=[folder("parrot", source)], model=[]) as agent:
        assert (await agent.say("speak")).text == "by heart"
        assert agent.model.requests == []


async def test_a_stop_reaches_through_middleware_that_wraps_a_tool(folder, home, hook_log):
    source = """
    calls = []
    def around(next_call, args, **kw):
        try:
            return next_call(args)
        except BaseException as error:
            calls.append(type(error).__name__)
            raise
    async def also(next_call, args, **kw):
        try:
            return await next_call(args)
        finally:
            calls.append("finally")
    def register(ctx):
        ctx.register_middleware("tool_execution", around)
        ctx.register_middleware("tool_execution", also)
    """
    plugins = [folder("wrapper", source), RECORDER]
    async with open_agent(home=home, plugins=plugins, model=[call("ponder"), "next"]) as agent:
        await agent.start("wait")
        await hook_log.until("tool ponder")
        assert (await agent.stop()).ending == "stopped"
        assert (await agent.say("and now?")).text == "next"
        assert "tool ponder cancelled" in hook_log.names
        assert sorted(plugin_module("wrapper").calls) == ["CancelledError", "finally"]
