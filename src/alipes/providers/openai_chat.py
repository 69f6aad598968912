"""OpenAI's chat completions API and its dialects: requests and streams."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from alipes.kernel.messages import Image, Json, Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply, StopReason, Usage
from alipes.providers import wire
from alipes.providers.errors import ModelTarget, VendorError, parse_error, translate_error
from alipes.providers.streaming import HttpStreams, ModelStream, StreamParser, build_request, decode_event
from alipes.providers.wire import JsonObject


class Dialect(Struct, frozen=True):
    """Differences of one server from OpenAI's API."""

    limit: str = "max_tokens"
    counts: bool = True
    """Whether token counts must be requested; servers that always send them may reject the option."""
    cache_key: bool = False
    """Whether requests may carry a prompt cache key."""
    nested_effort: bool = False
    """Uses `reasoning: {effort}` instead of `reasoning_effort`."""
    short_ids: bool = False
    """Tool call ids are nine letters or digits."""
    answer_before_user: bool = False
    """An assistant message is required between tool results and a user message."""
    signed_calls: bool = False
    """Unsigned tool calls need a marker."""
    headers: dict[str, str] = {}
    body: dict[str, Json] = {}
    marks: str = ""
    """Models whose name contains this need explicit prompt cache breakpoints."""


DEFAULT_DIALECT = Dialect()
_BY_HOST = {
    "api.openai.com": Dialect(limit="max_completion_tokens", cache_key=True),
    "openai.azure.com": Dialect(limit="max_completion_tokens", cache_key=True),
    "openrouter.ai": Dialect(
        cache_key=True,
        nested_effort=True,
        marks="anthropic/",
        headers={"x-title": "alipes"},
        body={"usage": {"include": True}},
    ),
    "api.mistral.ai": Dialect(counts=False, short_ids=True, answer_before_user=True),
    "generativelanguage.googleapis.com": Dialect(signed_calls=True),
}


def dialect_of(base_url: str) -> Dialect:
    host = base_url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
    for known, spoken in _BY_HOST.items():
        if host == known or host.endswith(f".{known}"):
            return spoken
    return DEFAULT_DIALECT


_STOPS: dict[str, StopReason] = {
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refused",
    "refusal": "refused",
}


MOST_CALLS = 1000


class Seal(Struct, omit_defaults=True):
    """What this server wants to see again with the message, and where: our form of `Thinking.seal`."""

    field: str = ""
    """The message's field that the thinking came in."""
    details: list[dict[str, Json]] = []
    """OpenRouter's reasoning_details, whole."""
    calls: dict[str, Json] = {}
    """By the call's place in the message: its extra_content (Google signs calls)."""


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Json] | None = None


class _Call(Struct):
    index: int | None = None
    id: str | int | None = None
    function: _Function | None = None
    extra_content: Json = None


class _Chunked(Struct):
    """Mistral's content in chunks; a thinking chunk holds chunks of its own."""

    type: str = ""
    text: str = ""
    thinking: "list[_Chunked] | str" = ""


class _Delta(Struct):
    content: str | list[_Chunked] | None = None
    refusal: str | None = None
    reasoning_content: Json = None
    reasoning: Json = None
    reasoning_details: list[dict[str, Json]] | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    index: int | None = 0
    delta: _Delta | None = None
    finish_reason: str | None = None
    error: Json = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: wire.TokenDetails | None = None
    completion_tokens_details: wire.TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class _Groq(Struct):
    usage: _Usage | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    x_groq: _Groq | None = None
    error: Json = None


class _PartialCall(Struct):
    id: str = ""
    name: str = ""
    pieces: list[str] = []
    extra: Json = None


_chunk = msgspec.json.Decoder(_Chunk, strict=False)


