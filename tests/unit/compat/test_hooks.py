"""Every hook of the table: its keywords, and what its answers mean."""

import json

import pytest

from alipes.compat.hermes.hooks import HOOKS, VALID_HOOKS
from alipes.kernel.errors import Transient
from alipes.kernel.messages import Message, Text, ToolResult, assistant, user
from alipes.kernel.ports import Request, ToolSpec
from alipes.kernel.turns import ApprovalAnswered, ApprovalAsked, ModelReply, TextDelta, Usage
from alipes.plugins import specs
from alipes.plugins.specs import Admission, ModelAttempt, Verdict
from tests.unit.compat.plugin_harness import CALL, FAR, HISTORY, TURN_HERE

OK = ToolResult("c1", "file.txt")
SAID = (user("do it"), assistant(CALL), Message("tool", (OK,)), assistant(Text("done")))
REQUEST = Request("large", "be good", (user("do it"),), (ToolSpec("terminal", "runs", {"type": "object"}),))
ATTEMPT = ModelAttempt("r1", "acme/large", REQUEST, 2, 1, 3, 1000.0)
IDS = {"session_id", "task_id", "turn_id"}
TOOL = {"tool_name", "args", "tool_call_id", "api_request_id", "middleware_trace"} | IDS
OUTCOME = {"result", "duration_ms", "status", "error_type", "error_message"}
API = {
    *IDS,
    *("api_request_id", "platform", "model", "provider", "base_url", "api_mode", "api_call_count"),
    *("message_count", "tool_count", "approx_input_tokens", "max_tokens", "started_at", "request"),
}
APPROVAL = {
    *("command", "description", "pattern_key", "pattern_keys", "session_key", "surface", "turn_id"),
    "tool_call_id",
}
CONTRACT = {
    "pre_tool_call": TOOL,
    "post_tool_call": TOOL | OUTCOME,
    "transform_tool_result": TOOL | OUTCOME,
    "transform_terminal_output": {"command", "output", "returncode", "task_id", "env_type"},
    "pre_llm_call": IDS | {"user_message", "conversation_history", "is_first_turn", "model", "platform", "sender_id"},
    "post_llm_call": IDS | {"user_message", "assistant_response", "conversation_history", "model", "platform"},
    "transform_llm_output": {"response_text", "session_id", "model", "platform"},
    "pre_verify": {*("session_id", "platform", "model", "coding", "attempt", "final_response", "changed_paths")},
    "pre_api_request": API,
    "post_api_request": API
    | {"api_duration", "ended_at", "finish_reason", "response_model", "usage"}
    | {"assistant_content_chars", "assistant_tool_call_count"},
    "api_request_error": API | {"status_code", "retry_count", "max_retries", "retryable", "reason", "error"},
    "on_session_start": {"session_id", "model", "platform"},
    "on_session_end": IDS | {"completed", "interrupted", "model", "platform", "reason"},
    "on_session_finalize": {"session_id", "platform", "reason", "old_session_id", "new_session_id"},
    "on_session_reset": {"session_id", "platform", "reason", "old_session_id", "new_session_id"},
    "subagent_start": {*("parent_session_id", "parent_turn_id", "child_session_id", "child_role", "child_goal")},
    "subagent_stop": {
        *("parent_session_id", "parent_turn_id", "child_session_id", "child_role", "child_goal"),
        *("child_summary", "child_status", "duration_ms"),
    },
    "pre_gateway_dispatch": {"event", "gateway", "session_store"},
    "pre_approval_request": APPROVAL,
    "post_approval_response": APPROVAL | {"choice", "decided_by"},
    "agent_loop_stopped": {"session_key", "platform", "reason", "invalidation_reason"},
}
ASKED = ApprovalAsked("a1", CALL, "it removes files", "terminal: ls")


