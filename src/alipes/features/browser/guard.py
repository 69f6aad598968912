"""The request guard of one conversation: decides about every request of its pages.

Documents are decided like other connections, so a person may be asked. What a document loads from other hosts is never
asked about: it is allowed by rules, or because it belongs to the document's site, or blocked and counted. The guard is
asked twice: before a request is sent, and by the egress proxy for each connection, which also sees redirects,
WebSockets and requests of workers, and checks the address that a name resolves to.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from alipes.features.browser.settings import Subresources
from alipes.runtime.http.egress import EgressRequest, EgressRule, format_authority, is_address, normalise_host
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.sandbox.backend import CommandScope

SCHEME = "browser"
MAX_QUESTIONS = 5
"""Hosts that one act may lead to with a question each: a page could open any number of others."""
CLASSIFY_S = 5.0
"""Seconds until it is known what a new connection is for: the browser reports that separately."""
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_INTERNAL = ("data", "blob", "about")
_USUAL_PORTS = (80, 443)
_OTHER_SITE = " is another site than the page. To allow it, add it to egress.allow in config.toml."
HostPort = tuple[str, int]


class EgressDecider(Protocol):
    """Decides about connections: by rules, or by asking the person."""

    def rule(self, request: EgressRequest) -> EgressRule: ...

    async def decide(self, request: EgressRequest) -> str:
        """Why the connection is not allowed, as a sentence; empty if it is."""


class GuardReport(Struct, frozen=True):
    """What was refused since the last report."""

    documents: tuple[str, ...] = ()
    """Sentences about documents that were not loaded."""
    blocked: tuple[tuple[str, int], ...] = ()
    """Other hosts, and how many requests to each were blocked."""


def parse_place(url: str) -> HostPort | None:
    """Host and port of a URL; None if it needs no connection. Raises ValueError if it is not allowed."""
    parts = urlsplit(url)
    if parts.scheme in _INTERNAL:
        return None
    if parts.scheme not in _PORTS:
        raise ValueError(f"addresses that begin with {parts.scheme[:20] or '(nothing)'}: are not opened")
    return normalise_host(parts.hostname or ""), parts.port or _PORTS[parts.scheme]


def is_same_site(host: str, document: str) -> bool:
    """True if `host` is the document's host or below it; `www.` in front does not count."""
    site = document.removeprefix("www.")
    return host == document or (not is_address(site) and (host == site or host.endswith(f".{site}")))


