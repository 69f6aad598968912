"""The MCP endpoint at a real door, with the client of the official SDK: asked, followed, stopped, answered."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from alipes.features.mcp.server.tools import AskArguments, ConversationTool
from alipes.kernel.turns import Address, Inbound, Stop
from alipes.plugins.registry import PromptTemplate
from tests.unit.agent_harness import Hand, call, play
from tests.unit.web.test_run_approvals import open_guarded
from tests.unit.web.test_runs import held
from tests.world.api_harness import ApiHarness, open_api
from tests.world.commands import core_commands
from tests.world.environment import LIMIT_S

pytestmark = pytest.mark.deadline(60)
MODES = ("2026-07-28", "legacy")
"""Without a handshake, and with one."""
ALL = {"ask", "follow", "read", "stop", "approve", "reply", "search", "conversations"}


@asynccontextmanager
async def open_client(api: ApiHarness, mode: str = "2026-07-28", by: str = "ann") -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer key-{by}-0123456789abcdef"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=LIMIT_S) as http:
        url = f"{str(api.client.base_url).rstrip('/')}/mcp"
        async with Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client:
            yield client


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_comes_back_and_its_conversation_can_be_continued(tmp_path: Path, mode: str):
    model = play("Good morning.", "You said hello.")
    async with open_api(tmp_path, model) as api, open_client(api, mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == ALL
        first = await client.call_tool("ask", {"prompt": "hello"})
        assert text_of(first) == "Good morning." and first.structured_content["status"] == "answered"
        name = first.structured_content["conversation"]
        again = await client.call_tool("ask", {"prompt": "what did I say?", "conversation": name})
        assert text_of(again) == "You said hello." and again.structured_content["conversation"] == name
        read = await client.call_tool("read", {"conversation": name, "limit": 3})
        assert [each["role"] for each in read.structured_content["messages"]] == ["assistant", "user", "assistant"]
        assert read.structured_content["earlier"] == 1 and read.structured_content["status"] == "idle"
        assert name in text_of(await client.call_tool("search", {"query": "hello"}))
        listed = await client.call_tool("conversations", {})
        assert [each["id"] for each in listed.structured_content["conversations"]] == [name]
        assert text_of(await client.call_tool("follow", {"conversation": name})) == "You said hello."


async def test_progress_names_the_tools_of_the_turn(tmp_path: Path):
    reported: list[str] = []

    async def note(_progress: float, _total: float | None, message: str | None) -> None:
        reported.append(message or "")

    go = asyncio.Event()

    async def wait(_args: object, _act: object) -> str:
        await go.wait()
        return "done"

    async with open_api(tmp_path, play(call("c", "hold", path="a.txt"), "Done."), Hand("hold", does=wait)) as api:
        async with open_client(api) as client, asyncio.TaskGroup() as group:
            asking = group.create_task(client.call_tool("ask", {"prompt": "run it"}, progress_callback=note))
            async with asyncio.timeout(LIMIT_S):
                while not any("hold a.txt" in each for each in reported):
                    await asyncio.sleep(0.01)
            go.set()
        assert text_of(asking.result()) == "Done."


@pytest.mark.parametrize("mode", MODES)
async def test_cancelling_the_call_stops_the_turn(tmp_path: Path, mode: str):
    begun, hold = held()
    async with open_api(tmp_path, play(call("c", "hold"), "Here I am."), hold) as api, open_client(api, mode) as client:
        asking = asyncio.create_task(client.call_tool("ask", {"prompt": "hold", "conversation": "work"}))
        await begun.wait()
        asking.cancel()
        await asyncio.wait([asking])
        async with asyncio.timeout(LIMIT_S):
            while (await client.call_tool("read", {"conversation": "work"})).structured_content["status"] != "idle":
                await asyncio.sleep(0.01)
        again = await client.call_tool("ask", {"prompt": "are you there?", "conversation": "work"})
        assert text_of(again) == "Here I am."


async def test_stop_ends_a_turn_that_another_call_waits_for(tmp_path: Path):
    begun, hold = held()
    async with open_api(tmp_path, play(call("c", "hold")), hold) as api, open_client(api) as client:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(client.call_tool("ask", {"prompt": "hold", "conversation": "work"}))
            await begun.wait()
            assert text_of(await client.call_tool("stop", {"conversation": "work"})) == "Stopped."
        assert asking.result().structured_content["status"] == "stopped"
        assert text_of(await client.call_tool("stop", {"conversation": "work"})) == "Nothing is running."


@pytest.mark.parametrize("choice", ["once", "no"])
async def test_a_call_that_needs_approval_returns_the_question_and_follow_the_answer(tmp_path: Path, choice: str):
    hand = Hand("hand")
    async with open_guarded(tmp_path, call("c", "hand", x=1), "So be it.", hand=hand) as api:
        async with open_client(api) as client:
            waiting = await client.call_tool("ask", {"prompt": "go", "conversation": "work"})
            data = waiting.structured_content
            assert data["status"] == "waiting" and "it explodes" in text_of(waiting) and not hand.ran
            (question,) = data["questions"]
            assert question["kind"] == "approval"
            wrong = await client.call_tool("approve", {"conversation": "work", "choice": "always"})
            assert wrong.is_error and "invalid arguments" in text_of(wrong)
            unknown = await client.call_tool("approve", {"conversation": "work", "choice": "once", "ask": "x"})
            assert unknown.is_error and "no such open question" in text_of(unknown)
            done = await client.call_tool("approve", {"conversation": "work", "choice": choice})
            assert text_of(done).startswith("Denied." if choice == "no" else "Allowed.")
            answer = await client.call_tool("follow", {"conversation": "work"})
            assert text_of(answer) == "So be it." and bool(hand.ran) is (choice == "once")
            late = await client.call_tool("approve", {"conversation": "work", "choice": "once"})
            assert late.is_error and "nothing is running" in text_of(late)


async def test_the_process_of_the_agent_cannot_approve_its_own_question(tmp_path: Path):
    """The client runs in the process that serves, like an MCP tool of a conversation."""
    hand = Hand("hand")
    async with open_guarded(tmp_path, call("c", "hand"), hand=hand, run=tmp_path) as api:
        async with open_client(api, by="root") as client:
            await client.call_tool("ask", {"prompt": "go", "conversation": "work"})
            refused = await client.call_tool("approve", {"conversation": "work", "choice": "once"})
            assert refused.is_error and "belongs to alipes, and may not act as a person" in text_of(refused)
            refused = await client.call_tool("send", {"to": "telegram:7", "text": "hi"})
            assert refused.is_error and "may not act as a person" in text_of(refused)
            assert not (await client.call_tool("stop", {"conversation": "work"})).is_error
    assert not hand.ran


async def test_a_key_sees_only_its_own_conversations_and_tools(tmp_path: Path):
    async with open_api(tmp_path, play("Good morning.")) as api:
        async with open_client(api) as ann:
            mine = await ann.call_tool("ask", {"prompt": "hello", "conversation": "mine"})
        name = mine.structured_content["conversation"]
        async with open_client(api, by="bob") as bob:
            assert "no session" in text_of(await bob.call_tool("read", {"conversation": name}))
            assert text_of(await bob.call_tool("conversations", {})) == "No conversations yet."
            assert text_of(await bob.call_tool("search", {"query": "hello"})) == "No matches."
            assert (await bob.call_tool("send", {"to": "telegram:7", "text": "x"})).is_error
        async with open_client(api, by="reader") as reader:
            assert {tool.name for tool in (await reader.list_tools()).tools} == {
                "follow", "read", "search", "conversations",
            }  # fmt: skip
            refused = await reader.call_tool("ask", {"prompt": "hello"})
            assert refused.is_error and "lacks the scope run" in text_of(refused)
        async with open_client(api, by="root") as root:
            assert {tool.name for tool in (await root.list_tools()).tools} == ALL | {"send"}
            assert text_of(await root.call_tool("send", {"to": "telegram:7", "text": "hi"})) == "Queued: hi"
            assert "Good morning." in text_of(await root.call_tool("read", {"conversation": name}))


async def test_a_session_belongs_to_the_key_that_opened_it(tmp_path: Path):
    accept = {"accept": "application/json, text/event-stream"}
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    async with open_api(tmp_path, play()) as api:

        async def post(method: str, params: dict[str, Any], by: str, **headers: str) -> httpx2.Response:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            bearer = {"authorization": f"Bearer key-{by}-0123456789abcdef", **accept, **headers}
            return await api.client.post("/mcp", json=body, headers=bearer)

        opened = await post("initialize", info, "ann")
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        assert (await post("tools/list", {}, "ann", **session)).status_code == 200
        assert (await post("tools/list", {}, "bob", **session)).status_code == 404


async def test_wrong_arguments_get_a_clear_answer(tmp_path: Path):
    async with open_api(tmp_path, play()) as api, open_client(api) as client:
        for name, arguments, words in (
            ("ask", {}, "missing required field `prompt`"),
            ("ask", {"prompt": "x", "nonsense": 1}, "unknown field `nonsense`"),
            ("ask", {"prompt": "x", "model": "nobody/nothing"}, "is not available"),
            ("ask", {"prompt": "/stop"}, "/stop is not available here."),
            ("read", {"conversation": "nowhere"}, "no session nowhere"),
            ("follow", {"conversation": "nowhere"}, "no session nowhere"),
            ("approve", {"conversation": "nowhere", "choice": "once"}, "no session nowhere"),
        ):
            answer = await client.call_tool(name, arguments)
            assert answer.is_error and words in text_of(answer), (name, text_of(answer))
        with pytest.raises(Exception, match="unknown tool"):
            await client.session.call_tool("fly", {})


async def test_a_client_that_leaves_before_its_message_is_stored_stops_it(tmp_path: Path):
    """The call is cancelled before the turn has an id."""
    begun, hold = held()
    async with open_api(tmp_path, play(call("c", "hold")), hold) as api:
        stopped: list[Stop] = []
        api.runs.stop_soon = lambda _key, stop: stopped.append(stop)  # type: ignore[method-assign]
        inbound = Inbound("1", Address("api", "work", user="ann"), "ann", "hold", attended=True)
        starting = asyncio.create_task(api.runs.begin(inbound))
        await asyncio.sleep(0)
        starting.cancel()
        await begun.wait()
        assert [stop.reason for stop in stopped] == ["disconnected"]


def test_the_schema_of_a_tool_names_and_describes_its_arguments():
    async def nothing(_args: Any, _request: Any) -> Any: ...

    schema = ConversationTool("ask", "", AskArguments, "run", nothing).schema
    assert schema["required"] == ["prompt"] and schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"prompt", "conversation", "model"}
    assert all(each["description"] for each in schema["properties"].values())


@pytest.mark.parametrize("module", ["alipes.cli.serve.run", "alipes.cli.acp.command", "alipes.cli.ask"])
def test_the_protocol_packages_are_not_imported_before_they_are_used(module: str):
    found = f"import {module}, sys; print(sorted({{'mcp', 'mcp_types', 'acp', 'pydantic'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("mode", MODES)
async def test_conversations_are_resources_and_templates_are_prompts(tmp_path: Path, mode: str):
    inspect = PromptTemplate("inspect", "inspect.md", "Review $1 carefully.", description="Review a file", hint="FILE")
    offers = core_commands(lambda: {"inspect": inspect})
    async with open_api(tmp_path, play("Good morning."), contributions=offers) as api:
        async with open_client(api, mode) as client:
            assert (await client.list_resources()).resources == []
            asked = await client.call_tool("ask", {"prompt": "hello"})
            (listed,) = (await client.list_resources()).resources
            assert listed.uri == f"alipes://conversations/{asked.structured_content['conversation']}"
            (read,) = (await client.read_resource(listed.uri)).contents
            assert read.mime_type == "text/markdown" and "Good morning." in read.text
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "alipes://conversations/{id}"
            (prompt,) = (await client.list_prompts()).prompts
            assert (prompt.name, prompt.description) == ("inspect", "Review a file")
            filled = await client.get_prompt("inspect", {"arguments": "app.py"})
            assert filled.messages[0].content.text.strip() == "Review app.py carefully."
            for wrong in ("alipes://conversations/none", "file:///etc/passwd"):
                with pytest.raises(MCPError):
                    await client.read_resource(wrong)
            with pytest.raises(MCPError, match="no prompt"):
                await client.get_prompt("status", {})
        async with open_client(api, mode, "bob") as other:
            assert (await other.list_resources()).resources == []
            with pytest.raises(MCPError):
                await other.read_resource(listed.uri)