async def every_moment(dispatcher):
    """One of each, as alipes offers them."""
    turn = TURN_HERE
    closed = lambda why: None  # noqa: E731
    await dispatcher.decide(specs.before_message, closed, inbound=turn.inbound)
    await dispatcher.notify(specs.session_began, session="s1", session_key=turn.key, turn=turn)
    await dispatcher.filter(specs.turn_context, "", turn=turn)
    await dispatcher.notify(specs.request_sent, attempt=ATTEMPT, turn=turn)
    await dispatcher.notify(specs.request_failed, attempt=ATTEMPT, error=Transient("busy"), again=True, turn=turn)
    reply = ModelReply(assistant(Text("hm"), CALL), Usage(input=5, output=2), "calls")
    await dispatcher.notify(specs.request_answered, attempt=ATTEMPT, reply=reply, seconds=1.5, turn=turn)
    await dispatcher.decide(specs.before_tool, closed, call=CALL, turn=turn)
    await dispatcher.notify(specs.on_event, event=TextDelta("x"), turn=turn)
    await dispatcher.notify(specs.on_event, event=ASKED, turn=turn)
    await dispatcher.notify(specs.on_event, event=ApprovalAnswered("a1", "no", "ada"), turn=turn)
    await dispatcher.filter(specs.terminal_output, "out", command="ls", status=0, turn=turn)
    await dispatcher.notify(specs.after_tool, call=CALL, result=OK, turn=turn, seconds=0.25, error=None)
    await dispatcher.filter(specs.tool_result, OK, call=CALL, turn=turn)
    await dispatcher.decide(specs.before_answer, closed, text="done", turn=turn, changed=("a.py",), attempt=1)
    await dispatcher.filter(specs.answer_text, "done", turn=turn)
    await dispatcher.notify(specs.turn_ended, turn=turn, ending="answered", detail="", said=SAID, usage=None)
    await stop(dispatcher)
    await dispatcher.notify(specs.subagent_started, parent=turn, session="s2", role="worker", goal="look")
    await dispatcher.notify(
        specs.subagent_ended,
        parent=turn,
        session="s2",
        role="worker",
        goal="look",
        ending="stopped",
        summary="half",
        seconds=2.0,
    )
    await dispatcher.notify(specs.session_left, session="s1", session_key=turn.key, reason="reset", successor="s3")
    await dispatcher.notify(specs.session_reset, session="s3", session_key=turn.key, reason="reset", predecessor="s1")


async def stop(dispatcher):
    await dispatcher.notify(
        specs.agent_loop_stopped,
        turn=TURN_HERE,
        session_key=TURN_HERE.key,
        session_id="s1",
        turn_id="t1",
        platform="terminal",
        reason="user_stop",
        invalidation_reason="stop_command",
        tool_call_ids=("c1",),
        partial_text="I was",
    )


RECORDER = """
    calls = []

    def register(ctx):
        from hermes_cli.plugins import VALID_HOOKS
        for name in VALID_HOOKS:
            def callback(name=name, **kwargs):
                calls.append((name, kwargs))
            ctx.register_hook(name, {how})
"""


def test_the_table_is_the_contract():
    assert set(CONTRACT) == VALID_HOOKS


@pytest.mark.parametrize("how", ["callback", "async_of(callback)"])
async def test_every_hook_is_called_with_its_keywords(harness, how):
    source = (
        RECORDER.format(how=how)
        + """
    def async_of(callback):
        async def waiting(**kwargs):
            return callback(**kwargs)
        return waiting
    """
    )
    async with harness.plugin(source):
        await every_moment(harness.dispatcher)
        seen = {name: kwargs for name, kwargs in harness.calls}
        assert set(seen) == VALID_HOOKS
        for name, kwargs in seen.items():
            assert kwargs.pop("telemetry_schema_version") == "hermes.observer.v1"
            assert set(kwargs) == CONTRACT[name], name
        assert len(harness.calls) == len(VALID_HOOKS), "each moment once"
        assert set(harness.context.registered) == VALID_HOOKS


@pytest.fixture
def seen(harness):
    """By hook, what a plugin that listens to everything was sent in the course of one turn."""

    async def listen():
        async with harness.plugin(RECORDER.format(how="callback")):
            await every_moment(harness.dispatcher)
            return dict(harness.calls)

    return listen


async def test_values_are_those_of_the_moment(seen):
    seen = await seen()
    tool = seen["pre_tool_call"]
    assert (tool["tool_name"], tool["args"], tool["tool_call_id"]) == ("terminal", {"command": "ls"}, "c1")
    assert (tool["session_id"], tool["turn_id"], tool["api_request_id"]) == ("s1", "t1", "r1")
    after = seen["post_tool_call"]
    assert (after["result"], after["duration_ms"], after["status"]) == ("file.txt", 250, "ok")
    assert (after["error_type"], after["error_message"]) == (None, None)
    assert seen["transform_tool_result"]["duration_ms"] == 250
    output = seen["transform_terminal_output"]
    assert (output["command"], output["output"], output["returncode"]) == ("ls", "out", 0)
    assert output["env_type"] == "local"


