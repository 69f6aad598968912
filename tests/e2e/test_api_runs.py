"""Runs over HTTP against the real `alipes serve`: kill, shutdown, and clients that reconnect."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.program import Home
from tests.e2e.service import ServeProcess, open_serve, write_settings
from tests.world.api_harness import ApiClient
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Reply, Say, Stall

pytestmark = pytest.mark.deadline(60)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


class Script:
    """Answers in order; auxiliary requests, such as for a title, get a fixed answer."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    def __call__(self, body: dict[str, Any]) -> Reply:
        return self._replies.pop(0) if body.get("tools") else Say("A title")


@asynccontextmanager
async def calling(home: Home) -> AsyncIterator[tuple[ServeProcess, ApiClient]]:
    """The service, and an API client with the operator's key."""
    (home.path / ".env").write_text("ALIPES_API_KEY=key-ann-0123456789abcdef\n")
    (home.path / ".env").chmod(0o600)
    async with open_serve(home) as served:
        async with httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=LIMIT_S) as client:
            yield served, ApiClient(client)


async def test_a_listener_reconnects_after_kill_9_and_gets_no_message_twice(home: Home):
    act = Calls((Call("terminal", {"command": "echo done >> acts"}),))
    async with ModelServer(Script(act, Stall("Half an"), Say("A whole answer."))) as model:
        write_settings(home, model)
        async with calling(home) as (served, front):
            run = await front.begin("go", session="s")
            async with front.listening(run) as listener:
                last = await listener.until("text_delta")
                served.process.kill()
                await served.process.wait()
                with pytest.raises(httpx2.TransportError):
                    await listener.rest()
        async with calling(home) as (served, front):
            async with front.listening(run, last.id) as listener:
                rest = await listener.rest()
            said = [each for each in rest if each.name == "said"]
            assert [(each.id, each.text) for each in said] == [("4", "A whole answer.")]
            assert rest[-1].name == "turn_ended"
            run_state = await front.look(run)
            assert (run_state["status"], run_state["attempts"]) == ("answered", 2)
            assert (await front.ask("GET", f"/runs/{run}/events", last_event_id="end")).status_code == 204
            again = await front.ask("GET", "/sessions/s/messages")
            assert len(again.json()["messages"]) == 4
    assert Path(home.path.parent, "acts").read_text() == "done\n", "what was done is not done again"


async def test_shutdown_disconnects_listeners_and_does_not_wait_for_them(home: Home):
    async with ModelServer(Script(Stall("Half"), Say("Whole."))) as model:
        write_settings(home, model, **{"serve.drain": 0})
        async with calling(home) as (served, front):
            run = await front.begin("go")
            async with front.listening(run) as listener:
                last = await listener.until("text_delta")
                served.process.send_signal(signal.SIGTERM)
                await listener.rest()  # to a clean end
            assert await served.left(by=None) == 0
            assert served.process.stderr is not None
            assert b"Traceback" not in await served.process.stderr.read()
        async with calling(home) as (served, front):
            async with front.listening(run, last.id) as listener:
                assert (await listener.rest())[-1].data["ending"] == "answered"


async def test_a_stop_kills_a_command_and_its_children(home: Home):
    act = Calls((Call("terminal", {"command": "echo begun; sleep 1000"}),))
    async with ModelServer(Script(act)) as model:
        write_settings(home, model)
        async with calling(home) as (_served, front):
            run = await front.begin("go")
            async with front.listening(run) as listener:
                await listener.until("tool_started")
                assert (await front.ask("POST", f"/runs/{run}/stop")).status_code == 202
                async with asyncio.timeout(LIMIT_S):
                    ended = (await listener.rest())[-1]
            assert (ended.name, ended.data["ending"]) == ("turn_ended", "stopped")
