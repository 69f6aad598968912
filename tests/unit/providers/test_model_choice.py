"""Which model is begun with: a word of the operator, a key, a server on this machine, the embedded one; in this order."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from alipes.config.known_providers import KEYED, LOCAL
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.providers.registry import ModelChoice, choose_model
from alipes.runtime.http.clients import ClientScope
from tests.world.model_server import ModelServer

PATIENT = 5.0


@pytest.fixture
def closed() -> Iterator[dict[str, int]]:
    """A port for every local server at which surely nobody listens, whatever runs on this machine."""
    bound = [socket.socket() for _ in LOCAL]
    for each in bound:
        each.bind(("127.0.0.1", 0))
    yield {name: each.getsockname()[1] for name, each in zip(LOCAL, bound, strict=True)}
    for each in bound:
        each.close()


def settings(home: Path, ports: dict[str, int], config: str = "", **environ: str) -> Settings:
    tables = "".join(f'[providers.{name}]\nbase_url = "http://127.0.0.1:{port}/v1"\n' for name, port in ports.items())
    (home / "config.toml").write_text(f"{config}\n{tables}")
    return load_settings(home, environ)


async def chosen(given: Settings, within: float = PATIENT) -> ModelChoice:
    async with ClientScope() as scope:
        return await choose_model(given, scope, within=within)


@asynccontextmanager
async def silent_server():
    """Takes connections and never says a word."""
    gone = asyncio.Event()

    async def serve(reader, writer):
        await gone.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        gone.set()
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def odd_server(answer: bytes):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_the_configured_model_is_taken_and_nobody_is_asked(tmp_path, closed):
    async with ModelServer(models=("llama",)) as server, ClientScope() as scope:
        given = settings(tmp_path, closed | {"ollama": server.port}, 'model = "xai/grok-4.7"', OPENAI_API_KEY="k" * 9)
        choice = await choose_model(given, scope)
        assert (choice.model, choice.toy) == ("xai/grok-4.7", False)
        assert "config.toml" in choice.why
        assert server.connections == 0 and scope.open_clients() == ()


async def test_a_key_decides_before_a_local_server_and_nobody_is_asked(tmp_path, closed):
    async with ModelServer(models=("llama",)) as server, ClientScope() as scope:
        given = settings(tmp_path, closed | {"ollama": server.port}, GROQ_API_KEY="k" * 9)
        choice = await choose_model(given, scope)
        assert choice.model.startswith("groq/") and choice.why == "GROQ_API_KEY is set"
        assert server.connections == 0 and scope.open_clients() == ()


@pytest.mark.parametrize("place", range(len(KEYED)))
async def test_the_first_key_in_the_order_of_the_manual_wins(tmp_path, closed, place):
    assert KEYED == ("anthropic", "openai", "openrouter", "gemini", "deepseek", "groq", "xai", "mistral")
    keys = {f"{name.upper()}_API_KEY": "k" * 9 for name in reversed(KEYED[place:])}
    choice = await chosen(settings(tmp_path, closed, **keys))
    provider, _, model = choice.model.partition("/")
    assert provider == KEYED[place] and model


async def test_a_key_of_the_operators_own_provider_counts_when_its_model_is_known(tmp_path, closed):
    own = '[providers.mine]\nbase_url = "https://models.example/v1"\nkey_env = "MINE"\n'
    assert (await chosen(settings(tmp_path, closed, own, MINE="k" * 9))).toy
    choice = await chosen(settings(tmp_path, closed, own + 'model = "big"\n', MINE="k" * 9))
    assert (choice.model, choice.why) == ("mine/big", "MINE is set")


@pytest.mark.parametrize("name", LOCAL)
async def test_a_local_server_is_found_and_its_own_list_gives_the_model(tmp_path, closed, name):
    async with ModelServer(models=("nomic-embed-text", "llama:8b", "qwen:30b")) as server:
        choice = await chosen(settings(tmp_path, closed | {name: server.port}))
    assert (choice.model, choice.toy) == (f"{name}/llama:8b", False)
    assert f"127.0.0.1:{server.port}" in choice.why


async def test_the_operators_favourite_is_taken_when_the_server_has_it(tmp_path, closed):
    async with ModelServer(models=("llama:8b", "qwen:30b")) as server:
        del closed["ollama"]
        table = f'[providers.ollama]\nbase_url = "{server.url("openai-chat")}"\nmodel = '
        assert (await chosen(settings(tmp_path, closed, table + '"qwen:30b"'))).model == "ollama/qwen:30b"
        assert (await chosen(settings(tmp_path, closed, table + '"gone"'))).model == "ollama/llama:8b"


async def test_a_server_that_says_nothing_does_not_keep_the_next_from_being_chosen(tmp_path, closed):
    async with silent_server() as silent, ModelServer(models=("m",)) as server:
        given = settings(tmp_path, closed | {"ollama": silent, "vllm": server.port})
        assert (await chosen(given, within=1.5)).model == "vllm/m"


@pytest.mark.parametrize("answer", [b"<html>hi</html>", b'{"data": 7}', b'{"data": []}', b"\xff{", b""])
async def test_a_stranger_at_a_usual_port_is_no_model_server(tmp_path, closed, answer):
    async with odd_server(answer) as port:
        assert (await chosen(settings(tmp_path, closed | {"llamacpp": port}))).model == "embedded/smollm2-135m"


BROKEN = {
    "500": b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops",
    "404": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "unexpected answer": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n<>",
    "it has no models": b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"data":[]}',
    "it closed the connection or does not speak HTTP": b"\xff\x00 garbage\r\n\r\n",
}


@asynccontextmanager
async def raw_server(answer: bytes):
    """Answers each request with these bytes and closes the connection."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("problem", BROKEN)