async def test_the_turn_is_described_in_the_openai_form(seen):
    seen = await seen()
    before, after = seen["pre_llm_call"], seen["post_llm_call"]
    assert before["user_message"] == "do it"
    assert before["conversation_history"] == [
        {"role": "user", "content": "before"},
        {"role": "assistant", "content": "yes"},
    ]
    assert (before["is_first_turn"], before["platform"], before["sender_id"]) == (False, "cli", "ada")
    assert before["model"] == "acme/large"
    assert after["assistant_response"] == "done"
    call, result = after["conversation_history"][3:5]
    assert call["tool_calls"][0]["function"] == {"name": "terminal", "arguments": '{"command": "ls"}'}
    assert result == {"role": "tool", "tool_call_id": "c1", "name": "terminal", "content": "file.txt"}
    verify = seen["pre_verify"]
    assert (verify["final_response"], verify["changed_paths"], verify["attempt"]) == ("done", ["a.py"], 1)
    assert verify["coding"] is True


async def test_requests_are_reported_with_what_they_cost(seen):
    seen = await seen()
    sent, answered, failed = (seen[name] for name in ("pre_api_request", "post_api_request", "api_request_error"))
    assert (sent["provider"], sent["api_mode"]) == ("acme", "chat_completions")
    assert sent["base_url"] == "https://acme.test/v1"
    assert (sent["api_call_count"], sent["message_count"], sent["tool_count"]) == (2, 1, 1)
    assert sent["request"]["messages"][0] == {"role": "system", "content": "be good"}
    assert sent["approx_input_tokens"] > 0
    assert (answered["finish_reason"], answered["api_duration"]) == ("tool_calls", 1.5)
    assert answered["ended_at"] == 1001.5
    assert (answered["usage"]["input_tokens"], answered["usage"]["total_tokens"]) == (5, 7)
    assert (answered["assistant_content_chars"], answered["assistant_tool_call_count"]) == (2, 1)
    assert (failed["retryable"], failed["max_retries"], failed["reason"]) == (True, 3, "transient")
    assert failed["error"] == {"type": "Transient", "message": "busy"}


async def test_sessions_and_children_are_reported_by_their_ids(seen):
    seen = await seen()
    final, reset = seen["on_session_finalize"], seen["on_session_reset"]
    assert (final["session_id"], final["new_session_id"], final["reason"]) == ("s1", "s3", "reset")
    assert (reset["session_id"], reset["old_session_id"], reset["platform"]) == ("s3", "s1", "cli")
    child = seen["subagent_stop"]
    assert (child["parent_session_id"], child["child_session_id"]) == ("s1", "s2")
    assert (child["child_status"], child["duration_ms"]) == ("interrupted", 2000)
    asked, answered = seen["pre_approval_request"], seen["post_approval_response"]
    assert (asked["command"], asked["description"], asked["surface"]) == ("ls", "it removes files", "cli")
    assert (answered["choice"], answered["decided_by"]) == ("deny", "ada")
    stopped = seen["agent_loop_stopped"]
    assert (stopped["session_key"], stopped["platform"]) == ("agent:main:terminal:dm:desk", "cli")
    assert (stopped["reason"], stopped["invalidation_reason"]) == ("user_stop", "stop_command")


@pytest.mark.parametrize(
    ("result", "error", "status"),
    [
        (ToolResult("c1", "no", "denied"), None, "blocked"),
        (ToolResult("c1", "", "cancelled"), None, "cancelled"),
        (ToolResult("c1", "ValueError: x", "failed"), ValueError("x"), "error"),
        (ToolResult("c1", "TimeoutError: ", "failed"), TimeoutError(), "timeout"),
        (ToolResult("c1", "gone", "unknown"), None, "error"),
        (ToolResult("c1", '{"error": "no such file"}'), None, "error"),
        (ToolResult("c1", '{"errors": 0}'), None, "ok"),
        (ToolResult("c1", '{"error": broken'), None, "ok"),
    ],
)
async def test_every_outcome_of_a_tool_has_its_status(harness, result, error, status):
    source = """
    calls = []
    def register(ctx):
        ctx.register_hook("post_tool_call", lambda status, error_type, **kw: calls.append((status, error_type)))
    """
    async with harness.plugin(source):
        await harness.dispatcher.notify(
            specs.after_tool, call=CALL, result=result, turn=TURN_HERE, seconds=0.0, error=error
        )
        ((seen, kind),) = harness.calls
        assert seen == status
        assert (kind is None) == (status == "ok")


