"""A server that repeats the secret it was given: nobody gets to see it."""

import base64
import json

import pytest

from alipes.features.mcp.client.host import ElicitationAnswer, SamplingReply
from alipes.features.mcp.client.results import ResultReader
from alipes.kernel.errors import ToolError
from alipes.tools.shell.output import SpillFolder
from tests.world.mcp_harness import FakeContext, open_host, open_servers, world_server

SECRET = "tell-nobody-77"


def mask(text):
    return text.replace(SECRET, "***")


class Requests:
    """Notes what servers ask."""

    def __init__(self):
        self.asked = []

    async def sample(self, server, turn, request):
        self.asked.append((request.system, request.messages[-1].text))
        return SamplingReply("four", "model")

    async def elicit(self, server, turn, question):
        self.asked.append(question.message)
        return ElicitationAnswer("decline")


def open_talkative(folder, host, *, tools=None, **texts):
    """A server that says `texts`; `@TOKEN@` in them is its secret."""
    config = world_server(folder / "server", env={"TOKEN": SECRET})
    (folder / "server" / "texts.json").write_text(json.dumps(texts))
    (folder / "server" / "tools.json").write_text(json.dumps(tools or {}))
    return open_servers(folder, {"world": config}, host=host)


async def test_the_stored_definitions_contain_no_secret_even_where_they_are_cut(tmp_path):
    schema = {
        "type": "object",
        "properties": {"@TOKEN@": {"type": "string", "description": "@TOKEN@", "enum": ["@TOKEN@"]}},
    }
    tools = {"echo": {"description": "x" * 1490 + "@TOKEN@ more", "title": "@TOKEN@", "inputSchema": schema}}
    async with open_host(tmp_path, mask=mask) as host:
        async with open_talkative(tmp_path, host, tools=tools, message="@TOKEN@", instructions="@TOKEN@") as (made, _):
            await made.prepare(FakeContext(tmp_path).turn)
            shown = str([tool.spec for tool in made.tools().values()])
            assert "***" in shown and "tell-" not in shown
            assert made.prompts()[0][1].description == "***"
    stored = (tmp_path / "mcp" / "world.json").read_text()
    assert stored.count("***") >= 5 and "tell-" not in stored


async def test_questions_of_a_server_contain_no_secret(tmp_path):
    requests = Requests()
    async with open_host(tmp_path, mask=mask, requests=requests) as host:
        async with open_talkative(tmp_path, host, message="my key is @TOKEN@") as (made, _):
            act = FakeContext(tmp_path)
            await made.prepare(act.turn)
            await made.tools()["mcp__world__sample"].run({}, act)
            await made.tools()["mcp__world__elicit"].run({}, act)
            assert requests.asked == [("", "my key is ***"), "my key is ***"]


async def test_prompts_contain_no_secret(tmp_path):
    async with open_host(tmp_path, mask=mask) as host:
        async with open_talkative(tmp_path, host, message="with @TOKEN@") as (made, _):
            await made.prepare(FakeContext(tmp_path).turn)
            ((server, prompt),) = made.prompts()
            assert await made.fill_prompt(server, prompt, "larks") == "with *** about larks, plainly."


async def test_errors_of_the_protocol_contain_no_secret(tmp_path):
    async with open_host(tmp_path, mask=mask) as host:
        async with open_talkative(tmp_path, host, wait={"error": "wrong key @TOKEN@"}) as (made, _):
            act = FakeContext(tmp_path)
            await made.prepare(act.turn)
            with pytest.raises(ToolError, match=r"wrong key \*\*\*"):
                await made.tools()["mcp__world__wait"].run({}, act)


@pytest.mark.parametrize(("data", "saved"), [(SECRET.encode(), b"***"), (b"\xff\x00", b"\xff\x00")])
async def test_a_text_that_is_saved_contains_no_secret_and_other_data_is_kept(tmp_path, data, saved):
    from mcp_types import BlobResourceContents, EmbeddedResource

    blob = base64.b64encode(data).decode()
    resource = BlobResourceContents(uri="file:///a", mime_type="text/plain", blob=blob)
    reader = ResultReader(SpillFolder(tmp_path / "spill", mask=mask))
    await reader.read_blocks([EmbeddedResource(type="resource", resource=resource)])
    (path,) = (tmp_path / "spill").iterdir()
    assert path.read_bytes() == saved
