"""The same conversations with model servers that nobody here wrote: npm's aimock and PyPI's llmock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest

from alipes.agent.loop import Agent
from alipes.agent.model_call import RetryPolicy
from alipes.kernel.errors import ContextTooLong, NotAuthorised, ProviderError, Transient
from alipes.kernel.messages import Text, assistant
from alipes.kernel.turns import Notice, Retracted
from alipes.providers.registry import Backend
from alipes.providers.streaming import models
from alipes.runtime.http.clients import ClientScope
from tests.unit.agent_harness import Hand, live, turn
from tests.world.environment import SERVICES, require, skip
from tests.world.model_calls import WIRES, ModelOutput, ask, converse, provider, results

EVERY = pytest.mark.parametrize("api", WIRES)
LLMOCKS = pytest.mark.parametrize("api", [api for api in WIRES if api != "bedrock"])
"""Those that llmock speaks."""
AIMOCK = SERVICES / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
CALLS = [{"name": "look", "arguments": '{"at":"moon"}'}, {"name": "look", "arguments": '{"at":"sun"}'}]
LONG = "a text that is long enough to be cut in the middle of what it says"
FIXTURES = [
    {"match": {"userMessage": "hello"}, "response": {"content": "Hi there! " * 20, "reasoning": "they greet"}},
    {"match": {"userMessage": "look", "hasToolResult": True}, "response": {"content": "both seen"}},
    {"match": {"userMessage": "look"}, "response": {"content": "wait", "toolCalls": CALLS, "reasoning": "I must look"}},
    {"match": {"userMessage": "too fast"}, "response": {"error": {"message": "slow down"}, "status": 429, "retryAfter": 7}},
    {"match": {"userMessage": "down"}, "response": {"error": {"message": "out of order"}, "status": 503}},
    {"match": {"userMessage": "wrong key"}, "response": {"error": {"message": "who are you?"}, "status": 401}},
    {
        "match": {"userMessage": "too long"},
        "response": {"error": {"message": "prompt is too long", "code": "context_length_exceeded"}, "status": 400},
    },
    {"match": {"userMessage": "cut text"}, "response": {"content": LONG}, "chunkSize": 5, "latency": 5, "truncateAfterChunks": 8},
    {"match": {"userMessage": "cut call"}, "response": {"toolCalls": CALLS}, "chunkSize": 3, "latency": 5, "truncateAfterChunks": 6},
    {"match": {"userMessage": "left alone"}, "response": {"content": LONG}, "chunkSize": 1, "latency": 20, "disconnectAfterMs": 200},
    {"match": {"userMessage": "malformed"}, "response": {"content": "x"}, "chaos": {"malformedRate": 1}},
    {"match": {"userMessage": "gone"}, "response": {"content": "x"}, "chaos": {"disconnectRate": 1}},
    {"match": {"userMessage": "dropped"}, "response": {"content": "x"}, "chaos": {"dropRate": 1}},
]  # fmt: skip


@asynccontextmanager
async def aimock(folder: Path) -> AsyncIterator[str]:
    """The address of a server that answers by `FIXTURES`; skips where it is not installed."""
    node = require("node")
    if not AIMOCK.exists():
        skip("aimock is not installed (make services)")
    (folder / "fixtures.json").write_bytes(msgspec.json.encode({"fixtures": FIXTURES}))
    child = await asyncio.create_subprocess_exec(
        node, str(AIMOCK), "-p", "0", "-h", "127.0.0.1", "-f", str(folder / "fixtures.json"),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        line = b""
        while b"listening on " not in line:
            line = await child.stdout.readline()
            assert line, "aimock ended before it listened"
        yield line.decode().rpartition("listening on ")[2].strip()
    finally:
        child.kill()
        await child.communicate()


@asynccontextmanager
async def talking(api: str, folder: Path, **more):
    async with aimock(folder) as root, ClientScope() as scope:
        version = {"anthropic": "", "bedrock": "", "gemini": "/v1beta"}.get(api, "/v1")
        yield provider(api, root + version, scope, **more)


@EVERY
@pytest.mark.deadline(60)
async def test_aimock_and_we_understand_each_other(api, tmp_path):
    async with talking(api, tmp_path) as acme:
        first = await converse(acme, "hello")
        assert (first.text, first.thinking) == ("Hi there! " * 20, "they greet")
        assert first.reply.stop == "end"
        asked = await converse(acme, ask("look at both", first.message, "look"))
        assert [(call.name, call.args) for call in asked.message.calls] == [
            ("look", {"at": "moon"}),
            ("look", {"at": "sun"}),
        ]
        assert (asked.reply.stop, asked.text) == ("calls", "wait")
        history = ("look", asked.message, results(*asked.message.calls))
        assert (await converse(acme, ask(*history))).text == "both seen"
        if api not in ("gemini", "bedrock"):  # it lists no models there
            assert "gpt-4o" in await models(acme._endpoint, acme._http)


@EVERY
@pytest.mark.deadline(60)
async def test_aimocks_failures_are_our_errors(api, tmp_path):
    async with talking(api, tmp_path, stall=5.0) as acme:
        for words, kind in {
            "too fast": Transient,
            "down": Transient,
            "dropped": Transient,
            "gone": Transient,
            "cut text": Transient,
            "cut call": Transient,
            "left alone": Transient,
            "malformed": Transient,
            "wrong key": NotAuthorised,
            "too long": ContextTooLong,
        }.items():
            if (api, words) == ("gemini", "cut call"):
                continue  # it sends each call whole
            heard = ModelOutput()
            with pytest.raises(ProviderError) as caught:
                await converse(acme, words, heard)
            assert type(caught.value) is kind, (words, caught.value)
            assert heard.reply is None
            assert words != "too fast" or caught.value.retry_after == 7
            assert (await converse(acme, "hello")).text.startswith("Hi there!")


class One:
    """The one model there is, by any name."""

    def __init__(self, acme) -> None:
        self._acme = acme

    async def open(self, name: str) -> Backend:
        return Backend(name=name, model="gpt-4o", provider=self._acme)


@asynccontextmanager
async def a_turn(api: str, llmock, *tools, **more):
    """A whole turn of ours against llmock: the retrying loop, its own waiting, the real clock."""
    address = llmock.base_url(api if api in ("anthropic", "gemini") else "openai")
    if api == "gemini":
        address += "/v1beta"
    async with ClientScope() as scope:
        acme = provider(api, address, scope, key="llmock-test-key", **more)
        agent = Agent(
            One(acme),
            "acme/gpt-4o",
            tools={tool.spec.name: tool for tool in tools},
            retry=RetryPolicy(attempts=5, random=lambda: 0.2),
        )
        yield lambda text="hello": live(agent, turn(text))


FAULTS = {
    "a rate limit": lambda mock: mock.rate_limit(times=2, retry_after=0.3),
    "an outage that passes": lambda mock: mock.fail(503, times=2, retry_after=0.2),
    "an overloaded server": lambda mock: mock.fail(529, retry_after=0.1),
    "a dropped connection": lambda mock: mock.disconnect(after_chunks=1),
    "a dropped connection before the first piece": lambda mock: mock.disconnect(after_chunks=0),
    "a truncated stream": lambda mock: mock.truncate(after_chunks=2, times=2),
    "a corrupt piece": lambda mock: mock.corrupt(after_chunks=1),
    "a stall": lambda mock: mock.stall(after_chunks=1, seconds=20),
}


@LLMOCKS
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.deadline(60)
async def test_llmock_finds_us_resilient(api, fault, llmock):
    # Paced, so that it sees us leave: what it has sent to the end counts as accepted.
    llmock.tool_mode("off").reply("all is well", times=None).pace(50)
    FAULTS[fault](llmock)
    async with a_turn(api, llmock, stall=2.0) as go:
        scene = await go()
    assert (scene.ending, scene.said[-1]) == ("answered", assistant(Text("all is well"))), scene.detail
    assert scene.of(Notice), "the user is notified of each wait"
    await asyncio.to_thread(llmock.assert_resilient, strict=True)


@LLMOCKS
@pytest.mark.deadline(60)
async def test_llmock_finds_that_we_give_up_on_what_no_retry_can_mend(api, llmock):
    llmock.fail(400, times=None, message="no such parameter")
    async with a_turn(api, llmock) as go:
        scene = await go()
    assert scene.ending == "failed"
    assert len(llmock.requests) == 1
    await asyncio.to_thread(llmock.assert_resilient, strict=True)


@LLMOCKS
@pytest.mark.deadline(60)
async def test_llmock_and_we_use_tools_together(api, llmock):
    look = Hand("look", "read", does="it is round", schema={"type": "object", "properties": {"at": {"type": "string"}}})
    llmock.call_tool("look", {"at": "the moon"}, times=2).disconnect(after_chunks=1).reply("It is round.")
    async with a_turn(api, llmock, look, stall=2.0) as go:
        scene = await go("how is the moon?")
    calls = 2 if api == "gemini" else 1  # Gemini sends each call whole, so none is cut
    assert look.ran == [{"at": "the moon"}] * calls
    assert scene.said[-1].text == "It is round.", scene.detail
    assert all(event.reason for event in scene.of(Retracted))
    await asyncio.to_thread(llmock.assert_resilient, strict=True)


@pytest.mark.deadline(30)
async def test_a_stranger_that_speaks_no_model_api_is_recognised(llmock):
    async with ClientScope() as scope:
        acme = provider("openai-chat", f"{llmock.url}/nowhere", scope)
        with pytest.raises(ProviderError, match="base_url"):
            await converse(acme, "hello")
        assert (await acme._http.request("GET", f"{llmock.url}/nowhere")).status_code == httpx2.codes.NOT_FOUND
