"""Where each hook is called, with what, and what its answer does: one test per hook of the specs."""

import asyncio

import pytest
from msgspec import structs

from alipes.agent.tool_calls import ToolRunner, run_calls
from alipes.kernel.errors import MessageRejected, Refused, ToolError, Transient
from alipes.kernel.messages import Message, Text, Thinking, ToolResult
from alipes.kernel.turns import Retracted, Said, ToolFinished, ToolStarted
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.plugins.specs import Admission, Verdict
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.agent.test_loop import an_agent, live
from tests.unit.agent_harness import Clock, Hand, Scene, call, play, replied, turn
from tests.world.session_harness import inbound, open_sessions

PATHS = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}


def hooked(**hooks):
    """A relay with hooks of one plugin, by the names of the specs."""
    registry, owner = Hooks(), PluginOwner("p")
    for name, hook in hooks.items():
        registry.add(owner, hook, name=name)
    return registry.dispatcher


def noting(diary, *names):
    """A hook that writes down some of what it is offered."""

    async def hook(**offered):
        diary.append(tuple(offered[name] for name in names))

    return hook


async def test_context_is_added_to_the_persons_message_in_every_request_of_the_turn_and_is_not_kept():
    asked = []

    async def one(context, turn):
        asked.append(turn.id)
        return f"{context}It is Tuesday. "

    async def other(context):
        return f"{context}It rains."

    registry = Hooks()
    registry.add(PluginOwner("a"), one, name="turn_context")
    registry.add(PluginOwner("b"), other, name="turn_context")
    model = play(call("c1", "look"), "done")
    scene = await live(
        an_agent(model, [Hand("look", "read")], hooks=registry.dispatcher),
        turn("hello", history=(Message("user", (Text("before"),)), Message("assistant", (Text("yes"),)))),
    )
    for request in model.asked:
        assert request.messages[0] == Message("user", (Text("before"),))
        assert request.messages[2].parts == (Text("hello"), Text("\n\nIt is Tuesday. It rains."))
        assert "Tuesday" not in request.system
    assert asked == ["t1"], "once a turn"
    assert scene.said[0] == Message("user", (Text("hello"),))


async def test_the_arguments_may_be_changed_before_anyone_rules_on_them():
    ruled = []

    async def tool_arguments(args, call):
        return {**args, "path": f"{call.args['path']}.txt"}

    async def before_tool(call):
        ruled.append(call.args)

    hand = Hand("look", schema=PATHS)
    scene = Scene()
    relay = hooked(tool_arguments=tool_arguments, before_tool=before_tool)
    await run_calls(ToolRunner({"look": hand}, relay, turn(), scene.emit), (call("c1", "look", path="a"),), {})
    assert hand.ran == ruled == [{"path": "a.txt"}]
    assert scene.of(ToolStarted)[0].call.args == {"path": "a.txt"}, "what is kept is what was done"


async def test_a_result_may_be_changed_and_those_who_observe_see_the_first():
    seen = []

    async def tool_result(result):
        return structs.replace(result, text=result.text.upper(), call_id="forged")

    scene = Scene()
    relay = hooked(tool_result=tool_result, after_tool=noting(seen, "result", "seconds", "error"))
    desk = ToolRunner({"look": Hand("look")}, relay, turn(), scene.emit, clock=Clock())
    results = await run_calls(desk, (call("c1", "look"),), {})
    assert results == {"c1": ToolResult("c1", "DONE")}
    assert seen == [(ToolResult("c1", "done"), 0.0, None)]
    assert scene.of(ToolFinished)[0].result.text == "DONE"


ENDS = {
    "ok": ("fine", "ok", type(None)),
    "an error for the model": (ToolError("no such file"), "failed", ToolError),
    "a break": (ValueError("odd"), "failed", ValueError),
    "its own timeout": (TimeoutError("too slow"), "failed", TimeoutError),
}


@pytest.mark.parametrize("end", ENDS)
async def test_every_call_is_reported_however_it_ended(end):
    does, outcome, kind = ENDS[end]
    seen = []
    relay = hooked(after_tool=noting(seen, "call", "result", "error"))
    desk = ToolRunner({"look": Hand("look", does=does)}, relay, turn(), Scene().emit)
    await run_calls(desk, (call("c1", "look"),), {})
    ((reported, result, error),) = seen
    assert (reported.id, result.outcome, type(error)) == ("c1", outcome, kind)


async def test_calls_that_were_not_run_are_reported_too():
    async def before_tool(call):
        return Verdict("deny", "not today")

    seen = []
    relay = hooked(before_tool=before_tool, after_tool=noting(seen, "result"))
    desk = ToolRunner({"look": Hand("look")}, relay, turn(), Scene().emit)
    await run_calls(desk, (call("c1", "look"), call("c2", "lok")), {})
    assert sorted((result.call_id, result.outcome) for (result,) in seen) == [("c1", "denied"), ("c2", "failed")]


