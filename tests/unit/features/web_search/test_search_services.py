"""The search services, each against its wire format on loopback."""

import pytest

from alipes.features.web_search.duckduckgo import parse_duckduckgo
from alipes.features.web_search.search_client import WebQuery
from alipes.features.web_search.search_services import choose_service, open_service
from alipes.features.web_search.settings import WebConfig
from alipes.kernel.errors import ToolError
from alipes.kernel.models import Secret
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope
from tests.world.search_servers import DATE, ENGINE, KEY, SNIPPETS, TITLES, URLS, duckduckgo_page, open_search_servers

SERVICES = ("searxng", "brave", "tavily", "exa", "google", "duckduckgo")
KEYS = {f"{name}_key": Secret(KEY) for name in ("brave", "tavily", "exa", "google")}
RECENT = {
    "searxng": ("time_range", "week"),
    "brave": ("freshness", "pw"),
    "tavily": ("time_range", "week"),
    "exa": ("startPublishedDate", None),
    "google": ("dateRestrict", "w1"),
    "duckduckgo": ("df", "w"),
}
COUNTED = {"brave": ("count", "7"), "tavily": ("max_results", 7), "exa": ("numResults", 7), "google": ("num", "7")}


def make_settings(**more):
    return WebConfig(**{**KEYS, "google_engine": ENGINE, **more})


async def search(servers, name, query, settings=None, *, place=None):
    async with ClientScope() as scope:
        fetcher = PublicFetcher(scope, [place or servers.place])
        service = open_service(name, settings or make_settings(), fetcher, servers.url(name))
        return await service.search(query, CommandScope())


@pytest.mark.parametrize("name", SERVICES)
async def test_results_have_title_url_snippet_and_date(name):
    async with open_search_servers() as servers:
        found = await search(servers, name, WebQuery("larks"))
    assert [each.title for each in found] == [*TITLES]
    assert [each.url for each in found] == [*URLS]
    assert [each.snippet for each in found] == [*SNIPPETS]
    dated = name not in ("google", "duckduckgo")
    assert [each.date[:10] for each in found] == ([DATE, DATE] if dated else ["", ""])


@pytest.mark.parametrize("name", SERVICES)
async def test_the_number_of_results_and_their_age_are_asked_for(name):
    async with open_search_servers() as servers:
        await search(servers, name, WebQuery("larks & owls", 7, "week"))
    ((_, asked),) = servers.asked
    assert asked.get("q", asked.get("query")) == "larks & owls"
    key, value = RECENT[name]
    assert asked[key] == value if value else asked[key].endswith("T00:00:00.000Z")
    if name in COUNTED:
        key, value = COUNTED[name]
        assert asked[key] == value


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_that_wants_fewer_searches_is_reported(name):
    async with open_search_servers() as servers:
        servers.limited = True
        with pytest.raises(ToolError, match=r"allows no more searches now \(status (429|202)\): wait a minute"):
            await search(servers, name, WebQuery("larks"))


@pytest.mark.parametrize("name", ["brave", "tavily", "exa", "google"])
async def test_a_wrong_key_is_reported_without_showing_it(name):
    settings = make_settings(**{f"{name}_key": Secret("wrong-key-99")})
    async with open_search_servers() as servers:
        with pytest.raises(ToolError, match="its key is missing, wrong or has no credit left") as raised:
            await search(servers, name, WebQuery("larks"), settings)
    assert "wrong-key-99" not in str(raised.value)


async def test_searxng_without_json_says_what_to_change():
    async with open_search_servers() as servers:
        servers.json_allowed = False
        with pytest.raises(ToolError, match=r"add it to search\.formats"):
            await search(servers, "searxng", WebQuery("larks"))


async def test_a_server_that_is_no_search_service_is_reported():
    async with open_search_servers() as servers:
        with pytest.raises(ToolError, match="failed with status 404"):
            servers.url = lambda name: f"http://{servers.place}/elsewhere"
            await search(servers, "searxng", WebQuery("larks"))


async def test_a_private_host_that_is_not_the_configured_one_is_not_asked():
    async with open_search_servers() as servers:
        with pytest.raises(ToolError, match="private network"):
            await search(servers, "searxng", WebQuery("larks"), place="10.0.0.1")
    assert servers.asked == []


def test_duckduckgo_results_are_unwrapped_and_advertisements_left_out():
    found = parse_duckduckgo(duckduckgo_page())
    assert [(each.title, each.url, each.snippet) for each in found] == [*zip(TITLES, URLS, SNIPPETS, strict=True)]


@pytest.mark.parametrize("page", ["", "<a class=result__a>", "<a class='result__a' href='//x.org'><b>T", "\0<<<>>>"])
def test_broken_pages_of_duckduckgo_give_no_error(page):
    assert len(parse_duckduckgo(page)) <= 1


def test_the_first_configured_service_is_chosen():
    nothing = WebConfig()
    assert choose_service(nothing, has_plugin=False).name == "duckduckgo"
    assert choose_service(nothing, has_plugin=True).name == "plugin"
    assert choose_service(WebConfig(exa_key=Secret("k")), has_plugin=False).name == "exa"
    assert choose_service(WebConfig(exa_key=Secret("k")), has_plugin=True).name == "plugin"
    assert choose_service(WebConfig(searxng_url="http://x", brave_key=Secret("k")), has_plugin=True).name == "searxng"


def test_google_needs_an_engine_as_well():
    assert choose_service(WebConfig(google_key=Secret("k")), has_plugin=False).name == "duckduckgo"
    assert choose_service(make_settings(search="google"), has_plugin=False).problem == ""
    assert (
        "web.google_engine is not set"
        in choose_service(make_settings(search="google", google_engine=""), False).problem
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("searxng", 'web.search is "searxng", but web.searxng_url is not set.'),
        ("brave", 'web.search is "brave", but BRAVE_API_KEY is not set.'),
        ("plugin", 'web.search is "plugin", but no enabled plugin can search the web.'),
    ],
)
def test_a_chosen_service_that_is_not_configured_says_what_is_missing(name, why):
    assert choose_service(WebConfig(search=name), has_plugin=False).problem == why
