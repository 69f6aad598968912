"""A response as OpenAI writes it down, made from what its turn said. It asks nobody."""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Event, Retracted, Said, TextDelta, Usage
from alipes.providers.sse import arguments
from alipes.web.openai.outcome import TOOL, Outcome, Speech, progress
from alipes.web.openai.schema import ResponseRequest
from alipes.web.sse import frame

Status: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(Struct, frozen=True, tag="output_text", tag_field="type"):
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputRefusal(Struct, frozen=True, tag="refusal", tag_field="type"):
    refusal: str


class OutputMessage(Struct, frozen=True, tag="message", tag_field="type"):
    id: str
    content: list[OutputText | OutputRefusal]
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    role: Literal["assistant"] = "assistant"


class OutputCall(Struct, frozen=True, tag="function_call", tag_field="type"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete"] = "completed"


OutputItem: TypeAlias = OutputMessage | OutputCall


class InputTokensDetails(Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(Struct, frozen=True):
    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails


class ResponseError(Struct, frozen=True):
    code: str
    message: str


class IncompleteDetails(Struct, frozen=True):
    reason: Literal["max_output_tokens", "content_filter"]


class Echo(Struct, frozen=True):
    """What of a request is told with its answer; kept with it."""

    model: str
    created: int
    instructions: str | None = None
    previous: str | None = None
    metadata: dict[str, str] = {}
    tools: list[dict[str, Any]] = []
    tool_choice: Any = "auto"
    format: str = "text"
    store: bool = True
    background: bool = False
    offered: list[str] = []
    """The names of the client's tools that could be called."""


class ResponseDocument(Struct, frozen=True):
    """A response; `output` grows until it is completed."""

    id: str
    created_at: int
    status: Status
    model: str
    output: list[OutputItem]
    instructions: str | None
    previous_response_id: str | None
    metadata: dict[str, str]
    tools: list[dict[str, Any]]
    tool_choice: Any
    text: dict[str, Any]
    store: bool
    background: bool
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None
    object: Literal["response"] = "response"
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"


class ResponseDeleted(Struct, frozen=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


def echo(request: ResponseRequest, created: float, offered: list[str]) -> Echo:
    tools: list[dict[str, Any]] = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": False,
        }
        for tool in request.tools or ()
        if tool.type == "function" and tool.name
    ]
    wanted = request.text.format if request.text else None
    return Echo(
        model=request.model,
        created=int(created),
        instructions=request.instructions,
        previous=request.previous_response_id,
        metadata=request.metadata or {},
        tools=tools,
        tool_choice=request.tool_choice if isinstance(request.tool_choice, str) else "auto",
        format=wanted.type if wanted else "text",
        store=request.store is not False,
        background=bool(request.background),
        offered=offered,
    )


def document(id: str, asked: Echo, status: Status, output: list[OutputItem]) -> ResponseDocument:
    return ResponseDocument(
        id=id,
        created_at=asked.created,
        status=status,
        model=asked.model,
        output=output,
        instructions=asked.instructions,
        previous_response_id=asked.previous,
        metadata=asked.metadata,
        tools=asked.tools,
        tool_choice=asked.tool_choice,
        text={"format": {"type": asked.format}},
        store=asked.store,
        background=asked.background,
    )


def items(turn: str, result: Outcome) -> list[OutputItem]:
    said: list[OutputItem] = [message_item(turn, place, text) for place, text in result.texts]
    if result.refusal:
        said.append(OutputMessage(f"msg_{turn}_refusal", [OutputRefusal(result.refusal)]))
    return [*said, *(call_item(call) for call in result.calls)]


def message_item(turn: str, place: int | str, text: str) -> OutputMessage:
    return OutputMessage(f"msg_{turn}_{place}", [OutputText(text)])


def call_item(call: ToolCall) -> OutputCall:
    return OutputCall(f"fc_{call.id}", call.id, call.name, arguments(call))


def status_of(result: Outcome) -> Status:
    if result.stopped:
        return "cancelled"
    if result.trouble is not None:
        return "failed"
    return "incomplete" if result.finish in ("length", "content_filter") else "completed"


def why_incomplete(result: Outcome) -> IncompleteDetails | None:
    match status_of(result), result.finish:
        case "incomplete", "content_filter":
            return IncompleteDetails("content_filter")
        case "incomplete", _:
            return IncompleteDetails("max_output_tokens")
    return None


def error_of(result: Outcome) -> ResponseError | None:
    trouble = result.trouble
    if trouble is None or result.stopped:
        return None
    return ResponseError("rate_limit_exceeded" if trouble.status == 429 else "server_error", trouble.detail)


def counts(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        total_tokens=usage.input + usage.output,
        input_tokens_details=InputTokensDetails(usage.cached, usage.cache_write),
        output_tokens_details=OutputTokensDetails(usage.reasoning),
    )


class ResponseEvents:
    """The frames, in order. Each message of the turn is an item of the output."""

    def __init__(self, id: str, asked: Echo, turn: str, offered: frozenset[str]) -> None:
        self._id, self._asked, self._turn, self._offered = id, asked, turn, offered
        self._number = 0
        self._index = 0
        """Of the next item, or of the open one."""
        self._item: OutputMessage | None = None
        """The message that is being said."""
        self._speech = Speech()
        self._place = 0
        """How many messages the model has said."""
        self._again = 0
        """How many of them were taken back."""
        self.texts: list[str] = []
        """What was sent, message by message."""

    def opening(self) -> bytes:
        begun = document(self._id, self._asked, "in_progress", [])
        return self._frame("response.created", response=begun) + self._frame(
            "response.in_progress", response=begun
        )

    def of(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._delta(self._speech.hear(event))
            case Said(message) if message.role == "assistant":
                rest = self._speech.complete(message.text)
                frames = self._delta(rest) if message.text.strip() else b""
                frames += self._close(message.text)
                self._place += 1
                return frames
            case Retracted():
                sent = self._speech.current
                self._again += self._speech.drop()
                return self._close(sent, whole=False)
        if (told := progress(event, self._offered)) is not None:
            return self._frame(TOOL, alipes=told)
        return b""

    def calls(self, calls: tuple[ToolCall, ...]) -> bytes:
        """The calls that the client is to run, after all that was said."""
        return b"".join(self._call(call) for call in calls)

    def ending(self, answer: ResponseDocument) -> bytes:
        names = {"completed": "response.completed", "failed": "response.failed"}
        left = self._close(self._speech.current, whole=False)
        return left + self._frame(names.get(answer.status, "response.incomplete"), response=answer)

    def _delta(self, text: str) -> bytes:
        if not text:
            return b""
        frames = b"" if self._item is not None else self._open()
        return frames + self._frame("response.output_text.delta", **self._at(), delta=text, logprobs=[])

    def _open(self) -> bytes:
        again = f"{self._place}_{self._again}" if self._again else f"{self._place}"
        self._item = OutputMessage(f"msg_{self._turn}_{again}", [], "in_progress")
        added = self._frame("response.output_item.added", output_index=self._index, item=self._item)
        return added + self._frame("response.content_part.added", **self._at(), part=OutputText(""))

    def _close(self, text: str, *, whole: bool = True) -> bytes:
        if self._item is None:
            return b""
        part = OutputText(text)
        done = structs.replace(self._item, content=[part], status="completed" if whole else "incomplete")
        frames = (
            self._frame("response.output_text.done", **self._at(), text=text, logprobs=[])
            + self._frame("response.content_part.done", **self._at(), part=part)
            + self._frame("response.output_item.done", output_index=self._index, item=done)
        )
        self.texts.append(text)
        self._item, self._index = None, self._index + 1
        return frames

    def _call(self, call: ToolCall) -> bytes:
        item = call_item(call)
        begun = structs.replace(item, arguments="", status="in_progress")
        at = {"item_id": item.id, "output_index": self._index}
        text = item.arguments
        frames = (
            self._frame("response.output_item.added", output_index=self._index, item=begun)
            + self._frame("response.function_call_arguments.delta", **at, delta=text)
            + self._frame("response.function_call_arguments.done", **at, arguments=text)
            + self._frame("response.output_item.done", output_index=self._index, item=item)
        )
        self._index += 1
        return frames

    def _at(self) -> dict[str, Any]:
        assert self._item is not None
        return {"item_id": self._item.id, "output_index": self._index, "content_index": 0}

    def _frame(self, name: str, /, **fields: object) -> bytes:
        data = msgspec.json.encode({"type": name, "sequence_number": self._number, **fields})
        self._number += 1
        return frame(data, event=name)