@pytest.mark.parametrize(
    ("ending", "completed", "interrupted", "answered"),
    [
        ("answered", True, False, 1),
        ("stopped", False, True, 0),
        ("failed", False, False, 0),
        ("out_of_steps", False, False, 0),
        ("suspended", False, True, 0),
    ],
)
async def test_every_ending_is_reported_and_only_answers_as_such(harness, ending, completed, interrupted, answered):
    async with harness.plugin(RECORDER.format(how="callback")):
        await harness.dispatcher.notify(
            specs.turn_ended, turn=TURN_HERE, ending=ending, detail="why", said=SAID, usage=None
        )
        seen = dict(harness.calls)
        end = seen["on_session_end"]
        assert (end["completed"], end["interrupted"], end["reason"]) == (completed, interrupted, "why")
        assert ("post_llm_call" in seen) == bool(answered)


async def decided(harness, *answers, spec=specs.before_tool, **offered):
    """What alipes hears from plugins that answer like this to the hook of the same row."""
    name = next(row.name for row in HOOKS.values() if row.spec == spec.__name__)
    lines = [f"ctx.register_hook({name!r}, lambda **kw: {answer})" for answer in answers]
    source = "def register(ctx):\n" + "\n".join(f"    {line}" for line in lines)
    async with harness.plugin(source):
        return await harness.dispatcher.decide(spec, lambda why: Verdict("deny", f"closed: {why}"), **offered)


async def test_a_block_denies_and_an_approve_asks(harness):
    here = {"call": CALL, "turn": TURN_HERE}
    assert await decided(harness, '{"action": "block", "message": "no"}', **here) == Verdict("deny", "no")
    answer = await decided(harness, '{"action": "approve", "message": "sure?", "rule_key": "rm"}', **here)
    assert answer == Verdict("ask", "sure? (rm)")
    assert (await decided(harness, '{"action": "approve"}', **here)).ruling == "ask"


async def test_the_first_valid_answer_wins_and_others_say_nothing(harness):
    here = {"call": CALL, "turn": TURN_HERE}
    noise = ["None", "True", "'block'", "{}", '{"action": "block"}', '{"action": "block", "message": ""}']
    assert await decided(harness, *noise, **here) is None
    first = ['{"action": "block", "message": "one"}', '{"action": "block", "message": "two"}']
    assert await decided(harness, *noise, *first, **here) == Verdict("deny", "one")


async def test_a_gate_that_breaks_is_closed(harness):
    answer = await decided(harness, "1 / 0", call=CALL, turn=TURN_HERE)
    assert answer.ruling == "deny"
    assert "ZeroDivisionError" in answer.reason


async def test_a_gate_is_asked_whatever_others_said_and_how_they_failed(harness):
    source = """
    calls = []
    def seen(number, answer=None):
        def callback(**kw):
            calls.append(number)
            return answer if answer else 1 / 0 if number == 1 else None
        return callback
    def register(ctx):
        ctx.register_hook("pre_tool_call", seen(1))
        ctx.register_hook("pre_tool_call", seen(2, {"action": "approve"}))
        ctx.register_hook("pre_tool_call", seen(3))
    """
    async with harness.plugin(source):
        verdict = await harness.dispatcher.decide(
            specs.before_tool, lambda why: Verdict("deny", why), call=CALL, turn=TURN_HERE
        )
        assert verdict.ruling == "deny" and "failed in pre_tool_call" in verdict.reason
        assert harness.calls == [1, 2, 3]


async def test_a_message_is_not_lost_because_a_callback_broke(harness):
    assert await decided(harness, "1 / 0", spec=specs.before_message, inbound=FAR) is None


