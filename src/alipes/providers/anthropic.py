"""Anthropic's messages API: requests and streams."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from urllib.parse import quote

import msgspec
from msgspec import Struct

from alipes.kernel.messages import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply, StopReason, Usage
from alipes.providers import wire
from alipes.providers.errors import ModelTarget, parse_error, translate_error
from alipes.providers.streaming import HttpStreams, ModelStream, StreamParser, build_request, decode_known_event
from alipes.providers.wire import JsonObject

_STOPS: dict[str, StopReason] = {
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


_KNOWN = frozenset(
    ("message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta", "error")
)


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: wire.TokenDetails | None = None


class _Explanation(Struct):
    explanation: str | None = None


class _Piece(Struct):
    """The start of a content block, or a change of a block or of the message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Json] | None = None
    partial_json: str = ""
    stop_reason: str | None = None
    stop_details: _Explanation | None = None


class _MessageStart(Struct):
    usage: _Usage | None = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    delta: _Piece | None = None
    content_block: _Piece | None = None
    message: _MessageStart | None = None
    usage: _Usage | None = None
    error: Json = None


class _Block(Struct):
    """A partial content block; `pieces` are its text, thinking or arguments."""

    opening: _Piece
    pieces: list[str] = []
    seal: list[str] = []


_event = msgspec.json.Decoder(_Event)


class AnthropicStreamParser(StreamParser):
    def __init__(self, place: ModelTarget) -> None:
        super().__init__(place)
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}
        self._stop = ""
        self._why = ""

    def read(self, data: bytes) -> None:
        event = decode_known_event(_event, data, self.place, _KNOWN)
        if event is None:
            return
        match event.type:
            case "content_block_delta":
                self._grow(event.index, event.delta or _Piece())
            case "content_block_start":
                opening = event.content_block or _Piece()
                self._blocks[event.index] = _Block(opening)
                if opening.type == "tool_use":
                    self.draft.begin_call(opening.name)
                self._grow(event.index, opening)  # usually empty, but some servers send whole blocks here
            case "message_start" if event.message:
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta:
                    self._stop = event.delta.stop_reason or self._stop
                    self._why = (event.delta.stop_details or _Explanation()).explanation or self._why
            case "message_stop":
                self.whole = self.ended = True
            case _ if event.error is not None:
                raise translate_error(self.place, parse_error(event.error))

    def reply(self) -> ModelReply:
        stop = _STOPS.get(self._stop, "end")
        said = (part for _, block in sorted(self._blocks.items()) if (part := self._part(block, stop)))
        return self.make_reply(said, stop, self._tokens(), f": {self._why}" if self._why else "")

    def _grow(self, index: int, change: _Piece) -> None:
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _Block(_Piece("text" if change.text else "thinking"))
        if change.text:
            block.pieces.append(change.text)
            self.draft.say(change.text)
        elif change.partial_json:
            block.pieces.append(change.partial_json)
            self.draft.length += len(change.partial_json)
        elif change.thinking:
            block.pieces.append(change.thinking)
            self.draft.think(change.thinking)
        if change.signature:
            block.seal.append(change.signature)

    def _part(self, block: _Block, stop: StopReason) -> Part | None:
        opening, text = block.opening, "".join(block.pieces)
        match opening.type:
            case "text" if text:
                return Text(text)
            case "thinking" if text or block.seal:
                return Thinking(text, "".join(block.seal), self.place.name)
            case "redacted_thinking" if opening.data:
                return Thinking("", f"redacted:{opening.data}", self.place.name)
            case "tool_use":
                if not text and opening.input:
                    text = msgspec.json.encode(opening.input).decode()
                return wire.parse_tool_call(opening.id, opening.name, text, stop=stop)
            case _:
                return None

    def _count(self, usage: _Usage | None) -> None:
        """Later counts replace earlier ones."""
        if usage is None:
            return
        details = usage.output_tokens_details or wire.TokenDetails()
        counts = {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cached": usage.cache_read_input_tokens,
            "written": usage.cache_creation_input_tokens,
            "reasoning": details.thinking_tokens,
        }
        self._usage |= {name: count for name, count in counts.items() if count is not None}

    def _tokens(self) -> Usage:
        count = self._usage.get
        cached, written, reasoning = count("cached", 0), count("written", 0), count("reasoning", 0)
        # Only this API counts cached tokens separately.
        whole = count("input", 0) + cached + written
        return wire.make_usage(whole, count("output"), cached=cached, written=written, reasoning=reasoning)


VERTEX_VERSION = "vertex-2023-10-16"
REDACTED = "redacted:"
"""Prefix of the seal for thinking sent only as ciphertext; signatures contain no colon."""
_BUDGETED = r"claude-(?:[123]|(?:opus|sonnet|haiku)-(?:4-[0-5](?!\d)|4[-@]\d{8}|4$))"
"""Models before adaptive thinking take a budget, later ones an effort."""
_SHARES = {"minimal": 1 / 16, "low": 1 / 8, "medium": 1 / 4, "high": 1 / 2, "xhigh": 3 / 4, "max": 7 / 8}
"""Budgets as parts of the output limit."""
_LEAST = 1024


