"""One request to a model over HTTP: asks, follows the stream, keeps the order. It knows no API's shape."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import Protocol, TypeVar

import httpx2
import msgspec
from msgspec import Struct

from alipes.kernel.errors import NotAuthorised, ProviderError, Transient
from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint
from alipes.kernel.turns import Delta, Replied, TextDelta, ThinkingDelta
from alipes.providers.errors import Place, fault, masked, network, ours, wait
from alipes.providers.sse import Events, NotEvents, Overlong
from alipes.runtime.http.clients import Http

EXPLAINING = 64 * 1024
"""Bytes we read of a complaint."""
EXPLAINED = 2.0
"""Seconds in which it must come."""
ANTHROPIC_VERSION = "2026-10-21"
T = TypeVar("T")


class Bounds(Struct, frozen=True):
    largest: int = 32 * 1024 * 1024
    """Characters that one answer may have, its thinking and arguments counted in."""
    linger: float = 2.0
    """Seconds we listen on after the answer is whole: for the counts, and to keep the connection."""


class Draft:
    """What has arrived of an answer and was not taken yet. What came together is taken together."""

    def __init__(self) -> None:
        self.length = 0
        """Characters that arrived, also those of calls, which nobody takes."""
        self._kind: type[TextDelta | ThinkingDelta] = TextDelta
        self._pieces: list[str] = []
        self._earlier: deque[Delta] = deque()

    def say(self, text: str) -> None:
        self._add(TextDelta, text)

    def think(self, text: str) -> None:
        self._add(ThinkingDelta, text)

    def take(self) -> Delta | None:
        if self._earlier:
            return self._earlier.popleft()
        if not self._pieces:
            return None
        delta = self._kind("".join(self._pieces))
        self._pieces = []
        return delta

    def _add(self, kind: type[TextDelta | ThinkingDelta], text: str) -> None:
        if kind is not self._kind:
            if self._pieces:
                self._earlier.append(self._kind("".join(self._pieces)))
                self._pieces = []
            self._kind = kind
        if text:
            self._pieces.append(text)
            self.length += len(text)


class Reader(Protocol):
    """Makes an answer of one API's events."""

    draft: Draft
    whole: bool
    """The answer is complete; counts may follow."""
    ended: bool
    """The API's end marker came."""

    def read(self, data: bytes) -> None:
        """Take one event. Raises `ProviderError` kinds."""
        ...

    def reply(self) -> Replied:
        """The whole answer, once it is whole. Raises `Refused` when nothing was said but no."""
        ...


class Outgoing(Struct, frozen=True):
    """A request, ready to be sent."""

    place: Place
    url: str
    headers: dict[str, str]
    content: bytes


class Stream(AbstractAsyncContextManager[AsyncIterator[Delta]]):
    """One answer as it comes. A child task reads the network into the draft, the owner takes from it.

    So a slow owner finds everything that came meanwhile as one delta, and never makes the
    server's connection look stalled. Leaving the context ends the child, and with it the request.
    """

    def __init__(self, http: Http, request: Outgoing, reader: Reader) -> None:
        self._http, self._request, self._reader = http, request, reader
        self.bounds = Bounds()
        self._news = asyncio.Event()
        self._reply: Replied | None = None
        self._failure: ProviderError | None = None
        self._over = False

    async def __aenter__(self) -> AsyncIterator[Delta]:
        self._group = await asyncio.TaskGroup().__aenter__()
        self._reading = self._group.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or not self._reader.whole:
            self._reading.cancel()
        # The group would wrap the owner's error; it is shown only a cancellation, which may be its own.
        try:
            if kind is not None and issubclass(kind, asyncio.CancelledError):
                await self._group.__aexit__(kind, error, trace)
            else:
                await self._group.__aexit__(None, None, None)
        finally:  # both lead back to us, and their tracebacks to all that the turn holds
            self._failure = None
            del self._reading

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while True:
            if (delta := self._reader.draft.take()) is not None:
                return delta
            if self._reply is not None:
                reply, self._reply = self._reply, None
                return reply
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    async def _run(self) -> None:
        place = self._request.place
        try:
            await self._ask()
        except ProviderError as error:
            self._failure = error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            self._failure = network(place, error)
        finally:
            self._over = True
            self._news.set()

    async def _ask(self) -> None:
        request = self._request
        async with self._http.stream(
            "POST", request.url, headers=request.headers, content=request.content
        ) as response:
            plain = response.headers.get("content-encoding", "identity") == "identity"
            async with aclosing(response.aiter_raw() if plain else response.aiter_bytes()) as blocks:
                if response.status_code != 200:
                    raise await _complaint(request.place, response, blocks)
                try:
                    await self._follow(blocks)
                except NotEvents as other:
                    raise await _complaint(request.place, response, blocks, other.begun) from other
                except Overlong as error:
                    raise ProviderError(f"{request.place.who} sent {error}; we read no further") from error

    async def _follow(self, blocks: AsyncIterator[bytes]) -> None:
        """Read to the end of the body. Whatever goes wrong after the answer is whole no longer matters."""
        reader, events = self._reader, Events()
        try:
            async with asyncio.timeout(None) as limit:
                async for block in blocks:
                    if not reader.ended:
                        self._take(events.feed(block))
                    if reader.whole and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + self.bounds.linger)
                if not reader.ended:
                    self._take(events.end())
        except (TimeoutError, httpx2.HTTPError, ProviderError, Overlong):
            if not reader.whole:
                raise
        if not reader.whole:
            raise Transient(f"{self._request.place.who} broke off its answer {_where(reader.draft)}")
        if not reader.ended:
            self._conclude()

    def _take(self, events: list[bytes]) -> None:
        reader, largest = self._reader, self.bounds.largest
        for data in events:
            reader.read(data)
            if reader.draft.length > largest:
                who = self._request.place.who
                raise ProviderError(f"{who} sent an answer of more than {largest} characters")
            if reader.ended:
                self._conclude()
                break
        self._news.set()

    def _conclude(self) -> None:
        try:
            self._reply = self._reader.reply()
        except ProviderError as error:
            self._failure = error


