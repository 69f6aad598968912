"""Providers that come with hermes-agent 0.19, with local stand-ins behind them: web search, memory, images."""

import shutil
from pathlib import Path

import pytest
from aiohttp import web

from alipes.testing import call, open_agent
from tests.compat.platform_standins import StandIn
from tests.compat.test_bundled_platforms import PLATFORMS

PLUGINS = PLATFORMS.parent
pytestmark = [
    pytest.mark.deadline(60),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the plugins' own code
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(
        not PLUGINS.is_dir(), reason="no hermes-agent: set ALIPES_TEST_HERMES_AGENT, or run `make services`"
    ),
]


@pytest.fixture
def source(tmp_path):
    """A copy of one plugin, without the rest of Hermes around it."""
    return lambda name: Path(shutil.copytree(PLUGINS / name, tmp_path / "copies" / Path(name).name))


class SearxStandIn(StandIn):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/search", self._search)]

    async def _search(self, request: web.Request) -> web.Response:
        self.asked.append(request.query["q"])
        found = {"title": "Larks", "url": "https://example.org/larks", "content": "a bird", "score": 1}
        return web.json_response({"results": [found]})


async def test_the_searxng_plugin_searches(home, source):
    place = SearxStandIn()
    (home / ".env").write_text(f"SEARXNG_URL='{place.url}'\n")
    script = [call("web_search", query="larks"), "done"]
    async with place.open(), open_agent(home=home, plugins=[source("web/searxng")], model=script) as agent:
        found = (await agent.say("look it up")).result("web_search")
        assert found.outcome == "ok", found.text
        assert "\n[1] Larks\n    https://example.org/larks\n    a bird\n" in found.text and place.asked == ["larks"]


async def test_without_its_address_the_search_does_not_use_the_plugin(home, source):
    script = [call("web_search", query="larks"), "done"]
    async with open_agent(home=home, plugins=[source("web/searxng")], model=script) as agent:
        found = (await agent.say("go")).result("web_search")
        assert "html.duckduckgo.com" in found.text and "is not allowed" in found.text


async def test_the_holographic_memory_stores_a_fact_and_recalls_it(home, source):
    add = call("fact_store", action="add", content="Ada keeps larks in Vienna", category="user_pref")
    script = [add, "noted", "Vienna"]
    async with open_agent(home=home, plugins=[source("memory/holographic")], model=script, person="trusts") as agent:
        stored = (await agent.say("remember: Ada keeps larks in Vienna")).result("fact_store")
        assert stored.outcome == "ok" and "error" not in stored.text, stored.text
        await agent.say("where does Ada keep larks in?")
        request = agent.model.requests[-1]
        assert "Ada keeps larks in Vienna" in request.messages[-1].text and "Holographic Memory" in request.system
    assert (home / "memory_store.db").exists()


@pytest.mark.parametrize("name", ["deepinfra", "fal", "krea", "openai", "openai-codex", "openrouter"])
async def test_an_image_plugin_is_there_for_our_tool_once_it_has_a_key(name, home, source):
    async with open_agent(home=home, plugins=[source(f"image_gen/{name}")], model=["done"]) as agent:
        await agent.say("go")
        assert "image_generate" not in {each.name for each in agent.model.requests[0].tools}, "no key, no tool"
        (status,) = agent.app.plugins.statuses()
        assert any(each.startswith("image_gen:") for each in status.provides)
