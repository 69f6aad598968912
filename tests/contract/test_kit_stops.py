"""A turn is stopped where the test says: the points are in order, and nothing happens beyond one."""

import asyncio

import pytest

from alipes.testing import LeakError, call, every_stop, open_agent
from tests.world.plugins import make_plugin

STEPPER = make_plugin(
    "stepper",
    """
    import asyncio
    from alipes.plugin import tool
    steps, stops = [], []

    @tool()
    async def walk() -> str:
        "A tool."
        try:
            for step in ("left", "right"):
                steps.append(step)
                await asyncio.sleep(0)
            ready = asyncio.get_running_loop().create_future()
            ready.set_result(None)
            await ready                    # done already: no moment to be stopped in
            steps.append("there")
        except asyncio.CancelledError:
            steps.append("stopped")
            raise
        return "arrived"

    async def agent_loop_stopped(reason):
        stops.append(reason)
    """,
)
WHERE = [
    "event turn_started",
    "event said",  # the person
    "in request",
    "event said",  # the call
    "event tool_started",
    "in tool walk",
    "in tool walk",
    "event tool_finished",
    "event said",  # what it gave
    "in request",
    "event text_delta",
    "event said",
]


def walking():
    STEPPER.steps.clear()
    STEPPER.stops.clear()
    return open_agent(plugins=[STEPPER], model=[call("walk"), "done"])


async def places():
    """Every point of the turn, in order, until it ends before the stop."""
    seen = []
    while True:
        async with walking() as agent:
            reply = await agent.stop_at(len(seen) + 1, "walk")
        if reply.point is None:
            return seen, reply
        assert (reply.point.number, reply.ending) == (len(seen) + 1, "stopped")
        seen.append((reply.point.where, tuple(STEPPER.steps), len(agent.model.requests)))


@pytest.mark.deadline(60)
async def test_the_points_of_a_turn_are_its_events_and_the_moments_in_which_a_tool_or_a_model_waits():
    seen, reply = await places()
    assert [where for where, _, _ in seen] == WHERE
    assert (reply.ending, reply.text) == ("answered", "done")


async def test_a_tool_is_cancelled_in_the_very_await_that_was_named_and_goes_no_further():
    for number, steps in ((5, []), (6, ["left", "stopped"]), (7, ["left", "right", "stopped"])):
        async with walking() as agent:
            reply = await agent.stop_at(number, "walk")
            assert steps == STEPPER.steps and STEPPER.stops == ["user_stop"]
            assert reply.result("walk").outcome == "cancelled"
            assert len(agent.model.requests) == 1


async def test_a_point_that_is_never_reached_stops_nothing():
    async with walking() as agent:
        reply = await agent.stop_at(1000, "walk")
    assert reply.point is None and reply.ending == "answered" and STEPPER.stops == []
    assert STEPPER.steps == ["left", "right", "there"]


async def test_the_next_turn_is_not_held():
    async with walking() as agent:
        await agent.stop_at(2, "walk")
        agent.model.set_script(call("walk"), "done")
        assert (await agent.say("again")).text == "done"


@pytest.mark.deadline(60)
async def test_every_stop_tries_them_all_and_ends_with_the_turn_that_nobody_stopped():
    attempts = every_stop(walking, "walk")
    points = []
    async for attempt in attempts:
        points.append(attempt.point.where)
        assert attempt.after.text == "fine"
        assert STEPPER.steps.count("stopped") == (attempt.point.where == "in tool walk")
    assert points == WHERE and attempts.completed.text == "done"
    assert [attempt async for attempt in attempts] == []


@pytest.mark.deadline(60)
async def test_every_stop_names_the_point_after_which_something_stayed_open():
    careless = make_plugin(
        "careless",
        """
        import asyncio, socket
        from alipes.plugin import tool
        left = []

        @tool()
        async def begin() -> str:
            "A tool."
            left.extend(socket.socketpair())
            await asyncio.sleep(0)
            return "begun"
        """,
    )
    with pytest.raises(
        LeakError, match=r"after a stop at point \d+ \(in tool begin\).*opened and not closed"
    ) as leaked:
        async for _ in every_stop(lambda: open_agent(plugins=[careless], model=[call("begin"), "done"]), "go"):
            pass
    assert str(leaked.value).count("socket:") == 2
    for end in careless.left:
        end.close()


async def test_every_stop_tells_when_the_turn_would_not_have_been_answered_at_all():
    with pytest.raises(AssertionError, match=r"without a stop ended as failed: .*no line for request 1"):
        async for _ in every_stop(lambda: open_agent(model=[]), "hello"):
            pass


async def test_a_tool_that_keeps_its_cancellation_to_itself_does_not_hold_the_test():
    stubborn = make_plugin(
        "stubborn",
        """
        import asyncio
        from alipes.plugin import tool
        ran = []

        @tool()
        async def cling() -> str:
            "A tool."
            for _ in range(2):
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    ran.append("kept it")
            return "late"
        """,
    )
    async with open_agent(plugins=[stubborn], model=[call("cling"), "next"]) as agent:
        reply = await agent.stop_at(6, "go")
        assert reply.ending == "stopped" and stubborn.ran == ["kept it"]
        assert (await agent.say("and now?")).text == "next"


async def test_each_turn_counts_its_points_from_the_start():
    async with walking() as agent:
        first = await agent.stop_at(1, "walk")
        agent.model.set_script("hi")
        second = await agent.stop_at(1, "again")
    assert first.point == second.point
    await asyncio.sleep(0)
