"""Every hook on every path of a turn, from a real terminal: the program in a pty, a model server over sockets."""

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest

from tests.compat.diary import PLUGINS
from tests.compat.walking import DANGEROUS
from tests.e2e.program import Home
from tests.world.glass import CTRL_C, CTRL_D, ENTER, Glass
from tests.world.model_server import Call, Calls, Fail, ModelServer, Say, Stall

pytestmark = pytest.mark.deadline(90)
PAUSE = 0.7
"""Longer than the quiet that a question wants before a key answers it."""


def calls(name, /, **args):
    return Calls((Call(name, args),))


def way(ending):
    """What the model says on the long way to this end."""
    last = {"answered": Say("all done"), "resumed": Say("all done"), "failed": Fail(401, "who are you?")}
    return [
        Fail(503, "one moment", retry_after=0.01),
        calls("delegate_task", goal="look around"),
        Say("I looked around"),
        calls("greet", name="Ada"),
        calls("terminal", command=DANGEROUS),
        calls("write_file", path="note.py", content="answer = 42\n"),
        Say("done, I think"),
        last.get(ending) or calls("ponder"),
    ]


class Desk:
    """Someone at a terminal whose model follows the long way, once for each message."""

    def __init__(self, home, server, diary):
        self.home, self.server, self.diary = Home(home), server, diary
        self.glass = None

    @asynccontextmanager
    async def at(self, *words):
        async with Glass.of(self.home, "--session", "long", *words, size=(100, 40)) as self.glass:
            await self.glass.until("test/scripted answers")
            yield self.glass

    async def walk(self, ending):
        """Say something, give the word that is asked for; return where the turn ends, or is to be ended."""
        self.server.script.extend(way(ending))
        self.glass.type("go the long way" + ENTER)
        await self.allow()
        if ending not in ("answered", "failed"):
            await self.diary.until("tool ponder")

    async def allow(self):
        await self.diary.until("pre_approval_request")
        await self.glass.until("waiting for your word")
        await asyncio.sleep(PAUSE)
        self.glass.type("o")

    async def leave(self):
        await self.diary.until("on_session_end")
        self.glass.type("/new" + ENTER)
        await self.diary.until("on_session_reset")


@asynccontextmanager
async def open_desk(home, diary, **settings):
    shutil.copytree(PLUGINS / "recorder", home / "plugins" / "recorder")
    async with ModelServer([]) as server:
        desk = Desk(home, server, diary)
        desk.home.use(server, **settings)
        with (home / "config.toml").open("a") as config:
            config.write('[plugins]\nenabled = ["recorder"]\n')
        yield desk


async def test_turns_that_end_and_turns_that_are_stopped(home, diary, saw):
    async with open_desk(home, diary) as desk, desk.at() as glass:
        for ending in ("answered", "failed", "/stop", "ctrl-c"):
            await desk.walk(ending)
            if ending == "/stop":
                glass.type("/stop" + ENTER)
            elif ending == "ctrl-c":
                glass.type(CTRL_C)
            await desk.leave()
            saw("terminal", ending)
            diary.begin()


async def test_turns_that_make_way_for_something_else(home, diary, saw):
    async with open_desk(home, diary) as desk:
        async with desk.at() as glass:
            await desk.walk("superseded")
            desk.server.script.append(Say("something else it is"))
            glass.type("something else" + ENTER)
            await glass.until("something else it is")
            await diary.until("on_session_end", 2)
            await desk.leave()
            saw("terminal", "superseded")
            diary.begin()
            await desk.walk("/new")
            glass.type("/new" + ENTER)
            await diary.until("on_session_reset")
            saw("terminal", "/new")
            diary.begin()
            await desk.walk("handler")
            async with Glass.of(desk.home, "--session", "long") as another:
                await another.until("test/scripted answers")
                another.type("/stop" + ENTER)
                await another.until("Stopping.")
                await diary.until("on_session_end")
            await desk.leave()
            saw("terminal", "handler")
            diary.begin()
            await desk.walk("shutdown")
            glass.type(CTRL_D)
            assert await glass.ended() == 0
        saw("terminal", "shutdown")


async def test_a_turn_that_is_being_set_up_and_one_that_goes_on_after_kill_9(home, diary, saw):
    async with open_desk(home, diary) as desk:
        async with desk.at() as glass:
            (home / "hold").touch()
            glass.type("go" + ENTER)
            await diary.until("being set up")
            glass.type("/stop" + ENTER)
            await diary.until("on_session_end")
            (home / "hold").unlink()
            await desk.leave()
            saw("terminal", "pending")
            desk.server.script.append(Stall(None))
            glass.type("go the long way" + ENTER)
            await desk.server.asked()
            glass.signal(9)
            await glass.ended()
        diary.begin()
        (home / "hold").touch()
        desk.server.script.extend(way("resumed"))
        async with desk.at():
            (home / "hold").unlink()
            await desk.allow()
            await desk.leave()
        saw("terminal", "resumed")


async def test_a_turn_in_which_nothing_happens_for_long(home, diary, saw):
    async with open_desk(home, diary, silence=2.5) as desk, desk.at():
        await desk.walk("timeout")
        await desk.leave()
        saw("terminal", "timeout")
