"""Searches DuckDuckGo without a key, and reads its page of results."""

from html.parser import HTMLParser
from urllib.parse import parse_qs, urlsplit

from alipes.features.web_search.search_client import SearchClient, SearchResult, WebQuery
from alipes.kernel.errors import ToolError
from alipes.runtime.http.public_fetch import FetchError
from alipes.runtime.sandbox.backend import CommandScope


class DuckDuckGo:
    """DuckDuckGo's page for browsers without scripts: docs/adr/0031 says why not the package `ddgs`."""

    name = "DuckDuckGo"

    def __init__(self, client: SearchClient) -> None:
        self._client = client

    async def search(self, query: WebQuery, caller: CommandScope) -> tuple[SearchResult, ...]:
        answer = await self._client.post_form("/html/", {"q": query.text, "df": query.recency[:1]}, caller)
        page = answer.data.decode("utf-8", "replace")
        results = parse_duckduckgo(page)
        if not results and "anomaly" in page:
            raise ToolError(self._client.explain(FetchError("", 202)))
        return results


def parse_duckduckgo(page: str) -> tuple[SearchResult, ...]:
    """The results in a page of html.duckduckgo.com, without advertisements."""
    parser = _DuckDuckGoParser()
    parser.feed(page)
    parser.close()
    return tuple(parser.results)


class _DuckDuckGoParser(HTMLParser):
    """A result is a link of the class `result__a`, followed by one of the class `result__snippet`."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[SearchResult] = []
        self._field, self._texts = "", list[str]()
        self._url, self._title = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        classes = given.get("class", "").split()
        if "result__a" in classes:
            self._add()
            self._field, self._texts, self._url = "title", [], _unwrap(given.get("href", ""))
        elif "result__snippet" in classes:
            self._field, self._texts = "snippet", []

    def handle_data(self, data: str) -> None:
        if self._field:
            self._texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        if not self._field or tag not in ("a", "div", "td"):
            return
        text, field, self._field = "".join(self._texts).strip(), self._field, ""
        if field == "title":
            self._title = text
        else:
            self._add(text)

    def close(self) -> None:
        super().close()
        self._add()

    def _add(self, snippet: str = "") -> None:
        if self._url and self._title:
            self.results.append(SearchResult(self._title, self._url, snippet))
        self._url = self._title = ""


def _unwrap(link: str) -> str:
    """The target of a link, which may lead over DuckDuckGo; empty for an advertisement."""
    parts = urlsplit(f"https:{link}" if link.startswith("//") else link)
    if parts.netloc.endswith("duckduckgo.com"):
        return parse_qs(parts.query).get("uddg", [""])[0] if parts.path.startswith("/l/") else ""
    return link
