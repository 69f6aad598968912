"""Search services: SearXNG, Brave, Tavily, Exa, Google and DuckDuckGo, each over our own HTTP client."""

import datetime
import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from alipes.features.web_search.search_client import Recency, SearchClient, SearchesWeb, SearchResult, WebQuery
from alipes.features.web_search.settings import WebConfig
from alipes.kernel.errors import ToolError
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope

BRAVE_URL = "https://api.search.brave.com"
TAVILY_URL = "https://api.tavily.com"
EXA_URL = "https://api.exa.ai"
GOOGLE_URL = "https://www.googleapis.com"
DUCKDUCKGO_URL = "https://html.duckduckgo.com"
NAMES = {
    "searxng": "SearXNG",
    "plugin": "a plugin",
    "brave": "Brave",
    "tavily": "Tavily",
    "exa": "Exa",
    "google": "Google",
    "duckduckgo": "DuckDuckGo",
}
_TAG = r"<[^>]{0,200}>"
_DAYS = {"day": 1, "week": 7, "month": 31, "year": 366}


class Searxng:
    """A SearXNG server of the operator; its settings must allow the format `json`."""

    name = "SearXNG"

    def __init__(self, client: SearchClient) -> None:
        self._client = client

    async def search(self, query: WebQuery, caller: CommandScope) -> tuple[SearchResult, ...]:
        asked = {"q": query.text, "format": "json", "time_range": query.recency}
        try:
            found = self._client.parse(await self._client.get("/search", asked, caller))
        except ToolError as error:
            if "status 403" in str(error):
                raise ToolError(
                    "SearXNG refuses the format json: add it to search.formats in its settings.yml"
                ) from error
            raise
        return _results(found, ("results",), snippet="content", date="publishedDate")


class Brave:
    name = "Brave"

    def __init__(self, client: SearchClient, key: str) -> None:
        self._client, self._key = client, key

    async def search(self, query: WebQuery, caller: CommandScope) -> tuple[SearchResult, ...]:
        asked = {
            "q": query.text,
            "count": query.limit,
            "freshness": {"day": "pd", "week": "pw", "month": "pm", "year": "py"}.get(query.recency, ""),
        }
        headers = {"x-subscription-token": self._key, "accept": "application/json"}
        answer = await self._client.get("/res/v1/web/search", asked, caller, headers=headers)
        return _results(self._client.parse(answer), ("web", "results"), snippet="description", date="page_age")


class Tavily:
    name = "Tavily"

    def __init__(self, client: SearchClient, key: str) -> None:
        self._client, self._key = client, key

    async def search(self, query: WebQuery, caller: CommandScope) -> tuple[SearchResult, ...]:
        asked = {"query": query.text, "max_results": query.limit, "time_range": query.recency}
        found = await self._client.post("/search", asked, caller, headers={"authorization": f"Bearer {self._key}"})
        return _results(found, ("results",), snippet="content", date="published_date")


class Exa:
    name = "Exa"

    def __init__(self, client: SearchClient, key: str) -> None:
        self._client, self._key = client, key

    async def search(self, query: WebQuery, caller: CommandScope) -> tuple[SearchResult, ...]:
        asked = {
            "query": query.text,
            "numResults": query.limit,
            "contents": {"highlights": True},
            "startPublishedDate": _since(query.recency),
        }
        found = await self._client.post("/search", asked, caller, headers={"x-api-key": self._key})
        return _results(found, ("results",), snippet="highlights", date="publishedDate")


class Google:
    """Google's Programmable Search Engine: at most ten results per request."""

    name = "Google"

    def __init__(self, client: SearchClient, key: str, engine: str) -> None:
        self._client, self._key, self._engine = client, key, engine

    async def search(self, query: WebQuery, caller: CommandScope) -> tuple[SearchResult, ...]:
        asked = {
            "q": query.text,
            "cx": self._engine,
            "num": min(query.limit, 10),
            "dateRestrict": f"{query.recency[0]}1" if query.recency else "",
        }
        headers = {"x-goog-api-key": self._key}  # not in the URL, which proxies may log
        found = self._client.parse(await self._client.get("/customsearch/v1", asked, caller, headers=headers))
        return _results(found, ("items",), url="link", snippet="snippet", date="")


