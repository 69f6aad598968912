"""What a callback returns, and what becomes of it: in a whole app, with plugins that disagree."""

import pytest

from alipes.kernel.turns import ApprovalAsked, ToolStarted
from alipes.testing import call, open_agent
from tests.compat.plugin_files import plugin_module

SAYS = """
calls = []

def says(who, answer):
    def callback(**kwargs):
        calls.append((who, kwargs))
        return answer(kwargs) if callable(answer) else answer
    return callback

def register(ctx):
    for who, (hook, answer) in enumerate(ANSWERS):
        ctx.register_hook(hook, says(who, answer))
"""


def answering(folder, name, hook, *answers):
    """A plugin with one callback for each of the answers."""
    rows = ", ".join(f"({hook!r}, {answer})" for answer in answers)
    return folder(name, f"ANSWERS = [{rows}]\n{SAYS}")


def asked(name):
    return [who for who, _ in plugin_module(name).calls]


def reported(name):
    return [kwargs for _, kwargs in plugin_module(name).calls]


BLOCK = '{"action": "block", "message": "MESSAGE"}'
NOISE = ("None", "True", '"block"', '{"action": "block"}', '{"action": "shrug"}', "5")


async def test_a_blocked_call_is_not_run_the_first_word_counts_and_all_are_asked(folder, tmp_path):
    one = answering(folder, "one", "pre_tool_call", *NOISE, BLOCK.replace("MESSAGE", "not here"))
    two = answering(folder, "two", "pre_tool_call", BLOCK.replace("MESSAGE", "nor there"), "None")
    after = answering(folder, "after", "post_tool_call", "None")
    script = [call("terminal", command="touch made"), call("write_file", path="made", content="x"), "oh"]
    async with open_agent(plugins=[one, two, after], model=script, person="trusts") as agent:
        reply = await agent.say("make it")
        for name in ("terminal", "write_file"):
            result = reply.result(name)
            assert (result.outcome, result.text) == ("denied", "not here")
        assert reply.of(ToolStarted) == () and not (agent.workdir / "made").exists()
        assert asked("one") == [*range(7)] * 2 and asked("two") == [0, 1] * 2
        assert [(each["status"], each["error_message"]) for each in reported("after")] == [("blocked", "not here")] * 2


async def test_a_gate_that_raises_is_closed_and_stops_nobody_else(folder):
    one = answering(folder, "one", "pre_tool_call", "lambda reported: 1 / 0")
    two = answering(folder, "two", "pre_tool_call", "None")
    async with open_agent(plugins=[one, two], model=[call("terminal", command="true"), "oh"]) as agent:
        reply = await agent.say("do it")
        assert reply.result("terminal").outcome == "denied"
        assert "plugin one failed in pre_tool_call: ZeroDivisionError" in reply.result("terminal").text
        assert asked("two") == [0] and reply.text == "oh"


@pytest.mark.parametrize(("person", "outcome"), [("once", "ok"), ("no", "denied"), ("nobody", "denied")])
async def test_approve_asks_the_person(folder, person, outcome):
    answer = '{"action": "approve", "message": "really?", "rule_key": "shell"}'
    one = answering(folder, "one", "pre_tool_call", answer)
    script = [call("terminal", command="true"), "oh"]
    async with open_agent(plugins=[one], model=script, person=person) as agent:
        reply = await agent.say("do it")
        assert reply.result("terminal").outcome == outcome
        assert [each.reason for each in reply.of(ApprovalAsked)] == ["really? (shell)"] * (person != "nobody")


async def test_of_transformed_results_the_first_string_counts_and_all_are_shown_the_original(folder):
    answers = ("None", "{'no': 'string'}", "lambda reported: reported['result'].upper()", "'too late'")
    one = answering(folder, "one", "transform_tool_result", *answers)
    two = answering(folder, "two", "transform_tool_result", "'far too late'")
    script = [call("read_file", path="a.txt"), "oh"]
    async with open_agent(plugins=[one, two], model=script) as agent:
        (agent.workdir / "a.txt").write_text("small")
        reply = await agent.say("read it")
        assert "SMALL" in reply.result("read_file").text
        assert {each["result"] for each in (*reported("one"), *reported("two"))} == {reported("one")[0]["result"]}
        assert "SMALL" not in reported("two")[0]["result"]


async def test_what_a_command_printed_is_offered_whole_and_may_be_replaced(folder):
    one = answering(folder, "one", "transform_terminal_output", "lambda reported: str(len(reported['output']))")
    script = [call("terminal", command="seq 100000; exit 3"), "oh"]
    async with open_agent(plugins=[one], model=script) as agent:
        reply = await agent.say("count")
        (seen,) = reported("one")
        assert (seen["returncode"], seen["env_type"]) == (3, "local")
        assert seen["output"].count("\n") >= 99_999, "before it was cut to size"
        assert str(len(seen["output"])) in reply.result("terminal").text


async def test_contexts_of_several_plugins_are_joined_to_the_message_of_this_turn_only(folder):
    one = answering(folder, "one", "pre_llm_call", "'from one'", "None")
    two = answering(folder, "two", "pre_llm_call", "{'context': 'from two'}", "{'context': 5}")
    script = [call("terminal", command="true"), "first", "second"]
    async with open_agent(plugins=[one, two], model=script) as agent:
        await agent.say("hello")
        await agent.say("again")
        first, _, last = (request.messages for request in agent.model.requests)
        assert first[-1].role == "user" and first[-1].text == "hello\n\nfrom one\n\nfrom two"
        assert last[0].text == "hello", "what was sent beside a message is not kept"
        assert last[-1].text == "again\n\nfrom one\n\nfrom two"
        assert not any("from one" in request.system for request in agent.model.requests)
        assert asked("one") == [0, 1] * 2, "once per turn, however many questions it has"


