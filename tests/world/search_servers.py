"""Loopback search services with the wire formats of SearXNG, Brave, Tavily, Exa, Google and DuckDuckGo.

Each checks what it is asked as strictly as the real one is documented to, and answers with the same two results.
"""

import html
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tests.world.loopback import open_site

KEY = "search-key-123456"
ENGINE = "cx-1"
TITLES = ("Larks of Vienna", "The skylark")
URLS = ("https://larks.example/vienna?a=1&b=2", "https://birds.example/skylark")
SNIPPETS = ("Larks sing in the morning & at noon.", "A small brown bird.")
DATE = "2026-03-04"


class SearchServers:
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """The service and its parameters, for each search."""
        self.limited = False
        """No more searches are allowed."""
        self.json_allowed = True
        """SearXNG: the settings allow the format json."""
        self.port = 0

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.port}/{service}"

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._limit])
        app.router.add_get("/searxng/search", self._searxng)
        app.router.add_get("/brave/res/v1/web/search", self._brave)
        app.router.add_post("/tavily/search", self._tavily)
        app.router.add_post("/exa/search", self._exa)
        app.router.add_get("/google/customsearch/v1", self._google)
        app.router.add_post("/duckduckgo/html/", self._duckduckgo)
        return app

    @web.middleware
    async def _limit(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if not self.limited:
            return await handler(request)
        if request.path.startswith("/duckduckgo"):  # it answers with a page that asks for a captcha
            return web.Response(status=202, text="<div class='anomaly-modal'>bots</div>", content_type="text/html")
        return web.json_response({"error": "rate limited"}, status=429, headers={"retry-after": "60"})

    def _record(self, service: str, given: dict[str, Any], *, known: set[str]) -> None:
        if unknown := given.keys() - known:
            raise web.HTTPBadRequest(text=f"unknown parameters: {unknown}")
        self.asked.append((service, given))

    async def _searxng(self, request: web.Request) -> web.Response:
        given = dict(request.query)
        if given.get("format") != "json" or not self.json_allowed:
            raise web.HTTPForbidden
        if given.get("time_range", "day") not in ("day", "week", "month", "year"):
            raise web.HTTPBadRequest
        self._record("searxng", given, known={"q", "format", "time_range"})
        found = [
            {"title": title, "url": url, "content": snippet, "engine": "x", "publishedDate": f"{DATE}T00:00:00"}
            for title, url, snippet in zip(TITLES, URLS, SNIPPETS, strict=True)
        ]
        return web.json_response({"query": given["q"], "results": found, "suggestions": []})

    async def _brave(self, request: web.Request) -> web.Response:
        if request.headers.get("x-subscription-token") != KEY:
            raise web.HTTPUnauthorized
        given = dict(request.query)
        if not 1 <= int(given["count"]) <= 20 or given.get("freshness", "pd") not in ("pd", "pw", "pm", "py"):
            raise web.HTTPUnprocessableEntity
        self._record("brave", given, known={"q", "count", "freshness"})
        found = [
            {
                "title": title,
                "url": url,
                "description": f"<strong>{html.escape(snippet)}</strong>",
                "page_age": f"{DATE}T01:02:03",
            }
            for title, url, snippet in zip(TITLES, URLS, SNIPPETS, strict=True)
        ]
        return web.json_response({"type": "search", "web": {"type": "search", "results": found}})

    async def _tavily(self, request: web.Request) -> web.Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise web.HTTPUnauthorized
        given = await request.json()
        self._record("tavily", given, known={"query", "max_results", "time_range"})
        found = [
            {"title": title, "url": url, "content": snippet, "score": 0.9, "published_date": DATE}
            for title, url, snippet in zip(TITLES, URLS, SNIPPETS, strict=True)
        ]
        return web.json_response({"query": given["query"], "results": found, "response_time": 0.1})

    async def _exa(self, request: web.Request) -> web.Response:
        if request.headers.get("x-api-key") != KEY:
            raise web.HTTPUnauthorized
        given = await request.json()
        self._record("exa", given, known={"query", "numResults", "contents", "startPublishedDate"})
        found = [
            {"id": url, "title": title, "url": url, "highlights": [snippet], "publishedDate": f"{DATE}T00:00:00.000Z"}
            for title, url, snippet in zip(TITLES, URLS, SNIPPETS, strict=True)
        ]
        return web.json_response({"requestId": "1", "results": found})

    async def _google(self, request: web.Request) -> web.Response:
        if request.headers.get("x-goog-api-key") != KEY or request.query.get("cx") != ENGINE:
            raise web.HTTPForbidden
        given = dict(request.query)
        if not 1 <= int(given["num"]) <= 10:
            raise web.HTTPBadRequest
        self._record("google", given, known={"q", "cx", "num", "dateRestrict"})
        found = [
            {"kind": "customsearch#result", "title": title, "link": url, "snippet": snippet}
            for title, url, snippet in zip(TITLES, URLS, SNIPPETS, strict=True)
        ]
        return web.json_response({"kind": "customsearch#search", "items": found})

    async def _duckduckgo(self, request: web.Request) -> web.Response:
        given = dict(await request.post())
        if "Mozilla" not in request.headers.get("user-agent", ""):
            raise web.HTTPForbidden
        self._record("duckduckgo", given, known={"q", "df"})
        return web.Response(text=duckduckgo_page(), content_type="text/html")


def duckduckgo_page() -> str:
    """Results as html.duckduckgo.com shows them: an advertisement first, links over its own redirect."""
    rows = [
        '<div class="result result--ad"><h2 class="result__title"><a rel="nofollow" class="result__a" '
        'href="https://duckduckgo.com/y.js?ad_domain=shop.example">Buy larks</a></h2>'
        '<a class="result__snippet" href="https://duckduckgo.com/y.js?x">cheap</a></div>'
    ]
    for title, url, snippet in zip(TITLES, URLS, SNIPPETS, strict=True):
        link = f"//duckduckgo.com/l/?uddg={quote(url, safe='')}&amp;rut=abc"
        rows.append(
            f'<div class="result results_links web-result"><div class="links_main result__body"><h2 class="result__title">'
            f'<a rel="nofollow" class="result__a" href="{link}">{html.escape(title)}</a></h2>'
            f'<div class="result__extras"><a class="result__url" href="{link}">larks.example</a></div>'
            f'<a class="result__snippet" href="{link}">{html.escape(snippet).replace("small", "<b>small</b>")}</a>'
            "</div></div>"
        )
    return f"<!DOCTYPE html><html><body><div id='links'>{''.join(rows)}</div></body></html>"


@asynccontextmanager
async def open_search_servers() -> AsyncIterator[SearchServers]:
    servers = SearchServers()
    runner, servers.port = await open_site(servers.app(), 0)
    try:
        yield servers
    finally:
        await runner.cleanup()
