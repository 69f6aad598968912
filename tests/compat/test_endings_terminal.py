"""Every hook on every path of a turn, from a real terminal: the program in a pty, a model server over sockets."""

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest

from tests.compat.hook_log import PLUGINS
from tests.compat.turn_scripts import DANGEROUS
from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, Fail, ModelServer, Say, Stall
from tests.world.terminal_process import CTRL_C, CTRL_D, ENTER, TerminalProcess

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

    def __init__(self, home, server, hook_log):
        self.home, self.server, self.hook_log = Home(home), server, hook_log
        self.terminal = None

    @asynccontextmanager
    async def at(self, *words):
        async with TerminalProcess.of(self.home, "--session", "long", *words, size=(100, 40)) as self.terminal:
            await self.terminal.until("Model: test/scripted")
            yield self.terminal

    async def walk(self, ending):
        """Say something, give the word that is asked for; return where the turn ends, or is to be ended."""
        self.server.script.extend(way(ending))
        self.terminal.type("go the long way" + ENTER)
        await self.allow()
        if ending not in ("answered", "failed"):
            await self.hook_log.until("tool ponder")

    async def allow(self):
        await self.hook_log.until("pre_approval_request")
        await self.terminal.until("waiting for approval")
        await asyncio.sleep(PAUSE)
        self.terminal.type("o")

    async def leave(self):
        await self.hook_log.until("on_session_end")
        self.terminal.type("/new" + ENTER)
        await self.hook_log.until("on_session_reset")


@asynccontextmanager
async def open_desk(home, hook_log, **settings):
    shutil.copytree(PLUGINS / "recorder", home / "plugins" / "recorder")
    async with ModelServer([]) as server:
        desk = Desk(home, server, hook_log)
        desk.home.use(server, **settings)
        with (home / "config.toml").open("a") as config:
            config.write('[plugins]\nenabled = ["recorder"]\n[terminal]\nbusy = "interrupt"\n')
        yield desk


async def test_turns_that_end_and_turns_that_are_stopped(home, hook_log, saw):
    async with open_desk(home, hook_log) as desk, desk.at() as terminal:
        for ending in ("answered", "failed", "/stop", "ctrl-c"):
            await desk.walk(ending)
            if ending == "/stop":
                terminal.type("/stop" + ENTER)
            elif ending == "ctrl-c":
                terminal.type(CTRL_C)
            await desk.leave()
            saw("terminal", ending)
            hook_log.begin()


async def test_turns_that_make_way_for_something_else(home, hook_log, saw):
    async with open_desk(home, hook_log) as desk:
        async with desk.at() as terminal:
            await desk.walk("superseded")
            desk.server.script.append(Say("something else it is"))
            terminal.type("something else" + ENTER)
            await terminal.until("something else it is")
            await hook_log.until("on_session_end", 2)
            await desk.leave()
            saw("terminal", "superseded")
            hook_log.begin()
            await desk.walk("/new")
            terminal.type("/new" + ENTER)
            await hook_log.until("on_session_reset")
            saw("terminal", "/new")
            hook_log.begin()
            await desk.walk("handler")
            async with TerminalProcess.of(desk.home, "--session", "long") as another:
                await another.until("Model: test/scripted")
                another.type("/stop" + ENTER)
                await another.until("Stopped.")
                await hook_log.until("on_session_end")
            await desk.leave()
            saw("terminal", "handler")
            hook_log.begin()
            await desk.walk("shutdown")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
        saw("terminal", "shutdown")


async def test_a_turn_that_is_being_set_up_and_one_that_resumes_after_kill_9(home, hook_log, saw):
    async with open_desk(home, hook_log) as desk:
        async with desk.at() as terminal:
            (home / "hold").touch()
            terminal.type("go" + ENTER)
            await hook_log.until("being set up")
            terminal.type("/stop" + ENTER)
            await hook_log.until("on_session_end")
            (home / "hold").unlink()
            await desk.leave()
            saw("terminal", "pending")
            desk.server.script.append(Stall(None))
            terminal.type("go the long way" + ENTER)
            await desk.server.asked()
            terminal.signal(9)
            await terminal.ended()
        hook_log.begin()
        (home / "hold").touch()
        desk.server.script.extend(way("resumed"))
        async with desk.at():
            (home / "hold").unlink()
            await desk.allow()
            await desk.leave()
        saw("terminal", "resumed")


async def test_a_turn_in_which_nothing_happens_for_long(home, hook_log, saw):
    async with open_desk(home, hook_log, silence=2.5) as desk, desk.at():
        await desk.walk("timeout")
        await desk.leave()
        saw("terminal", "timeout")
