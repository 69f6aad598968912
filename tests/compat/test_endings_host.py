"""Every hook on every path of a turn, from a chat that a platform adapter of the oldest style serves."""

from contextlib import asynccontextmanager

import pytest

from alipes.gateway.policy import PlatformPolicy
from alipes.kernel.turns import Address
from alipes.testing import open_agent
from tests.compat import turn_scripts
from tests.compat.chat_harness import KEY, open_chat
from tests.compat.hook_log import PLUGINS
from tests.compat.test_endings_app import SETTINGS, killed

pytestmark = pytest.mark.deadline(40)


async def allow(chat):
    """Give the word that the chat is asked for."""
    await chat.until("Answer _yes_")
    await chat.say("/approve")


async def leave(chat, hook_log):
    await chat.say("/new")
    await hook_log.until("on_session_reset")


@asynccontextmanager
async def walked(home, hook_log, ending):
    busy = "interrupt" if ending == "superseded" else None
    manners = PlatformPolicy(allow=("7",), progress="off", busy=busy)
    script = turn_scripts.script_for(ending)
    async with open_chat(home, script, config=SETTINGS.get(ending), manners=manners) as chat:
        await chat.say("go the long way")
        await allow(chat)
        if ending not in ("answered", "failed"):
            await hook_log.until("tool ponder")
        yield chat


@pytest.mark.parametrize(("ending", "seen"), [("answered", "all done"), ("failed", "It failed: the budget is empty")])
async def test_a_turn_that_comes_to_its_end(home, hook_log, saw, ending, seen):
    async with walked(home, hook_log, ending) as chat:
        await chat.until(seen)
        await hook_log.until("on_session_end")
        await leave(chat, hook_log)
    saw("host", ending)


@pytest.mark.parametrize("ending", ["/stop", "ctrl-c", "timeout"])
async def test_a_turn_that_is_stopped(home, hook_log, saw, ending):
    async with walked(home, hook_log, ending) as chat:
        if ending == "/stop":
            await chat.say("/stop")
            await chat.until("Stopped.")
        elif ending == "ctrl-c":  # a platform has a button in its place
            await chat.adapter.cancel_session_processing(KEY)
        await hook_log.until("on_session_end")
        await chat.until(lambda: "end False" in chat.adapter.happened)
        await chat.say("still there?")
        await chat.until("next")
        await leave(chat, hook_log)
    saw("host", ending)


async def test_a_turn_that_is_stopped_while_it_is_being_set_up(home, hook_log, saw):
    async with open_chat(home, ["next"]) as chat:
        (home / "hold").touch()
        await chat.say("go")
        await hook_log.until("being set up")
        await chat.say("/stop")
        await hook_log.until("on_session_end")
        (home / "hold").unlink()
        await leave(chat, hook_log)
    saw("host", "pending")


async def test_a_stop_that_comes_from_another_process(home, hook_log, saw):
    async with walked(home, hook_log, "handler") as chat:
        async with open_agent(home=home, plugins=[PLUGINS / "recorder"], model=[]) as other:
            other.address = Address("oldchat", "42")
            assert (await other.command("/stop")).text == "Stopped."
            await hook_log.until("on_session_end")
        await leave(chat, hook_log)
    saw("host", "handler")


async def test_a_new_conversation_in_the_midst_of_a_turn(home, hook_log, saw):
    async with walked(home, hook_log, "/new") as chat:
        await leave(chat, hook_log)
    saw("host", "/new")


async def test_a_message_that_ends_the_turn_before_it(home, hook_log, saw):
    async with walked(home, hook_log, "superseded") as chat:
        await chat.say("something else")
        await chat.until("next")
        await leave(chat, hook_log)
    saw("host", "superseded")


async def test_the_end_of_the_process(home, hook_log, saw):
    async with walked(home, hook_log, "shutdown"):
        pass
    saw("host", "shutdown")


async def test_a_turn_that_resumes_after_kill_9(home, hook_log, saw):
    await killed(home, hook_log, "host")
    async with open_chat(home, turn_scripts.script_for("resumed")) as chat:
        (home / "hold").unlink()
        await allow(chat)
        await chat.until("all done")
        await hook_log.until("on_session_end")
        await leave(chat, hook_log)
    saw("host", "resumed")
