"""Middleware: requests are changed, acts are stood around, and what breaks is as if it were not there."""

import asyncio

import pytest
from msgspec import structs

from alipes.kernel.errors import Transient
from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.ports import Request, ToolOutput, ToolSpec
from alipes.kernel.turns import ModelReply, Usage
from alipes.plugins import specs
from tests.unit.compat.plugin_harness import CALL, TURN_HERE
from tests.world.environment import LIMIT_S

THOUGHT = assistant(Thinking("hm", seal="sealed"), Text("I look"), CALL)
REQUEST = Request(
    "large",
    "be good",
    (user("do it"), THOUGHT, Message("tool", (ToolResult("c1", "a"),))),
    (ToolSpec("terminal", "runs", {"type": "object"}, "write"), ToolSpec("read", "reads", {}, "read")),
)
REPLY = ModelReply(assistant(Thinking("so", seal="x"), Text("done")), Usage(input=3, output=1))


def plugin(kind, body, is_async=False):
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"""
    import threading
    calls = []
    {"async " if is_async else ""}def callback(**kw):
{lines}
    def register(ctx):
        ctx.register_middleware({kind!r}, callback)
    """


async def test_a_request_is_reported_as_a_chat_completion_and_left_alone_without_an_answer(harness):
    async with harness.plugin(plugin("llm_request", "calls.append(kw)")):
        assert await harness.dispatcher.filter(specs.before_request, REQUEST, turn=TURN_HERE) is REQUEST
        (seen,) = harness.calls
        assert seen["middleware_schema_version"] == "hermes.middleware.v1"
        assert seen["telemetry_schema_version"] == "hermes.observer.v1"
        assert (seen["session_id"], seen["turn_id"], seen["model"]) == ("s1", "t1", "large")
        assert seen["request"] == seen["original_request"]
        assert [each["role"] for each in seen["request"]["messages"]] == [*("system", "user", "assistant", "tool")]


async def test_a_changed_request_keeps_what_was_not_changed(harness):
    source = plugin(
        "llm_request",
        "request = dict(kw['request'])\n"
        "request['messages'] = request['messages'] + [{'role': 'user', 'content': 'and quickly'}]\n"
        "request['messages'][0] = {'role': 'system', 'content': 'be quick'}\n"
        "request['tools'] = request['tools'][1:]\n"
        "request['max_tokens'] = 5\n"
        "request['extra_body'] = {'x': 1}\n"
        "return {'request': request, 'source': 'sample', 'reason': 'haste'}",
    )
    async with harness.plugin(source):
        changed = await harness.dispatcher.filter(specs.before_request, REQUEST, turn=TURN_HERE)
        assert changed.system == "be quick"
        assert changed.messages == (*REQUEST.messages, user("and quickly"))
        assert changed.messages[1] is THOUGHT, "with its seal"
        assert changed.tools == REQUEST.tools[1:]
        assert changed.max_tokens == 5
        assert harness.door.bridge.state.traces.get("t1") == [
            {"kind": "llm_request", "source": "sample", "reason": "haste"}
        ]


async def test_a_second_middleware_sees_the_change_and_the_original_and_each_question_has_its_own_trace(harness):
    source = """
    calls = []
    def add(**kw):
        calls.append((kw["request"]["max_tokens"], kw["original_request"]["max_tokens"]))
        return {"request": {**kw["request"], "max_tokens": kw["request"]["max_tokens"] + 1}, "reason": "more"}
    def register(ctx):
        ctx.register_middleware("llm_request", add)
        ctx.register_middleware("llm_request", add)
    """
    request = structs.replace(REQUEST, max_tokens=10)
    async with harness.plugin(source):
        for _ in range(2):
            changed = await harness.dispatcher.filter(specs.before_request, request, turn=TURN_HERE)
            assert changed.max_tokens == 12
            assert len(harness.door.bridge.state.traces.get("t1")) == 2
        assert harness.calls == [(10, 10), (11, 10)] * 2