@pytest.mark.parametrize(
    ("answer", "admission"),
    [
        ('{"action": "skip"}', Admission("drop")),
        ('{"action": "rewrite", "text": "better"}', Admission("rewrite", "better")),
        ('{"action": "allow"}', Admission("take")),
        ('{"action": "rewrite"}', None),
        ("None", None),
    ],
)
async def test_a_message_may_be_skipped_rewritten_or_allowed(harness, answer, admission):
    assert await decided(harness, answer, spec=specs.before_message, inbound=FAR) == admission


async def test_the_message_is_an_event_as_plugins_know_it(harness):
    source = """
    calls = []
    def look(event, gateway, session_store):
        calls.append((event.text, event.source.chat_id, gateway.adapters))
    def register(ctx):
        ctx.register_hook("pre_gateway_dispatch", look)
    """
    async with harness.plugin(source):
        await harness.dispatcher.decide(specs.before_message, lambda why: None, inbound=FAR)
        assert harness.calls == [("hello there", "42", {})]


@pytest.mark.parametrize(
    "answer", ['{"action": "continue", "message": "run the tests"}', '{"decision": "block", "reason": "run the tests"}']
)
async def test_a_turn_that_changed_code_is_sent_back(harness, answer):
    offered = {"text": "done", "turn": TURN_HERE, "changed": ("a.py",), "attempt": 1}
    verdict = await decided(harness, answer, spec=specs.before_answer, **offered)
    assert verdict == Verdict("deny", "run the tests")
    assert await decided(harness, "None", spec=specs.before_answer, **offered) is None


async def test_contexts_of_several_callbacks_stand_one_below_the_other(harness):
    source = """
    def register(ctx):
        ctx.register_hook("pre_llm_call", lambda **kw: "first")
        ctx.register_hook("pre_llm_call", lambda **kw: None)
        ctx.register_hook("pre_llm_call", lambda **kw: {"context": "second"})
        ctx.register_hook("pre_llm_call", lambda **kw: {"context": "  "})
        ctx.register_hook("pre_llm_call", lambda **kw: 1 / 0)
        ctx.register_hook("pre_llm_call", lambda user_message: user_message)
    """
    async with harness.plugin(source):
        assert await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE) == "first\n\nsecond\n\ndo it"
        assert (await harness.dispatcher.filter(specs.turn_context, "ours", turn=TURN_HERE)).startswith("ours\n\nfirst")


async def test_of_transforms_the_first_string_counts_and_all_see_the_original(harness):
    source = """
    calls = []
    def transform(answer, key):
        def callback(**kw):
            calls.append(kw[key])
            return answer
        return callback
    def register(ctx):
        for hook, key in (("transform_tool_result", "result"), ("transform_terminal_output", "output"),
                          ("transform_llm_output", "response_text")):
            for answer in (None, 5, "changed", "too late"):
                ctx.register_hook(hook, transform(answer, key))
    """
    async with harness.plugin(source):
        dispatcher = harness.dispatcher
        result = await dispatcher.filter(specs.tool_result, OK, call=CALL, turn=TURN_HERE)
        assert result == ToolResult("c1", "changed")
        output = await dispatcher.filter(specs.terminal_output, "printed", command="ls", status=None, turn=TURN_HERE)
        assert output == "changed"
        assert await dispatcher.filter(specs.answer_text, "words", turn=TURN_HERE) == "changed"
        assert await dispatcher.filter(specs.answer_text, "other words", turn=TURN_HERE) == "changed"
        assert harness.calls == ["file.txt"] * 4 + ["printed"] * 4 + ["words"] * 4 + ["other words"] * 4


@pytest.mark.parametrize("shown", ["''", "'x'"])
async def test_what_was_hidden_once_is_never_taken_for_what_another_command_printed(harness, shown):
    source = f"""
    calls = []
    def hide(command, output):
        calls.append(output)
        return {shown} if command == "cat secret" else None
    def register(ctx):
        ctx.register_hook("transform_terminal_output", hide)
    """
    async with harness.plugin(source):
        seen = {"status": 0, "turn": TURN_HERE}
        await harness.dispatcher.filter(specs.terminal_output, "hunter2", command="cat secret", **seen)
        await harness.dispatcher.filter(specs.terminal_output, eval(shown), command="other", **seen)
        assert harness.calls == ["hunter2", eval(shown)]


async def test_an_empty_answer_of_a_model_is_not_made_of_words(harness):
    source = 'def register(ctx):\n    ctx.register_hook("transform_llm_output", lambda **kw: "")'
    async with harness.plugin(source):
        assert await harness.dispatcher.filter(specs.answer_text, "words", turn=TURN_HERE) == "words"


