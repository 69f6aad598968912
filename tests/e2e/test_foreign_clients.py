"""Clients of others against `alipes serve`, unchanged: chats, streams, tools, responses, data. See `tools/clients`."""

import asyncio
import json
import shlex
import shutil
import sys
from contextlib import asynccontextmanager

import pytest

from tests.clients import find_node_modules, find_python
from tests.e2e.program import ROOT, Home
from tests.e2e.service import open_serve, write_settings
from tests.world.environment import environment, program_path
from tests.world.model_server import Call, ModelServer, Plan, Say

pytestmark = pytest.mark.deadline(180)
PATH = program_path("node")
KEY = "an-operators-key-that-is-long-enough"
SCRIPT = Plan(
    (Say("Hello, you."),), by={"time": (Call("now", {}), Say("It is noon.")), "city": (Say('{"name": "Rome"}'),)}
)
CHAT = {"chat": "Hello, you.", "stream": "Hello, you.", "tools": "It is noon.", "data": "Rome"}
RESPONSES = {**CHAT, "responses": "Hello, you."}
PYTHON = {
    "openai": RESPONSES,
    "langchain-openai": {**RESPONSES, "async": "Hello, you."},
    "litellm": {**RESPONSES, "async": "Hello, you."},
    "openai-agents": {**RESPONSES, "responses tools": "It is noon."},
    "pydantic-ai": {**RESPONSES, "responses tools": "It is noon."},
}


@asynccontextmanager
async def served(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(SCRIPT) as model:
        write_settings(home, model)
        async with open_serve(home, ALIPES_API_KEY=KEY) as service:
            yield service.address


async def run(folder, *argv):
    """The last line of its output, as JSON."""
    quiet = {"OTEL_SDK_DISABLED": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"}
    process = await asyncio.create_subprocess_exec(
        *map(str, argv), cwd=folder, env=environment(folder, PATH=PATH, **quiet), stdout=-1, stderr=-1
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-4000:]
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize("package", PYTHON)
async def test_a_client_in_python_finds_what_it_knows_of_openai(tmp_path, package):
    python, script = find_python(package), f"ask_{package.replace('-', '_')}.py"
    async with served(tmp_path) as address:
        found = await run(tmp_path, python, ROOT / "tests/clients" / script, f"{address}/v1", KEY)
    assert found == PYTHON[package]


def copy_script(tmp_path, name):
    """A script beside the packages that it imports."""
    (tmp_path / "node_modules").symlink_to(find_node_modules().resolve())
    return shutil.copy(ROOT / "tests/clients" / name, tmp_path)


async def test_the_ai_sdk_finds_what_it_knows_of_openai(tmp_path):
    script = copy_script(tmp_path, "ask_ai_sdk.mjs")
    async with served(tmp_path) as address:
        assert await run(tmp_path, shutil.which("node"), script, f"{address}/v1", KEY) == CHAT


async def test_the_typescript_sdk_of_mcp_lists_our_tools_and_asks(tmp_path):
    script = copy_script(tmp_path, "ask_mcp_sdk.mjs")
    async with served(tmp_path) as address:
        found = await run(tmp_path, shutil.which("node"), script, f"{address}/mcp", KEY)
    assert found["chat"] == "Hello, you." and {"ask", "follow", "stop"} <= {*found["tools"]}


async def test_the_inspector_of_mcp_calls_a_tool(tmp_path):
    inspector, home = find_node_modules() / ".bin" / "mcp-inspector", Home(tmp_path / "home")
    program = tmp_path / "alipes"
    async with ModelServer(SCRIPT) as model:
        home.use(model)
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in home.environ().items())
        program.write_text(f'#!/bin/sh\nexec env {variables} "{sys.executable}" -m alipes "$@"\n')
        program.chmod(0o755)
        place = (inspector, "--cli", program, "mcp", "serve")
        listed = await run_whole(tmp_path, *place, "--method", "tools/list")
        called = ("--method", "tools/call", "--tool-name", "ask", "--tool-arg", "prompt=hello")
        answer = await run_whole(tmp_path, *place, *called)
    assert {"ask", "follow", "stop"} <= {tool["name"] for tool in listed["tools"]}
    assert answer["content"][0]["text"] == "Hello, you."


async def run_whole(folder, *argv):
    process = await asyncio.create_subprocess_exec(
        *map(str, argv), cwd=folder, env=environment(folder, PATH=PATH), stdout=-1, stderr=-1
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, (out + errors).decode()[-4000:]
    return json.loads(out)
