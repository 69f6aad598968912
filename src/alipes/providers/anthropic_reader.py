"""Answers of Anthropic's messages API, event by event. It ends where the answer is whole."""

import msgspec
from msgspec import Struct

from alipes.kernel.errors import Refused
from alipes.kernel.messages import Json, Message, Part, Text, Thinking
from alipes.kernel.turns import Replied, StopCause, Usage
from alipes.providers import parts
from alipes.providers.faults import Place, fault, ours
from alipes.providers.wire import Draft, known

_STOPS: dict[str, StopCause] = {
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


_KNOWN = frozenset(
    ("message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta", "error")
)


class _Details(Struct):
    thinking_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Explanation(Struct):
    explanation: str | None = None


class _Change(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_details: _Explanation | None = None


class _Opening(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Json] | None = None


class _Begun(Struct):
    usage: _Usage | None = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    delta: _Change | None = None
    content_block: _Opening | None = None
    message: _Begun | None = None
    usage: _Usage | None = None
    error: Json = None


class _Block(Struct):
    """One content block as it grows; `pieces` are its text, its thinking or its arguments."""

    opening: _Opening
    pieces: list[str] = []
    seal: list[str] = []


_event = msgspec.json.Decoder(_Event)


class AnthropicReader:
    def __init__(self, place: Place) -> None:
        self.draft = Draft()
        self.whole = self.ended = False
        self._place = place
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}
        self._stop = ""
        self._why = ""

    def read(self, data: bytes) -> None:
        event = known(_event, data, self._place, _KNOWN)
        if event is None:
            return
        match event.type:
            case "content_block_delta":
                self._grow(event.index, event.delta or _Change())
            case "content_block_start":
                self._open(event.index, event.content_block or _Opening())
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
                raise ours(self._place, fault(event.error))

    def reply(self) -> Replied:
        stop = _STOPS.get(self._stop, "end")
        said = tuple(part for _, block in sorted(self._blocks.items()) if (part := self._part(block, stop)))
        message = Message("assistant", said)
        if stop == "refused" and not message.text:
            raise Refused(f"{self._place.name} declined to answer{': ' + self._why if self._why else ''}")
        if message.calls and stop == "end":
            stop = "calls"
        return Replied(message, self._tokens(), stop)

    def _open(self, index: int, opening: _Opening) -> None:
        self._blocks[index] = _Block(opening)
        # Usually empty; a server that sends whole blocks sends them here.
        self._grow(index, _Change(text=opening.text, thinking=opening.thinking, signature=opening.signature))

    def _grow(self, index: int, change: _Change) -> None:
        block = self._blocks.get(index)
        if block is None:
            block = self._blocks[index] = _Block(_Opening("text" if change.text else "thinking"))
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

    def _part(self, block: _Block, stop: StopCause) -> Part | None:
        opening, text = block.opening, "".join(block.pieces)
        match opening.type:
            case "text" if text:
                return Text(text)
            case "thinking" if text or block.seal:
                return Thinking(text, "".join(block.seal), self._place.name)
            case "redacted_thinking" if opening.data:
                return Thinking("", f"redacted:{opening.data}", self._place.name)
            case "tool_use":
                if not text and opening.input:
                    text = msgspec.json.encode(opening.input).decode()
                return parts.made_call(opening.id, opening.name, text, stop=stop)
            case _:
                return None

    def _count(self, usage: _Usage | None) -> None:
        """Later counts replace earlier ones; what an event leaves out stays."""
        if usage is None:
            return
        details = usage.output_tokens_details or _Details()
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
        # Here alone the vendor counts the cached ones apart.
        whole = count("input", 0) + cached + written
        return parts.usage(whole, count("output"), cached=cached, written=written, reasoning=reasoning)
