"""A project folder, a home and the checkpoints of it, for tests."""

import os
import subprocess
import time

from msgspec import structs

from alipes.config.settings import CheckpointsConfig
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.tools.checkpoints.checkpoints import Checkpoints
from alipes.tools.common import Places

WRITE = ToolCall("c1", "write_file", {"path": "a.txt", "content": "x"})


class CheckpointWorld:
    """Turns that change files by plain functions, around the real hooks and the real git."""

    def __init__(self, tmp_path):
        self.home, self.project = tmp_path / "person", tmp_path / "person" / "project"
        self.alipes_home = self.home / ".alipes"
        self.project.mkdir(parents=True)
        self.alipes_home.mkdir(exist_ok=True)
        self.tmp_path = tmp_path
        self.places = Places(home=str(self.home), alipes_home=str(self.alipes_home))
        self.stores = self.alipes_home / "checkpoints"
        self.reports = []
        self.checkpoints = self.open()
        self.turns = 0

    def open(self, config=None, *, tasks=None, guard=None, **options):
        made = Checkpoints(
            self.stores, config or CheckpointsConfig(), self.places, guard=guard, tasks=tasks or Immediate(), **options
        )
        made.report = lambda _turn, text: self.reports.append(text)
        return made

    def write(self, path, text):
        """A change by hand."""
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def read(self, path):
        file = self.project / path
        return file.read_text() if file.exists() else None

    def make_turn(self, words="do it", *, session="s1", workdir=None, **changes):
        self.turns += 1
        inbound = Inbound(f"m{self.turns}", Address("cli", "x"), "me", words, workdir=str(workdir or self.project))
        return structs.replace(Turn(f"t{self.turns}", session, inbound), **changes)

    async def run_turn(self, change, words="do it", *, session="s1", call=WRITE, **options):
        """A turn that makes one call, which runs `change`."""
        turn = self.make_turn(words, session=session, **options)
        await self.call(change, turn, call)
        await self.end(turn)
        return turn

    async def call(self, change, turn, call=WRITE):
        async def go(_args):
            change()
            return "done"

        return await self.checkpoints.around_tool(go, call.args, call, turn)

    async def end(self, turn, ending="answered"):
        await self.checkpoints.turn_ended(turn, ending)
        await self.settle()

    async def settle(self):
        await self.checkpoints._tasks.wait()

    async def listed(self):
        return await self.checkpoints.list_checkpoints(str(self.project))

    async def restore(self, number, **options):
        return await self.checkpoints.restore(str(self.project), number, **options)

    def store(self):
        return next(self.stores.iterdir())

    def git(self, *arguments, cwd=None, check=True):
        """git as a person runs it in the project."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        identity = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "init.defaultBranch=main")
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=cwd or self.project,
            env=env,
            capture_output=True,
            text=True,
            check=check,
        )
        return done.stdout

    def age(self):
        """Wait until files that are written now are newer than the last checkpoint."""
        time.sleep(0)


class Immediate:
    """Runs background work when it is waited for."""

    def __init__(self):
        self.tasks = []

    def spawn(self, work, name):
        import asyncio

        task = asyncio.get_running_loop().create_task(work(), name=name)
        self.tasks.append(task)
        return task

    async def wait(self):
        while self.tasks:
            await self.tasks.pop(0)


__all__ = ["WRITE", "CheckpointWorld", "Immediate", "open_orphan_guard"]
