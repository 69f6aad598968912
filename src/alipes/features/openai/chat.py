"""Chat completions: a turn's answer as one object or as a stream of chunks."""

import time
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs
from starlette.responses import Response

from alipes.features.openai.documents import RequestDocuments
from alipes.features.openai.requests import ChatRequest, parse_chat
from alipes.features.openai.steps import ToolSteps, wants_steps
from alipes.features.openai.turns import (
    MESSAGE_SEPARATOR,
    RUN_ERRORS,
    TOOL_EVENT,
    Finish,
    MessageText,
    OpenAiOutcome,
    OpenAiTurn,
    OpenAiTurns,
    TurnOptions,
    TurnRecord,
    to_json,
    tool_progress,
)
from alipes.kernel.messages import Json, Message, ToolCall
from alipes.kernel.turns import Event, Retracted, Said, TextDelta, ThinkingDelta, Usage
from alipes.providers.wire import arguments_json
from alipes.web.endpoint import ApiCall, ApiEndpoint, problem_response
from alipes.web.sse import EventStream, SendFrames, frame

_DONE = frame(b"[DONE]")


class CalledFunction(Struct, frozen=True):
    name: str
    arguments: str


class CompletionCall(Struct, frozen=True):
    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class CompletionMessage(Struct, frozen=True):
    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: str | None = None
    tool_calls: list[CompletionCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class CompletionChoice(Struct, frozen=True):
    message: CompletionMessage
    finish_reason: Finish
    index: int = 0
    logprobs: None = None


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int


class CompletionTokensDetails(Struct, frozen=True):
    reasoning_tokens: int


class CompletionUsage(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Completion(Struct, frozen=True):
    """A complete answer."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage
    object: Literal["chat.completion"] = "chat.completion"
    service_tier: Literal["default"] = "default"
    system_fingerprint: None = None


class ChatCompletions:
    def __init__(self, turns: OpenAiTurns, documents: RequestDocuments) -> None:
        self._turns, self._documents = turns, documents

    @ApiEndpoint(
        "POST", "/v1/chat/completions", "run", body=ChatRequest, answer=Completion, streams=True, errors=RUN_ERRORS
    )
    async def complete(self, call: ApiCall) -> Response:
        """Answer a conversation, using the agent's own tools where needed."""
        request: ChatRequest = call.body
        await self._turns.require_schemas(request.response_format)
        loaded, untrusted = await self._documents.load(request, call.caller)
        parsed = structs.replace(parse_chat(loaded), untrusted=untrusted)
        api_turn = await self._turns.begin(call, "chat", parsed, TurnOptions())
        steps = wants_steps(call, request.steps)
        if request.stream:
            return self._stream(api_turn, request, steps=steps)
        record = await self._turns.wait_for_end(api_turn, call.request)
        result = await self._turns.conclude(api_turn, record)
        if result.problem is not None:
            raise result.problem
        shown = record.thinking(ToolSteps(api_turn.names)) if steps else result.thinking
        return to_json(completion(api_turn.placed.turn, request.model, structs.replace(result, thinking=shown)))

    def _stream(self, api_turn: OpenAiTurn, request: ChatRequest, *, steps: bool) -> EventStream:
        counted = bool(request.stream_options and request.stream_options.include_usage)
        chunks = ChatChunks(api_turn, request.model, counted=counted, steps=steps)

        async def write(send: SendFrames) -> None:
            record = TurnRecord()
            try:
                await self._turns.follow(api_turn, record, chunks.event_frames, send)
                result = await self._turns.conclude(api_turn, record, None if api_turn.parsed.schema else chunks.text)
                if result.problem is not None and not chunks.opened:
                    raise result.problem
                await send(chunks.ending_frames(result))
            finally:  # the client or the server is going away: nobody could fetch the rest
                if record.ended is None:
                    await self._turns.leave(api_turn, answered=chunks.opened)

        return EventStream(write, failures="openai")


class ChatChunks:
    """Builds the frames of a streamed answer from the turn's events."""

    def __init__(self, api_turn: OpenAiTurn, model: str, *, counted: bool, steps: bool = False) -> None:
        """`counted`: the client asked for usage. `steps`: and for the steps of the agent's own tools, as reasoning."""
        self._steps = ToolSteps(api_turn.names) if steps else None
        self._api_turn, self._counted = api_turn, counted
        about = {"id": f"chatcmpl-{api_turn.placed.turn}", "object": "chat.completion.chunk"}
        more: dict[str, Json] = {"service_tier": "default", "system_fingerprint": None}
        self._about: dict[str, Json] = {**about, "created": int(time.time()), "model": model, **more}
        self._message = MessageText()
        self._whole = bool(api_turn.parsed.schema)
        """The text is sent at the end, when it is known to match the schema."""
        self._break = False
        """True if the next text belongs to a new message."""
        self.text = ""
        """All text sent so far."""
        self.opened = False
        """The first chunk was made."""

    def event_frames(self, event: Event) -> bytes:
        frames = self._event_frames(event)
        return self._opening_frames() + frames if frames else b""

    def _opening_frames(self) -> bytes:
        """The first chunk, once; empty afterwards."""
        opened, self.opened = self.opened, True
        return b"" if opened else self._chunk({"role": "assistant", "content": ""})

    def _event_frames(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return b"" if self._whole else self._text_chunk(self._message.add(event))
            case ThinkingDelta(text):
                return self._chunk({"reasoning_content": text})
            case Said(message):
                return self._message_chunks(message)
            case Retracted():
                self._break = self._message.drop() or self._break
                return b""
        if (record := tool_progress(event, self._api_turn.names)) is not None:
            # Some clients parse every event regardless of its name: to them this is an empty chunk.
            return self._chunk({}, event=TOOL_EVENT, more={"alipes": record})
        return b""

    def _message_chunks(self, message: Message) -> bytes:
        steps = self._steps.add(message) if self._steps is not None else ()
        frames = b"".join(self._chunk({"reasoning_content": f"{step}\n"}) for step in steps)
        if message.role == "assistant" and not self._whole:
            frames += self._text_chunk(self._message.complete(message.text))
            self._break = bool(self.text)
        return frames

    def ending_frames(self, result: OpenAiOutcome) -> bytes:
        if result.problem is not None:
            return frame(bytes(problem_response(result.problem, "openai").body)) + _DONE
        frames = [
            self._opening_frames(),
            self._text_chunk(result.text) if self._whole else b"",
            *(
                self._chunk({"tool_calls": [{"index": n, **_call_to_wire(call)}]})
                for n, call in enumerate(result.calls)
            ),
        ]
        if result.refusal:
            frames.append(self._chunk({"refusal": result.refusal}))
        frames.append(self._chunk({}, finish=result.finish))
        if self._counted:
            usage: Json = msgspec.to_builtins(completion_usage(result.usage))
            frames.append(frame(msgspec.json.encode({**self._about, "choices": [], "usage": usage})))
        return b"".join(frames) + _DONE

    def _text_chunk(self, text: str) -> bytes:
        if not text:
            return b""
        if self._break:
            text, self._break = MESSAGE_SEPARATOR + text, False
        self.text += text
        return self._chunk({"content": text})

    def _chunk(
        self,
        delta: dict[str, Json],
        *,
        finish: Finish | None = None,
        event: str = "",
        more: dict[str, Json] | None = None,
    ) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage: dict[str, Json] = {"usage": None} if self._counted else {}
        chunk = {**self._about, "choices": [choice], **usage, **(more or {})}
        return frame(msgspec.json.encode(chunk), event=event)


def completion(turn: str, model: str, result: OpenAiOutcome) -> Completion:
    calls = [CompletionCall(call.id, CalledFunction(call.name, arguments_json(call))) for call in result.calls]
    message = CompletionMessage(
        content=result.text or None,
        refusal=result.refusal or None,
        tool_calls=calls or UNSET,
        reasoning_content=result.thinking or UNSET,
    )
    choice = CompletionChoice(message, result.finish)
    return Completion(f"chatcmpl-{turn}", int(time.time()), model, [choice], completion_usage(result.usage))


def completion_usage(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.input,
        completion_tokens=usage.output,
        total_tokens=usage.input + usage.output,
        prompt_tokens_details=PromptTokensDetails(usage.cached),
        completion_tokens_details=CompletionTokensDetails(usage.reasoning),
    )


def _call_to_wire(call: ToolCall) -> dict[str, Json]:
    function: Json = {"name": call.name, "arguments": arguments_json(call)}
    return {"id": call.id, "type": "function", "function": function}