async def test_a_broken_server_is_skipped_and_a_hint_says_why(tmp_path, closed, problem):
    async with raw_server(BROKEN[problem]) as port:
        choice = await chosen(settings(tmp_path, closed | {"ollama": port}))
    assert choice.toy
    place = f"http://127.0.0.1:{port}"
    assert choice.hint == f"Ollama at {place} does not answer properly ({problem}); using the demo model."


async def test_a_server_that_closes_or_is_silent_is_skipped_with_a_hint(tmp_path, closed):
    async with raw_server(b"") as port:
        choice = await chosen(settings(tmp_path, closed | {"lmstudio": port}))
    assert choice.toy and choice.hint.startswith("LM Studio at ") and "closed the connection" in choice.hint
    async with silent_server() as port:
        choice = await chosen(settings(tmp_path, closed | {"ollama": port}), within=0.2)
    assert choice.toy and "(no answer within 0.2 s)" in choice.hint


async def test_a_closed_port_or_a_stranger_at_a_common_port_gives_no_hint(tmp_path, closed):
    assert not (await chosen(settings(tmp_path, closed))).hint
    async with raw_server(BROKEN["404"]) as port:
        assert not (await chosen(settings(tmp_path, closed | {"llamacpp": port, "vllm": port}))).hint


async def test_a_broken_server_is_no_reason_for_a_hint_if_another_one_answers(tmp_path, closed):
    async with raw_server(BROKEN["500"]) as port, ModelServer(models=("m",)) as server:
        choice = await chosen(settings(tmp_path, closed | {"ollama": port, "vllm": server.port}))
    assert (choice.model, choice.hint) == ("vllm/m", "")


async def test_only_a_model_that_was_found_has_the_demo_model_as_a_last_resort(tmp_path, closed):
    async with ModelServer(models=("m",)) as server:
        found = closed | {"ollama": server.port}
        assert (await chosen(settings(tmp_path, found))).last_resort == "embedded/smollm2-135m"
        assert not (await chosen(settings(tmp_path, found, 'model = "ollama/m"'))).last_resort
        assert not (await chosen(settings(tmp_path, found, GROQ_API_KEY="k" * 9))).last_resort


async def test_with_nothing_at_hand_the_toy_is_chosen_and_says_so_and_how_to_get_a_real_one(tmp_path, closed):
    choice = await chosen(settings(tmp_path, closed))
    assert (choice.model, choice.toy) == ("embedded/smollm2-135m", True)
    for word in ("demo model", "alipes setup"):
        assert word in choice.why


async def test_a_gguf_of_the_operators_own_is_no_toy(tmp_path, closed):
    (tmp_path / "Qwen3-8B.gguf").touch()
    choice = await chosen(settings(tmp_path, closed, '[embedded]\ngguf = "Qwen3-8B.gguf"\n'))
    assert (choice.model, choice.toy) == ("embedded/qwen3-8b", False)


async def test_the_toy_is_a_toy_also_when_it_is_configured(tmp_path, closed):
    assert (await chosen(settings(tmp_path, closed, 'model = "embedded"'))).toy
