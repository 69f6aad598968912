"""A turn asks, acts and asks again, and comes to an honest end."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from alipes.agent import loop
from alipes.agent.loop import run_turn
from alipes.agent.model_call import RetryPolicy
from alipes.kernel.errors import ContextTooLong, Fenced, ProviderError, ToolError, Transient
from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.models import ModelFacts
from alipes.kernel.turns import ModelReply, Notice, Retracted, Said, TextDelta, ToolFinished, ToolStarted, Usage
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.agent_harness import Hand, Scene, an_agent, call, live, play, replied, turn


def roles(scene):
    return [message.role for message in scene.said]


async def test_a_question_is_answered():
    scene = await live(an_agent(play("hi")))
    assert (scene.ending, scene.detail) == ("answered", "")
    assert scene.said == (user("hello"), assistant(Text("hi")))
    assert scene.events == [
        Said(user("hello")),
        TextDelta("hi"),
        Said(assistant(Text("hi")), "a/x", scene.events[-1].usage),
    ]


async def test_images_come_with_the_question_and_may_come_alone():
    image = Image("image/png", b"x")
    scene = await live(an_agent(play("a cat")), turn("what is it?", attachments=(image,)))
    assert scene.said[0] == user("what is it?", image)
    alone = await live(an_agent(play("a cat")), turn("", attachments=(image,)))
    assert alone.said[0] == Message("user", (image,))


async def test_a_call_is_run_and_its_result_is_asked_about():
    model = play(("I look.", call("c1", "look", at=1)), "It is there.")
    look = Hand("look", "read", does="there")
    scene = await live(an_agent(model, [look]))
    assert scene.ending == "answered" and look.ran == [{"at": 1}]
    assert roles(scene) == ["user", "assistant", "tool", "assistant"]
    assert scene.said[2] == Message("tool", (ToolResult("c1", "there"),))
    assert model.asked[1].messages == scene.said[:3]
    kinds = [type(event) for event in scene.events if not isinstance(event, TextDelta)]
    assert kinds == [Said, Said, ToolStarted, ToolFinished, Said, Said]


async def test_a_tool_prepares_while_the_model_writes_the_call():
    class Slow(Hand):
        def prepare_call(self, turn):
            self.prepared.append((turn.id, [*self.ran]))

    written = asyncio.Event()
    look, other = Slow("look", "read"), Slow("other", "read")
    look.prepared, other.prepared = [], []
    model = play("Hello.", (call("c1", "look", at=1), written), "Done.")
    await live(an_agent(model, [look, other]))
    assert look.prepared == [], "a turn without a call prepares nothing"
    async with asyncio.TaskGroup() as group:
        living = group.create_task(live(an_agent(model, [look, other])))
        while not look.prepared:
            await asyncio.sleep(0)
        assert look.ran == []
        written.set()
    assert living.result().ending == "answered"
    assert look.prepared == [("t1", [])] and other.prepared == [] and look.ran == [{"at": 1}]


async def test_what_the_model_is_asked_with():
    facts = ModelFacts(output=1000)
    look = Hand("look", "read")
    model = play("hi")
    agent = an_agent(model, [look], facts=facts, system=lambda turn: f"for {turn.id}", effort="low")
    await live(agent, turn(history=(user("a"), assistant(Text("b")))))
    request = model.asked[0]
    assert (request.model, request.system, request.effort, request.session) == ("x", "for t1", "low", "s1")
    assert request.tools == (look.spec,) and request.max_tokens == 1000
    assert request.messages == (user("a"), assistant(Text("b")), user("hello"))


async def test_a_model_without_tools_is_offered_none():
    model = play("hi")
    await live(an_agent(model, [Hand("look")], facts=ModelFacts(tools=False)))
    assert model.asked[0].tools == ()


async def test_a_hook_may_change_the_request():
    async def before_request(request):
        return type(request)(request.model, "changed", request.messages)

    hooks, model = Hooks(), play("hi")
    hooks.add(PluginOwner("filter"), before_request)
    await live(an_agent(model, hooks=hooks.dispatcher))
    assert model.asked[0].system == "changed"


async def test_each_answer_carries_what_it_cost():
    facts = ModelFacts(price_input=2.0, price_output=10.0)
    model = play(replied(call("c1", "look"), input=1000, output=100), replied(Text("done"), input=2000, output=50))
    scene = await live(an_agent(model, [Hand("look", "read")], facts=facts))
    bills = [event.usage for event in scene.of(Said) if event.usage is not None]
    assert [bill.cost for bill in bills] == [pytest.approx(0.003), pytest.approx(0.0045)]
    assert {event.model for event in scene.of(Said) if event.message.role == "assistant"} == {"a/x"}


async def test_a_price_that_is_unknown_is_not_zero_and_one_that_is_reported_is_kept():
    scene = await live(an_agent(play(replied(Text("hi"), input=1))))
    assert scene.of(Said)[-1].usage.cost is None
    seen = await live(an_agent(play(replied(Text("hi"), input=1, cost=0.5)), facts=ModelFacts(price_input=1.0)))
    assert seen.of(Said)[-1].usage.cost == 0.5


async def test_an_attempt_that_failed_leaves_no_trace_in_the_transcript():
    scene = await live(an_agent(play(("half", Transient("broke")), "whole")))
    assert scene.said == (user("hello"), assistant(Text("whole")))
    assert len(scene.of(Retracted)) == 1


async def test_call_ids_that_a_server_uses_twice_are_distinguished():
    model = play(call("1", "look", n=1), call("1", "look", n=2), "done")
    scene = await live(an_agent(model, [Hand("look", "read")]))
    ids = [each.id for message in scene.said for each in message.calls]
    assert ids == ["1", "1_2"]
    assert [part.call_id for message in scene.said for part in message.parts if isinstance(part, ToolResult)] == ids


async def test_call_ids_of_an_earlier_turn_are_not_used_again():
    first = await live(an_agent(play(call("1", "look"), "done"), [Hand("look", "read")]))
    agent = an_agent(play(call("1", "look"), "done"), [Hand("look", "read")])
    second = await live(agent, turn(history=first.said))
    assert [each.id for message in second.said for each in message.calls] == ["1_2"]


async def test_a_model_that_cannot_be_reached_fails_the_turn_in_words():
    scene = await live(an_agent(play(*[Transient("the server is down")] * 5)))
    assert (scene.ending, scene.detail) == ("failed", "the server is down")
    assert scene.said == (user("hello"),)


async def test_a_conversation_that_no_longer_fits_names_the_window():
    agent = an_agent(play(ContextTooLong("201,000 tokens")), facts=ModelFacts(window=200_000))
    scene = await live(agent)
    assert scene.ending == "failed"
    assert "window of 200,000 tokens of a/x" in scene.detail and "201,000" in scene.detail


async def test_cancelling_the_task_stops_the_turn_and_closes_its_stream():
    model, scene = play(("some", asyncio.Event())), Scene()
    task = asyncio.create_task(run_turn(an_agent(model), turn(), scene.emit))
    while not model.living:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.living == 0 and scene.said == (user("hello"),)


async def test_a_fenced_turn_puts_its_pen_down():
    model = play(call("c1", "change"), "never")
    change = Hand("change")

    async def emit(event):
        if isinstance(event, ToolStarted):
            raise Fenced("another process lives this turn")

    agent = an_agent(model, [change])
    with pytest.raises(Fenced):
        await run_turn(agent, turn(), emit)
    assert change.ran == [] and len(model.asked) == 1


async def test_a_call_that_keeps_failing_is_not_run_again_and_at_last_ends_the_turn():
    model = play(*[call("c", "look", at=1)] * 9)
    look = Hand("look", "read", does=ToolError("nothing there"))
    scene = await live(an_agent(model, [look]))
    assert len(look.ran) == loop.WARN_AFTER and len(model.asked) == loop.GIVE_UP_AFTER
    assert scene.ending == "failed" and "same failing call to look 5 times" in scene.detail
    seen = [part.text for message in scene.said if message.role == "tool" for part in message.parts]
    assert seen[:3] == ["nothing there"] * 3 and all("not run" in text for text in seen[3:])
    assert roles(scene)[-1] == "tool"


async def test_only_the_same_call_counts_and_success_forgives():
    outcomes = iter([ToolError("a"), ToolError("b"), "fine", ToolError("c"), ToolError("d"), "fine"])
    look = Hand("look", "read", does=lambda args, act: next(outcomes))
    model = play(*[call("c", "look", at=1)] * 6, "done")
    assert (await live(an_agent(model, [look]))).ending == "answered"
    other = Hand("look", "read", does=ToolError("no"))
    model = play(*[call("c", "look", at=n) for n in range(8)], "done")
    assert (await live(an_agent(model, [other]))).ending == "answered"
    assert len(other.ran) == 8


async def test_a_write_that_succeeded_makes_trying_again_worthwhile():
    test, edit = Hand("test", does=ToolError("red")), Hand("edit")
    model = play(*[call("c", "test"), call("c", "edit")] * 6, "done")
    assert (await live(an_agent(model, [test, edit]))).ending == "answered"
    assert len(test.ran) == 6


async def test_a_read_that_succeeded_does_not():
    test, look = Hand("test", does=ToolError("red")), Hand("look", "read")
    model = play(*[call("c", "test"), call("c", "look")] * 6)
    scene = await live(an_agent(model, [test, look]))
    assert scene.ending == "failed" and len(test.ran) == loop.WARN_AFTER


async def test_the_limit_of_steps_ends_in_a_summary_without_tools():
    model = play(*[call("c", "look", n=n) for n in range(3)], "I did three things.")
    scene = await live(an_agent(model, [Hand("look", "read")], max_steps=3))
    assert (scene.ending, scene.detail) == ("out_of_steps", "stopped at the step limit (3)")
    assert scene.said[-2:] == (loop.SUMMARISE, assistant(Text("I did three things.")))
    assert model.asked[-1].tools == model.asked[-2].tools != (), "the transcript shows calls of them"
    assert (model.asked[-1].tool_choice, model.asked[-2].tool_choice) == ("none", "auto")
    assert model.asked[-1].messages[-1] == loop.SUMMARISE
    assert scene.of(Notice) == [Notice("step limit (3) reached; asking for a summary")]


class Person:
    """Answers at the step limit, with the given words in turn."""

    def __init__(self, *words):
        self.words, self.asked = list(words), []

    async def ask(self, _turn, steps):
        self.asked.append(steps)
        return self.words.pop(0)


async def test_a_person_may_allow_as_many_steps_again_and_again():
    model = play(*[call("c", "look", n=n) for n in range(5)], "Done.")
    person = Person("", "but only the tests")
    scene = await live(an_agent(model, [Hand("look", "read")], max_steps=2, ask_for_steps=person.ask))
    assert scene.ending == "answered" and scene.said[-1] == assistant(Text("Done."))
    assert person.asked == [2, 4]
    allowed = [message.text for message in scene.said if message.role == "notice"]
    assert allowed == [loop.MORE_STEPS, f"{loop.MORE_STEPS} They said: but only the tests"]


async def test_a_person_who_allows_no_more_steps_gets_a_summary():
    model = play(call("c", "look", n=1), call("c", "look", n=2), "I looked twice.")
    person = Person("", None)
    scene = await live(an_agent(model, [Hand("look", "read")], max_steps=1, ask_for_steps=person.ask))
    assert (scene.ending, scene.detail) == ("out_of_steps", "stopped at the step limit (2)")
    assert person.asked == [1, 2] and scene.said[-1] == assistant(Text("I looked twice."))


async def test_a_resumed_turn_remembers_how_many_steps_were_allowed():
    results = Message("tool", (ToolResult("c1", "seen"),))
    said = (user("hello"), assistant(call("c1", "look")), results, loop.notice(loop.MORE_STEPS))
    model, person = play(call("c2", "look", n=2), "Enough."), Person(None)
    again = turn(said=said)
    scene = await live(an_agent(model, [Hand("look", "read")], max_steps=1, ask_for_steps=person.ask), again)
    assert scene.ending == "out_of_steps" and person.asked == [2]


async def test_calls_in_a_summary_are_left_out():
    model = play(call("c", "look"), ("Almost.", call("d", "look")))
    scene = await live(an_agent(model, [Hand("look", "read")], max_steps=1))
    assert scene.said[-1] == assistant(Text("Almost."))
    silent = await live(an_agent(play(call("c", "look"), call("d", "look")), [Hand("look", "read")], max_steps=1))
    assert silent.ending == "out_of_steps" and silent.said[-1] == loop.SUMMARISE


async def test_a_summary_that_cannot_be_had_does_not_hide_the_limit():
    model = play(call("c", "look"), ProviderError("no tools, no answer"))
    scene = await live(an_agent(model, [Hand("look", "read")], max_steps=1))
    assert scene.ending == "out_of_steps" and "no tools, no answer" in scene.detail


async def test_an_answer_cut_off_at_the_limit_is_continued():
    model = play(replied(Text("one, "), stop="length"), replied(Text("two, "), stop="length"), "three")
    scene = await live(an_agent(model))
    assert scene.ending == "answered"
    assert [m.text for m in scene.said if m.role == "assistant"] == ["one, ", "two, ", "three"]
    assert scene.said[2] == scene.said[4] == loop.CONTINUE
    assert len(scene.of(Notice)) == 2


async def test_an_answer_that_never_ends_is_said_to_be_cut():
    model = play(*[replied(Text("and "), stop="length")] * 9)
    scene = await live(an_agent(model))
    assert scene.ending == "failed" and "max_tokens (8192)" in scene.detail
    assert len(model.asked) == loop.MAX_CUTOFFS + 1 and scene.said[-1].text == "and "


async def test_half_a_call_is_dropped_and_asked_for_in_smaller_pieces():
    half = ToolCall("c1", "write", {}, raw='{"text": "very lo')
    write = Hand("write")
    model = play(replied(Text("Writing."), half, stop="length"), call("c2", "write"), "done")
    scene = await live(an_agent(model, [write]))
    assert scene.ending == "answered" and len(write.ran) == 1
    assert scene.said[1:3] == (assistant(Text("Writing.")), loop.SMALLER_CALLS)
    alone = await live(an_agent(play(replied(half, stop="length"), "done")))
    assert alone.said == (user("hello"), loop.SMALLER_CALLS, assistant(Text("done")))


async def test_whole_calls_of_a_cut_answer_are_run():
    half = ToolCall("c2", "look", {}, raw="{")
    model = play(replied(call("c1", "look"), half, stop="length"), "done")
    look = Hand("look", "read")
    scene = await live(an_agent(model, [look]))
    assert scene.ending == "answered" and len(look.ran) == 1
    assert scene.said[1] == assistant(call("c1", "look"))


async def test_thinking_that_used_up_the_output_is_asked_to_be_shorter():
    model = play(replied(Thinking("hmmm"), stop="length"), "short")
    scene = await live(an_agent(model))
    assert scene.said == (user("hello"), loop.THINK_LESS, assistant(Text("short")))


@pytest.mark.parametrize("empty", [(), (Text(" \n"),), (Thinking("hm"),)], ids=["nothing", "blanks", "thoughts"])
async def test_an_empty_answer_is_asked_for_again_once(empty):
    model = play(replied(*empty, input=5, output=1), replied(Text("hi"), input=6, output=2))
    scene = await live(an_agent(model))
    assert scene.ending == "answered" and scene.said == (user("hello"), assistant(Text("hi")))
    assert model.asked[0] == model.asked[1]
    assert scene.of(Said)[-1].usage == Usage(11, 3)
    assert "empty answer" in scene.of(Notice)[0].text and scene.of(Retracted)


async def test_a_second_empty_answer_is_said_to_be_one():
    model = play(replied(), replied(), "never")
    scene = await live(an_agent(model))
    assert (scene.ending, scene.detail) == ("failed", "a/x gave an empty answer twice")


async def test_empty_answers_are_forgiven_between_good_ones():
    model = play(replied(), call("c", "look"), replied(), "done")
    assert (await live(an_agent(model, [Hand("look", "read")]))).ending == "answered"


def test_the_loop_adds_next_to_nothing_to_each_piece_of_a_stream():
    """On a loop of its own: debug mode makes every await ten times dearer and would hide what we add."""
    many = 20_000
    reply = ModelReply(Message("assistant", (Text("x"),)))
    seen = []

    class Fast(ScriptedProvider):
        @asynccontextmanager
        async def stream(self, request):
            async def deltas():
                for _ in range(many):
                    yield TextDelta("x")
                yield reply

            yield deltas()

    async def emit(event):
        seen.append(event)

    async def bare():
        async with Fast().stream(None) as deltas:
            async for delta in deltas:
                await emit(delta)

    async def cost_of(work):
        began = time.process_time()
        await work
        return time.process_time() - began

    async def added():
        """The best of some rounds: a busy machine only ever makes it look worse."""
        agent = an_agent(Fast(), retry=RetryPolicy())
        rounds = [await cost_of(run_turn(agent, turn(), emit)) - await cost_of(bare()) for _ in range(5)]
        return min(rounds) / many * 1e6

    microseconds = asyncio.run(added(), debug=False)
    assert sum(isinstance(event, TextDelta) for event in seen) == 10 * many
    print(f"the loop adds {microseconds:.2f} µs to each piece")
    assert microseconds < 2  # a raw client spends about 14 on each
