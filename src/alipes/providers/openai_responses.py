"""OpenAI's responses API: requests and streams."""

from collections.abc import Iterator
from functools import partial

import msgspec
from msgspec import Struct

from alipes.kernel.errors import Transient
from alipes.kernel.messages import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply, StopReason, Usage
from alipes.providers import wire
from alipes.providers.errors import ModelTarget, VendorError, parse_error, translate_error
from alipes.providers.streaming import (
    HttpStreams,
    ModelStream,
    StreamParser,
    build_request,
    decode_event,
    decode_known_event,
)
from alipes.providers.wire import JsonObject

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THINKING = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ARGUMENTS = ("response.function_call_arguments.delta", "response.function_call_arguments.done")
_ITEMS = ("response.output_item.added", "response.output_item.done")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_KNOWN = frozenset((*_TEXT, *_THINKING, *_ARGUMENTS, *_ITEMS, *_ENDS, "error"))


class _Event(Struct):
    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    delta: str = ""
    arguments: str = ""
    item: msgspec.Raw = msgspec.Raw(b"{}")
    response: msgspec.Raw = msgspec.Raw(b"{}")
    error: Json = None
    message: str | None = None
    code: str | int | None = None


class _Content(Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(Struct):
    type: str = ""
    content: list[_Content] | None = None
    summary: list[_Content] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    id: str | None = None
    name: str = ""
    arguments: str | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: wire.TokenDetails | None = None
    output_tokens_details: wire.TokenDetails | None = None


class _Why(Struct):
    reason: str | None = None


class _Response(Struct):
    output: list[msgspec.Raw] | None = None
    usage: _Usage | None = None
    incomplete_details: _Why | None = None
    error: Json = None


class _PartialItem(Struct):
    """A partial output item; `pieces` are its text, thinking or arguments."""

    item: _Item
    pieces: list[str] = []
    raw: str = ""
    section: int = 0


_event = msgspec.json.Decoder(_Event)
_item = msgspec.json.Decoder(_Item)
_response = msgspec.json.Decoder(_Response)


class ResponsesStreamParser(StreamParser):
    def __init__(self, place: ModelTarget) -> None:
        super().__init__(place)
        self._items: dict[int, _PartialItem] = {}
        self._refused = False
        self._final = _Response()

    def read(self, data: bytes) -> None:
        if data == b"[DONE]":
            return
        event = decode_known_event(_event, data, self.place, _KNOWN)
        if event is None:
            return
        if event.type in _TEXT:
            self._refused = self._refused or event.type == "response.refusal.delta"
            self._grow(event, "message")
            self.draft.say(event.delta)
        elif event.type == "response.function_call_arguments.delta":
            self._grow(event, "function_call")
            self.draft.length += len(event.delta)
        elif event.type in _THINKING:
            self._think(event)
        elif event.type == "response.function_call_arguments.done":
            self._grow(event, "function_call").pieces = [event.arguments]
        elif event.type in _ITEMS:
            self._place_item(event.output_index, event.item, done=event.type.endswith("done"))
        elif event.type in _ENDS:
            self._finish(event)
        elif event.type == "error":
            raise translate_error(self.place, _fault(event))

    def reply(self) -> ModelReply:
        details = self._final.incomplete_details
        stop: StopReason = "end"
        if details and details.reason:
            stop = "refused" if details.reason == "content_filter" else "length"
        said = [part for _, one in sorted(self._items.items()) if (part := self._part(one, stop))]
        return self.make_reply(said, "refused" if self._refused else stop, self._tokens())

    def _grow(self, event: _Event, kind: str) -> _PartialItem:
        growing = self._items.get(event.output_index)
        if growing is None:
            growing = self._items[event.output_index] = _PartialItem(_Item(kind))
        if event.delta:
            growing.pieces.append(event.delta)
        return growing

    def _think(self, event: _Event) -> None:
        """Separate the sections of a summary as paragraphs."""
        section = self._items.get(event.output_index)
        if section is not None and event.summary_index != section.section:
            section.section = event.summary_index
            section.pieces.append("\n\n")
            self.draft.think("\n\n")
        self._grow(event, "reasoning")
        self.draft.think(event.delta)

    def _place_item(self, index: int, raw: msgspec.Raw, *, done: bool) -> None:
        item = decode_event(_item, raw, self.place)
        growing = self._items.setdefault(index, _PartialItem(item))
        growing.item = item
        if item.type == "function_call" and not done:
            self.draft.begin_call(item.name)
        if done:
            if item.type == "reasoning":
                growing.raw = self._verbatim(raw)
                self.draft.length += len(growing.raw)
            self._show_whole(growing)

    def _verbatim(self, raw: msgspec.Raw) -> str:
        try:
            return bytes(raw).decode()
        except UnicodeDecodeError as error:
            # Inside a skipped field, which the decoder did not check.
            raise Transient(f"{self.place.who} sent a damaged event: {error}") from error

    def _show_whole(self, growing: _PartialItem) -> None:
        """Show the content of an item that was not streamed."""
        if growing.pieces:
            return
        item = growing.item
        if item.type == "message":
            for part in item.content or ():
                self._refused = self._refused or part.type == "refusal"
                growing.pieces.append(text := part.text or part.refusal)
                self.draft.say(text)
        elif item.type == "reasoning":
            growing.pieces = ["\n\n".join(part.text for part in item.summary or item.content or ())]
            self.draft.think(growing.pieces[0])

    def _finish(self, event: _Event) -> None:
        self._final = decode_event(_response, event.response, self.place)
        if event.type == "response.failed":
            raise translate_error(self.place, parse_error(self._final.error or "the response failed"))
        if not self._items:
            for index, raw in enumerate(self._final.output or ()):
                self._place_item(index, raw, done=True)
        self.whole = self.ended = True

    def _part(self, growing: _PartialItem, stop: StopReason) -> Part | None:
        item, text = growing.item, "".join(growing.pieces)
        match item.type:
            case "message" if text:
                return Text(text)
            case "reasoning":
                seal = growing.raw if item.encrypted_content else ""
                return Thinking(text, seal, self.place.name) if text or seal else None
            case "function_call":
                text = text or item.arguments or ""
                return wire.parse_tool_call(item.call_id or item.id or "", item.name, text, stop=stop)
            case _:
                return None

    def _tokens(self) -> Usage:
        usage = self._final.usage or _Usage()
        source = usage.input_tokens_details or wire.TokenDetails()
        output = usage.output_tokens_details or wire.TokenDetails()
        return wire.make_usage(
            usage.input_tokens,
            usage.output_tokens,
            cached=source.cached_tokens,
            written=source.cache_write_tokens,
            reasoning=output.reasoning_tokens,
        )


def _fault(event: _Event) -> VendorError:
    if event.error is not None:
        return parse_error(event.error)
    return parse_error({"message": event.message or "no reason given", "code": event.code})


_decode = msgspec.json.Decoder(dict[str, Json]).decode


class OpenAIResponsesProvider:
    def __init__(self, endpoint: Endpoint, http: HttpStreams) -> None:
        self._endpoint, self._http = endpoint, http
        self._converted: dict[str, wire.ConvertedMessages[JsonObject]] = {}
        """By model."""

    def stream(self, request: Request) -> ModelStream:
        place = ModelTarget(self._endpoint, request.model)
        known = self._converted.get(place.name)
        if known is None:
            known = self._converted[place.name] = wire.ConvertedMessages(partial(_items, us=place.name))
        body = _to_wire(request, known)
        if request.output_schema and (named := wire.named_schema(self._endpoint, request)):
            body["text"] = {"format": {"type": "json_schema", **named}}
        body |= request.extra
        return ModelStream(self._http, build_request(place, "/responses", body), ResponsesStreamParser(place))


def _to_wire(request: Request, known: wire.ConvertedMessages[JsonObject]) -> JsonObject:
    body: JsonObject = {
        "model": request.model,
        "stream": True,
        "store": False,
        # Nothing is stored there: reasoning is returned encrypted and sent back with the next request.
        "include": ["reasoning.encrypted_content"],
        "input": [item for items in known.of(request.messages) for item in items],
        "max_output_tokens": request.max_tokens,
    }
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": False,
            }
            for tool in request.tools
        ]
        if request.tool_choice == "none":
            body["tool_choice"] = "none"
    if request.effort:
        body["reasoning"] = {"effort": wire.openai_effort(request.effort), "summary": "auto"}
    if request.session:
        body["prompt_cache_key"] = wire.valid_id(request.session)
    return body