@pytest.mark.parametrize(
    ("word", "ran"), [("once", True), ("session", True), ("always", True), ("no", False), (None, False)]
)
async def test_a_plugin_may_want_a_person_asked(word, ran):
    async def before_tool(call):
        return Verdict("ask", "it costs money")

    async def consent(call, reason, turn):
        assert reason == "it costs money"
        return word

    hand = Hand("buy")
    desk = ToolRunner({"buy": hand}, hooked(before_tool=before_tool), turn(), Scene().emit, ask_approval=consent)
    results = await run_calls(desk, (call("c1", "buy"),), {})
    assert bool(hand.ran) is ran
    assert results["c1"].outcome == ("ok" if ran else "denied")


async def test_who_said_yes_in_advance_is_not_asked():
    async def before_tool(call):
        return Verdict("ask", "it costs money")

    hand, living = Hand("buy"), turn()
    living = structs.replace(living, inbound=structs.replace(living.inbound, trusted=True))
    await run_calls(
        ToolRunner({"buy": hand}, hooked(before_tool=before_tool), living, Scene().emit), (call("c1", "buy"),), {}
    )
    assert hand.ran


async def test_an_act_may_be_wrapped_replaced_and_called_otherwise():
    async def around_tool(go, call):
        if call.args["path"] == "cached":
            return "from the cache"
        return f"<{await go({'path': 'other'})}>"

    hand = Hand("look", schema=PATHS, does=lambda args, act: args["path"])
    desk = ToolRunner({"look": hand}, hooked(around_tool=around_tool), turn(), Scene().emit)
    calls = call("c1", "look", path="cached"), call("c2", "look", path="x")
    results = await run_calls(desk, calls, {})
    assert [results[each].text for each in ("c1", "c2")] == ["from the cache", "<other>"]
    assert hand.ran == [{"path": "other"}]


async def test_a_wrapper_that_breaks_is_as_if_it_were_not_there_and_nothing_is_done_twice():
    registry, before, after = Hooks(), PluginOwner("before"), PluginOwner("after")

    async def breaks_before(go, call):
        raise RuntimeError("early")

    async def breaks_after(go, call):
        await go(call.args)
        raise RuntimeError("late")

    registry.add(before, breaks_before, name="around_tool")
    registry.add(after, breaks_after, name="around_tool")
    hand = Hand("look")
    results = await run_calls(
        ToolRunner({"look": hand}, registry.dispatcher, turn(), Scene().emit), (call("c1", "look"),), {}
    )
    assert (results["c1"].text, len(hand.ran)) == ("done", 1)
    assert (before.strikes, after.strikes) == (1, 1)


async def test_what_a_wrapped_act_raises_is_not_the_wrappers_fault():
    async def around_tool(go, call):
        return await go(call.args)

    registry, owner = Hooks(), PluginOwner("p")
    registry.add(owner, around_tool)
    desk = ToolRunner({"look": Hand("look", does=ToolError("no such file"))}, registry.dispatcher, turn(), Scene().emit)
    results = await run_calls(desk, (call("c1", "look"),), {})
    assert (results["c1"].text, owner.strikes) == ("no such file", 0)


async def test_every_try_at_a_question_is_reported():
    diary, clock = [], Clock()

    async def request_sent(attempt, turn):
        diary.append(("sent", attempt.step, attempt.number, attempt.limit, attempt.model, turn.id))

    async def request_answered(attempt, reply, seconds):
        diary.append(("answered", attempt.step, attempt.number, reply.message.text))

    async def request_failed(attempt, error, again):
        diary.append(("failed", attempt.step, attempt.number, type(error), again))

    relay = hooked(request_sent=request_sent, request_answered=request_answered, request_failed=request_failed)
    model = play(Transient("busy"), call("c1", "look"), "done")
    await live(an_agent(model, [Hand("look", "read")], hooks=relay, clock=clock))
    assert diary == [
        ("sent", 1, 1, 5, "a/x", "t1"),
        ("failed", 1, 1, Transient, True),
        ("sent", 1, 2, 5, "a/x", "t1"),
        ("answered", 1, 2, ""),
        ("sent", 2, 1, 5, "a/x", "t1"),
        ("answered", 2, 1, "done"),
    ]


async def test_a_failure_that_is_final_says_so():
    diary = []
    scene = await live(an_agent(play(Refused("no")), hooks=hooked(request_failed=noting(diary, "again"))))
    assert (diary, scene.ending) == ([(False,)], "failed")


async def test_a_question_may_be_wrapped():
    async def around_request(go, request, turn):
        reply = await go(structs.replace(request, system=f"{turn.id} {request.system}"))
        return structs.replace(reply, message=Message("assistant", (Text(f"{reply.message.text}!"),)))

    model = play("hi")
    scene = await live(an_agent(model, hooks=hooked(around_request=around_request)))
    assert model.asked[0].system.startswith("t1 ")
    assert scene.said[-1].text == "hi!"