async def test_one_raising_callback_neither_stops_the_others_nor_reaches_the_caller(harness):
    source = """
    calls = []
    def broken(**kw):
        raise RuntimeError("mine")
    def register(ctx):
        ctx.register_hook("on_session_start", broken)
        ctx.register_hook("on_session_start", lambda session_id: calls.append(session_id))
    """
    async with harness.plugin(source):
        await harness.dispatcher.notify(specs.session_began, session="s1", session_key="k", turn=TURN_HERE)
        assert harness.calls == ["s1"]
        assert harness.owner.strikes == 1


async def test_a_plain_stop_callback_runs_on_the_loop_and_may_begin_tasks_there(harness):
    source = """
    import asyncio, threading
    calls = []
    async def tell(session_key):
        calls.append(("reported", session_key))
    def stopped(session_key, reason, invalidation_reason):
        calls.append((threading.current_thread() is threading.main_thread(), reason))
        asyncio.create_task(tell(session_key))
    def register(ctx):
        ctx.register_hook("agent_loop_stopped", stopped)
    """
    async with harness.plugin(source):
        await stop(harness.dispatcher)
        assert harness.calls[0] == (True, "user_stop")
        import asyncio

        await asyncio.sleep(0)
        assert harness.calls[1:] == [("reported", TURN_HERE.key)]


async def test_other_plain_callbacks_may_block_and_find_the_loop(harness):
    source = """
    import asyncio, threading
    calls = []
    def recall(user_message, **kw):
        calls.append(threading.current_thread() is threading.main_thread())
        calls.append(asyncio.get_event_loop().is_running())
        calls.append(asyncio.run(asyncio.sleep(0, "own loop")))
        return ctx_.llm.complete([{"role": "user", "content": user_message}]).text
    def register(ctx):
        global ctx_
        ctx_ = ctx
        ctx.register_hook("pre_llm_call", recall)
    """
    async with harness.plugin(source):
        assert await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE) == "an answer"
        assert harness.calls == [False, True, "own loop"]


async def test_a_plain_function_that_gives_a_coroutine_is_awaited(harness):
    source = """
    calls = []
    async def work(name):
        calls.append(name)
    def register(ctx):
        ctx.register_hook("on_session_start", lambda **kw: work("start"))
        ctx.register_hook("on_session_reset", lambda **kw: work("reset"))
    """
    async with harness.plugin(source):
        await harness.dispatcher.notify(specs.session_began, session="s1", session_key="k", turn=TURN_HERE)
        await harness.dispatcher.notify(
            specs.session_reset, session="s2", session_key="k", reason="reset", predecessor="s1"
        )
        assert harness.calls == ["start", "reset"]


async def test_an_unknown_hook_is_reported_and_kept(harness, caplog):
    source = """
    def register(ctx):
        ctx.register_hook("pre_tool_cal", print)
        global kept
        kept = ctx.uncalled
    """
    async with harness.plugin(source):
        assert harness.module.kept == {"pre_tool_cal": [print]}
    assert "Did you mean pre_tool_call?" in caplog.text


async def test_a_hook_registered_later_counts_for_the_next_turn(harness):
    source = """
    calls = []
    def register(ctx):
        global ctx_
        ctx_ = ctx
    """
    async with harness.plugin(source):
        before = harness.dispatcher
        harness.module.ctx_.register_hook("on_session_start", lambda session_id: harness.calls.append(session_id))
        offered = {"session": "s1", "session_key": "k", "turn": TURN_HERE}
        await before.notify(specs.session_began, **offered)
        assert harness.calls == []
        await harness.dispatcher.notify(specs.session_began, **offered)
        assert harness.calls == ["s1"]


async def test_images_of_a_conversation_are_reported_whole():
    from alipes.compat.hermes.openai_format import messages_from_wire, messages_to_wire
    from alipes.kernel.messages import Image

    message = Message("user", (Text("look"), Image("image/png", b"\x89")))
    (seen,) = messages_to_wire((message,))
    assert seen["content"][1]["image_url"]["url"] == "data:image/png;base64,iQ=="
    assert messages_from_wire([seen]) == (message,)
    assert json.dumps(seen)
    assert messages_to_wire(HISTORY)[0]["role"] == "user"