async def test_new_calls_and_results_of_a_changed_request_are_understood(harness):
    source = plugin(
        "llm_request",
        "call = {'id': 'n1', 'type': 'function', 'function': {'name': 'read', 'arguments': '{\"p\": 1}'}}\n"
        "bad = {'id': 'n2', 'function': {'name': 'read', 'arguments': '{'}}\n"
        "new = [{'role': 'assistant', 'content': None, 'tool_calls': [call, bad]},\n"
        "       {'role': 'tool', 'tool_call_id': 'n1', 'content': 'one'},\n"
        "       {'role': 'tool', 'tool_call_id': 'n2', 'content': [{'type': 'text', 'text': 'two'}]},\n"
        "       {'role': 'developer', 'content': 'go on'}]\n"
        "return {'request': {**kw['request'], 'messages': new, 'tool_choice': 'none'}}",
    )
    async with harness.plugin(source):
        changed = await harness.dispatcher.filter(specs.before_request, REQUEST, turn=TURN_HERE)
        assert changed.system == ""
        assert changed.messages == (
            assistant(ToolCall("n1", "read", {"p": 1}), ToolCall("n2", "read", {}, "{")),
            Message("tool", (ToolResult("n1", "one"), ToolResult("n2", "two"))),
            Message("notice", (Text("go on"),)),
        )
        assert changed.tool_choice == "none"


async def test_arguments_of_a_tool_are_changed_before_anyone_rules_on_them(harness):
    source = plugin(
        "tool_request",
        "calls.append((kw['tool_name'], kw['args'], kw['original_args']))\n"
        "return {'args': {**kw['args'], 'workdir': '/tmp'}, 'source': 'sample'}",
    ).replace(
        "def register(ctx):",
        """
    def gate(args, middleware_trace):
        calls.append((args, middleware_trace))

    def register(ctx):
        ctx.register_hook("pre_tool_call", gate)""",
    )
    async with harness.plugin(source):
        relay = harness.dispatcher
        args = await relay.filter(specs.tool_arguments, dict(CALL.args), call=CALL, turn=TURN_HERE)
        assert args == {"command": "ls", "workdir": "/tmp"}
        await relay.decide(specs.before_tool, lambda why: None, call=CALL, turn=TURN_HERE)
        assert harness.calls == [
            ("terminal", {"command": "ls"}, {"command": "ls"}),
            ({"command": "ls"}, [{"kind": "tool_request", "source": "sample"}]),
        ]


async def around_tool(harness, go):
    offered = {"call": CALL, "turn": TURN_HERE}
    if "args" in specs.around_tool.__annotations__:
        offered["args"] = CALL.args
    return await harness.dispatcher.wrap(specs.around_tool, go, CALL.args, **offered)


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_act_of_a_tool_is_stood_around(harness, is_async):
    wait = "await " if is_async else ""
    source = plugin(
        "tool_execution",
        f"result = {wait}kw['next_call']({{**kw['args'], 'more': 1}})\nreturn result.upper()",
        is_async,
    )
    ran = []

    async def go(args):
        ran.append((args, asyncio.current_task()))
        return "done"

    async with harness.plugin(source):
        assert await around_tool(harness, go) == "DONE"
        assert ran[0][0] == {"command": "ls", "more": 1}
        assert ran[0][1] is asyncio.current_task(), "the act belongs to the turn"


async def test_what_is_not_text_stays_with_the_words(harness):
    image = Image("image/png", b"x")

    async def go(args):
        return ToolOutput("seen", (image,))

    async with harness.plugin(plugin("tool_execution", "return kw['next_call']() + '!'")):
        assert await around_tool(harness, go) == ToolOutput("seen!", (image,))


async def test_an_act_may_be_replaced_and_is_then_not_done(harness):
    async def go(args):
        raise AssertionError("done all the same")

    async with harness.plugin(plugin("tool_execution", "return {'from': 'the cache'}")):
        assert await around_tool(harness, go) == '{"from": "the cache"}'


@pytest.mark.parametrize("body", ["1 / 0", "kw['next_call'](kw['args'])\n1 / 0"])
async def test_a_broken_middleware_is_as_if_it_were_not_there(harness, body):
    ran = []

    async def go(args):
        ran.append(args)
        return "done"

    async with harness.plugin(plugin("tool_execution", body)):
        assert await around_tool(harness, go) == "done"
        assert ran == [CALL.args], "once"
        assert harness.owner.strikes == 1


