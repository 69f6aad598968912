"""`/rollback` in the whole app: turns write files, the command lists, shows and restores."""

import asyncio
import os
import shutil
from contextlib import asynccontextmanager

import pytest

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Stop
from alipes.sessions.commands import registry as commands
from alipes.testing.scripted_provider import ScriptedProvider

pytestmark = [pytest.mark.deadline(60), pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
HERE = Address("cli", "rollback")


class Desk:
    def __init__(self, app, project, provider):
        self.app, self.project, self.provider, self.count = app, project, provider, 0

    def inbound(self, text, address=HERE):
        self.count += 1
        return Inbound(
            f"m{self.count}-{os.urandom(3).hex()}", address, "me", text, workdir=str(self.project), trusted=True
        )

    async def say(self, text, address=HERE):
        turn = await self.app.sessions.submit(self.inbound(text, address))
        async with self.app.sessions.follow(address.key, turn) as events:
            async for _ in events:
                pass
        await self.app.sessions.wait_idle()
        await self.settle()

    async def settle(self):
        while any(task.get_name().startswith("checkpoint") for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)

    async def type(self, text, address=HERE):
        return await commands.run(
            self.app.context(self.inbound(text, address)), commands.parse(text, self.app.contributions)
        )

    def read(self, name):
        file = self.project / name
        return file.read_text() if file.exists() else None


def write(path, content, number=1):
    return ToolCall(f"c{number}", "write_file", {"path": path, "content": content})


@asynccontextmanager
async def open_desk(tmp_path, *script, settings=""):
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (home / "config.toml").write_text(f'model = "scripted"\n{settings}\n')
    provider = ScriptedProvider(script)
    async with open_app(load_settings(home, {}), interactive=True, lent={"scripted": provider}) as app:
        yield Desk(app, project, provider)


def two_turns():
    return (write("a.txt", "one\n"), "done", write("a.txt", "two\n"), "done again")


async def test_checkpoints_are_listed_with_the_words_and_files_of_their_turns(tmp_path):
    async with open_desk(tmp_path, *two_turns()) as desk:
        assert (await desk.type("/rollback")).text.startswith("No checkpoints yet")
        await desk.say("write one")
        await desk.say("write two")
        lines = (await desk.type("/rollback")).text.split("\n")
    assert lines[0].endswith("before “write two”: a.txt") and lines[0].startswith("   2")
    assert lines[1].endswith("before “write one”: a.txt") and lines[1].startswith("   1")
    assert "/rollback diff N" in lines[2]


async def test_the_diff_since_a_checkpoint_is_shown(tmp_path):
    async with open_desk(tmp_path, *two_turns()) as desk:
        await desk.say("write one")
        await desk.say("write two")
        reply = await desk.type("/rollback diff 2")
        assert reply.diff and "-one\n+two" in reply.text
        await desk.type("/rollback 2")
        assert (await desk.type("/rollback diff 2")).text == "No changes since checkpoint 2."


async def test_files_are_restored_and_the_reply_says_how_to_undo_it(tmp_path):
    async with open_desk(tmp_path, *two_turns()) as desk:
        await desk.say("write one")
        await desk.say("write two")
        reply = await desk.type("/rollback 2")
        assert (reply.text, reply.failed) == ("Restored a.txt.\n/rollback 3 undoes this.", False)
        assert desk.read("a.txt") == "one\n"
        assert (await desk.type("/rollback 1 files")).text == "Removed a.txt.\n/rollback 4 undoes this."
        assert desk.read("a.txt") is None
        await desk.type("/rollback 3")
        assert desk.read("a.txt") == "two\n"
        assert (await desk.type("/rollback 3")).text == "The files are as they were at checkpoint 3."


async def test_conversation_and_files_go_back_together(tmp_path):
    async with open_desk(tmp_path, *two_turns(), "third answer") as desk:
        await desk.say("write one")
        await desk.say("write two")
        await desk.say("just talk")
        reply = await desk.type("/rollback 2 both")
        assert "2 turns of the conversation undone" in reply.text
        assert desk.read("a.txt") == "one\n"
        session = (await desk.app.store.sessions.active(HERE.key)).session
        said = [message.text for message in await desk.app.store.archive.messages(session) if message.text]
        assert "write one" in said and "write two" not in said and "just talk" not in said
        assert "Restored" in (await desk.type("/redo")).text


async def test_only_the_conversation_goes_back(tmp_path):
    async with open_desk(tmp_path, *two_turns()) as desk:
        await desk.say("write one")
        await desk.say("write two")
        assert (await desk.type("/rollback 2 conversation")).text.startswith("1 turn of the conversation undone")
        assert desk.read("a.txt") == "two\n"
        again = await desk.type("/rollback 2 both")
        assert again.failed and "not part of this conversation" in again.text


async def test_edits_by_hand_are_shown_and_need_force(tmp_path):
    async with open_desk(tmp_path, *two_turns()) as desk:
        await desk.say("write one")
        await desk.say("write two")
        (desk.project / "a.txt").write_text("mine\n")
        refused = await desk.type("/rollback 2 both")
        assert refused.failed and "  a.txt" in refused.text and "/rollback 2 both --force" in refused.text
        assert desk.read("a.txt") == "mine\n"
        forced = await desk.type("/rollback 2 both --force")
        assert not forced.failed and desk.read("a.txt") == "one\n"


async def test_another_conversation_is_marked_and_its_changes_need_force(tmp_path):
    other = Address("cli", "other")
    async with open_desk(tmp_path, *two_turns()) as desk:
        await desk.say("write one")
        await desk.say("write two", other)
        assert "(another conversation)" in (await desk.type("/rollback")).text.split("\n")[0]
        assert (await desk.type("/rollback 1")).failed
        assert desk.read("a.txt") == "two\n"


async def test_nothing_is_restored_while_a_turn_runs(tmp_path):
    hold = asyncio.Event()
    async with open_desk(tmp_path, write("a.txt", "one\n"), "done", hold, "late") as desk:
        await desk.say("write one")
        turn = await desk.app.sessions.submit(desk.inbound("wait"))
        reply = await desk.type("/rollback 1")
        assert reply.failed and "Stop it first" in reply.text
        await desk.app.sessions.stop(HERE.key, Stop("user_stop", "stop_command", turn))
        await desk.app.sessions.wait_idle()
        assert not (await desk.type("/rollback 1")).failed


@pytest.mark.parametrize("args", ["x", "1 nothing", "diff", "1 files both", "0"])
async def test_wrong_arguments_are_answered_with_the_usage(tmp_path, args):
    async with open_desk(tmp_path) as desk:
        reply = await desk.type(f"/rollback {args}")
    assert reply.failed and reply.text.startswith("Usage: /rollback")


async def test_an_unknown_number_is_named(tmp_path):
    async with open_desk(tmp_path) as desk:
        reply = await desk.type("/rollback 7")
    assert reply.failed and "There is no checkpoint 7." in reply.text


async def test_switched_off_it_says_why(tmp_path):
    async with open_desk(tmp_path, write("a.txt", "x"), "done", settings="[checkpoints]\nenabled = false") as desk:
        await desk.say("write")
        reply = await desk.type("/rollback")
        assert reply.failed and "checkpoints.enabled" in reply.text
        assert not (desk.app.settings.home / "checkpoints").exists()


async def test_a_denied_call_makes_no_checkpoint(tmp_path):
    settings = '[approvals]\nmode = "plan"'
    async with open_desk(tmp_path, write("a.txt", "x"), "done", "plan", settings=settings) as desk:
        turn = await desk.app.sessions.submit(Inbound("p1", HERE, "me", "write", workdir=str(desk.project)))
        async with desk.app.sessions.follow(HERE.key, turn) as events:
            async for event in events:
                if type(event).__name__ == "ToolFinished":
                    assert event.result.outcome == "denied"
                    break
        assert not (desk.app.settings.home / "checkpoints").exists()
        await desk.app.sessions.stop(HERE.key, Stop("user_stop", "stop_command", turn))
        await desk.app.sessions.wait_idle()