async def test_the_last_words_may_be_given_other_words_by_the_first_who_has_any(folder):
    one = answering(folder, "one", "transform_llm_output", "None", "'  '", "'better words'")
    two = answering(folder, "two", "transform_llm_output", "'too late'")
    after = answering(folder, "after", "post_llm_call", "'ignored'")
    async with open_agent(plugins=[one, two, after], model=["plain words", "next"]) as agent:
        assert (await agent.say("speak")).text == "better words"
        await agent.wait_until_idle()
        assert {each["response_text"] for each in (*reported("one"), *reported("two"))} == {"plain words"}
        assert [each["assistant_response"] for each in reported("after")] == ["better words"]
        await agent.say("again")
        assert agent.model.requests[-1].messages[1].text == "better words"


@pytest.mark.parametrize(
    "answer", ["{'action': 'continue', 'message': 'test it'}", "{'decision': 'block', 'reason': 'test it'}"]
)
async def test_a_turn_that_edited_code_is_sent_back_and_not_for_ever(folder, answer):
    one = answering(folder, "one", "pre_verify", answer)
    script = [call("write_file", path="a.py", content="x"), *["done"] * 9]
    async with open_agent(plugins=[one], model=script) as agent:
        assert (await agent.say("write")).ending == "answered"
        assert [each["attempt"] for each in reported("one")] == [1, 2, 3]
        assert reported("one")[0]["changed_paths"] == ["a.py"] and reported("one")[0]["coding"] is True
        assert sum("test it" in message.text for message in agent.model.requests[-1].messages) == 3
        assert (await agent.say("and now?")).text == "done"
        assert len(reported("one")) == 3, "a turn that edited nothing is not verified"


async def test_a_message_is_skipped_rewritten_or_allowed_and_never_lost_by_a_broken_callback(folder):
    ruling = """lambda reported: {
        "skip": {"action": "skip"},
        "rewrite": {"action": "rewrite", "text": "other words"},
        "allow": {"action": "allow"},
    }.get(reported["event"].text) or (1 / 0 if reported["event"].text == "break" else None)"""
    one = answering(folder, "one", "pre_gateway_dispatch", ruling)
    two = answering(folder, "two", "pre_gateway_dispatch", "{'action': 'rewrite', 'text': 'of two'}")
    async with open_agent(plugins=[one, two], model=["yes"] * 9) as agent:
        assert (await agent.say("skip")).ending == ""
        for text in ("rewrite", "allow", "break"):
            assert (await agent.say(text)).text == "yes"
        said = [request.messages[-1].text for request in agent.model.requests]
        assert said == ["other words", "allow", "of two"]
        assert len(reported("two")) == 4


async def test_callbacks_are_called_in_the_order_of_registration_and_with_what_they_take(folder):
    source = """
    calls = []

    class Listener:
        def method(self, tool_name, status):
            calls.append(("method", tool_name, status))

        async def __call__(self, *, duration_ms, **rest):
            calls.append(("object", type(duration_ms).__name__, len(rest) > 9))

    def bare():
        calls.append(("bare",))

    def positional(tool_name, result=None, /):
        calls.append(("positional", tool_name, bool(result)))

    def old(tool_name, params=None, nobody_knows_this="usual"):
        calls.append(("old", params, nobody_knows_this))

    def register(ctx):
        listener = Listener()
        for callback in (listener.method, bare, listener, positional, old):
            ctx.register_hook("post_tool_call", callback)
    """
    one, two = folder("one", source), folder("two", source)
    script = [call("terminal", command="echo hi"), "oh"]
    async with open_agent(plugins=[one, two], model=script) as agent:
        await agent.say("do it")
        expected = [
            ("method", "terminal", "ok"),
            ("bare",),
            ("object", "int", True),
            ("positional", "terminal", True),
            ("old", None, "usual"),
        ]
        assert plugin_module("one").calls == plugin_module("two").calls == expected


async def test_what_only_some_callbacks_want_to_know_of_a_stop(folder):
    source = """
    import asyncio
    calls = []
    begun = asyncio.Event()

    async def wait(args):
        begun.set()
        await asyncio.sleep(60)

    def stopped(session_id, turn_id, tool_call_ids, partial_text, **rest):
        calls.append((session_id, turn_id, tool_call_ids, partial_text, sorted(rest)))

    def register(ctx):
        ctx.register_tool("wait", "t", {"type": "object", "properties": {}}, wait)
        ctx.register_hook("agent_loop_stopped", stopped)
    """
    wait = call("wait")
    async with open_agent(plugins=[folder("one", source)], model=[wait, "next"]) as agent:
        running = await agent.start("wait")
        await plugin_module("one").begun.wait()
        reply = await agent.stop()
        ((session, turn, calls, partial, rest),) = plugin_module("one").calls
        assert (turn, calls, partial) == (running.turn, [wait.id], "") and session
        assert rest == [*("invalidation_reason", "platform", "reason", "session_key", "telemetry_schema_version")]
        assert reply.result("wait").outcome == "cancelled"
