"""Queries, results and HTTP requests of search services."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias, get_args
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from alipes import __version__
from alipes.kernel.errors import ToolError
from alipes.runtime.http.public_fetch import GET, FetchedResource, FetchError, FetchRequest, PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope

Recency: TypeAlias = Literal["", "day", "week", "month", "year"]
RECENCIES: tuple[Recency, ...] = tuple(each for each in get_args(Recency) if each)
MAX_ANSWER_BYTES = 4_000_000
USER_AGENT = f"Mozilla/5.0 (compatible; alipes/{__version__})"


class WebQuery(Struct, frozen=True):
    text: str
    limit: int = 5
    recency: Recency = ""


class SearchResult(Struct, frozen=True):
    title: str
    url: str
    snippet: str = ""
    date: str = ""
    """As in 2026-11-17; may be empty."""


class SearchesWeb(Protocol):
    """A search service."""

    name: str

    async def search(self, query: WebQuery, caller: CommandScope) -> tuple[SearchResult, ...]:
        """Results in their order. Raises `ToolError`."""


class SearchClient(Struct, frozen=True):
    """Sends requests of a service and explains its errors."""

    name: str
    fetcher: PublicFetcher
    base_url: str
    seconds: float = 30.0

    async def get(
        self, path: str, query: Mapping[str, object], caller: CommandScope, *, headers: Mapping[str, str] | None = None
    ) -> FetchedResource:
        given = {name: str(value) for name, value in query.items() if value not in ("", None)}
        request = FetchRequest(dict(headers)) if headers else GET
        return await self._fetch(f"{self.base_url.rstrip('/')}{path}?{urlencode(given)}", caller, request)

    async def post(
        self, path: str, body: Mapping[str, object], caller: CommandScope, *, headers: Mapping[str, str]
    ) -> Any:
        given = {name: value for name, value in body.items() if value not in ("", None)}
        request = FetchRequest({"content-type": "application/json", **headers}, msgspec.json.encode(given))
        return self.parse(await self._fetch(f"{self.base_url.rstrip('/')}{path}", caller, request))

    async def post_form(self, path: str, form: Mapping[str, str], caller: CommandScope) -> FetchedResource:
        headers = {"content-type": "application/x-www-form-urlencoded", "user-agent": USER_AGENT}
        request = FetchRequest(headers, urlencode({name: text for name, text in form.items() if text}).encode())
        return await self._fetch(f"{self.base_url.rstrip('/')}{path}", caller, request)

    def parse(self, answer: FetchedResource) -> Any:
        try:
            return msgspec.json.decode(answer.data)
        except msgspec.DecodeError as error:
            raise ToolError(f"{self.name} gave an answer that is not JSON: check its address and settings") from error

    async def _fetch(self, url: str, caller: CommandScope, request: FetchRequest) -> FetchedResource:
        try:
            return await self.fetcher.fetch(
                url, largest=MAX_ANSWER_BYTES, seconds=self.seconds, caller=caller, request=request
            )
        except FetchError as error:
            raise ToolError(self.explain(error)) from error

    def explain(self, error: FetchError) -> str:
        match error.status:
            case 429 | 202:
                why = f"allows no more searches now (status {error.status}): wait a minute, or use another service"
            case 401 | 403:
                why = f"refuses the request (status {error.status}): its key is missing, wrong or has no credit left"
            case 0:
                why = f"could not be asked: {error}"
            case _:
                why = f"failed with status {error.status}"
        return f"{self.name} {why}"
