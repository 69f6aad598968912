"""Answers of OpenAI's chat completions, chunk by chunk, as its many speakers send them."""

import msgspec
from msgspec import Struct

from alipes.kernel.errors import Refused
from alipes.kernel.messages import Json, Message, Part, Text, Thinking, ToolCall
from alipes.kernel.turns import Replied, StopCause, Usage
from alipes.providers import parts
from alipes.providers.faults import Fault, Place, fault, ours
from alipes.providers.wire import Draft, decoded

_STOPS: dict[str, StopCause] = {
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


class _Input(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Output(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _Input | None = None
    completion_tokens_details: _Output | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class _Groq(Struct):
    usage: _Usage | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    x_groq: _Groq | None = None
    error: Json = None


class _Growing(Struct):
    """A call as it arrives."""

    id: str = ""
    name: str = ""
    pieces: list[str] = []
    extra: Json = None


_chunk = msgspec.json.Decoder(_Chunk, strict=False)


class ChatReader:
    def __init__(self, place: Place) -> None:
        self.draft = Draft()
        self.whole = self.ended = False
        self._place = place
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._field = ""
        self._details: list[dict[str, Json]] = []
        self._calls: list[_Growing] = []
        self._by_index: dict[int, _Growing] = {}
        self._stop = ""
        self._refused = False
        self._usage: _Usage | None = None

    def read(self, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self.whole = self.ended = True
            return
        chunk = decoded(_chunk, data, self._place)
        if chunk.error is not None:
            raise ours(self._place, fault(chunk.error))
        for choice in chunk.choices or ():
            if choice.error is not None:
                raise ours(self._place, fault(choice.error))
            if not choice.index:
                self._choose(choice)
        if chunk.usage or chunk.x_groq:
            self._usage = chunk.usage or (chunk.x_groq and chunk.x_groq.usage) or self._usage

    def reply(self) -> Replied:
        text, stop = "".join(self._text), _STOPS.get(self._stop, "end")
        if self._refused:
            stop = "refused"
        if stop == "refused" and not text:
            raise Refused(f"{self._place.name} declined to answer ({self._stop})")
        calls = [parts.made_call(c.id, c.name, "".join(c.pieces), stop=stop) for c in self._calls]
        if stop == "calls" or (stop == "end" and calls):
            stop = "calls" if calls else "end"
        said: list[Part] = [*self._sealed(), *([Text(text)] if text else []), *_distinct(calls)]
        return Replied(Message("assistant", tuple(said)), self._tokens(), stop)

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
                raise ours(self._place, Fault("the answer ended in an error that was not explained"))
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
        """Pieces of one detail are sent one by one and wanted back whole."""
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
        call.name = call.name or function.name or ""
        call.extra = piece.extra_content if piece.extra_content is not None else call.extra
        if function.arguments:
            text = function.arguments
            text = text if isinstance(text, str) else msgspec.json.encode(text).decode()
            call.pieces.append(text)
            self.draft.length += len(text)

    def _which(self, index: int | None, id: str, name: str) -> _Growing:
        """The call that a piece belongs to: by index, else by id, else the last unless it names another."""
        if index is not None:
            growing = self._by_index.get(index)
        elif id:
            growing = next((call for call in self._calls if call.id == id), None)
        else:
            growing = self._calls[-1] if self._calls and not name else None
        # Some count every call as number 0 and tell them apart by id alone.
        if growing is None or (name and id and growing.id not in ("", id)):
            growing = _Growing()
            self._calls.append(growing)
            if len(self._calls) > MOST_CALLS:
                raise ours(
                    self._place, Fault(f"an answer with more than {MOST_CALLS} calls", "too_many_calls")
                )
        if index is not None:
            self._by_index[index] = growing
        return growing

    def _sealed(self) -> list[Part]:
        text = "".join(self._thinking)
        signed: dict[str, Json] = {
            str(n): call.extra for n, call in enumerate(self._calls) if call.extra is not None
        }
        seal = Seal(self._field, self._details, signed)
        if not text and not self._details and not signed:
            return []
        return [Thinking(text, msgspec.json.encode(seal).decode(), self._place.name)]

    def _tokens(self) -> Usage:
        usage = self._usage or _Usage()
        given, made = usage.prompt_tokens or 0, usage.completion_tokens or 0
        # Some count the thinking only in the total.
        made = max(made, (usage.total_tokens or 0) - given)
        source, output = usage.prompt_tokens_details or _Input(), usage.completion_tokens_details or _Output()
        counted = parts.usage(
            given,
            made,
            cached=source.cached_tokens or usage.prompt_cache_hit_tokens,
            written=source.cache_write_tokens,
            reasoning=output.reasoning_tokens,
        )
        return msgspec.structs.replace(counted, cost=usage.cost)


def _distinct(calls: list[ToolCall]) -> list[ToolCall]:
    """No two calls of an answer share an id, whatever the server says: results are told apart by it."""
    seen: set[str] = set()
    for n, call in enumerate(calls):
        if call.id in seen:
            calls[n] = msgspec.structs.replace(call, id=parts.new_id())
        seen.add(calls[n].id)
    return calls
