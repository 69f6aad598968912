"""Reads web pages: fetches politely, recognises the type, converts to Markdown, remembers them per conversation."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import urldefrag, urlsplit

from msgspec import Struct

from alipes.features.web_search.converter import ConvertJob, PageConverter, PageKind
from alipes.features.web_search.settings import WebConfig
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import image_type
from alipes.runtime.http.public_fetch import FetchedResource, FetchError, FetchRequest, PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.documents.documents import DocumentConverter, document_kind

MAX_CACHED_PAGES = 32
MAX_CACHED_CHARS = 4_000_000
"""Of one conversation."""
MAX_CONVERSATIONS = 64
ACCEPT = FetchRequest({"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,text/*;q=0.9,*/*;q=0.5"})
SNIFFED_BYTES = 4096
NO_TEXT = "it has no readable text; it may need JavaScript: use a browser tool if you have one"
_TEXT_KINDS = ("json", "javascript", "yaml", "toml", "csv", "markdown", "x-sh", "sql", "graphql", "x-ndjson")
_FEED_KINDS = ("application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+json")


class WebPage(Struct, frozen=True):
    """What was read from a URL: a text, or an image."""

    url: str
    """After redirects."""
    text: str = ""
    title: str = ""
    note: str = ""
    image: bytes = b""


ReadRemotely: TypeAlias = Callable[[str], Awaitable[WebPage]]
"""Reads a page with another service. Raises `ToolError`."""


class HostLimits:
    """At most `parallel` requests to a host at the same time, and `delay` seconds between their starts."""

    def __init__(self, parallel: int, delay: float) -> None:
        self._parallel, self._delay = parallel, delay
        self._hosts: dict[str, _HostState] = {}

    @asynccontextmanager
    async def reserve(self, host: str) -> AsyncIterator[None]:
        """Wait until a request to the host may start; released at the end of the context."""
        loop = asyncio.get_running_loop()
        self._forget_idle(loop.time())
        state = self._hosts.setdefault(host, _HostState(self._parallel))
        state.users += 1
        try:
            async with state.places:
                state.next_start, start = max(state.next_start, loop.time()) + self._delay, state.next_start
                if (left := start - loop.time()) > 0:
                    await asyncio.sleep(left)
                yield
        finally:
            state.users -= 1

    def _forget_idle(self, now: float) -> None:
        self._hosts = {host: state for host, state in self._hosts.items() if state.users or state.next_start > now}


class _HostState:
    def __init__(self, parallel: int) -> None:
        self.places = asyncio.Semaphore(parallel)
        self.next_start = 0.0
        self.users = 0


class PageCache:
    """The pages that conversations have read, for a limited time."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._conversations: OrderedDict[str, OrderedDict[str, tuple[float, WebPage]]] = OrderedDict()

    def find(self, session: str, url: str) -> WebPage | None:
        known = self._conversations.get(session)
        read_at, page = (0.0, None) if known is None else known.get(url, (0.0, None))
        return page if page is not None and self._clock() < read_at + self._seconds else None

    def add(self, session: str, url: str, page: WebPage) -> None:
        if not self._seconds or len(page.text) > MAX_CACHED_CHARS or page.image:
            return
        pages = self._conversations.setdefault(session, OrderedDict())
        self._conversations.move_to_end(session)
        pages[url] = self._clock(), page
        pages.move_to_end(url)
        while len(pages) > MAX_CACHED_PAGES or sum(len(each.text) for _, each in pages.values()) > MAX_CACHED_CHARS:
            pages.popitem(last=False)
        while len(self._conversations) > MAX_CONVERSATIONS:
            self._conversations.popitem(last=False)

    def forget(self, session: str) -> None:
        self._conversations.pop(session, None)