class AnthropicProvider:
    def __init__(self, endpoint: Endpoint, http: HttpStreams) -> None:
        self._endpoint, self._http = endpoint, http
        self._converted: dict[str, wire.ConvertedMessages[JsonObject]] = {}
        """By model."""

    def stream(self, request: Request) -> ModelStream:
        place = ModelTarget(self._endpoint, request.model)
        known = self._converted.get(place.name)
        if known is None:
            known = self._converted[place.name] = wire.ConvertedMessages(partial(_blocks, us=place.name))
        body = _to_wire(request, known)
        if request.output_schema and wire.named_schema(self._endpoint, request):
            form = {"type": "json_schema", "schema": request.output_schema}
            body["output_config"] = {**body.get("output_config", {}), "format": form}
        body |= request.extra
        path = "/messages"
        if "/publishers/anthropic" in self._endpoint.base_url:  # on Google Vertex the address names the model
            path = f"/models/{quote(str(body.pop('model')), safe='@:.-_')}:streamRawPredict"
            body = {"anthropic_version": VERTEX_VERSION, **body}
        return ModelStream(self._http, build_request(place, path, body), AnthropicStreamParser(place))


def _to_wire(request: Request, known: wire.ConvertedMessages[JsonObject]) -> JsonObject:
    messages = _messages(request.messages, known)
    _mark_cache_breakpoints(messages)
    body: JsonObject = {"model": request.model, "max_tokens": request.max_tokens, "stream": True}
    body["messages"] = messages
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": wire.CACHE_MARK}]
    body |= _tools(request, messages)
    if request.effort:
        body |= _thinking(request, messages)
    return body


def _tools(request: Request, messages: list[JsonObject]) -> JsonObject:
    if request.tools:
        tools: list[JsonObject] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in request.tools
        ]
        if not request.system:
            tools[-1]["cache_control"] = wire.CACHE_MARK
        return {"tools": tools} | ({"tool_choice": {"type": "none"}} if request.tool_choice == "none" else {})
    called = {block["name"] for message in messages for block in message["content"] if block["type"] == "tool_use"}
    if not called:
        return {}
    # A transcript with tool calls needs tool definitions: define them, but forbid their use.
    named = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(called)]
    return {"tools": named, "tool_choice": {"type": "none"}}


def _thinking(request: Request, messages: list[JsonObject]) -> JsonObject:
    # With a budget, a tool loop must start with thinking; one started by another model does not.
    thinking = budget_or_effort(request)
    budgeted = thinking.get("thinking", {}).get("type") == "enabled"
    return {} if budgeted and _tool_loop_without_thinking(messages) else thinking


def budget_or_effort(request: Request) -> JsonObject:
    """The reasoning level as the model knows it: an effort, or for older ones a budget below the output limit."""
    adaptive = "claude" in request.model and not re.search(_BUDGETED, request.model)
    if request.effort == "off":
        return {"thinking": {"type": "disabled"}} if adaptive else {}
    if adaptive:
        effort = "low" if request.effort == "minimal" else request.effort
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}
    budget = max(_LEAST, int(request.max_tokens * _SHARES[request.effort]))
    if budget >= request.max_tokens:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _tool_loop_without_thinking(messages: list[JsonObject]) -> bool:
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


def _mark_cache_breakpoints(messages: list[JsonObject]) -> None:
    """Set prompt cache breakpoints at the end of this request and of the two before.

    The server searches only twenty blocks back from a breakpoint, and a round of many calls is
    longer. Together with the one on the system prompt these are the four that the API allows.
    """
    for at in [at for at, message in enumerate(messages) if message["role"] == "user"][-3:]:
        messages[at] = wire.mark_last_block(messages[at])


def _blocks(message: Message, us: str) -> list[JsonObject]:
    return _assistant_blocks(message, us) if message.role == "assistant" else list(_user_blocks(message))


def _messages(messages: Sequence[Message], known: wire.ConvertedMessages[JsonObject]) -> list[JsonObject]:
    """Messages in alternating roles, as the API requires."""
    sent: list[JsonObject] = []
    for message, blocks in zip(messages, known.of(messages), strict=True):
        role = "assistant" if message.role == "assistant" else "user"
        if not blocks:
            continue
        if sent and sent[-1]["role"] == role:
            sent[-1]["content"] += blocks
        else:
            sent.append({"role": role, "content": [*blocks]})
    return sent


def _assistant_blocks(message: Message, us: str) -> list[JsonObject]:
    blocks = [block for part in message.parts if (block := _assistant_block(part, us))]
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        # Thinking cut off by the output limit: the API requires content after it.
        blocks.pop()
    return blocks


def _assistant_block(part: Part, us: str) -> JsonObject | None:
    match part:
        case Text(text) if text.strip():
            return {"type": "text", "text": text}
        case Thinking(text, seal, by) if seal and by == us and not seal.startswith("{"):
            if seal.startswith(REDACTED):
                return {"type": "redacted_thinking", "data": seal.removeprefix(REDACTED)}
            return {"type": "thinking", "thinking": text, "signature": seal}
        case ToolCall(id, name, args):
            return {"type": "tool_use", "id": wire.valid_id(id), "name": wire.valid_tool_name(name), "input": args}
        case _:
            return None


def _user_blocks(message: Message) -> Iterator[JsonObject]:
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"type": "text", "text": wire.said_text(message.role, text)}
            case Image():
                yield _image(part)
            case ToolResult():
                yield _result(part)


def _result(result: ToolResult) -> JsonObject:
    content = [{"type": "text", "text": wire.result_text(result)}, *map(_image, result.images)]
    block = {"type": "tool_result", "tool_use_id": wire.valid_id(result.call_id), "content": content}
    return block if result.outcome == "ok" else {**block, "is_error": True}


def _image(image: Image) -> JsonObject:
    source = {"type": "base64", "media_type": image.media_type, "data": wire.base64_of(image)}
    return {"type": "image", "source": source}
