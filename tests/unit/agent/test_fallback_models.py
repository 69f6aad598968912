"""When the wanted model cannot answer another does, and says so; later the wanted one is first again."""

import pytest

from alipes.agent.model_call import ModelCooldowns
from alipes.kernel.errors import (
    ConfigError,
    ContextTooLong,
    NotAuthorised,
    OutOfCredit,
    ProviderError,
    Refused,
    Transient,
)
from alipes.kernel.messages import Text
from alipes.kernel.turns import Notice, Retracted, Said
from tests.unit.agent_harness import Clock, Hand, Troupe, an_agent, call, live, play, replied, turn


def two(first, second, **more):
    """An agent that wants a/x and falls back on b/y."""
    models = Troupe(a_x=first, b_y=second)
    return an_agent(first, models=models, fallback=("b/y",), **more)


def noted(scene):
    return [event.text for event in scene.of(Notice)]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OutOfCredit("pay up"), "a/x is out of credit; switching to b/y"),
        (NotAuthorised("bad key"), "a/x rejected the API key; switching to b/y"),
        (Refused("no"), "a/x declined to answer; switching to b/y"),
        (ProviderError("garbled"), "a/x cannot be used (garbled); switching to b/y"),
    ],
)
async def test_what_the_first_cannot_answer_the_next_does_and_it_is_said(error, words):
    scene = await live(two(play(error), play("hi")))
    assert (scene.ending, scene.said[-1].text) == ("answered", "hi")
    assert noted(scene) == [words]
    assert scene.of(Said)[-1].model == "b/y"


async def test_an_outage_continues_with_the_next_after_one_short_wait():
    first = play(*[Transient("down")] * 2)
    scene = await live(two(first, play("hi")))
    assert scene.ending == "answered" and len(first.asked) == 2
    assert noted(scene)[-1] == "a/x is unavailable (down); switching to b/y"


async def test_a_refusal_in_words_is_withdrawn_and_the_next_model_asked_the_same():
    first = play(replied(Text("No."), stop="refused"))
    second = play("yes")
    scene = await live(two(first, second))
    assert scene.said[-1].text == "yes" and len(scene.of(Retracted)) == 1
    assert second.asked[0].messages == first.asked[0].messages
    assert (first.asked[0].model, second.asked[0].model) == ("x", "y")


async def test_a_turn_that_moved_on_stays_with_its_new_model():
    first = play(Refused("no"))
    second = play(call("c1", "look"), "done")
    scene = await live(two(first, second, tools=[Hand("look", "read")]))
    assert scene.ending == "answered" and len(first.asked) == 1 and len(second.asked) == 2


async def test_when_nobody_can_answer_the_first_error_ends_the_turn():
    scene = await live(two(play(OutOfCredit("a is broke")), play(NotAuthorised("b is locked"))))
    assert (scene.ending, scene.detail) == ("failed", "a is broke")


async def test_the_first_returns_after_its_rest_and_not_before():
    clock = Clock()
    chain = ModelCooldowns(cooldown=60, clock=clock)
    first, second = play(*[Transient("down")] * 2, "back"), play("one", "two")
    agent = two(first, second, cooldowns=chain, clock=clock)
    await live(agent)
    resting = await live(agent)
    assert resting.said[-1].text == "two" and len(first.asked) == 2
    assert noted(resting) == ["a/x failed recently; using b/y"]
    clock.now += 61
    returned = await live(agent)
    assert returned.said[-1].text == "back" and noted(returned) == []


async def test_who_needs_a_person_rests_longer_than_who_is_only_down():
    clock = Clock()
    chain = ModelCooldowns(cooldown=60, clock=clock)
    chain.start_cooldown("down", Transient("x"))
    chain.start_cooldown("limited", Transient("x", retry_after=100.0))
    chain.start_cooldown("broke", OutOfCredit("x"))
    chain.start_cooldown("shy", Refused("x"))
    awake = []
    for seconds in (0, 61, 101, 601):
        clock.now = 1000.0 + seconds
        awake.append([n for n in ("shy", "down", "limited", "broke") if not chain.is_cooling(n)])
    assert awake == [["shy"], ["shy", "down"], ["shy", "down", "limited"], ["shy", "down", "limited", "broke"]]


async def test_a_resting_model_is_asked_when_all_others_fail_and_is_awake_if_it_answers():
    clock = Clock()
    chain = ModelCooldowns(clock=clock)
    chain.start_cooldown("a/x", OutOfCredit("x"))
    agent = two(play("paid"), play(Refused("no")), cooldowns=chain)
    scene = await live(agent)
    assert scene.said[-1].text == "paid"
    assert not chain.is_cooling("a/x")


async def test_the_model_that_a_message_names_is_asked_for_that_turn_even_while_it_rests():
    chain = ModelCooldowns(clock=Clock())
    chain.start_cooldown("b/y", OutOfCredit("x"))
    first, second = play("first"), play("second")
    agent = two(first, second, cooldowns=chain)
    named = await live(agent, turn(model="b/y"))
    assert (named.said[-1].text, len(first.asked)) == ("second", 0)
    assert (await live(agent)).said[-1].text == "first"


async def test_a_named_model_has_the_same_fallback():
    scene = await live(two(play("first"), play("second")), turn(model="b/y"))
    assert scene.said[-1].text == "second"
    again = await live(two(play("first"), play(OutOfCredit("x"), "never")), turn(model="b/y"))
    assert again.ending == "failed"  # b/y is in the chain only once


async def test_a_wanted_model_that_is_not_configured_is_said_to_the_operator():
    agent = an_agent(play(), models=Troupe(b_y=play("hi")), fallback=("b/y",))
    with pytest.raises(ConfigError, match="no model a/x"):
        await live(agent)


async def test_a_fallback_that_is_not_configured_is_passed_over():
    models = Troupe(a_x=play(OutOfCredit("x")), c_z=play("hi"))
    scene = await live(an_agent(play(), models=models, fallback=("b/y", "c/z")))
    assert scene.said[-1].text == "hi"
    assert noted(scene)[-1] == "b/y cannot be used (there is no model b/y); switching to c/z"


async def test_a_conversation_that_is_too_long_is_not_sent_to_the_next():
    second = play("hi")
    scene = await live(two(play(ContextTooLong("x")), second))
    assert scene.ending == "failed" and second.asked == []


def with_last_resort(first, demo, **more):
    return an_agent(first, models=Troupe(a_x=first, b_y=demo), last_resort="b/y", **more)


async def test_the_last_resort_answers_if_the_model_fails_its_first_request_and_the_notice_says_what_to_do():
    scene = await live(with_last_resort(play(ProviderError("broken")), play("hi")))
    assert (scene.ending, scene.said[-1].text) == ("answered", "hi")
    (words,) = noted(scene)
    assert words == "a/x cannot be used (broken); switching to b/y. Choose another with /model or `alipes setup`"


async def test_the_last_resort_never_replaces_a_model_that_has_answered():
    first, demo = play(call("c1", "look"), ProviderError("broken")), play("never")
    scene = await live(with_last_resort(first, demo, tools=[Hand("look", "read")]))
    assert (scene.ending, scene.detail, demo.asked) == ("failed", "broken", [])
    chain, demo = ModelCooldowns(clock=Clock()), play("never")
    agent = with_last_resort(play("one", ProviderError("broken")), demo, cooldowns=chain)
    assert (await live(agent)).ending == "answered"
    assert (await live(agent)).ending == "failed" and demo.asked == []
