"""Checkpoints over HTTP: listed, compared, restored, and only those of the caller's conversation."""

import shutil
from contextlib import asynccontextmanager

import pytest

from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import ToolSpec
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.api_harness import open_api
from tests.world.checkpoints import CheckpointWorld

pytestmark = [pytest.mark.deadline(60), pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]


class Write:
    spec = ToolSpec("write", "Write a file.", {"type": "object", "properties": {"text": {"type": "string"}}})

    def __init__(self, world):
        self._world = world

    async def run(self, args, act):
        self._world.write("a.txt", args["text"])
        return "written"


@asynccontextmanager
async def open_world(tmp_path):
    world, hooks = CheckpointWorld(tmp_path), Hooks()
    script = [line for n in (1, 2) for line in (ToolCall(f"c{n}", "write", {"text": f"{n}\n"}), "done")]
    hooks.add(CORE, world.hooks.around_tool, patient=True)
    hooks.add(CORE, world.hooks.turn_ended)
    async with open_api(
        tmp_path / "store",
        ScriptedProvider(script),
        Write(world),
        hooks=hooks,
        checkpoints=world.engine,
        workdir=str(world.project),
    ) as api:
        for text in ("write one", "write two"):
            await api.finish(await api.begin(text, session="work"))
            await world.settle()
        yield world, api


async def test_the_checkpoints_of_a_conversation_are_listed(tmp_path):
    async with open_world(tmp_path) as (_, api):
        found = (await api.ask("GET", "/sessions/work/checkpoints")).json()
    assert [(each["number"], each["text"], each["files"]) for each in found["checkpoints"]] == [
        (2, "write two", ["a.txt"]),
        (1, "write one", ["a.txt"]),
    ]
    assert found["unavailable"] == ""


async def test_the_diff_since_a_checkpoint_is_text(tmp_path):
    async with open_world(tmp_path) as (_, api):
        answer = await api.ask("GET", "/sessions/work/checkpoints/diff?checkpoint=2")
    assert answer.headers["content-type"].startswith("text/x-diff")
    assert "-1\n+2\n" in answer.text


async def test_files_and_conversation_go_back(tmp_path):
    async with open_world(tmp_path) as (world, api):
        answer = await api.ask("POST", "/sessions/work/rollback", {"checkpoint": 2, "restore": "both"})
        assert answer.json() == {
            "restored": ["a.txt"],
            "removed": [],
            "kept": [],
            "failed": [],
            "undo": 3,
            "undone_runs": 1,
        }
        assert world.read("a.txt") == "1\n"
        messages = (await api.ask("GET", "/sessions/work/messages")).json()["messages"]
        assert "write two" not in str(messages)


async def test_conflicts_are_refused_without_force(tmp_path):
    async with open_world(tmp_path) as (world, api):
        world.write("a.txt", "mine")
        refused = await api.ask("POST", "/sessions/work/rollback", {"checkpoint": 1})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "a.txt" in refused.json()["detail"]
        forced = await api.ask("POST", "/sessions/work/rollback", {"checkpoint": 1, "force": True})
        assert forced.json()["removed"] == ["a.txt"]


async def test_checkpoints_of_others_cannot_be_seen_or_restored(tmp_path):
    async with open_world(tmp_path) as (world, api):
        await api.ask("POST", "/sessions", {"name": "other"})
        assert (await api.ask("GET", "/sessions/other/checkpoints")).json()["checkpoints"] == []
        for number in (1, 99):
            answer = await api.ask("POST", "/sessions/other/rollback", {"checkpoint": number})
            assert (answer.status_code, answer.json()["code"]) == (404, "no_checkpoint")
        assert (await api.ask("GET", "/sessions/work/checkpoints", by="bob")).status_code == 404
        assert world.read("a.txt") == "2\n"
