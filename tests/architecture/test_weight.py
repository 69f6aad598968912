"""What a question costs: the modules that it loads, and the bytes that the model is sent before it."""

import asyncio
import json
import sys

import pytest

from alipes.testing import open_agent
from tests.e2e.program import Home
from tests.world.model_server import ModelServer, Say

MAX_MODULES = 582
"""575 before the features `agents`, `importer` and `update`, each with its settings. 649 with httpx2, the file tools and the rules for paths; a question without tools loads none of these."""
MAX_PROMPT_BYTES = 9_950
"""System prompt and schemas of the default tools."""
LISTED = """
import json, sys
from alipes.cli.main import main
status = main()
print(json.dumps(sorted(sys.modules)))
sys.exit(status)
"""
NOT_NEEDED = (
    "alipes.runtime.packages",
    "alipes.store.backups",
    "alipes.store.search",
    "alipes.store.sql.archive",
    "alipes.tools.shell.pty",
    "alipes.agent.approval.paths",
    "alipes.agent.approval.shell",
    "alipes.kernel.tool_labels",
    "alipes.tools.files",
    "alipes.tools.search",
    "alipes.web",
    "alipes.compat",
    "httpx2",
    "email",
    "importlib.metadata",
    "starlette",
    "prompt_toolkit",
    "jsonschema",
    "alipes.agent.answer_schema",
    "alipes.providers.schemas",
    "PIL",
    "yaml",
)


@pytest.mark.deadline(120)
async def test_a_question_loads_few_modules(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer([Say("Hello.")] * 3) as server:
        home.use(server)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", LISTED, "ask", "hi"),
            env=home.environ(),
            cwd=tmp_path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    answer, listed = out.decode().splitlines()[-2:]
    modules = json.loads(listed)
    assert (process.returncode, answer) == (0, "Hello.")
    assert [
        name for name in modules if name in NOT_NEEDED or name.startswith(tuple(f"{each}." for each in NOT_NEEDED))
    ] == []
    assert len(modules) <= MAX_MODULES


async def test_the_prompt_and_the_tools_are_short(tmp_path):
    async with open_agent(home=tmp_path / "home", model=["done"]) as agent:
        await agent.say("hi")
        request = agent.model.requests[0]
    tools = [
        {
            "type": "function",
            "function": {"name": each.name, "description": each.description, "parameters": each.schema},
        }
        for each in request.tools
        if each.name != "send_file"  # only in chats
    ]
    listed = json.dumps(tools, separators=(",", ":"), ensure_ascii=False)
    assert (
        len(request.system.encode()) + len(listed.encode()) <= MAX_PROMPT_BYTES + 200
    )  # the path of the test's folder