class ChatStreamParser(StreamParser):
    def __init__(self, place: ModelTarget) -> None:
        super().__init__(place)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._field = ""
        self._details: list[dict[str, Json]] = []
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}
        self._stop = ""
        self._refused = False
        self._usage: _Usage | None = None

    def read(self, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self.whole = self.ended = True
            return
        chunk = decode_event(_chunk, data, self.place)
        if chunk.error is not None:
            raise translate_error(self.place, parse_error(chunk.error))
        for choice in chunk.choices or ():
            if choice.error is not None:
                raise translate_error(self.place, parse_error(choice.error))
            if not choice.index:
                self._choose(choice)
        if chunk.usage or chunk.x_groq:
            self._usage = chunk.usage or (chunk.x_groq and chunk.x_groq.usage) or self._usage

    def reply(self) -> ModelReply:
        text, stop = "".join(self._text), "refused" if self._refused else _STOPS.get(self._stop, "end")
        calls = [wire.parse_tool_call(c.id, c.name, "".join(c.pieces), stop=stop) for c in self._calls]
        if stop == "calls" and not calls:
            stop = "end"
        said: list[Part] = [*self._sealed(), *([Text(text)] if text else []), *_with_distinct_ids(calls)]
        return self.make_reply(said, stop, self._tokens(), f" ({self._stop})")

    def _choose(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is not None:
            if delta.content:
                self._say(delta.content)
            if delta.reasoning_content:
                self._think("reasoning_content", delta.reasoning_content)
            elif delta.reasoning:
                self._think("reasoning", delta.reasoning)
            if delta.refusal:
                self._refused = True
                self._say(delta.refusal)
            for detail in delta.reasoning_details or ():
                self._detail(detail)
            for call in delta.tool_calls or ():
                self._call(call)
        if choice.finish_reason:
            if choice.finish_reason == "error":
                raise translate_error(self.place, VendorError("the answer ended with an unexplained error"))
            self._stop = choice.finish_reason
            self.whole = True

    def _say(self, content: str | list[_Chunked]) -> None:
        if isinstance(content, str):
            self._text.append(content)
            self.draft.say(content)
            return
        for piece in content:
            if piece.type == "thinking":
                inner = piece.thinking
                thought = inner if isinstance(inner, str) else "".join(chunk.text for chunk in inner)
                self._thinking.append(thought)
                self.draft.think(thought)
            elif piece.text:
                self._say(piece.text)

    def _think(self, field: str, thought: Json) -> None:
        if isinstance(thought, str):
            self._field = field
            self._thinking.append(thought)
            self.draft.think(thought)

    def _detail(self, detail: dict[str, Json]) -> None:
        """Join the pieces of one detail, which must be sent back whole."""
        self.draft.length += sum(len(value) for value in detail.values() if isinstance(value, str))
        last = self._details[-1] if self._details else {}
        if not last or any(last.get(key) != detail.get(key) for key in ("type", "index")):
            self._details.append(detail)
            return
        for key, value in detail.items():
            if key in ("text", "summary", "data") and isinstance(value, str):
                last[key] = f"{last.get(key) or ''}{value}"
            elif value is not None:
                last[key] = value

    def _call(self, piece: _Call) -> None:
        function = piece.function or _Function()
        given = str(piece.id or "")
        call = self._which(piece.index, given, function.name or "")
        call.id = call.id or given
        if function.name and not call.name:
            call.name = function.name
            self.draft.begin_call(call.name)
        call.extra = piece.extra_content if piece.extra_content is not None else call.extra
        if function.arguments:
            text = function.arguments
            text = text if isinstance(text, str) else msgspec.json.encode(text).decode()
            call.pieces.append(text)
            self.draft.length += len(text)

    def _which(self, index: int | None, id: str, name: str) -> _PartialCall:
        """The call that a piece belongs to: by index, else by id, else the last one."""
        if index is not None:
            growing = self._by_index.get(index)
        elif id:
            growing = next((call for call in self._calls if call.id == id), None)
        else:
            growing = self._calls[-1] if self._calls and not name else None
        # Some servers send index 0 for every call and distinguish them only by id.
        if growing is None or (name and id and growing.id not in ("", id)):
            growing = _PartialCall()
            self._calls.append(growing)
            if len(self._calls) > MOST_CALLS:
                raise translate_error(
                    self.place, VendorError(f"an answer with more than {MOST_CALLS} calls", "too_many_calls")
                )
        if index is not None:
            self._by_index[index] = growing
        return growing

    def _sealed(self) -> list[Part]:
        text = "".join(self._thinking)
        signed: dict[str, Json] = {str(n): call.extra for n, call in enumerate(self._calls) if call.extra is not None}
        seal = Seal(self._field, self._details, signed)
        if not text and not self._details and not signed:
            return []
        return [Thinking(text, msgspec.json.encode(seal).decode(), self.place.name)]

    def _tokens(self) -> Usage:
        usage = self._usage or _Usage()
        given, made = usage.prompt_tokens or 0, usage.completion_tokens or 0
        # Some servers include reasoning only in the total.
        made = max(made, (usage.total_tokens or 0) - given)
        source = usage.prompt_tokens_details or wire.TokenDetails()
        output = usage.completion_tokens_details or wire.TokenDetails()
        counted = wire.make_usage(
            given,
            made,
            cached=source.cached_tokens or usage.prompt_cache_hit_tokens,
            written=source.cache_write_tokens,
            reasoning=output.reasoning_tokens,
        )
        return msgspec.structs.replace(counted, cost=usage.cost)


def _with_distinct_ids(calls: list[ToolCall]) -> list[ToolCall]:
    """Make the ids of the calls unique: results are matched by id."""
    seen: set[str] = set()
    for n, call in enumerate(calls):
        if call.id in seen:
            calls[n] = msgspec.structs.replace(call, id=wire.new_call_id())
        seen.add(calls[n].id)
    return calls


UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
_decode = msgspec.json.Decoder(Seal).decode


class OpenAIChatProvider:
    def __init__(self, endpoint: Endpoint, http: HttpStreams) -> None:
        self._dialect = dialect_of(endpoint.base_url)
        self._endpoint = msgspec.structs.replace(endpoint, headers={**self._dialect.headers, **endpoint.headers})
        self._http = http
        self._forms: dict[tuple[str, bool], _Messages] = {}
        """By model, and whether contents are in parts."""

    def stream(self, request: Request) -> ModelStream:
        place, dialect = ModelTarget(self._endpoint, request.model), self._dialect
        marked = bool(dialect.marks) and dialect.marks in request.model
        form = self._forms.get((place.name, marked))
        if form is None:
            form = self._forms[place.name, marked] = _Messages(place.name, dialect, in_parts=marked)
        body = _to_wire(request, form.of(request), dialect, marked=marked)
        if request.output_schema and (named := wire.named_schema(self._endpoint, request)):
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        body |= request.extra
        return ModelStream(self._http, build_request(place, "/chat/completions", body), ChatStreamParser(place))


def _to_wire(request: Request, messages: list[JsonObject], spoken: Dialect, *, marked: bool) -> JsonObject:
    if marked:
        _mark_cache_breakpoints(messages)
    body: JsonObject = {"model": request.model, "stream": True, "messages": messages, **spoken.body}
    body[spoken.limit] = request.max_tokens
    if spoken.counts:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in request.tools
        ]
        if request.tool_choice == "none":
            body["tool_choice"] = "none"
    if request.effort:
        effort = wire.openai_effort(request.effort)
        body |= {"reasoning": {"effort": effort}} if spoken.nested_effort else {"reasoning_effort": effort}
    if spoken.cache_key and request.session:
        body["prompt_cache_key"] = wire.valid_id(request.session)
    return body


def _mark_cache_breakpoints(messages: list[JsonObject]) -> None:
    """Set prompt cache breakpoints: system prompt, end of this request and of the two before."""
    ends = [at for at, message in enumerate(messages) if message["role"] in ("user", "tool")]
    system = [at for at, message in enumerate(messages[:1]) if message["role"] == "system"]
    for at in (*system, *ends[-3:]):
        messages[at] = wire.mark_last_block(messages[at])


def _decode_seal(seal: str) -> Seal:
    try:
        return _decode(seal)
    except msgspec.DecodeError:
        # Sealed by another API of the same provider.
        return Seal()


class _Messages:
    """Converts the transcript into messages of this dialect."""

    def __init__(self, us: str, spoken: Dialect, *, in_parts: bool) -> None:
        self._us, self._spoken, self._in_parts = us, spoken, in_parts
        self._converted = wire.ConvertedMessages(self._to_wire)

    def of(self, request: Request) -> list[JsonObject]:
        system = [{"role": "system", "content": self._content(request.system)}] if request.system else []
        rest = [message for converted in self._converted.of(request.messages) for message in converted]
        return self._spaced([*system, *rest])

    def _to_wire(self, message: Message) -> Sequence[JsonObject]:
        match message.role:
            case "assistant":
                said = self._said(message)
                return [said] if said else []
            case "tool":
                return list(self._results(message))
            case _:
                images = [part for part in message.parts if isinstance(part, Image)]
                text = wire.said_text(message.role, message.text)
                return [{"role": "user", "content": self._content(text, images)}] if text or images else []

    def _said(self, message: Message) -> JsonObject | None:
        if len(message.parts) == 1 and message.text:  # most messages: for each of them this runs in each turn
            return {"role": "assistant", "content": self._content(message.text)}
        seals = [
            (part.text, _decode_seal(part.seal))
            for part in message.parts
            if isinstance(part, Thinking) and part.seal and part.by == self._us
        ]
        signatures = {n: extra for _, seal in seals for n, extra in seal.calls.items()}
        calls = [self._call(call, signatures.get(str(n)), n) for n, call in enumerate(message.calls)]
        if not message.text and not calls:
            return None
        sent: JsonObject = {"role": "assistant", "content": self._content(message.text) if message.text else None}
        for text, seal in seals:
            if seal.details:
                sent["reasoning_details"] = seal.details
            elif seal.field and text:
                sent[seal.field] = text
        return {**sent, "tool_calls": calls} if calls else sent

    def _call(self, call: ToolCall, signature: Any, n: int) -> JsonObject:
        function = {"name": wire.valid_tool_name(call.name), "arguments": wire.arguments_json(call)}
        sent: JsonObject = {"id": self._id(call.id), "type": "function", "function": function}
        if signature is None and n == 0 and self._spoken.signed_calls:
            signature = UNSIGNED
        return {**sent, "extra_content": signature} if signature is not None else sent

    def _results(self, message: Message) -> Iterator[JsonObject]:
        """The results in order, then their images, which a tool message cannot contain."""
        shown: list[Image] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                content = self._content(wire.result_text(part))
                yield {"role": "tool", "tool_call_id": self._id(part.call_id), "content": content}
                shown += part.images
        if shown:
            text = wire.notice("Images of the tool results above, in order.")
            yield {"role": "user", "content": self._content(text, shown)}

    def _content(self, text: str, images: Sequence[Image] = ()) -> str | list[JsonObject]:
        if not images and not self._in_parts:
            return text
        said = [{"type": "text", "text": text}] if text else []
        return [*said, *({"type": "image_url", "image_url": {"url": wire.data_url(image)}} for image in images)]

    def _id(self, id: str) -> str:
        if self._spoken.short_ids and not (len(id) == 9 and id.isascii() and id.isalnum()):
            return wire.digest(id, 9)
        return wire.valid_id(id)

    def _spaced(self, messages: list[JsonObject]) -> list[JsonObject]:
        if not self._spoken.answer_before_user:
            return messages
        spaced: list[JsonObject] = []
        for message in messages:
            if message["role"] == "user" and spaced and spaced[-1]["role"] == "tool":
                spaced.append({"role": "assistant", "content": "Noted."})
            spaced.append(message)
        return spaced