class PageReader:
    """Reads a page for a conversation, from the web or from the cache."""

    def __init__(
        self,
        fetcher: PublicFetcher,
        converter: PageConverter,
        settings: WebConfig,
        *,
        documents: DocumentConverter,
        choose_remote: Callable[[], ReadRemotely | None] = lambda: None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`documents` converts PDFs and office files. `choose_remote()`: what reads pages instead, if anything; only
        URLs that may be fetched are given to it.
        """
        self._fetcher, self._converter, self._documents, self._settings = fetcher, converter, documents, settings
        self._choose_remote = choose_remote
        self._limits = HostLimits(settings.parallel, settings.delay)
        self._cache = PageCache(settings.cache, clock or asyncio.get_running_loop().time)

    async def session_left(self, session: str) -> None:
        """Hook: the pages of a conversation that was left are forgotten."""
        self._cache.forget(session)

    async def read(self, url: str, caller: CommandScope) -> WebPage:
        """The whole page. Raises `ToolError`."""
        url = check_url(url)
        if (known := self._cache.find(caller.session, url)) is not None:
            return known
        remote = self._choose_remote()
        page = await (self._fetch(url, caller) if remote is None else self._read_remotely(remote, url, caller))
        self._cache.add(caller.session, url, page)
        return page

    async def _fetch(self, url: str, caller: CommandScope) -> WebPage:
        self._converter.prepare()
        try:
            async with self._limits.reserve(urlsplit(url).netloc):
                found = await self._fetcher.fetch(
                    url, largest=self._settings.max_bytes, seconds=self._settings.timeout, caller=caller, request=ACCEPT
                )
        except FetchError as error:
            raise ToolError(explain_fetch(error)) from error
        return await self._convert(found)

    async def _read_remotely(self, remote: ReadRemotely, url: str, caller: CommandScope) -> WebPage:
        try:
            await self._fetcher.check(url, caller)
        except FetchError as error:
            raise ToolError(str(error)) from error
        return await remote(url)

    async def _convert(self, found: FetchedResource) -> WebPage:
        if found.kind.startswith("image/") or image_type(found.data[:64]):
            return WebPage(found.url, image=found.data)
        if document := document_kind(found.data[:SNIFFED_BYTES], urlsplit(found.url).path):
            return await self._convert_document(found, document)
        kind = recognise_kind(found.kind, found.data)
        if kind is None:
            raise ToolError(
                f"it is {found.kind or 'a file of an unknown type'} ({len(found.data):,} bytes), which is not text; "
                "to use it, download it with the terminal tool"
            )
        job = ConvertJob(kind, found.data, found.charset, found.url)
        made = await self._converter.convert(job)
        if not made.text:
            raise ToolError(made.note or NO_TEXT)
        return WebPage(found.url, made.text, made.title, made.note)

    async def _convert_document(self, found: FetchedResource, kind: str) -> WebPage:
        try:
            made = await self._documents.convert(found.data, kind)
        except ToolError as error:
            raise ToolError(f"it {error}") from error
        if not made.text.strip():
            raise ToolError(f"it has no text ({made.summary})")
        return WebPage(found.url, made.text, note=made.summary)


def check_url(url: str) -> str:
    """The URL without its fragment. Raises `ToolError` for what is not a web address."""
    url = urldefrag(url.strip())[0]
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ToolError(f"{url[:200]!r} is not a URL: {error}") from error
    if parts.scheme.lower() not in ("http", "https") or not parts.netloc:
        raise ToolError(f"{url[:200]!r} is not a web address: give a whole URL, as in https://example.org/page")
    return url


def explain_fetch(error: FetchError) -> str:
    hints = {
        401: "it needs a login",
        403: "the site refuses programs, or it needs a login",
        404: "there is no such page",
        410: "the page was removed",
        429: "the site wants fewer requests; try later or another source",
        503: "the site is overloaded or refuses programs; try later or another source",
    }
    return f"{error}: {hints[error.status]}" if error.status in hints else str(error)


def recognise_kind(media_type: str, data: bytes) -> PageKind | None:
    """How to convert it; None if it is not text. What the bytes say counts more than the server's word."""
    head = data[:2048].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if media_type in _FEED_KINDS[:3] or (head.startswith((b"<?xml", b"<rss", b"<feed", b"<rdf")) and _is_feed(head)):
        return "feed"
    if media_type in ("text/html", "application/xhtml+xml") or b"<html" in head or head.startswith(b"<!doctype html"):
        return "html"
    subtype = media_type.partition("/")[2]
    if media_type.startswith("text/") or subtype.endswith(("+json", "+xml", "xml")) or subtype in _TEXT_KINDS:
        return "text"
    undecided = media_type in ("", "application/octet-stream", "binary/octet-stream")
    return (
        "text" if undecided and data and b"\0" not in data[:SNIFFED_BYTES] and _is_utf8(data[:SNIFFED_BYTES]) else None
    )


def _is_feed(head: bytes) -> bool:
    return any(mark in head for mark in (b"<rss", b"<feed", b"<rdf:rdf"))


def _is_utf8(start: bytes) -> bool:
    try:
        start.decode()
    except UnicodeDecodeError as error:
        return len(start) == SNIFFED_BYTES and error.start > len(start) - 4  # cut inside a character
    return True
