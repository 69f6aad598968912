"""Gemini's own API (streamGenerateContent), as Google AI Studio and Vertex serve it: requests and streams."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from urllib.parse import quote

import msgspec
from msgspec import Struct

from alipes.kernel.messages import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request, ToolSpec
from alipes.kernel.turns import ModelReply, StopReason, Usage
from alipes.providers import wire
from alipes.providers.errors import ModelTarget, parse_error, translate_error
from alipes.providers.streaming import HttpStreams, ModelStream, StreamParser, build_request, decode_event
from alipes.providers.wire import JsonObject

_STOPS: dict[str, StopReason] = {
    "STOP": "end",
    "FINISH_REASON_UNSPECIFIED": "end",
    "FUNCTION_CALL": "end",  # servers that copy the API
    "MAX_TOKENS": "length",
}
_UNUSABLE = frozenset(
    (
        *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"),
        *("MISSING_THOUGHT_SIGNATURE", "OTHER"),
    )
)
"""The model wrote something that the API does not pass on; another try may succeed."""
UNSIGNED = "skip_thought_signature_validator"
"""In place of the signature of a call that another model made."""
_BUDGETED = r"gemini-(?:1|2)[.-]"
"""Models before thinking levels take a budget."""
_BUDGETS = {"off": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 24576, "max": 24576}
_THINKING_LEVELS = {"off": "minimal", "max": "high"}
"""Levels that the API calls otherwise."""


class _FunctionCall(Struct):
    name: str = ""
    args: dict[str, Json] | None = None
    id: str = ""


class _Piece(Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str = ""
    function_call: _FunctionCall | None = None


class _Content(Struct):
    parts: list[_Piece] | None = None


class _Candidate(Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str = ""
    finish_message: str = ""
    index: int = 0


class _Feedback(Struct, rename="camel"):
    block_reason: str = ""


class _Counts(Struct, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Counts | None = None
    error: Json = None


class CallSeal(Struct, omit_defaults=True):
    """The signatures that the API wants back: our form of `Thinking.seal`."""

    thought: str = ""
    text: str = ""
    calls: dict[str, str] = {}
    """By the call's place in the message."""


_chunk = msgspec.json.Decoder(_Chunk, strict=False)
_seal = msgspec.json.Decoder(CallSeal)


class GeminiStreamParser(StreamParser):
    def __init__(self, place: ModelTarget) -> None:
        super().__init__(place)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_FunctionCall] = []
        self._seal = CallSeal(calls={})
        self._stop, self._why = "", ""
        self._counts = _Counts()

    def read(self, data: bytes) -> None:
        chunk = decode_event(_chunk, data, self.place)
        if chunk.error is not None:
            raise translate_error(self.place, parse_error(chunk.error))
        if chunk.usage_metadata is not None:
            self._counts = chunk.usage_metadata
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._stop, self.whole = chunk.prompt_feedback.block_reason, True
        for candidate in chunk.candidates or ():
            if not candidate.index:
                self._choose(candidate)

    def reply(self) -> ModelReply:
        stop = _STOPS.get(self._stop, "refused")
        if self._stop in _UNUSABLE:
            stop = "end"  # without text the loop asks again
        calls = [
            ToolCall(call.id or wire.new_call_id(), call.name or "unnamed", call.args or {}) for call in self._calls
        ]
        text = "".join(self._text)
        said: list[Part] = [*self._sealed(), *([Text(text)] if text else []), *calls]
        return self.make_reply(said, stop, self._tokens(), f" ({self._stop}{self._why})")

    def _choose(self, candidate: _Candidate) -> None:
        for piece in (candidate.content.parts or ()) if candidate.content else ():
            self._add(piece)
        if candidate.finish_reason:
            self._stop, self.whole = candidate.finish_reason, True
            self._why = f": {candidate.finish_message}" if candidate.finish_message else ""

    def _add(self, piece: _Piece) -> None:
        if piece.function_call is not None:
            if piece.thought_signature:
                self._seal.calls[str(len(self._calls))] = piece.thought_signature
            self._calls.append(piece.function_call)
            self.draft.begin_call(piece.function_call.name)
            self.draft.length += len(msgspec.json.encode(piece.function_call.args))
        elif piece.thought:
            self._thinking.append(piece.text or "")
            self.draft.think(piece.text or "")
            self._seal.thought = piece.thought_signature or self._seal.thought
        else:
            self._text.append(piece.text or "")
            self.draft.say(piece.text or "")
            self._seal.text = piece.thought_signature or self._seal.text

    def _sealed(self) -> Iterator[Thinking]:
        text = "".join(self._thinking)
        if text or self._seal != CallSeal():
            yield Thinking(text, msgspec.json.encode(self._seal).decode(), self.place.name)

    def _tokens(self) -> Usage:
        counts = self._counts
        thoughts = counts.thoughts_token_count or 0
        return wire.make_usage(
            (counts.prompt_token_count or 0) + (counts.tool_use_prompt_token_count or 0),
            (counts.candidates_token_count or 0) + thoughts,
            cached=counts.cached_content_token_count,
            written=0,
            reasoning=thoughts,
        )


