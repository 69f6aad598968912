"""Checkpoints of the real program: after kill -9, in a chat, and in `doctor`."""

import asyncio
import shutil

import pytest

from alipes.config.settings import CheckpointsConfig
from alipes.features.checkpoints.checkpoints import Checkpoints
from alipes.tools.common import Places
from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import write_home
from tests.world.environment import program_path
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.telegram_server import TelegramServer

pytestmark = [pytest.mark.deadline(90), pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "person" / ".alipes")


@pytest.fixture
def project(home):
    folder = home.path.parent / "project"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    return folder


def open_checkpoints(home):
    places = Places(home=str(home.path.parent), alipes_home=str(home.path))
    return Checkpoints(home.path / "checkpoints", CheckpointsConfig(), places)


async def test_after_kill_9_in_the_middle_of_a_turn_the_files_can_be_restored(home, project):
    command = f"echo two > {project}/a.txt; sleep 1000"
    async with ModelServer([Call("terminal", {"command": command}), Say("Resumed.")]) as server:
        home.use(server, workdir=str(project))
        async with home.started("ask", "--yes", "change it") as process:
            while (project / "a.txt").read_text() != "two\n":
                assert process.returncode is None
                await asyncio.sleep(0.02)
            process.kill()
            await process.wait()
    engine = open_checkpoints(home)
    (listed,) = await engine.list_checkpoints(str(project))
    assert (listed.checkpoint.record.words, listed.files) == ("change it", ("a.txt",))
    await engine.restore(str(project), listed.checkpoint.number)
    assert (project / "a.txt").read_text() == "one\n"


async def test_a_turn_of_ask_records_its_end_before_the_program_exits(home, project):
    call = Call("write_file", {"path": "a.txt", "content": "two\n"})
    async with ModelServer([call, Say("Done.")]) as server:
        home.use(server, workdir=str(project))
        done = await home.run("ask", "--yes", "change it")
        assert done.status == 0, done.err
        report = (await home.run("doctor")).out
    (listed,) = await open_checkpoints(home).list_checkpoints(str(project))
    assert listed.checkpoint.after
    assert "1 checkpoint of 1 folder" in report


async def test_an_owner_goes_back_in_a_chat(home, project):
    def reply(body):
        changed = body["messages"][-1]["role"] == "tool" or not body.get("tools")
        return Say("Changed.") if changed else Calls((Call("write_file", {"path": "a.txt", "content": "two\n"}),))

    async with ModelServer(reply) as model, TelegramServer() as telegram:
        write_home(home, model, telegram, lines=(f'workdir = "{project}"',), owners=f"[{OWNER}]")
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("change it", chat=OWNER)
            await telegram.shows(OWNER, "Changed.")
            assert (project / "a.txt").read_text() == "two\n"
            telegram.chats.say("/rollback", chat=OWNER)
            await telegram.shows(OWNER, "before “change it”")
            telegram.chats.say("/rollback 1", chat=OWNER)
            await telegram.shows(OWNER, "Restored")
            assert (project / "a.txt").read_text() == "one\n"
            assert await served.left() == 0


async def test_doctor_says_that_git_is_missing(home, project, leaks):
    with leaks.ignore_opened():
        program_path()
    report = (await home.run("doctor", programs=())).out
    assert "checkpoints" in report
    assert "off: git is not installed" in report
