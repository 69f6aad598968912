"""A turn whose process died continues: nothing finished is repeated, and what the model is shown only grows."""

from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec
import pytest

from alipes.agent import loop
from alipes.agent.loop import run_turn
from alipes.agent.transcript_repair import close_transcript
from alipes.kernel.messages import Message, Text, ToolResult, assistant, user
from alipes.kernel.turns import ModelReply, Said, TextDelta, ToolFinished, ToolStarted
from tests.unit.agent_harness import Hand, Scene, an_agent, call, live, play, turn
from tests.world.random_delays import check_transcript

STEPS = 10


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


class Diligent:
    """Reads twice and writes once in each of ten steps, by what it finds in the transcript, then answers."""

    def __init__(self):
        self.asked = []

    @asynccontextmanager
    async def stream(self, request):
        self.asked.append(request)
        step = sum(message.role == "assistant" for message in request.messages)

        async def deltas():
            yield TextDelta("so")
            if step == STEPS:
                yield ModelReply(assistant(Text("done")))
            else:
                calls = [call(f"{name}{step}", name, n=step) for name in ("look", "change", "see")]
                yield ModelReply(assistant(Text("so"), *calls), stop="calls")

        yield deltas()


class Journal:
    """Keeps what is recorded and dies at the scripted moment."""

    def __init__(self, die_at=None, *, after_writing=True):
        self.said, self.acts = (), {}
        self._left, self._after = die_at, after_writing

    async def emit(self, event):
        dying = self._left == 0
        if self._left is not None:
            self._left -= 1
        if dying and not self._after:
            raise Crash
        match event:
            case Said(message):
                self.said = (*self.said, message)
            case ToolStarted(each):
                self.acts[each.id] = None
            case ToolFinished(each, result):
                self.acts[each.id] = result
        if dying:
            raise Crash


def the_world(die_in_write=-1):
    """An agent with two reads and a write that counts; the write may die with the process, half-way."""
    done = []

    def change(args, act):
        done.append(args["n"])
        if args["n"] == die_in_write and done.count(args["n"]) == 1:
            raise Crash
        return f"changed {args['n']}"

    hands = [Hand("look", "read"), Hand("see", "read"), Hand("change", does=change)]
    return an_agent(Diligent(), hands), done


async def crash_and_resume(agent, journal, tries=3):
    """Live the turn; where it dies, take it up from what was kept, as another process would."""
    for attempt in range(1, tries + 1):
        lived = turn(said=journal.said, tool_results=dict(journal.acts), attempt=attempt)
        try:
            return await run_turn(agent, lived, journal.emit)
        except Crash:
            continue
    raise AssertionError("it never ended")


async def how_many_events():
    scene = Scene()
    agent, _ = the_world()
    await run_turn(agent, turn(), scene.emit)
    return len(scene.events)


@pytest.mark.deadline(60)
@pytest.mark.parametrize("after_writing", [True, False], ids=["after the row", "before the row"])
async def test_a_crash_at_any_moment_repeats_no_write_and_leaves_a_valid_transcript(after_writing):
    moments = await how_many_events()
    assert moments > 70
    for moment in range(moments):
        agent, done = the_world()
        journal = Journal(moment, after_writing=after_writing)
        ending, _ = await crash_and_resume(agent, journal)
        assert ending == "answered", moment
        assert len(done) == len(set(done)), f"a write was repeated after a crash at event {moment}"
        check_transcript(journal.said)
        assert [message.role for message in journal.said].count("user") == 1, moment
        results = [part for message in journal.said for part in message.parts if isinstance(part, ToolResult)]
        assert len(results) == 3 * STEPS
        lost = [part for part in results if part.outcome == "unknown"]
        assert len(lost) <= 1 and all(part.call_id.startswith("change") for part in lost)


async def test_a_crash_inside_a_write_is_reported_as_unknown_and_it_is_not_run_again():
    agent, done = the_world(die_in_write=4)
    journal = Journal()
    assert (await crash_and_resume(agent, journal))[0] == "answered"
    assert sorted(done) == list(range(STEPS))
    seen = {p.call_id: p.outcome for m in journal.said for p in m.parts if isinstance(p, ToolResult)}
    assert [name for name, outcome in seen.items() if outcome != "ok"] == ["change4"]
    assert seen["change4"] == "unknown"


ASKED = assistant(call("r1", "look"), call("w1", "change"), call("w2", "change"), call("r2", "look"))