async def test_what_the_act_raises_passes_through_and_is_no_fault_of_the_plugin(harness):
    async def go(args):
        raise Transient("try later")

    async with harness.plugin(plugin("tool_execution", "return kw['next_call'](kw['args'])")):
        with pytest.raises(Transient):
            await around_tool(harness, go)
        assert harness.owner.strikes == 0


async def test_a_middleware_may_answer_for_an_act_that_failed(harness):
    async def go(args):
        raise ValueError("broken")

    body = "try:\n    return kw['next_call'](kw['args'])\nexcept ValueError as error:\n    return f'no: {error}'"
    async with harness.plugin(plugin("tool_execution", body)):
        assert await around_tool(harness, go) == "no: broken"


async def test_stopping_the_turn_ends_the_act_and_the_thread_around_it(harness):
    begun = asyncio.Event()

    async def go(args):
        begun.set()
        await asyncio.sleep(30)

    body = "try:\n    return kw['next_call'](kw['args'])\nfinally:\n    calls.append('left')"
    async with harness.plugin(plugin("tool_execution", body)):
        task = asyncio.create_task(around_tool(harness, go))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(LIMIT_S):
            while not harness.calls:
                await asyncio.sleep(0.001)


async def test_a_thread_that_asks_after_the_stop_is_reported_that_it_is_over(harness):
    body = (
        "calls.append('begun')\ngo_on.wait(5)\ntry:\n    kw['next_call']()\n"
        "except BaseException as error:\n    calls.append(type(error).__name__)"
    )
    source = plugin("tool_execution", body).replace("calls = []", "calls = []\n    go_on = threading.Event()")

    async def go(args):
        raise AssertionError("begun after the stop")

    async with harness.plugin(source):
        task = asyncio.create_task(around_tool(harness, go))
        while not harness.calls:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        harness.module.go_on.set()
        async with asyncio.timeout(LIMIT_S):
            while len(harness.calls) < 2:
                await asyncio.sleep(0.001)
        assert harness.calls == ["begun", "CancelledError"]


async def around_request(harness, go):
    return await harness.dispatcher.wrap(specs.around_request, go, REQUEST, request=REQUEST, turn=TURN_HERE)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_question_is_stood_around_and_its_answer_stays_the_very_one(harness, is_async):
    wait = "await " if is_async else ""
    source = plugin(
        "llm_execution",
        f"response = {wait}kw['next_call'](kw['request'])\n"
        "calls.append((response.choices[0].message.content, response.usage.input_tokens))\n"
        "return response",
        is_async,
    )

    async def go(request):
        assert request == REQUEST
        return REPLY

    async with harness.plugin(source):
        assert await around_request(harness, go) is REPLY
        assert harness.calls == [("done", 3)]


async def test_an_answer_may_be_changed_in_place(harness):
    source = plugin(
        "llm_execution", "response = kw['next_call']()\nresponse.choices[0].message.content = 'other'\nreturn response"
    )

    async def go(request):
        return REPLY

    async with harness.plugin(source):
        changed = await around_request(harness, go)
        assert changed.message == assistant(Thinking("so", seal="x"), Text("other"))
        assert changed.usage == REPLY.usage


async def test_an_answer_may_be_made_up(harness):
    made = (
        "{'choices': [{'finish_reason': 'tool_calls', 'message': {'content': 'look', 'tool_calls': "
        "[{'id': 'k', 'function': {'name': 'read', 'arguments': '{}'}}]}}]}"
    )

    async def go(request):
        raise AssertionError("asked all the same")

    async with harness.plugin(plugin("llm_execution", f"return {made}")):
        reply = await around_request(harness, go)
        assert reply == ModelReply(assistant(Text("look"), ToolCall("k", "read", {})), stop="calls")


async def test_nonsense_in_place_of_an_answer_is_not_taken(harness):
    async def go(request):
        return REPLY

    async with harness.plugin(plugin("llm_execution", "return 'text'")):
        assert await around_request(harness, go) is REPLY
        assert harness.owner.strikes == 1


async def test_an_unknown_kind_is_reported_and_kept(harness, caplog):
    async with harness.plugin(plugin("outbound_message", "pass")):
        assert "unknown middleware kind outbound_message" in caplog.text