class PageGuard:
    """Decides for the pages of one conversation. Only while a tool uses them is anybody asked."""

    def __init__(self, rights: EgressDecider, addresses: AddressGuard, subresources: Subresources) -> None:
        self._rights, self._addresses, self._subresources = rights, addresses, subresources
        self._scope = CommandScope()
        self._approved: set[HostPort] = set()
        """Places of documents that are allowed in this turn."""
        self._documents: set[HostPort] = set()
        self._resources: set[HostPort] = set()
        """What the browser reported requests to these places to be."""
        self._reported = asyncio.Event()
        self._refused: dict[str, None] = {}
        self._blocked: Counter[str] = Counter()
        self._questions = 0
        self._asking = 0
        self._answered = asyncio.Event()
        self._answered.set()
        self._deadline: asyncio.Timeout | None = None
        self.document_requests = 0
        """How many documents were requested so far."""

    @asynccontextmanager
    async def act(self, scope: CommandScope, seconds: float) -> AsyncIterator[None]:
        """While a tool uses the pages for `scope`. Raises TimeoutError after `seconds`, without those in which a
        person is asked."""
        before, now = self._scope.turn, scope.turn
        if before is None or now is None or before.id != now.id:
            self._approved.clear()
        self._scope, self._questions = scope, 0
        self._documents.clear()
        self._resources.clear()
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                yield
        finally:
            self._deadline = None

    async def wait_for_answers(self) -> None:
        """Until no question is open."""
        await self._answered.wait()

    def is_approved(self, url: str) -> bool:
        """True if documents of this place need no question in this turn."""
        try:
            place = parse_place(url)
        except ValueError:
            return False
        return place is None or place in self._approved

    async def check(self, url: str, *, document: bool) -> str:
        """Why a request is not sent, as a sentence; empty if it is."""
        try:
            place = parse_place(url)
        except ValueError as error:
            return self._refuse(f"Not opened: {error}.", document=document)
        if place is None:
            return ""
        host, port = place
        if is_address(host) and not self._addresses.permits(host, port, host):
            return self._refuse(_describe_private(host), document=document, host=host)
        if document:
            self.document_requests += 1
            return await self._decide_document(place)
        return self._decide_resource(place)

    def report_request(self, url: str, *, document: bool) -> None:
        """The browser says what a request is, also after a redirect."""
        try:
            place = parse_place(url)
        except ValueError:
            return
        if place is not None:
            (self._documents if document else self._resources).add(place)
            self.document_requests += document
            self._reported.set()

    async def decide(self, request: EgressRequest) -> str:
        """Why the egress proxy must not connect, as a sentence; empty if it may."""
        place = (request.host, request.port)
        if place in self._approved or self._allows_resource(place):
            return ""
        try:
            async with asyncio.timeout(CLASSIFY_S):
                while place not in self._documents and place not in self._resources:
                    self._reported.clear()
                    await self._reported.wait()
        except TimeoutError:
            pass
        if place in self._documents:
            return await self._decide_document(place)
        if place in self._resources:
            return self._decide_resource(place)
        return _describe_blocked(request.host)

    def take_report(self) -> GuardReport:
        report = GuardReport(tuple(self._refused), tuple(self._blocked.most_common()))
        self._refused, self._blocked = {}, Counter()
        return report

    async def _decide_document(self, place: HostPort) -> str:
        request = EgressRequest(*place, SCHEME, self._scope)
        if self._rights.rule(request) == "ask":
            if self._deadline is None and place not in self._approved:
                why = f"The page tried to open {format_authority(*place)} by itself, which was not allowed."
                return self._refuse(why, document=True)
            if place not in self._approved:
                self._questions += 1
                if self._questions > MAX_QUESTIONS:
                    why = f"{place[0]} was not opened: this page leads to more than {MAX_QUESTIONS} other hosts."
                    return self._refuse(why, document=True)
        with self._pause_deadline():
            why = await self._rights.decide(request)
        if why:
            return self._refuse(why, document=True)
        self._approved.add(place)
        return ""

    def _decide_resource(self, place: HostPort) -> str:
        if self._allows_resource(place):
            return ""
        return self._refuse(_describe_blocked(place[0]), document=False, host=place[0])

    def _allows_resource(self, place: HostPort) -> bool:
        host, port = place
        rule = self._rights.rule(EgressRequest(host, port, SCHEME, self._scope))
        if rule != "ask":
            return rule == "allow"
        if place in self._approved or self._subresources == "public":
            return True
        return any(
            is_same_site(host, approved) and port in (known, *_USUAL_PORTS) for approved, known in self._approved
        )

    def _refuse(self, why: str, *, document: bool, host: str = "") -> str:
        if document:
            self._refused[why] = None
        else:
            self._blocked[host or "invalid addresses"] += 1
        return why

    @contextmanager
    def _pause_deadline(self) -> Iterator[None]:
        """Time in which a person is asked does not count."""
        deadline, loop = self._deadline, asyncio.get_running_loop()
        when = deadline.when() if deadline is not None and not deadline.expired() else None
        left = None if when is None else when - loop.time()
        if deadline is not None and left is not None:
            deadline.reschedule(None)
        self._asking += 1
        self._answered.clear()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._answered.set()
            if deadline is not None and left is not None and deadline is self._deadline and not deadline.expired():
                deadline.reschedule(loop.time() + max(left, 0.0))


def _describe_private(host: str) -> str:
    return (
        f"{host} is an address of this machine or of a private network. To allow it, add it to fetch.allow in "
        "config.toml."
    )


def _describe_blocked(host: str) -> str:
    return f"{host}{_OTHER_SITE}"


def is_about_resource(sentence: str) -> bool:
    """True if it says that a part of a page was blocked."""
    return sentence.endswith(_OTHER_SITE)
