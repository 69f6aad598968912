"""Every hook on every path of a turn, in an app that a test opens: loaded as it would be by everyone."""

import asyncio
import sys
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.turns import Answer, ApprovalAsked
from alipes.testing import open_agent
from tests.compat import walking
from tests.compat.diary import PLUGINS
from tests.e2e.program import ROOT

pytestmark = pytest.mark.deadline(40)
RECORDER = PLUGINS / "recorder"
SILENCE = {"timeout": {"silence": 2.0}}
"""Settings of the path on which nothing happens for so many seconds."""


@asynccontextmanager
async def walked(home, diary, ending):
    """A turn on the long way; stopped ones wait for it in their last tool."""
    known = {"home": home, "plugins": [RECORDER], "config": SILENCE.get(ending)}
    async with open_agent(**known, model=walking.way(ending), person="once") as agent:
        running = await agent.start("go the long way")
        if ending not in ("answered", "failed"):
            await diary.until("tool ponder")
        yield agent, running


async def leave(agent, diary):
    """Begin a new conversation, and wait until it was told."""
    await agent.command("/new")
    await diary.until("on_session_reset")


@pytest.mark.parametrize("ending", ["answered", "failed"])
async def test_a_turn_that_comes_to_its_end(home, diary, saw, ending):
    async with walked(home, diary, ending) as (agent, running):
        assert (await running).ending == ending
        await diary.until("on_session_end")
        await leave(agent, diary)
    saw("app", ending)


@pytest.mark.parametrize("ending", ["/stop", "ctrl-c", "timeout"])
async def test_a_turn_that_is_stopped(home, diary, saw, ending):
    async with walked(home, diary, ending) as (agent, running):
        if ending == "/stop":
            assert (await agent.command("/stop")).text == "Stopping."
        elif ending == "ctrl-c":
            await running.stop()
        assert (await running).ending == "stopped"
        assert (await agent.say("still there?")).text == "next"
        await leave(agent, diary)
    saw("app", ending)


async def test_a_turn_that_is_stopped_while_it_is_being_set_up(home, diary, saw):
    async with open_agent(home=home, plugins=[RECORDER], model=["next"]) as agent:
        (home / "hold").touch()
        running = await agent.start("go")
        await diary.until("being set up")
        await agent.command("/stop")
        assert (await running).ending == "stopped"
        (home / "hold").unlink()
        await leave(agent, diary)
    saw("app", "pending")


async def test_a_stop_that_comes_from_another_process(home, diary, saw):
    async with walked(home, diary, "handler") as (agent, running):
        async with open_agent(home=home, plugins=[RECORDER], model=[]) as other:
            assert (await other.command("/stop")).text == "Stopping."
            assert (await running).ending == "stopped"
        await leave(agent, diary)
    saw("app", "handler")


async def test_a_new_conversation_in_the_midst_of_a_turn(home, diary, saw):
    async with walked(home, diary, "/new") as (agent, running):
        await agent.command("/new")
        assert (await running).detail == "reset"
        await diary.until("on_session_reset")
    saw("app", "/new")


async def test_a_message_that_ends_the_turn_before_it(home, diary, saw):
    async with walked(home, diary, "superseded") as (agent, running):
        assert (await agent.say("something else")).text == "next"
        assert (await running).detail == "superseded"
        await leave(agent, diary)
    saw("app", "superseded")


async def test_the_end_of_the_process(home, diary, saw):
    async with walked(home, diary, "shutdown"):
        pass
    saw("app", "shutdown")


async def test_a_turn_that_goes_on_after_kill_9(home, diary, saw):
    await killed(home, diary, "app")
    async with open_agent(
        home=home, plugins=[RECORDER], model=walking.way("resumed"), person="once"
    ) as agent:
        async with agent.app.lobby.watch(agent.key) as envelopes:
            (home / "hold").unlink()
            async for envelope in envelopes:
                if isinstance(envelope.event, ApprovalAsked):
                    await agent.post(Answer(envelope.event.ask, "once", "person"))
                    break
        await diary.until("on_session_end")
        await leave(agent, diary)
    saw("app", "resumed")


async def killed(home, diary, surface, once="pre_api_request"):
    """A process with a turn that waits is ended by force; the diary begins anew.

    The turn goes on once the file `hold` is removed: somebody must be there who can be asked.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.compat.victim", surface, str(home), cwd=ROOT
    )
    try:
        await diary.until(once, seconds=30)
    finally:
        child.kill()
        await child.wait()
    diary.begin()
    (home / "hold").touch()
