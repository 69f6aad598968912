"""Amazon Bedrock's Converse API, for the models of all vendors there: requests and streams."""

from collections.abc import Iterator, Sequence
from functools import partial
from urllib.parse import quote

import msgspec
from msgspec import Struct

from alipes.kernel.errors import Transient
from alipes.kernel.messages import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply, StopReason, Usage
from alipes.providers import wire
from alipes.providers.anthropic import REDACTED, budget_or_effort
from alipes.providers.errors import ModelTarget, VendorError, translate_error
from alipes.providers.event_frames import FrameParser
from alipes.providers.streaming import HttpStreams, ModelStream, StreamParser, build_request, decode_event
from alipes.providers.wire import JsonObject

_STOPS: dict[str, StopReason] = {
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "refused",
    "content_filtered": "refused",
}
_STATUS = {
    "throttlingException": 429,
    "serviceQuotaExceededException": 429,
    "validationException": 400,
    "accessDeniedException": 403,
    "modelTimeoutException": 408,
    "internalServerException": 500,
    "serviceUnavailableException": 503,
    "modelStreamErrorException": 503,
}
_NOVA_LEVELS = {"minimal": "low", "low": "low", "medium": "medium"}
"""Reasoning levels of Nova 2; `high` for all others."""
CACHE_POINT = {"cachePoint": {"type": "default"}}


class _Tool(Struct, rename="camel"):
    tool_use_id: str = ""
    name: str = ""
    input: str = ""


class _Reasoning(Struct, rename="camel"):
    text: str = ""
    signature: str = ""
    redacted_content: str = ""


class _Piece(Struct, rename="camel"):
    text: str = ""
    tool_use: _Tool | None = None
    reasoning_content: _Reasoning | None = None


