"""/jobs: background processes and subagents of a conversation."""

from contextlib import asynccontextmanager

import pytest

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.kernel.turns import Address, Inbound
from alipes.runtime.sandbox.backend import CommandScope
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.context import FollowJob
from alipes.sessions.commands.jobs import count_jobs
from alipes.testing.scripted_provider import ScriptedProvider

HERE = Address("test", "me")


class Desk:
    """A conversation with commands, and processes that its model started."""

    def __init__(self, app, session):
        self.app, self.session, self.count = app, session, 0

    def context(self, text, *, local_files=True):
        self.count += 1
        return self.app.context(Inbound(f"m{self.count}", HERE, "me", text), local_files=local_files)

    async def type(self, text, *, local_files=True):
        parsed = commands.parse(text, self.app.contributions)
        return await commands.run(self.context(text, local_files=local_files), parsed)

    async def start(self, command):
        scope = CommandScope(self.session)
        return await self.app.background.start(scope, command, cwd="/", env={"PATH": "/usr/bin:/bin"})


@asynccontextmanager
async def open_desk(home):
    (home / "config.toml").write_text('model = "scripted"\n')
    async with open_app(load_settings(home, {}), interactive=True, lent={"scripted": ScriptedProvider()}) as app:
        standing = await app.store.sessions.open(HERE)
        yield Desk(app, standing.session)


async def test_without_jobs_it_says_so(tmp_path):
    async with open_desk(tmp_path) as desk:
        assert (await desk.type("/jobs")).text == "No background jobs."
        assert (await desk.type("/jobs stop all")).text == "No background jobs."
        missing = await desk.type("/jobs p1")
        assert missing.failed and missing.text == "No background job matches “p1”. /jobs lists them."


async def test_jobs_are_listed_shown_and_stopped(tmp_path):
    async with open_desk(tmp_path) as desk:
        await desk.start("echo up; sleep 1000")
        await desk.start("echo over")
        listed = (await desk.type("/jobs")).text.split("\n")
        assert listed[0].startswith("p1  echo up; sleep 1000  running (")
        assert listed[1].startswith("p2  echo over  ended after 0 s: exit code 0")
        assert await count_jobs(desk.context("")) == 1
        shown = (await desk.type("/jobs P1")).text
        assert shown.startswith("p1 (echo up; sleep 1000) is running") and shown.endswith("\nup")
        assert (await desk.type("/jobs stop p1")).text == "Stopped p1 (echo up; sleep 1000)."
        assert await count_jobs(desk.context("")) == 0
        assert "ended after" in (await desk.type("/jobs stop p1")).text


async def test_all_jobs_are_stopped_at_once(tmp_path):
    async with open_desk(tmp_path) as desk:
        for _ in range(2):
            await desk.start("sleep 1000")
        assert (await desk.type("/jobs stop all")).text == "Stopped p1 (sleep 1000) and p2 (sleep 1000)."


async def test_a_process_is_followed_at_a_terminal_and_shown_in_a_chat(tmp_path):
    async with open_desk(tmp_path) as desk:
        await desk.start("echo up; sleep 1000")
        reply = await desk.type("/jobs follow p1")
        assert reply.action == FollowJob(desk.session, "p1") and reply.text.startswith("Following p1")
        assert (await desk.type("/jobs follow")).action == FollowJob("", "")
        chat = await desk.type("/jobs follow p1", local_files=False)
        assert chat.action is None and chat.text.endswith("\nup")


async def test_the_processes_of_other_conversations_are_not_seen(tmp_path):
    async with open_desk(tmp_path) as desk:
        other = Desk(desk.app, "another session")
        await other.start("sleep 1000")
        assert (await desk.type("/jobs")).text == "No background jobs."
        assert (await desk.type("/jobs stop p1")).failed


@pytest.mark.parametrize("text", ["/jobs stop", "/jobs stop a b", "/jobs a b"])
async def test_wrong_usage_is_explained(tmp_path, text):
    async with open_desk(tmp_path) as desk:
        reply = await desk.type(text)
        assert reply.failed and reply.text.startswith("Usage: /jobs")