class GeminiProvider:
    def __init__(self, endpoint: Endpoint, http: HttpStreams) -> None:
        self._endpoint, self._http = endpoint, http
        self._converted: dict[str, wire.ConvertedMessages[JsonObject]] = {}
        """By model."""

    def stream(self, request: Request) -> ModelStream:
        place = ModelTarget(self._endpoint, request.model)
        path = f"/models/{quote(request.model, safe='@:.-_')}:streamGenerateContent?alt=sse"
        return ModelStream(self._http, build_request(place, path, self.body(place, request)), GeminiStreamParser(place))

    def body(self, place: ModelTarget, request: Request) -> JsonObject:
        """The request in the words of the API, with what plugins add."""
        known = self._converted.get(place.name)
        if known is None:
            known = self._converted[place.name] = wire.ConvertedMessages(partial(_parts, us=place.name))
        return to_wire(request, known, self._endpoint) | request.extra


def to_wire(request: Request, known: wire.ConvertedMessages[JsonObject], endpoint: Endpoint) -> JsonObject:
    config: JsonObject = {"maxOutputTokens": request.max_tokens}
    body: JsonObject = {"contents": _contents(request.messages, known), "generationConfig": config}
    if request.system:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(each) for each in request.tools]}]
        if request.tool_choice == "none":
            body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    if request.effort:
        config["thinkingConfig"] = _thinking(request)
    if request.output_schema and wire.named_schema(endpoint, request):
        config |= {"responseMimeType": "application/json", "responseJsonSchema": request.output_schema}
    return body


def _declaration(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}


def _thinking(request: Request) -> JsonObject:
    if re.match(_BUDGETED, request.model):
        budget = min(_BUDGETS[request.effort], max(0, request.max_tokens - 1024))
        return {"thinkingBudget": budget, "includeThoughts": budget > 0}
    level = _THINKING_LEVELS.get(request.effort, request.effort)
    return {"thinkingLevel": level, "includeThoughts": request.effort != "off"}


def _contents(messages: Sequence[Message], known: wire.ConvertedMessages[JsonObject]) -> list[JsonObject]:
    """Contents in alternating roles. A result names its function, which only the call knows."""
    names = {call.id: wire.valid_tool_name(call.name) for message in messages for call in message.calls}
    sent: list[JsonObject] = []
    for message, parts in zip(messages, known.of(messages), strict=True):
        role = "model" if message.role == "assistant" else "user"
        named = [_named(part, names) for part in parts]
        if sent and sent[-1]["role"] == role:
            sent[-1]["parts"] += named
        elif named:
            sent.append({"role": role, "parts": named})
    return sent


def _named(part: JsonObject, names: dict[str, str]) -> JsonObject:
    answer = part.get("functionResponse")
    if answer is None:
        return part
    return {"functionResponse": {**answer, "name": names.get(answer["name"], "unnamed")}}


def _parts(message: Message, us: str) -> list[JsonObject]:
    return list(_model_parts(message, us) if message.role == "assistant" else _user_parts(message))


def _model_parts(message: Message, us: str) -> Iterator[JsonObject]:
    seal, calls = _find_seal(message.parts, us), 0
    for part in message.parts:
        match part:
            case Thinking(text, sealed, by) if text and sealed and by == us:
                yield _signed({"text": text, "thought": True}, seal.thought)
            case Text(text) if text.strip():
                yield _signed({"text": text}, seal.text)
            case ToolCall(id, name, args):
                made = {"functionCall": {"id": wire.valid_id(id), "name": wire.valid_tool_name(name), "args": args}}
                # The first call of a step needs a signature.
                yield _signed(made, seal.calls.get(str(calls), "" if calls else UNSIGNED))
                calls += 1


def _find_seal(parts: Iterable[Part], us: str) -> CallSeal:
    for part in parts:
        if isinstance(part, Thinking) and part.by == us and part.seal.startswith("{"):
            try:
                return _seal.decode(part.seal)
            except msgspec.DecodeError:  # of the same model through another API
                break
    return CallSeal()


def _signed(part: JsonObject, signature: str) -> JsonObject:
    return {**part, "thoughtSignature": signature} if signature else part


def _user_parts(message: Message) -> Iterator[JsonObject]:
    for part in message.parts:
        match part:
            case Text(text) if text.strip():
                yield {"text": wire.said_text(message.role, text)}
            case Image():
                yield _image(part)
            case ToolResult(call_id):
                field = "output" if part.outcome == "ok" else "error"
                answer = {"id": wire.valid_id(call_id), "name": call_id, "response": {field: wire.result_text(part)}}
                yield {"functionResponse": answer}
                yield from map(_image, part.images)


def _image(image: Image) -> JsonObject:
    return {"inlineData": {"mimeType": image.media_type, "data": wire.base64_of(image)}}
