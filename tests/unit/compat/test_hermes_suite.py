"""The pytest plugin for the suites of Hermes plugins: a suite as authors write them, in its own process."""

import subprocess
import sys
from pathlib import Path

import pytest

from alipes.testing.hermes_suite import SuiteBridge
from tests.world.environment import environment

PLUGIN = """
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult
from hermes_constants import get_hermes_home
from tools.registry import registry

class Pigeon(BasePlatformAdapter):
    def __init__(self, config):
        super().__init__(config, Platform("pigeon"))
    async def connect(self, *, is_reconnect=False):
        self._mark_connected()
        return True
    async def disconnect(self):
        self._mark_disconnected()
    async def send(self, chat_id, content, reply_to=None, metadata=None):
        return SendResult(True, "1")
    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}

def notes():
    return get_hermes_home() / "notes.txt"

def register(ctx):
    ctx.register_tool("coo", "birds", {"description": "d", "parameters": {}}, lambda args: "coo")
    ctx.register_hook("post_tool_call", lambda **more: None)
    ctx.register_command("fly", lambda raw: "gone")
    ctx.register_platform("pigeon", "Pigeon", Pigeon, lambda: True)

def register_late():
    registry.register("peck", "birds", {"description": "d"}, lambda args: "peck")
"""
CONFTEST = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parents[1]))
import gateway.platforms.base  # conftest files import the modules as well
"""
SUITE = """
from unittest.mock import MagicMock

import pytest

import pigeon
from alipes.testing.hermes_suite import hosted
from gateway.config import PlatformConfig
from gateway.platforms.base import MessageEvent

def test_register_with_a_mock():
    ctx = MagicMock()
    pigeon.register(ctx)
    assert ctx.register_platform.call_args.args[0] == "pigeon"

def test_register_with_the_real_context(hermes_door):
    pigeon.register(hermes_door.ctx)
    pigeon.register_late()
    assert set(hermes_door.tools) == {"coo", "peck"} and hermes_door.hooks == ("post_tool_call",)
    assert hermes_door.commands == ("fly",) and [*hermes_door.platforms] == ["pigeon"]
    assert "platform:pigeon" in hermes_door.providers

def test_each_test_starts_without_registrations(hermes_door):
    assert hermes_door.tools == {} and hermes_door.hooks == ()

def test_the_home_is_the_one_of_the_test(tmp_path, monkeypatch):
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    assert pigeon.notes() == tmp_path / "notes.txt"

@pytest.mark.asyncio
async def test_an_adapter():
    adapter = pigeon.Pigeon(PlatformConfig(enabled=True))
    async with hosted(adapter) as events:
        source = adapter.build_source("7", user_id="7")
        await adapter.handle_message(MessageEvent(text="hello", source=source))
    assert [event.text for event in events] == ["hello"] and not adapter.is_connected
"""


def test_a_suite_runs_against_the_modules_of_alipes(tmp_path):
    (tmp_path / "pigeon.py").write_text(PLUGIN)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests" / "test_pigeon.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "alipes.testing.hermes_suite", "-p", "no:cacheprovider"]
    more = {"PYTHONPATH": str(Path(__file__).parents[3] / "src"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "tests"],
        cwd=tmp_path,
        env=environment(tmp_path) | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "5 passed" in done.stdout, done.stdout + done.stderr
    assert not [*tmp_path.glob("alipes-hermes-suite-*")], "its home is removed"


def test_work_in_the_background_is_refused_by_name(tmp_path):
    async def work() -> None: ...

    with pytest.raises(RuntimeError, match="polling was not started"):
        SuiteBridge(tmp_path).suite_context.run(work(), "polling")