async def test_the_last_words_may_be_changed_and_what_was_shown_is_taken_back():
    async def answer_text(text):
        return text.replace("secret", "***")

    model = play((Text("I look for the secret."), call("c1", "look")), replied(Thinking("hm"), Text("The secret.")))
    scene = await live(an_agent(model, [Hand("look", "read")], hooks=hooked(answer_text=answer_text)))
    assert scene.said[1].text == "I look for the secret.", "only the last words"
    assert scene.said[-1].parts == (Thinking("hm"), Text("The ***."))
    shown = [type(event) for event in scene.events if isinstance(event, Retracted | Said)]
    assert shown[-2:] == [Retracted, Said]


async def test_a_turn_that_changed_files_may_be_sent_back_three_times():
    asked = []

    async def before_answer(text, changed, attempt):
        asked.append((text, changed, attempt))
        return Verdict("deny", "run the tests.")

    model = play(call("c1", "write_file", path="a.py", content="x"), "one", "two", "three", "four")
    hand = Hand("write_file", schema=PATHS)
    scene = await live(an_agent(model, [hand], hooks=hooked(before_answer=before_answer)))
    assert asked == [("one", ("a.py",), 1), ("two", ("a.py",), 2), ("three", ("a.py",), 3)]
    assert (scene.ending, scene.said[-1].text) == ("answered", "four")
    assert [m.text for m in scene.said if m.role == "notice"] == ["Before you finish: run the tests."] * 3


async def test_a_turn_that_changed_nothing_is_not_asked_about():
    asked = []
    model = play(call("c1", "write_file", path="a.py", content="x"), "done")
    hand = Hand("write_file", schema=PATHS, does=ToolError("disk full"))
    await live(an_agent(model, [hand], hooks=hooked(before_answer=noting(asked, "text"))))
    assert asked == []


async def test_a_message_may_be_rewritten_or_dropped_before_it_is_a_turn(tmp_path):
    async def before_message(inbound):
        if "spam" in inbound.text:
            return Admission("drop")
        return Admission("rewrite", inbound.text.upper()) if "loud" in inbound.text else None

    registry = Hooks()
    registry.add(PluginOwner("p"), before_message)
    provider = ScriptedProvider(["one", "two"])
    async with open_sessions(tmp_path, provider, hooks=registry) as house:
        with pytest.raises(MessageRejected) as dropped:
            await house.sessions.submit(inbound("1", "spam"))
        assert dropped.value.by_choice
        assert (await house.ask(inbound("2", "say it loud"))).ending == "answered"
        assert (await house.ask(inbound("3", "plainly"))).ending == "answered"
    assert [request.messages[-1].text for request in provider.asked] == ["SAY IT LOUD", "plainly"]


async def test_a_message_that_nobody_could_rule_on_is_not_taken_and_its_sender_is_notified(tmp_path):
    async def before_message(inbound):
        raise RuntimeError("no list")

    registry, owner = Hooks(), PluginOwner("lists")
    registry.add(owner, before_message)
    async with open_sessions(tmp_path, ScriptedProvider(["hi"]), hooks=registry) as house:
        for number in range(3):
            with pytest.raises(MessageRejected, match="plugin lists failed in before_message") as refused:
                await house.sessions.submit(inbound(str(number), "hello"))
            assert not refused.value.by_choice
        assert owner.silenced
        assert (await house.ask(inbound("9", "hello"))).ending == "answered", "it is switched off by now"


async def test_a_conversation_begins_once(tmp_path):
    diary, registry = [], Hooks()
    registry.add(PluginOwner("p"), noting(diary, "session", "session_key"), name="session_began")
    async with open_sessions(tmp_path, ScriptedProvider(["one", "two", "three"]), hooks=registry) as house:
        for number in "12":
            await house.ask(inbound(number, "hello"))
        left = await house.store.sessions.reset(inbound("", "").address.key)
        await house.ask(inbound("3", "again"))
    assert [session for session, _ in diary] == [left.old, left.new]
    assert {key for _, key in diary} == {inbound("", "").address.key}


@pytest.mark.parametrize("how", ["answered", "failed"])
async def test_the_end_of_a_turn_is_reported_before_the_next_begins(how, tmp_path):
    diary, registry, owner = [], Hooks(), PluginOwner("p")

    async def turn_ended(turn, ending, said, usage):
        await asyncio.sleep(0.02)
        diary.append((turn.inbound.text, ending, said[-1].role, usage is not None))

    async def turn_context(turn):
        diary.append((turn.inbound.text, "begins"))

    registry.add(owner, turn_ended)
    registry.add(owner, turn_context)
    script = ["one", "two"] if how == "answered" else [Refused("no"), "two"]
    async with open_sessions(tmp_path, ScriptedProvider(script), hooks=registry) as house:
        await house.sessions.submit(inbound("1", "first"))
        await house.ask(inbound("2", "second"))
        await house.sessions.wait_idle()
    said = "assistant" if how == "answered" else "user"
    assert diary == [
        ("first", "begins"),
        ("first", how, said, how == "answered"),
        ("second", "begins"),
        ("second", "answered", "assistant", True),
    ]