async def test_a_resumed_turn_runs_what_may_be_run_and_says_all_results_in_order():
    look, change = Hand("look", "read", does="seen"), Hand("change", does="changed")
    kept = ToolResult("r1", "seen before")
    resumed = turn(said=(user("hello"), ASKED), tool_results={"r1": kept, "w1": None, "r2": None})
    scene = await live(an_agent(play("done"), [look, change]), resumed)
    tool, answer = scene.said
    assert [(p.call_id, p.outcome) for p in tool.parts] == [("r1", "ok"), ("w1", "unknown"), ("w2", "ok"), ("r2", "ok")]
    assert tool.parts[0] == kept and answer.text == "done"
    assert (len(look.ran), len(change.ran)) == (1, 1)
    assert [event.call.id for event in scene.of(ToolFinished)] == ["w1", "w2", "r2"]


async def test_a_write_whose_tool_is_gone_is_unknown_too():
    resumed = turn(said=(user("hello"), assistant(call("w1", "gone"))), tool_results={"w1": None})
    scene = await live(an_agent(play("done")), resumed)
    assert scene.said[0].parts[0].outcome == "unknown"


@pytest.mark.parametrize(
    ("said", "ending"),
    [
        ((assistant(Text("hi")),), "answered"),
        (
            (
                assistant(call("c", "look")),
                Message("tool", (ToolResult("c", "x"),)),
                loop.SUMMARISE,
                assistant(Text("so")),
            ),
            "out_of_steps",
        ),
    ],
)
async def test_a_turn_that_had_said_its_last_word_only_ends(said, ending):
    model = play()
    scene = await live(an_agent(model), turn(said=(user("hello"), *said)))
    assert scene.ending == ending and model.asked == [] and scene.events == []


async def test_the_limit_of_steps_counts_those_before_the_crash():
    answered = (assistant(call("c", "look")), Message("tool", (ToolResult("c", "x"),)))
    model = play("summary")
    scene = await live(an_agent(model, [Hand("look")], max_steps=1), turn(said=(user("hello"), *answered)))
    assert scene.ending == "out_of_steps" and scene.said[0] == loop.SUMMARISE
    again = await live(an_agent(play("summary"), max_steps=1), turn(said=(user("hello"), *answered, loop.SUMMARISE)))
    assert again.said == (assistant(Text("summary")),)


async def test_calls_left_open_by_an_earlier_turn_are_answered_before_the_person_speaks():
    history = (user("before"), assistant(call("c0", "change")))
    model = play("hi")
    scene = await live(an_agent(model), turn(history=history))
    assert [message.role for message in scene.said] == ["tool", "user", "assistant"]
    assert scene.said[0].parts[0].outcome == "unknown"
    half = await live(an_agent(play("hi")), turn(history=history, said=scene.said[:1]))
    assert [message.role for message in half.said] == ["user", "assistant"]


def prefixes_hold(requests):
    """The first N-1 messages of each request are those of the request before, byte for byte."""
    for before, after in pairwise(requests):
        kept = len(before.messages)
        assert len(after.messages) > kept
        assert msgspec.json.encode(after.messages[:kept]) == msgspec.json.encode(before.messages)
        assert (after.system, after.tools) == (before.system, before.tools)


async def test_the_prefix_is_byte_stable_within_a_turn_and_over_turns():
    model = Diligent()
    hands = [Hand("look", "read"), Hand("see", "read"), Hand("change")]
    first = await live(an_agent(model, hands))
    later = play(call("x", "look"), "two", ModelReply(assistant(Text("cut o")), stop="length"), "ff")
    second = await live(an_agent(later, hands), turn("next", history=first.said))
    await live(an_agent(later, hands), turn("last", history=(*first.said, *second.said)))
    assert len(model.asked) == STEPS + 1 and len(later.asked) == 4
    prefixes_hold([*model.asked, *later.asked])


async def test_the_prefix_is_byte_stable_over_a_resume_and_over_a_stop():
    agent, _ = the_world()
    journal = Journal(30)
    await crash_and_resume(agent, journal)
    asked = agent.models._plays["a/x"].asked
    assert len(asked) == STEPS + 1
    prefixes_hold(asked)

    agent, _ = the_world()
    journal = Journal(30)
    with pytest.raises(Crash):
        await run_turn(agent, turn(), journal.emit)
    history = (*journal.said, *close_transcript(journal.said, journal.acts, "stopped"))
    check_transcript(history)
    await live(agent, turn("and now?", history=history))
    prefixes_hold(agent.models._plays["a/x"].asked)
