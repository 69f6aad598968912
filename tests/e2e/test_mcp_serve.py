"""`alipes mcp serve`, and `/mcp` of `alipes serve`, driven by the client of the official SDK and by raw messages."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.program import Home
from tests.e2e.service import ServeProcess, open_serve
from tests.e2e.test_caller import run_as_agent
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall

pytestmark = pytest.mark.deadline(120)
MODES = ("2026-07-28", "legacy")
"""Without a handshake, and with one."""
PUSH = Calls((Call("terminal", {"command": "git push --force 2>/dev/null; touch pushed"}),))
KEY = "key-ann-0123456789abcdef"
TOOLS = {"ask", "follow", "read", "stop", "approve", "reply", "search", "conversations", "send"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@asynccontextmanager
async def over_stdio(home: Home, mode: str = "auto") -> AsyncIterator[Client]:
    words = ["-m", "alipes", "mcp", "serve"]
    command = StdioServerParameters(command=sys.executable, args=words, env=home.environ(), cwd=home.path.parent)
    with open(home.path.parent / "stderr", "a+") as errors:
        async with Client(stdio_client(command, errlog=errors), mode=mode) as client:
            yield client
        errors.seek(0)
        assert "Traceback" not in errors.read()


@asynccontextmanager
async def over_http(served: ServeProcess, mode: str = "auto", key: str = KEY) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=LIMIT_S) as http:
        async with Client(streamable_http_client(f"{served.address}/mcp", http_client=http), mode=mode) as client:
            yield client


@asynccontextmanager
async def serving(home: Home) -> AsyncIterator[ServeProcess]:
    (home.path / ".env").write_text(f"ALIPES_API_KEY={KEY}\n")
    (home.path / ".env").chmod(0o600)
    async with open_serve(home) as served:
        yield served


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


async def test_the_client_of_the_sdk_asks_approves_replies_and_cancels_over_stdio(home: Home):
    reported: list[str] = []

    async def note(_progress: float, _total: float | None, message: str | None) -> None:
        reported.append(message or "")

    asks = Calls((Call("clarify", {"question": "Which colour?", "choices": ["red", "blue"]}),))
    async with ModelServer((PUSH, Say("So be it."), asks, Say("Blue it is."), Stall("Once upon"))) as model:
        home.use(model)
        async with over_stdio(home) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            waiting = await client.call_tool("ask", {"prompt": "push it"}, progress_callback=note)
            data = waiting.structured_content
            assert data["status"] == "waiting" and "git push --force" in text_of(waiting)
            assert reported and not (home.path.parent / "pushed").exists()
            chosen = {"conversation": data["conversation"]}
            await client.call_tool("approve", {**chosen, "choice": "once"})
            answer = await client.call_tool("follow", chosen)
            assert text_of(answer) == "So be it." and (home.path.parent / "pushed").exists()
            waiting = await client.call_tool("ask", {"prompt": "paint it", **chosen})
            assert waiting.structured_content["questions"][0]["kind"] == "question"
            await client.call_tool("reply", {**chosen, "text": "2"})
            assert text_of(await client.call_tool("follow", chosen)) == "Blue it is."
            assert "blue" in str(model.bodies[-1]["messages"][-1])
            sent = await client.call_tool("send", {"to": "telegram:7", "text": "dinner is ready"})
            assert text_of(sent) == "Queued; it will be sent when `alipes serve` is running."
            asking = asyncio.create_task(client.call_tool("ask", {"prompt": "tell me a story", **chosen}))
            await model.asked(5)
            asking.cancel()
            await model.closed_early()
            await asyncio.wait([asking])
        assert "dinner is ready" in (await home.run("serve", "outbox", "--json")).out


async def test_closing_the_input_stops_the_turn_and_ends_the_process(home: Home):
    async with ModelServer((Stall("Once upon"),)) as model:
        home.use(model)
        async with home.started("mcp", "serve", stdin=asyncio.subprocess.PIPE) as process:
            await handshake(process, "2025-06-18")
            await send(process, "tools/call", 2, {"name": "ask", "arguments": {"prompt": "a story"}})
            await model.asked()
            assert process.stdin is not None
            process.stdin.close()
            await model.closed_early()
            assert await process.wait() == 0
        ended = json.loads((await home.run("sessions", "export", await latest(home), "--format", "json")).out)
    assert [turn["ending"] for turn in ended["turns"]] == ["stopped"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
async def test_raw_messages_of_two_versions_are_answered_on_a_clean_standard_output(home: Home, version: str):
    async with ModelServer((Say("Good morning."),)) as model:
        home.use(model)
        async with home.started("mcp", "serve", stdin=asyncio.subprocess.PIPE) as process:
            started = await handshake(process, version)
            assert started["result"]["protocolVersion"] == version
            assert started["result"]["serverInfo"]["name"] == "alipes"
            await send(process, "tools/list", 2, {})
            listed = await reply_to(process, 2)
            assert {tool["name"] for tool in listed["result"]["tools"]} == TOOLS
            schema = next(tool for tool in listed["result"]["tools"] if tool["name"] == "ask")["inputSchema"]
            assert schema["required"] == ["prompt"] and schema["additionalProperties"] is False
            assert process.stdin is not None
            process.stdin.write(b"this is no JSON\n")
            await send(process, "tools/call", 3, {"name": "ask", "arguments": {"prompt": "hello"}})
            answer = await reply_to(process, 3)
            assert answer["result"]["content"][0]["text"] == "Good morning."
            process.stdin.close()
            assert await process.wait() == 0


async def test_http_serves_both_protocols_with_a_key_a_known_host_and_our_origin(home: Home):
    async with ModelServer(
        lambda body: PUSH if len(body["messages"]) == 2 and body.get("tools") else Say("Yes.")
    ) as model:
        home.use(model, workdir=str(home.path.parent))
        async with serving(home) as served:
            for mode in MODES:
                async with over_http(served, mode) as client:
                    waiting = await client.call_tool("ask", {"prompt": "push it", "conversation": mode})
                    assert waiting.structured_content["status"] == "waiting"
                    await client.call_tool("approve", {"conversation": mode, "choice": "no", "note": "not today"})
                    answer = await client.call_tool("follow", {"conversation": mode})
                    assert text_of(answer) == "Yes." and "not today" in str(model.bodies)
            async with httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=LIMIT_S) as http:
                ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                accept = {"accept": "application/json, text/event-stream"}
                bearer = {"authorization": f"Bearer {KEY}", **accept}
                for headers, status in (
                    (accept, 401),
                    ({**bearer, "origin": "https://evil.example"}, 403),
                    ({**bearer, "host": "evil.example"}, 421),
                ):
                    assert (await http.post("/mcp", json=ping, headers=headers)).status_code == status
    assert not (home.path.parent / "pushed").exists()


async def test_a_client_inside_alipes_may_ask_but_neither_approve_nor_see_others(home: Home):
    calls = [
        (
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
        ),
        ("tools/call", {"name": "approve", "arguments": {"conversation": "work", "choice": "once"}}),
        ("tools/call", {"name": "conversations", "arguments": {}}),
        ("tools/call", {"name": "ask", "arguments": {"prompt": "push it"}}),
    ]
    lines = [json.dumps({"jsonrpc": "2.0", "id": n, "method": m, "params": p}) for n, (m, p) in enumerate(calls)]
    lines.insert(1, json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    (home.path.parent / "calls").write_text("\n".join(lines) + "\n")
    async with ModelServer((Say("An answer."), PUSH, Say("Not done."))) as model:
        home.use(model)
        await home.run("ask", "--session", "work", "hello")
        command = f"(cat calls; until test -e answered; do sleep 0.1; done) | {sys.executable} -m alipes mcp serve | (head -n 4; touch answered)"
        done = await run_as_agent(home, command)
    answers = {each["id"]: each["result"] for each in map(json.loads, done.out.splitlines()) if "result" in each}
    assert "may not act as a person" in answers[1]["content"][0]["text"]
    assert answers[2]["content"][0]["text"] == "No conversations yet."
    assert "nobody is available" in str(model.bodies[-1]["messages"][-1])


async def latest(home: Home) -> str:
    listed = json.loads((await home.run("sessions", "list", "--json")).out)
    return str(listed[0]["id"])


async def send(process: asyncio.subprocess.Process, method: str, id: int | None, params: dict[str, Any]) -> None:
    assert process.stdin is not None
    message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    await process.stdin.drain()


async def reply_to(process: asyncio.subprocess.Process, id: int) -> dict[str, Any]:
    """The answer to a request; every line before it is a message too."""
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        while line := await process.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == id:
                return message
    raise AssertionError("the output ended")


async def handshake(process: asyncio.subprocess.Process, version: str) -> dict[str, Any]:
    info = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    await send(process, "initialize", 1, info)
    answer = await reply_to(process, 1)
    await send(process, "notifications/initialized", None, {})
    return answer
