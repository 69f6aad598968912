"""Chat completions: the answer of a turn, whole or in chunks, as OpenAI writes them."""

import time
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.responses import Response

from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.turns import Event, Retracted, Said, TextDelta, ThinkingDelta, Usage
from alipes.providers.sse import arguments
from alipes.web.endpoint import Call, Problem, refusal
from alipes.web.openai import parse as reading
from alipes.web.openai.outcome import BREAK, TOOL, Finish, Outcome, Speech, Told, progress
from alipes.web.openai.schema import ChatRequest
from alipes.web.openai.turns import Errand, Terms, Turns
from alipes.web.sse import EventStream, Tell, frame

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
    """A whole answer."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage
    object: Literal["chat.completion"] = "chat.completion"


class Chat:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    async def complete(self, call: Call) -> Response:
        request: ChatRequest = call.body
        errand = await self._turns.begin(call.caller, "chat", reading.chat(request), Terms())
        if request.stream:
            return self._stream(errand, request)
        told = await self._turns.attend(errand, call.request)
        result = await self._turns.conclude(errand, told)
        if result.trouble is not None:
            raise result.trouble
        answer = completion(errand.placed.turn, request.model, result)
        return Response(msgspec.json.encode(answer), media_type="application/json")

    def _stream(self, errand: Errand, request: ChatRequest) -> EventStream:
        counted = bool(request.stream_options and request.stream_options.include_usage)
        chunks = Chunks(errand, request.model, counted=counted)

        async def speak(tell: Tell) -> None:
            told = Told()
            try:
                await tell(chunks.opening())
                async with self._turns.living(errand) as events:
                    async for event in events:
                        told.hear(event)
                        if frames := chunks.of(event):
                            await tell(frames)
                result = await self._turns.conclude(errand, told, chunks.text)
                await tell(chunks.ending(result))
            finally:  # the client has left, or we do: nobody could fetch the rest
                if told.ended is None:
                    await self._turns.abandon(errand)

        return EventStream(speak)


class Chunks:
    """The frames of a streamed answer, folded from the turn's events."""

    def __init__(self, errand: Errand, model: str, *, counted: bool) -> None:
        """`counted`: the client wants to know the usage."""
        self._errand, self._counted = errand, counted
        about = {"id": f"chatcmpl-{errand.placed.turn}", "object": "chat.completion.chunk"}
        self._about: dict[str, Json] = {**about, "created": int(time.time()), "model": model}
        self._speech = Speech()
        self._break = False
        """What comes next is another message."""
        self.text = ""
        """All that was sent."""

    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def of(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._say(self._speech.hear(event))
            case ThinkingDelta(text):
                return self._chunk({"reasoning_content": text})
            case Said(message) if message.role == "assistant":
                rest = self._say(self._speech.complete(message.text))
                self._break = bool(self.text)
                return rest
            case Retracted():
                self._break = self._speech.drop() or self._break
                return b""
        if (told := progress(event, self._errand.names)) is not None:
            # Some clients read every event, whatever its name: for them it is a chunk that says nothing.
            return self._chunk({}, event=TOOL, more={"alipes": told})
        return b""

    def ending(self, result: Outcome) -> bytes:
        if result.trouble is not None:
            return failure(result.trouble) + _DONE
        frames = [
            self._chunk({"tool_calls": [{"index": n, **_wire(call)}]}) for n, call in enumerate(result.calls)
        ]
        if result.refusal:
            frames.append(self._chunk({"refusal": result.refusal}))
        frames.append(self._chunk({}, finish=result.finish))
        if self._counted:
            usage: Json = msgspec.to_builtins(counts(result.usage))
            frames.append(frame(msgspec.json.encode({**self._about, "choices": [], "usage": usage})))
        return b"".join(frames) + _DONE

    def _say(self, text: str) -> bytes:
        if not text:
            return b""
        if self._break:
            text, self._break = BREAK + text, False
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


def completion(turn: str, model: str, result: Outcome) -> Completion:
    calls = [CompletionCall(call.id, CalledFunction(call.name, arguments(call))) for call in result.calls]
    message = CompletionMessage(
        content=result.text or None,
        refusal=result.refusal or None,
        tool_calls=calls or UNSET,
        reasoning_content=result.thinking or UNSET,
    )
    choice = CompletionChoice(message, result.finish)
    return Completion(f"chatcmpl-{turn}", int(time.time()), model, [choice], counts(result.usage))


def counts(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.input,
        completion_tokens=usage.output,
        total_tokens=usage.input + usage.output,
        prompt_tokens_details=PromptTokensDetails(usage.cached),
        completion_tokens_details=CompletionTokensDetails(usage.reasoning),
    )


def failure(problem: Problem) -> bytes:
    """An error in the middle of a stream."""
    return frame(bytes(refusal(problem, "openai").body))


def _wire(call: ToolCall) -> dict[str, Json]:
    function: Json = {"name": call.name, "arguments": arguments(call)}
    return {"id": call.id, "type": "function", "function": function}
