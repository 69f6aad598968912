"""One streaming request to a model over HTTP, independent of the wire API."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Protocol, Self, TypeVar

import msgspec
from msgspec import Struct

from alipes.kernel.errors import NotAuthorised, ProviderError, Refused, Transient
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json, Message, Part
from alipes.kernel.models import Endpoint
from alipes.kernel.turns import Delta, ModelReply, StopReason, TextDelta, ThinkingDelta, ToolCallBegun, Usage
from alipes.providers.errors import (
    ModelTarget,
    mask_secrets,
    parse_error,
    retry_after_seconds,
    translate_error,
    translate_network_error,
)
from alipes.providers.wire import EventTooLong, NotAnEventStream, SseParser
from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.http.messages import HttpResponse

MAX_ERROR_BYTES = 64 * 1024
ERROR_BODY_TIMEOUT_S = 2.0
ANTHROPIC_VERSION = "2026-10-21"
_AZURE = lazy_pattern(r"^https?://[^/]+\.(?:openai|services\.ai|cognitiveservices)\.azure\.(?:com|us|cn)(?:[:/]|$)")
"""Addresses that take a key in a header of their own; only some of them take it as a bearer token."""
T = TypeVar("T")


class PartialReply:
    """Received parts of an answer that were not taken yet; taken together as one delta."""

    def __init__(self) -> None:
        self.length = 0
        """Characters received, including tool call arguments."""
        self._kind: type[TextDelta | ThinkingDelta] = TextDelta
        self._pieces: list[str] = []
        self._earlier: deque[Delta] = deque()

    def say(self, text: str, kind: type[TextDelta | ThinkingDelta] = TextDelta) -> None:
        if kind is not self._kind:
            if self._pieces:
                self._earlier.append(self._kind("".join(self._pieces)))
                self._pieces = []
            self._kind = kind
        if text:
            self._pieces.append(text)
            self.length += len(text)

    def think(self, text: str) -> None:
        self.say(text, ThinkingDelta)

    def begin_call(self, name: str) -> None:
        if self._pieces:
            self._earlier.append(self._kind("".join(self._pieces)))
            self._pieces = []
        self._earlier.append(ToolCallBegun(name))

    def take(self) -> Delta | None:
        if self._earlier:
            return self._earlier.popleft()
        if not self._pieces:
            return None
        delta = self._kind("".join(self._pieces))
        self._pieces = []
        return delta


class EventParser(Protocol):
    """Parses the bytes of a stream. Raises `EventTooLong` and `NotAnEventStream`."""

    def feed(self, block: bytes) -> list[bytes]: ...

    def end(self) -> list[bytes]: ...


class StreamParser:
    """Builds an answer from the events of one wire API."""

    events: Callable[[], EventParser] = SseParser
    """Parses the bytes of a response into events."""

    def __init__(self, place: ModelTarget) -> None:
        self.place, self.draft = place, PartialReply()
        self.whole = False
        """The answer is complete; counts may follow."""
        self.ended = False
        """The API's end marker was received."""

    def read(self, data: bytes) -> None:
        """Process one event. Raises ProviderError."""
        raise NotImplementedError

    def reply(self) -> ModelReply:
        """The complete answer. Raises Refused if it is only a refusal."""
        raise NotImplementedError

    def make_reply(self, parts: Iterable[Part], stop: StopReason, usage: Usage, why: str = "") -> ModelReply:
        message = Message("assistant", tuple(parts))
        if stop == "refused" and not message.text:
            raise Refused(f"{self.place.name} declined to answer{why}")
        return ModelReply(message, usage, "calls" if message.calls and stop == "end" else stop)


class WireRequest(Struct, frozen=True):
    place: ModelTarget
    url: str
    headers: dict[str, str]
    content: bytes


