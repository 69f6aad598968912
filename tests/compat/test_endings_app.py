"""Every hook on every path of a turn, in an app that a test opens: loaded as it would be by everyone."""

import asyncio
import sys
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.turns import AnswerApproval, ApprovalAsked
from alipes.testing import open_agent
from tests.compat import turn_scripts
from tests.compat.hook_log import PLUGINS
from tests.e2e.program import ROOT

pytestmark = pytest.mark.deadline(40)
RECORDER = PLUGINS / "recorder"
SETTINGS = {"timeout": {"silence": 2.0}, "superseded": {"terminal": {"busy": "interrupt"}}}
"""By ending, what it needs: a turn without activity for so many seconds, or a message that interrupts."""


@asynccontextmanager
async def walked(home, hook_log, ending):
    """A turn on the long way; stopped ones wait for it in their last tool."""
    known = {"home": home, "plugins": [RECORDER], "config": SETTINGS.get(ending)}
    async with open_agent(**known, model=turn_scripts.script_for(ending), person="once") as agent:
        running = await agent.start("go the long way")
        if ending not in ("answered", "failed"):
            await hook_log.until("tool ponder")
        yield agent, running


async def leave(agent, hook_log):
    """Begin a new conversation, and wait until it was sent."""
    await agent.command("/new")
    await hook_log.until("on_session_reset")


@pytest.mark.parametrize("ending", ["answered", "failed"])
async def test_a_turn_that_comes_to_its_end(home, hook_log, saw, ending):
    async with walked(home, hook_log, ending) as (agent, running):
        assert (await running).ending == ending
        await hook_log.until("on_session_end")
        await leave(agent, hook_log)
    saw("app", ending)


@pytest.mark.parametrize("ending", ["/stop", "ctrl-c", "timeout"])
async def test_a_turn_that_is_stopped(home, hook_log, saw, ending):
    async with walked(home, hook_log, ending) as (agent, running):
        if ending == "/stop":
            assert (await agent.command("/stop")).text == "Stopped."
        elif ending == "ctrl-c":
            await running.stop()
        assert (await running).ending == "stopped"
        assert (await agent.say("still there?")).text == "next"
        await leave(agent, hook_log)
    saw("app", ending)


async def test_a_turn_that_is_stopped_while_it_is_being_set_up(home, hook_log, saw):
    async with open_agent(home=home, plugins=[RECORDER], model=["next"]) as agent:
        (home / "hold").touch()
        running = await agent.start("go")
        await hook_log.until("being set up")
        await agent.command("/stop")
        assert (await running).ending == "stopped"
        (home / "hold").unlink()
        await leave(agent, hook_log)
    saw("app", "pending")


async def test_a_stop_that_comes_from_another_process(home, hook_log, saw):
    async with walked(home, hook_log, "handler") as (agent, running):
        async with open_agent(home=home, plugins=[RECORDER], model=[]) as other:
            assert (await other.command("/stop")).text == "Stopped."
            assert (await running).ending == "stopped"
        await leave(agent, hook_log)
    saw("app", "handler")


async def test_a_new_conversation_in_the_midst_of_a_turn(home, hook_log, saw):
    async with walked(home, hook_log, "/new") as (agent, running):
        await agent.command("/new")
        assert (await running).detail == "reset"
        await hook_log.until("on_session_reset")
    saw("app", "/new")


async def test_a_message_that_ends_the_turn_before_it(home, hook_log, saw):
    async with walked(home, hook_log, "superseded") as (agent, running):
        assert (await agent.say("something else")).text == "next"
        assert (await running).detail == "superseded"
        await leave(agent, hook_log)
    saw("app", "superseded")


async def test_the_end_of_the_process(home, hook_log, saw):
    async with walked(home, hook_log, "shutdown"):
        pass
    saw("app", "shutdown")


async def test_a_turn_that_resumes_after_kill_9(home, hook_log, saw):
    await killed(home, hook_log, "app")
    async with open_agent(
        home=home, plugins=[RECORDER], model=turn_scripts.script_for("resumed"), person="once"
    ) as agent:
        async with agent.app.sessions.watch(agent.key) as envelopes:
            (home / "hold").unlink()
            async for envelope in envelopes:
                if isinstance(envelope.event, ApprovalAsked):
                    await agent.post(AnswerApproval(envelope.event.ask, "once", "person"))
                    break
        await hook_log.until("on_session_end")
        await leave(agent, hook_log)
    saw("app", "resumed")


async def killed(home, hook_log, surface, once="pre_api_request"):
    """A process with a turn that waits is ended by force; the hook_log begins again.

    The turn continues once the file `hold` is removed: somebody must be there who can be asked.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.compat.killed_process", surface, str(home), cwd=ROOT
    )
    try:
        await hook_log.until(once, seconds=30)
    finally:
        child.kill()
        await child.wait()
    hook_log.begin()
    (home / "hold").touch()