def _items(message: Message, us: str) -> list[JsonObject]:
    match message.role:
        case "assistant":
            return _assistant_items(message, us)
        case "tool":
            return [_result(part) for part in message.parts if isinstance(part, ToolResult)]
        case _:
            content = list(_user_content(message))
            return [{"type": "message", "role": "user", "content": content}] if content else []


def _user_content(message: Message) -> Iterator[JsonObject]:
    for part in message.parts:
        match part:
            case Text(text) if text:
                yield {"type": "input_text", "text": wire.said_text(message.role, text)}
            case Image():
                yield _image(part)


def _assistant_items(message: Message, us: str) -> list[JsonObject]:
    items: list[JsonObject] = []
    for part in message.parts:
        match part:
            case Text(text) if text:
                content = [{"type": "output_text", "text": text, "annotations": []}]
                items.append({"type": "message", "role": "assistant", "content": content})
            case Thinking(_, seal, by) if seal and by == us and (item := _reasoning(seal)):
                items.append(item)
            case ToolCall(id, name):
                call = {"call_id": wire.valid_id(id), "name": wire.valid_tool_name(name)}
                items.append({"type": "function_call", **call, "arguments": wire.arguments_json(part)})
    while items and items[-1]["type"] == "reasoning":
        # Thinking cut off by the output limit: the API requires an item after it.
        items.pop()
    return items


def _reasoning(seal: str) -> JsonObject | None:
    """The original item; None if it was sealed by another API of this provider."""
    try:
        item = _decode(seal)
    except msgspec.DecodeError:
        return None
    return item if item.get("type") == "reasoning" else None


def _result(result: ToolResult) -> JsonObject:
    text = wire.result_text(result)
    shown = [{"type": "input_text", "text": text}, *map(_image, result.images)]
    output = shown if result.images else text
    return {"type": "function_call_output", "call_id": wire.valid_id(result.call_id), "output": output}


def _image(image: Image) -> JsonObject:
    return {"type": "input_image", "image_url": wire.data_url(image), "detail": "auto"}