class HttpStreams(Protocol):
    """What a wire needs of an HTTP client."""

    def stream(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> AbstractAsyncContextManager[HttpResponse]: ...


class ModelStream(AbstractAsyncContextManager[AsyncIterator[Delta]]):
    """One answer as a stream. A child task reads the network, the owner takes deltas.

    A slow owner gets everything received meanwhile as one delta and never stalls the connection.
    Leaving the context ends the child task and the request.
    """

    def __init__(self, http: HttpStreams, request: WireRequest, reader: StreamParser) -> None:
        self._http, self._request, self._reader = http, request, reader
        self.largest = 32 * 1024 * 1024
        """Longest answer in characters, including thinking and arguments."""
        self.linger = 2.0
        """Seconds to read on after the answer is complete, for token counts and connection reuse."""
        self._news = asyncio.Event()
        self._reply: ModelReply | None = None
        self._failure: ProviderError | None = None
        self._over = False

    async def __aenter__(self) -> AsyncIterator[Delta]:
        self._group = await asyncio.TaskGroup().__aenter__()
        self._reading = self._group.create_task(self._run())
        return self

    async def __aexit__(self, *error: Any) -> None:
        if error[0] is not None or not self._reader.whole:
            self._reading.cancel()
        # The group would wrap the owner's error; pass it only a cancellation, which may be its own.
        cancelled = isinstance(error[1], asyncio.CancelledError)
        try:
            await self._group.__aexit__(*(error if cancelled else (None, None, None)))
        finally:  # break reference cycles that would keep the whole turn alive
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
        try:
            await self._ask()
        except ProviderError as error:
            self._failure = error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            self._failure = translate_network_error(self._request.place, error)
        finally:
            self._over = True
            self._news.set()

    async def _ask(self) -> None:
        request = self._request
        sent = self._http.stream("POST", request.url, headers=request.headers, content=request.content)
        async with sent as response, aclosing(response.aiter_bytes()) as blocks:
            if response.status_code != 200:
                raise await _read_error(request.place, response, blocks)
            try:
                await self._follow(blocks)
            except NotAnEventStream as other:
                raise await _read_error(request.place, response, blocks, other.begun) from other
            except EventTooLong as error:
                raise ProviderError(f"{request.place.who} sent {error}; stopped reading") from error

    async def _follow(self, blocks: AsyncIterator[bytes]) -> None:
        """Read to the end of the body. Errors after the answer is complete are ignored."""
        reader, events = self._reader, type(self._reader).events()
        try:
            async with asyncio.timeout(None) as limit:
                async for block in blocks:
                    if not reader.ended:
                        self._take(events.feed(block))
                    if reader.whole and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + self.linger)
                if not reader.ended:
                    self._take(events.end())
        except (TimeoutError, httpx2.HTTPError, ProviderError, EventTooLong):
            if not reader.whole:
                raise
        if not reader.whole:
            length = reader.draft.length
            position = f"after {length} characters" if length else "before the first character"
            who = self._request.place.who
            raise Transient(f"{who}: the stream ended early ({position})", brief="Connection lost")
        if not reader.ended:
            self._conclude()

    def _take(self, events: list[bytes]) -> None:
        reader, largest = self._reader, self.largest
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


def decode_event(decode: "msgspec.json.Decoder[T]", data: bytes, place: ModelTarget) -> T:
    """Decode one event. Invalid JSON is Transient; an unexpected shape is a permanent error."""
    try:
        return decode.decode(data)
    except msgspec.ValidationError as error:
        raise ProviderError(f"{place.who} sent an unexpected event: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Transient(f"{place.who} sent an invalid event: {error}") from error


class _Head(Struct):
    type: str = ""


_head = msgspec.json.Decoder(_Head)


def decode_known_event(
    decode: "msgspec.json.Decoder[T]", data: bytes, place: ModelTarget, types: frozenset[str]
) -> T | None:
    """The same for APIs with event types: an event of an unknown type is None."""
    try:
        return decode_event(decode, data, place)
    except ProviderError as error:
        if isinstance(error, Transient) or decode_event(_head, data, place).type in types:
            raise
        return None


def request_headers(endpoint: Endpoint) -> dict[str, str]:
    """Headers of every request; configured headers override ours."""
    key = endpoint.key.reveal()
    if not key.isascii() or key.split() not in ([key], []):
        raise NotAuthorised(
            f"the key in {endpoint.key_env or endpoint.name} contains invalid characters; copy it again"
        )
    for name, value in endpoint.headers.items():
        if not (name + value).isascii():
            raise ProviderError(f"the header {name!r} of provider {endpoint.name} contains non-ASCII characters")
    ours = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        # Compression delays events and costs more than it saves.
        "accept-encoding": "identity",
    }
    if endpoint.api == "anthropic":
        ours["anthropic-version"] = ANTHROPIC_VERSION
        if key:
            ours["x-api-key"] = key
    elif endpoint.api == "gemini":
        if key:
            ours["x-goog-api-key"] = key
    elif key and _AZURE.search(endpoint.base_url):
        ours["api-key"] = key
    elif key:
        ours["authorization"] = f"Bearer {key}"
    return ours | {name.lower(): value for name, value in endpoint.headers.items()}


def build_request(place: ModelTarget, path: str, body: Mapping[str, object]) -> WireRequest:
    """Raises ProviderError for content that cannot be sent."""
    endpoint = place.endpoint
    try:
        content = msgspec.json.encode({**body, **endpoint.body})
    except UnicodeEncodeError as error:
        raise ProviderError(f"the conversation contains invalid Unicode: {error}") from error
    return WireRequest(place, _url(endpoint, path), request_headers(endpoint), content)


class OfferedModel(str):
    """A model name from a provider's list, with its context window if the list says it."""

    __slots__ = ("window",)
    window: int | None

    def __new__(cls, name: str, window: int | None = None) -> Self:
        self = super().__new__(cls, name)
        self.window = window
        return self


class _ListedMeta(Struct):
    n_ctx: Any = None
    n_ctx_train: Any = None


