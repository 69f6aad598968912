"""A project folder, a home and its checkpoints, around the real hooks and the real git."""

import asyncio
import os
import subprocess
from typing import Any, cast

from msgspec import structs

from alipes.config.settings import CheckpointsConfig
from alipes.features.checkpoints.checkpoints import Checkpoints
from alipes.features.checkpoints.feature import CheckpointsFeature
from alipes.features.checkpoints.hooks import TurnCheckpoints
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Notice, Turn
from alipes.plugins.registry import Contributions
from alipes.tools.common import Places

WRITE = ToolCall("c1", "some_plugin_tool", {})


class CheckpointWorld:
    """Turns that change files by plain functions."""

    def __init__(self, tmp_path):
        """In a folder that may have one already, of another process."""
        self.home, self.project = tmp_path / "person", tmp_path / "person" / "project"
        self.alipes_home = self.home / ".alipes"
        self.project.mkdir(parents=True, exist_ok=True)
        self.places = Places(home=str(self.home), alipes_home=str(self.alipes_home))
        self.stores = self.alipes_home / "checkpoints"
        self._recorder, self._tasks, self.turns = NoticeRecorder(), StartedTasks(), 0
        self.notices = self._recorder.texts
        self.use(self.make_engine())

    def make_engine(self, config=None, **options):
        return Checkpoints(self.stores, config or CheckpointsConfig(), self.places, **options)

    def use(self, engine):
        self.engine = engine
        feature = CheckpointsFeature(cast(Any, None))
        feature.checkpoints = engine
        self.hooks = TurnCheckpoints(feature, Contributions(), self._recorder, self._tasks)

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

    async def run_turn(self, change, words="do it", *, call=WRITE, **options):
        """A turn that makes one call, which runs `change`."""
        turn = self.make_turn(words, **options)
        await self.call(change, turn, call)
        await self.end(turn)
        return turn

    async def call(self, change, turn, call=WRITE):
        async def go(_args):
            change()
            return "done"

        return await self.hooks.around_tool(go, call.args, call, turn)

    async def end(self, turn, ending="answered"):
        await self.hooks.turn_ended(turn, ending)
        await self.settle()

    async def settle(self):
        """Wait for the work after a turn."""
        await self._tasks.wait()

    async def listed(self):
        return await self.engine.list_checkpoints(str(self.project))

    async def numbers(self):
        return [each.checkpoint.number for each in await self.listed()]

    async def restore(self, number, **options):
        return await self.engine.restore(str(self.project), number, **options)

    def store_folder(self):
        return next(self.stores.iterdir())

    def git(self, *arguments, cwd=None):
        """git as a person runs it in the project."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        identity = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "init.defaultBranch=main")
        argv = ["git", *identity, *arguments]
        return subprocess.run(argv, cwd=cwd or self.project, env=env, capture_output=True, text=True, check=True).stdout

    def shadow_git(self, *arguments):
        """git in the store."""
        env = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.store_folder() / "git"), "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(["git", *arguments], env=env, capture_output=True, text=True, check=True).stdout


class NoticeRecorder:
    """The bus of a store that keeps the texts of notices."""

    def __init__(self):
        self.bus, self.texts = self, []

    def publish(self, envelope):
        if isinstance(envelope.event, Notice):
            self.texts.append(envelope.event.text)


class StartedTasks:
    """Background work that can be waited for."""

    def __init__(self):
        self._tasks = []

    def spawn(self, work, name):
        self._tasks.append(start_task(work(), name))
        return self._tasks[-1]

    async def wait(self):
        while self._tasks:
            await asyncio.wait([self._tasks.pop(0)])


def start_task(work, name):
    return asyncio.get_running_loop().create_task(work, name=name)