def decoded(decode: "msgspec.json.Decoder[T]", data: bytes, place: Place) -> T:
    """One event's JSON. Damaged bytes may be better next time; another shape will not be."""
    try:
        return decode.decode(data)
    except msgspec.ValidationError as error:
        raise ProviderError(f"{place.who} sent an event that its API does not have: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Transient(f"{place.who} sent a damaged event: {error}") from error


class _Head(Struct):
    type: str = ""


_head = msgspec.json.Decoder(_Head)


def known(decode: "msgspec.json.Decoder[T]", data: bytes, place: Place, types: frozenset[str]) -> T | None:
    """The same for APIs that name their events: one of another name may have any shape, and is None."""
    try:
        return decoded(decode, data, place)
    except ProviderError as error:
        if isinstance(error, Transient) or decoded(_head, data, place).type in types:
            raise
        return None


def headers(endpoint: Endpoint) -> dict[str, str]:
    """What goes with every request; the operator's own headers win."""
    key = endpoint.key.reveal()
    if not key.isascii() or key.split() not in ([key], []):
        raise NotAuthorised(
            f"the key in {endpoint.key_env or endpoint.name} has signs that no key has; copy it again"
        )
    for name, value in endpoint.headers.items():
        if not (name + value).isascii():
            raise ProviderError(
                f"the header {name!r} of provider {endpoint.name} has signs that none may have"
            )
    ours = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        # Compressed events come in lumps, and cost more than they save.
        "accept-encoding": "identity",
    }
    if endpoint.api == "anthropic":
        ours["anthropic-version"] = ANTHROPIC_VERSION
        if key:
            ours["x-api-key"] = key
    elif key:
        ours["authorization"] = f"Bearer {key}"
    return ours | {name.lower(): value for name, value in endpoint.headers.items()}


def outgoing(endpoint: Endpoint, model: str, path: str, body: Mapping[str, object]) -> Outgoing:
    """Raises `ProviderError` kinds for what cannot be sent."""
    try:
        content = msgspec.json.encode({**body, **endpoint.body})
    except UnicodeEncodeError as error:
        raise ProviderError(f"the conversation holds signs that are no text: {error}") from error
    return Outgoing(Place(endpoint, model), _url(endpoint, path), headers(endpoint), content)


class _Listed(Struct):
    id: str = ""
    name: str = ""


class _Listing(Struct):
    data: list[_Listed] | None = None
    models: list[_Listed] | None = None


_listing = msgspec.json.Decoder(_Listing)


async def models(endpoint: Endpoint, http: Http, *, within: float = 10.0) -> tuple[str, ...]:
    """The names of the models that a provider offers. Raises `ProviderError` kinds."""
    place = Place(endpoint)
    query = "?limit=1000" if endpoint.api == "anthropic" else ""
    try:
        response = await http.request(
            "GET", _url(endpoint, "/models") + query, headers=headers(endpoint), timeout=within
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise network(place, error) from error
    if response.status_code != 200:
        raise _rejection(place, response, _told(response.content))
    listing = decoded(_listing, response.content, place)
    listed = listing.data or listing.models or []
    return tuple(name for one in listed if (name := one.id or one.name))


def _url(endpoint: Endpoint, path: str) -> str:
    base = endpoint.base_url.rstrip("/")
    # Anthropic's own base_url has no version, those of others who speak its API may have.
    if endpoint.api == "anthropic" and not base.endswith("/v1"):
        base += "/v1"
    return base + path


async def _complaint(
    place: Place, response: httpx2.Response, blocks: AsyncIterator[bytes], begun: bytes = b""
) -> ProviderError:
    """What the server says in place of an answer, as our error."""
    body = bytearray(begun)
    try:
        async with asyncio.timeout(EXPLAINED):
            async for block in blocks:
                body += block
                if len(body) > EXPLAINING:
                    break
    except (TimeoutError, httpx2.HTTPError):
        pass  # what came of it is all we shall know
    told = _told(bytes(body))
    if (location := response.headers.get("location")) and response.status_code < 400:
        return ProviderError(f"{place.who} has moved to {location.partition('?')[0]}; set base_url to that")
    if response.status_code >= 400 or (isinstance(told, dict) and "error" in told):
        return _rejection(place, response, told)
    # A page or a document is what is there; half a document may be whole the next time.
    kind = Transient if isinstance(told, str) and bytes(body[:1]) in (b"{", b"[") else ProviderError
    return kind(f"{place.who} did not answer with a stream of events: {masked(place, _shown(told))}")


def _rejection(place: Place, response: httpx2.Response, told: Json) -> ProviderError:
    status = response.status_code if response.status_code >= 400 else 0
    return ours(place, fault(told or response.reason_phrase, status, wait(response.headers)))


def _told(body: bytes) -> Json:
    try:
        told: Json = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body.decode(errors="replace").strip()
        return "a web page (is base_url right?)" if text[:1] == "<" else text
    return told


def _shown(told: Json) -> str:
    text = told if isinstance(told, str) else msgspec.json.encode(told).decode()
    return text[:200] or "nothing came"


def _where(draft: Draft) -> str:
    return f"after {draft.length} characters, before its end" if draft.length else "before it began"
