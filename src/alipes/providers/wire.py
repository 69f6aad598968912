"""What the wire APIs share: ids, arguments, images, token counts, and the parser of server-sent events."""

import base64
import hashlib
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Image, Json, Message, Role, ToolCall, ToolResult
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.kernel.turns import StopReason, Usage
from alipes.kernel.untrusted import escape_notice

CUT_OFF = "(the output limit cut this call off)"
EMPTY_RESULT = "(no output)"
MAX_COUNT = 2**53
JsonObject: TypeAlias = dict[str, Any]
CACHE_MARK = {"type": "ephemeral"}
"""Marks a prompt cache breakpoint for Anthropic's models."""
_UNFIT = lazy_pattern(r"[^a-zA-Z0-9_-]")
_decode = msgspec.json.Decoder(dict[str, Json]).decode


T = TypeVar("T")


class ConvertedMessages(Generic[T]):
    """Messages in the form of one API, each converted once: a step of a turn converts only its new messages.

    By identity, as long as the message itself is in memory. Callers must not change what they get.
    """

    def __init__(self, convert: Callable[[Message], Sequence[T]]) -> None:
        self._convert = convert
        self._known: dict[int, tuple[weakref.ref[Message], Sequence[T]]] = {}

    def of(self, messages: Sequence[Message]) -> Iterator[Sequence[T]]:
        for message in messages:
            found = self._known.get(id(message))
            yield self._add(message) if found is None else found[1]

    def _add(self, message: Message) -> Sequence[T]:
        converted, key, known = self._convert(message), id(message), self._known
        known[key] = weakref.ref(message, lambda _: known.pop(key, None)), converted
        return converted


def mark_last_block(message: JsonObject) -> JsonObject:
    """The message with a prompt cache breakpoint at its end."""
    *blocks, last = message["content"]
    return {**message, "content": [*blocks, {**last, "cache_control": CACHE_MARK}]}


def notice(text: str) -> str:
    """Mark a text from alipes itself, so that the model does not take it for the user's."""
    return f"<notice>{escape_notice(text)}</notice>"


def said_text(role: Role, text: str) -> str:
    """A text of a person or of alipes; a person's cannot contain the mark of the other."""
    return notice(text) if role == "notice" else escape_notice(text)


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64_of(image)}"


def base64_of(image: Image) -> str:
    return base64.b64encode(image.data).decode()


def result_text(result: ToolResult) -> str:
    """The text of a result, never empty: several servers reject empty results."""
    return result.text if result.text.strip() else EMPTY_RESULT


def arguments_json(call: ToolCall) -> str:
    """A call's arguments as JSON text for the OpenAI APIs; invalid JSON is kept as it was."""
    if call.raw and call.raw != CUT_OFF:
        return call.raw
    return msgspec.json.encode(call.args).decode()


def parse_tool_call(id: str, name: str, text: str, *, stop: StopReason = "calls") -> ToolCall:
    """A tool call from the argument text sent by the model, valid or not."""
    id, name = id or new_call_id(), name or "unnamed"
    if not text.strip():
        return ToolCall(id, name, {}, CUT_OFF if stop == "length" else "")
    try:
        return ToolCall(id, name, _decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return ToolCall(id, name, {}, text)


def new_call_id() -> str:
    return f"call_{secrets.token_hex(8)}"


def valid_id(id: str, longest: int = 64) -> str:
    """`id` in a form that every API accepts: another vendor's may contain other characters or be too long."""
    if id and len(id) <= longest and not _UNFIT.search(id):
        return id
    return f"call_{digest(id, 24)}"


def valid_tool_name(name: str) -> str:
    """A tool name that every API accepts: models invent others, and the transcript must stay valid."""
    return _UNFIT.sub("_", name)[:64] or "unnamed"


def digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]


class TokenDetails(Struct):
    """Parts of the input or output tokens, in the names of all APIs."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    thinking_tokens: int | None = None


def make_usage(
    input: int | None, output: int | None, *, cached: int | None, written: int | None, reasoning: int | None
) -> Usage:
    """Reported token counts; `input` includes cached tokens, `output` reasoning tokens."""
    counts = (input, output, cached, written, reasoning)
    return Usage(*(min(max(count or 0, 0), MAX_COUNT) for count in counts))


MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Largest event in bytes; a server that sends more is broken or hostile."""
_FIELDS = (b"", b"data", b"event", b"id", b"retry")
"""Field names before the colon; empty for a comment."""
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event exceeds the size limit."""


class NotAnEventStream(Exception):
    """The body is something else, such as a web page or JSON; carries what was read."""

    def __init__(self, begun: bytes) -> None:
        super().__init__("not an event stream")
        self.begun = begun


class SseParser:
    """Parses bytes into the data of events.

    Event names, ids and comments are dropped: the APIs repeat what matters in the data.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """An incomplete line."""
        self._held = 0
        self._data: list[bytes] = []
        """Data lines of an incomplete event."""
        self._size = 0
        self._sure = False
        """True once a line was recognised as part of an event."""
        self._first = True

    def feed(self, block: bytes) -> list[bytes]:
        """The data of the events that `block` completes. Raises `EventTooLong` and `NotAnEventStream`."""
        if b"\n" not in block and b"\r" not in block:
            self._hold(block)
            return []
        if self._rest:
            block = b"".join((*self._rest, block))
            self._rest, self._held = [], 0
        if b"\r" in block:
            # A carriage return at the end may be half of a line end: keep it for the next block.
            block, last = (block[:-1], b"\r") if block.endswith(b"\r") else (block, b"")
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + last
        if self._first:
            block, self._first = block.removeprefix(_BOM), False
        *lines, rest = block.split(b"\n")
        if not self._sure:
            self._recognise(lines, block)
        if rest:
            self._hold(rest)
        return self._events(lines)

    def end(self) -> list[bytes]:
        """The data of a last event that was not closed by an empty line. Raises `NotAnEventStream`."""
        last = b"".join(self._rest).rstrip(b"\r")
        self._rest = []
        if self._first:
            last = last.removeprefix(_BOM)
        if not self._sure:
            self._recognise([last], last)
        return self._events([last, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        whole: list[bytes] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
                if len(data) > 1:
                    self._size += len(line)
                    _check_size(self._size)
            elif not line and data:
                whole.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
                self._size = 0
        return whole

    def _recognise(self, lines: list[bytes], block: bytes) -> None:
        """Check by the first non-empty line whether this is an event stream."""
        first = next((line for line in lines if line.strip()), None)
        if first is not None:
            if first.partition(b":")[0] not in _FIELDS:
                raise NotAnEventStream(block)
            self._sure = True

    def _hold(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._held += len(piece)
        _check_size(self._held)


def _check_size(size: int) -> None:
    if size > MAX_EVENT_BYTES:
        raise EventTooLong(f"an event of more than {MAX_EVENT_BYTES >> 20} MiB")


def openai_effort(effort: str) -> str:
    """A reasoning level in OpenAI's words."""
    return "none" if effort == "off" else effort


def named_schema(endpoint: Endpoint, request: Request) -> JsonObject:
    """The schema of the answer as OpenAI's wires name it; empty if the server is not known to enforce it."""
    from alipes.providers.schemas import is_enforced, to_wire  # noqa: PLC0415

    schema = request.output_schema
    return to_wire(schema) if is_enforced(endpoint, request.model, schema) else {}