class _Counts(Struct, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Body(Struct, rename="camel"):
    content_block_index: int = 0
    start: _Piece | None = None
    delta: _Piece | None = None
    stop_reason: str = ""
    usage: _Counts | None = None
    message: Json = None


class _Event(Struct):
    kind: str
    fault: str
    body: _Body


class _Block(Struct):
    """A partial content block."""

    tool: _Tool | None = None
    texts: list[str] = []
    thoughts: list[str] = []
    arguments: list[str] = []
    seal: str = ""
    redacted: str = ""


_event = msgspec.json.Decoder(_Event)


class BedrockStreamParser(StreamParser):
    events = FrameParser

    def __init__(self, place: ModelTarget) -> None:
        super().__init__(place)
        self._blocks: dict[int, _Block] = {}
        self._stop = ""
        self._counts = _Counts()

    def read(self, data: bytes) -> None:
        event = decode_event(_event, data, self.place)
        if event.fault == "damaged":
            raise Transient(f"{self.place.who} sent {event.body.message}", brief="Connection lost")
        if event.fault:
            fault = event.fault[:1].lower() + event.fault[1:]
            said = VendorError(str(event.body.message or fault), fault, _STATUS.get(fault, 0))
            raise translate_error(self.place, said)
        match event.kind:
            case "contentBlockStart" if event.body.start is not None and event.body.start.tool_use is not None:
                tool = event.body.start.tool_use
                self._blocks[event.body.content_block_index] = _Block(tool)
                self.draft.begin_call(tool.name)
            case "contentBlockDelta" if event.body.delta is not None:
                self._grow(self._blocks.setdefault(event.body.content_block_index, _Block()), event.body.delta)
            case "messageStop":
                self._stop, self.whole = event.body.stop_reason, True
            case "metadata":
                self._counts = event.body.usage or self._counts
                self.ended = self.whole

    def reply(self) -> ModelReply:
        stop = _STOPS.get(self._stop, "end")
        said = [part for _, block in sorted(self._blocks.items()) for part in self._parts(block, stop)]
        return self.make_reply(said, stop, self._tokens(), f" ({self._stop})")

    def _grow(self, block: _Block, delta: _Piece) -> None:
        if delta.text:
            block.texts.append(delta.text)
            self.draft.say(delta.text)
        if delta.tool_use is not None and delta.tool_use.input:
            block.arguments.append(delta.tool_use.input)
            self.draft.length += len(delta.tool_use.input)
        if (thought := delta.reasoning_content) is not None:
            block.seal += thought.signature
            block.redacted += thought.redacted_content
            if thought.text:
                block.thoughts.append(thought.text)
                self.draft.think(thought.text)

    def _parts(self, block: _Block, stop: StopReason) -> Iterator[Part]:
        if block.tool is not None:
            text = "".join(block.arguments)
            yield wire.parse_tool_call(block.tool.tool_use_id, block.tool.name, text, stop=stop)
        if block.redacted:
            yield Thinking("", f"{REDACTED}{block.redacted}", self.place.name)
        elif block.thoughts or block.seal:
            yield Thinking("".join(block.thoughts), block.seal, self.place.name)
        if block.texts:
            yield Text("".join(block.texts))

    def _tokens(self) -> Usage:
        counts = self._counts
        cached, written = counts.cache_read_input_tokens or 0, counts.cache_write_input_tokens or 0
        whole = (counts.input_tokens or 0) + cached + written
        return wire.make_usage(whole, counts.output_tokens, cached=cached, written=written, reasoning=0)


class BedrockProvider:
    def __init__(self, endpoint: Endpoint, http: HttpStreams) -> None:
        self._endpoint, self._http = endpoint, http
        self._converted: dict[str, wire.ConvertedMessages[JsonObject]] = {}
        """By model."""

    def stream(self, request: Request) -> ModelStream:
        place = ModelTarget(self._endpoint, request.model)
        known = self._converted.get(place.name)
        if known is None:
            known = self._converted[place.name] = wire.ConvertedMessages(partial(_blocks, us=place.name))
        path = f"/model/{quote(request.model, safe='')}/converse-stream"
        body = _to_wire(request, known)
        if request.output_schema and (named := wire.named_schema(self._endpoint, request)):
            form = {"name": named["name"], "schema": msgspec.json.encode(request.output_schema).decode()}
            body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": form}}}
        body |= request.extra
        return ModelStream(self._http, build_request(place, path, body), BedrockStreamParser(place))


def _to_wire(request: Request, known: wire.ConvertedMessages[JsonObject]) -> JsonObject:
    messages = _messages(request.messages, known)
    body: JsonObject = {"messages": messages, "inferenceConfig": {"maxTokens": request.max_tokens}}
    if request.system:
        body["system"] = [{"text": request.system}]
    more: JsonObject = {}
    if tools := _tools(request, messages):
        body["toolConfig"] = {"tools": tools}
        if (request.tool_choice == "none" or not request.tools) and "anthropic." in request.model:
            more["tool_choice"] = {"type": "none"}
    if request.effort:
        more |= _reasoning(request, messages)
    if more:
        body["additionalModelRequestFields"] = more
    if more.get("reasoningConfig", {}).get("maxReasoningEffort") == "high":
        del body["inferenceConfig"]  # Nova refuses limits with it
    _mark_cache_points(request.model, body)
    return body


def _mark_cache_points(model: str, body: JsonObject) -> None:
    """Set cache points in the families that take them: Nova only where no tools are used."""
    messages, nova = body["messages"], "amazon.nova" in model
    if not nova and "anthropic." not in model:
        return
    asked = [at for at, message in enumerate(messages) if message["role"] == "user"]
    if nova:
        asked = [at for at in asked if not any("toolResult" in block for block in messages[at]["content"])]
    for at in asked[-2:]:
        messages[at] = {**messages[at], "content": [*messages[at]["content"], CACHE_POINT]}
    if "system" in body:
        body["system"].append(CACHE_POINT)


def _reasoning(request: Request, messages: list[JsonObject]) -> JsonObject:
    """The reasoning level in the words of the model's vendor; empty for models that have none."""
    model, effort = request.model, request.effort
    if "anthropic." in model:
        thinking = budget_or_effort(request)
        budgeted = "budget_tokens" in thinking.get("thinking", {})
        return {} if budgeted and _tool_loop_without_thinking(messages) else thinking
    if "amazon.nova-2" in model:
        if effort == "off":
            return {"reasoningConfig": {"type": "disabled"}}
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": _NOVA_LEVELS.get(effort, "high")}}
    if "gpt-oss" in model or "deepseek.v" in model:
        return {} if effort == "off" else {"reasoning_effort": effort}
    return {"reasoning": {"effort": wire.openai_effort(effort)}} if "openai." in model else {}


def _tool_loop_without_thinking(messages: list[JsonObject]) -> bool:
    """True in a tool loop that another model started: with a budget, a loop must start with thinking."""
    if len(messages) < 2 or "toolResult" not in messages[-1]["content"][0]:
        return False
    return "reasoningContent" not in messages[-2]["content"][0]


def _tools(request: Request, messages: list[JsonObject]) -> list[JsonObject]:
    """A transcript with calls needs the definitions of its tools, also where none may be called."""
    if request.tools:
        return [
            {"toolSpec": {"name": each.name, "description": each.description, "inputSchema": {"json": each.schema}}}
            for each in request.tools
        ]
    called = {block["toolUse"]["name"] for message in messages for block in message["content"] if "toolUse" in block}
    return [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in sorted(called)]


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


def _blocks(message: Message, us: str) -> list[JsonObject]:
    if message.role != "assistant":
        return list(_user_blocks(message))
    blocks = [block for part in message.parts if (block := _assistant_block(part, us))]
    while blocks and "reasoningContent" in blocks[-1]:  # cut off by the output limit: content must follow
        blocks.pop()
    return blocks


def _assistant_block(part: Part, us: str) -> JsonObject | None:
    match part:
        case Text(text) if text.strip():
            return {"text": text}
        case Thinking(text, seal, by) if seal and by == us and not seal.startswith("{"):
            if seal.startswith(REDACTED):
                return {"reasoningContent": {"redactedContent": seal.removeprefix(REDACTED)}}
            return {"reasoningContent": {"reasoningText": {"text": text, "signature": seal}}}
        case ToolCall(id, name, args):
            called = {"toolUseId": wire.valid_id(id), "name": wire.valid_tool_name(name), "input": args}
            return {"toolUse": called}
        case _:
            return None


def _user_blocks(message: Message) -> Iterator[JsonObject]:
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"text": wire.said_text(message.role, text)}
            case Image():
                yield _image(part)
            case ToolResult():
                content = [{"text": wire.result_text(part)}, *map(_image, part.images)]
                status = "success" if part.outcome == "ok" else "error"
                yield {"toolResult": {"toolUseId": wire.valid_id(part.call_id), "content": content, "status": status}}


def _image(image: Image) -> JsonObject:
    form = image.media_type.rpartition("/")[2].replace("jpg", "jpeg")
    return {"image": {"format": form, "source": {"bytes": wire.base64_of(image)}}}