class _Listed(Struct):
    id: str = ""
    name: str = ""
    context_length: Any = None
    context_window: Any = None
    max_context_length: Any = None
    max_model_len: Any = None
    max_input_tokens: Any = None
    inputTokenLimit: Any = None
    """Gemini's name."""
    meta: _ListedMeta | None = None

    @property
    def window(self) -> int | None:
        """The context window by the field that this server uses; servers differ in its name and type."""
        meta = self.meta or _ListedMeta()
        fields = (meta.n_ctx, self.max_model_len, self.context_length, self.context_window, self.max_context_length)
        for value in (*fields, meta.n_ctx_train, self.max_input_tokens, self.inputTokenLimit):
            if isinstance(value, int) and value > 0:
                return value
        return None


class _Listing(Struct):
    data: list[_Listed] | None = None
    models: list[_Listed] | None = None


_listing = msgspec.json.Decoder(_Listing)


async def models(endpoint: Endpoint, http: HttpClient, *, within: float = 10.0) -> tuple[OfferedModel, ...]:
    """Names of the models that a provider offers. Raises ProviderError."""
    place = ModelTarget(endpoint)
    path = "/models?limit=1000" if endpoint.api == "anthropic" else "/models"
    try:
        response = await http.request("GET", _url(endpoint, path), headers=request_headers(endpoint), timeout=within)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise translate_network_error(place, error) from error
    if response.status_code != 200:
        raise _rejected(place, response, _parse_body(response.content))
    listing = decode_event(_listing, response.content, place)
    listed = listing.data or listing.models or []
    names = ((one, (one.id or one.name).removeprefix("models/")) for one in listed)
    return tuple(OfferedModel(name, one.window) for one, name in names if name)


class _Embedding(Struct):
    embedding: list[float]
    index: int = 0


class _EmbeddingUsage(Struct, frozen=True):
    prompt_tokens: int = 0


class _EmbeddingList(Struct):
    data: list[_Embedding]
    usage: _EmbeddingUsage = _EmbeddingUsage()


_embeddings = msgspec.json.Decoder(_EmbeddingList)


async def embed(
    endpoint: Endpoint, http: HttpClient, model: str, texts: Sequence[str], *, dimensions: int | None, within: float
) -> tuple[list[list[float]], int]:
    """A vector for each text from a provider with OpenAI's API, and the tokens it counted. Raises ProviderError."""
    place = ModelTarget(endpoint, model)
    body: dict[str, Json] = {"model": model, "input": list(texts), "encoding_format": "float"}
    if dimensions is not None:
        body["dimensions"] = dimensions
    headers = {**request_headers(endpoint), "content-type": "application/json"}
    try:
        response = await http.request(
            "POST", _url(endpoint, "/embeddings"), headers=headers, content=msgspec.json.encode(body), timeout=within
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise translate_network_error(place, error) from error
    if response.status_code != 200:
        raise _rejected(place, response, _parse_body(response.content))
    answer = decode_event(_embeddings, response.content, place)
    return [each.embedding for each in sorted(answer.data, key=lambda each: each.index)], answer.usage.prompt_tokens


def _url(endpoint: Endpoint, path: str) -> str:
    base, _, query = endpoint.base_url.partition("?")
    base = base.rstrip("/")
    # Anthropic's own base_url has no version; those of compatible servers may have one.
    if endpoint.api == "anthropic" and not base.endswith(("/v1", "/publishers/anthropic")):
        base += "/v1"
    if endpoint.api == "gemini":  # the address of the known provider is that of Google's imitation of OpenAI's API
        base = base.removesuffix("/openai")
    return f"{base}{path}{'&' if '?' in path else '?'}{query}" if query else base + path


async def _read_error(
    place: ModelTarget, response: HttpResponse, blocks: AsyncIterator[bytes], begun: bytes = b""
) -> ProviderError:
    """Read the body that was sent instead of a stream, as an error."""
    body = bytearray(begun)
    try:
        async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
            async for block in blocks:
                body += block
                if len(body) > MAX_ERROR_BYTES:
                    break
    except (TimeoutError, httpx2.HTTPError):
        pass  # use what was received
    content = _parse_body(bytes(body))
    if (location := response.headers.get("location")) and response.status_code < 400:
        return ProviderError(f"{place.who} redirects to {location.partition('?')[0]}; set base_url to that")
    if response.status_code >= 300 or (isinstance(content, dict) and "error" in content):
        return _rejected(place, response, content)
    # A web page or document is permanent; a truncated document may be complete next time.
    kind = Transient if isinstance(content, str) and bytes(body[:1]) in (b"{", b"[") else ProviderError
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    return kind(f"{place.who} did not send an event stream: {mask_secrets(place, text[:200] or 'empty body')}")


def _rejected(place: ModelTarget, response: HttpResponse, content: Json) -> ProviderError:
    status = response.status_code if response.status_code >= 300 else 0
    if response.headers.get("x-amzn-errortype", "").startswith("ServiceQuotaExceeded"):
        status = 429
    return translate_error(
        place, parse_error(content or response.reason_phrase, status, retry_after_seconds(response.headers))
    )


def _parse_body(body: bytes) -> Json:
    try:
        content: Json = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body.decode(errors="replace").strip()
        return "a web page (is base_url right?)" if text[:1] == "<" else text
    return content