def _since(recency: Recency) -> str:
    if not recency:
        return ""
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=_DAYS[recency])
    return start.strftime("%Y-%m-%dT00:00:00.000Z")


def _results(
    answer: Any, path: Iterable[str], *, snippet: str, date: str, url: str = "url"
) -> tuple[SearchResult, ...]:
    """The results in an answer of JSON, at `path`; what has another form is left out."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    listed = [each for each in answer if isinstance(each, dict)] if isinstance(answer, list) else []
    return tuple(
        SearchResult(_plain(each.get("title")), str(each[url]), _plain(each.get(snippet)), str(each.get(date) or ""))
        for each in listed
        if isinstance(each.get(url), str)
    )


def _plain(value: Any) -> str:
    """Text without tags; the parts of a list joined."""
    text = " … ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    import html  # noqa: PLC0415

    return html.unescape(re.sub(_TAG, "", text))


class ChosenService(Struct, frozen=True):
    name: str
    """As in `web.search`."""
    problem: str = ""
    """Why it cannot be used, and what to do."""


def choose_service(settings: WebConfig, has_plugin: bool) -> ChosenService:
    """The service that the settings mean, and what is missing for it."""
    missing = {
        "searxng": "" if settings.searxng_url else "web.searxng_url is not set",
        "plugin": "" if has_plugin else "no enabled plugin can search the web",
        "brave": _missing_key(settings.brave_key.reveal(), settings.brave_key_env),
        "tavily": _missing_key(settings.tavily_key.reveal(), settings.tavily_key_env),
        "exa": _missing_key(settings.exa_key.reveal(), settings.exa_key_env),
        "google": _missing_key(settings.google_key.reveal(), settings.google_key_env)
        or ("" if settings.google_engine else "web.google_engine is not set"),
        "duckduckgo": "",
    }
    if settings.search == "auto":
        return ChosenService(next(name for name, problem in missing.items() if not problem))
    why = missing[settings.search]
    return ChosenService(settings.search, f'web.search is "{settings.search}", but {why}.' if why else "")


def _missing_key(key: str, variable: str) -> str:
    return "" if key else f"{variable or 'its key_env'} is not set"


def service_url(name: str, settings: WebConfig) -> str:
    """Where a service is; empty for a plugin."""
    urls = {"brave": BRAVE_URL, "tavily": TAVILY_URL, "exa": EXA_URL, "google": GOOGLE_URL, "plugin": ""}
    return {**urls, "duckduckgo": DUCKDUCKGO_URL, "searxng": settings.searxng_url}[name]


def open_service(name: str, settings: WebConfig, fetcher: PublicFetcher, base_url: str = "") -> SearchesWeb:
    """The service of that name; `base_url`: instead of its own address."""
    client = SearchClient(NAMES[name], fetcher, base_url or service_url(name, settings), settings.timeout)
    services: dict[str, Callable[[], SearchesWeb]] = {
        "searxng": lambda: Searxng(client),
        "brave": lambda: Brave(client, settings.brave_key.reveal()),
        "tavily": lambda: Tavily(client, settings.tavily_key.reveal()),
        "exa": lambda: Exa(client, settings.exa_key.reveal()),
        "google": lambda: Google(client, settings.google_key.reveal(), settings.google_engine),
        "duckduckgo": lambda: _open_duckduckgo(client),
    }
    return services[name]()


def _open_duckduckgo(client: SearchClient) -> SearchesWeb:
    from alipes.features.web_search.duckduckgo import DuckDuckGo  # noqa: PLC0415

    return DuckDuckGo(client)
