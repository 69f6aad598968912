"""One question is asked again while the trouble may pass; the user is notified, and the clock never really runs."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from alipes.agent.model_call import ModelCallContext, RetryPolicy, call_model
from alipes.kernel.errors import ContextTooLong, ProviderError, Refused, Transient
from alipes.kernel.messages import Text, Thinking
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply, Notice, Retracted, TextDelta, ThinkingDelta
from alipes.providers.registry import Backend
from alipes.runtime.tasks import backoff
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.agent_harness import Clock, Scene, play, replied, turn

BUSY = Transient("the server is busy")


async def put(provider, clock=None, *, fallback=False, **patience):
    """The reply or the error, and the events published meanwhile."""
    clock, scene = clock or Clock(), Scene()
    patient = RetryPolicy(clock=clock, sleep=clock.sleep, random=lambda: 0.5, **patience)
    backend = Backend(name="a/x", model="x", provider=provider, facts=ModelFacts())
    context = ModelCallContext(turn(), scene.emit, patient, has_fallback=lambda: fallback)
    try:
        return await call_model(backend, Request("x", "", ()), context), scene
    except ProviderError as error:
        return error, scene


async def test_what_streams_is_shown_at_once_and_the_reply_is_whole():
    provider = play(replied(Thinking("hm"), Text("oh hi")))
    reply, scene = await put(provider)
    assert reply == replied(Thinking("hm"), Text("oh hi"))
    assert scene.events == [ThinkingDelta("hm"), TextDelta("oh"), TextDelta(" hi")]


async def test_a_stream_is_read_to_its_end_so_that_its_connection_is_kept():
    read_on = []

    class Careful(ScriptedProvider):
        @asynccontextmanager
        async def stream(self, request):
            async def watched(deltas):
                async for delta in deltas:
                    yield delta
                read_on.append(True)

            async with super().stream(request) as deltas:
                yield watched(deltas)

    await put(Careful(["hi"]))
    assert read_on == [True]


async def test_trouble_that_passes_is_waited_for_and_reported():
    clock, provider = Clock(), play(BUSY, BUSY, "hi")
    reply, scene = await put(provider, clock)
    assert reply.message.text == "hi"
    assert clock.slept == [backoff(1, lambda: 0.5), backoff(2, lambda: 0.5)]
    seen = [event.text for event in scene.of(Notice)]
    assert len(seen) == 2 and "a/x: the server is busy. Retrying" in seen[0]
    assert "(3/5)" in seen[1]


async def test_the_note_about_a_retry_names_the_provider_once_and_no_time_below_a_second():
    _, scene = await put(
        play(Transient("a is busy", retry_after=0.2), Transient("busy", retry_after=3.0), "hi"), Clock()
    )
    seen = [event.text for event in scene.of(Notice)]
    assert seen == ["a is busy. Retrying (2/5)", "a/x: busy. Retrying in 3 s (3/5)"]


def failing(status, brief=""):
    error = Transient("slow down", brief=brief)
    error.status = status
    return error


async def test_a_rate_limit_is_waited_for_longer_each_time_in_five_attempts():
    clock, provider = Clock(), play(*[failing(429)] * 5)
    error, _ = await put(provider, clock)
    assert error.status == 429 and len(provider.asked) == 5
    assert clock.slept == [pytest.approx(wait, rel=0.1) for wait in (2, 5, 15, 30)]


async def test_an_error_of_the_server_is_waited_for_longer_than_a_lost_connection():
    clock = Clock()
    await put(play(*[failing(500)] * 5), clock)
    assert clock.slept == [pytest.approx(wait, rel=0.1) for wait in (1, 2, 5, 10)]


@pytest.mark.parametrize(
    ("error", "slept"), [(failing(429), [2.1]), (Transient("slow down", retry_after=20.0), [])], ids=["short", "long"]
)
async def test_with_a_fallback_there_is_one_short_wait_only(error, slept):
    clock, provider = Clock(), play(*[error] * 5)
    assert (await put(provider, clock, fallback=True))[0] is error
    assert clock.slept == slept


async def test_a_retry_is_shown_in_a_few_words_that_replace_the_ones_before():
    _, scene = await put(
        play(failing(429, "Rate limit of a reached"), Transient("cut.", brief="Connection lost"), "hi")
    )
    assert scene.of(Notice) == [
        Notice("Rate limit of a reached. Retrying in 2 s (2/5)", live=True),
        Notice("Connection lost. Retrying (3/5)", live=True),
    ]


async def test_a_sentence_that_ends_with_a_full_stop_gets_no_second_one():
    _, scene = await put(play(Transient("a: try again in 20s.", retry_after=20.0), "hi"))
    assert [each.text for each in scene.of(Notice)] == ["a: try again in 20s. Retrying in 20 s (2/5)"]


async def test_the_time_the_server_asks_for_is_honoured():
    clock = Clock()
    await put(play(Transient("slow down", retry_after=34.0), "hi"), clock)
    assert clock.slept == [34.0]


async def test_a_server_that_asks_for_more_than_our_patience_is_given_up_at_once():
    clock = Clock()
    error, scene = await put(play(Transient("slow down", retry_after=300.0)), clock)
    assert isinstance(error, Transient) and error.retry_after == 300.0
    assert "300 s" in str(error) and clock.slept == [] and scene.events == []


async def test_waiting_adds_up():
    clock = Clock()
    slow = [Transient("slow down", retry_after=50.0) for _ in range(4)]
    error, _ = await put(play(*slow), clock)
    assert isinstance(error, Transient) and clock.slept == [50.0, 50.0]


async def test_attempts_are_counted():
    clock, provider = Clock(), play(*[BUSY] * 9)
    error, _ = await put(provider, clock, attempts=3)
    assert error is BUSY and len(provider.asked) == 3 and len(clock.slept) == 2


async def test_text_of_an_answer_that_failed_is_withdrawn_before_the_next():
    provider = play(("half", Transient("the line broke")), "whole")
    reply, scene = await put(provider)
    assert reply.message.text == "whole"
    assert [type(event) for event in scene.events] == [TextDelta, Retracted, Notice, TextDelta]
    assert scene.events[1].reason == "the line broke"


async def test_nothing_is_withdrawn_where_nothing_was_shown():
    _, scene = await put(play(BUSY, "hi"))
    assert scene.of(Retracted) == []


class Unended(ScriptedProvider):
    """Its first stream lacks its end."""

    @asynccontextmanager
    async def stream(self, request):
        async def without(deltas):
            async for delta in deltas:
                if len(self.asked) > 1 or not isinstance(delta, ModelReply):
                    yield delta

        async with super().stream(request) as deltas:
            yield without(deltas)


@pytest.mark.parametrize("line", [(), "some words"], ids=["after nothing", "after some words"])
async def test_a_stream_without_its_end_is_no_answer(line):
    provider = Unended([line, "whole"])
    reply, scene = await put(provider)
    assert reply.message.text == "whole" and len(provider.asked) == 2
    assert len(scene.of(Retracted)) == bool(line)


@pytest.mark.parametrize("error", [ContextTooLong("too long"), ProviderError("bad request")])
async def test_trouble_that_does_not_pass_is_raised_at_once(error):
    provider = play(error)
    assert (await put(provider))[0] is error
    assert len(provider.asked) == 1


async def test_a_refusal_in_words_is_a_refusal_and_its_text_is_withdrawn():
    error, scene = await put(play(replied(Text("I won't."), stop="refused")))
    assert isinstance(error, Refused) and "I won't." in str(error)
    assert len(scene.of(Retracted)) == 1


async def test_a_cancelled_question_closes_its_stream_before_it_returns():
    provider = play(("h", asyncio.Event()))
    task = asyncio.create_task(put(provider))
    while not provider.living:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.living == 0


async def test_a_cancelled_wait_ends_at_once():
    asleep = asyncio.Event()

    class Dozing(Clock):
        async def sleep(self, seconds):
            asleep.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(put(play(BUSY, "hi"), Dozing()))
    await asleep.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
