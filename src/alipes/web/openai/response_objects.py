"""Response objects and stream events of OpenAI's Responses API, built from a turn."""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Event, Retracted, Said, TextDelta, Usage
from alipes.providers.wire import arguments_json
from alipes.web.openai.outcome import TOOL_EVENT, MessageText, OpenAiOutcome, tool_progress
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


class RequestEcho(Struct, frozen=True):
    """Request fields that are repeated in the response; stored with it."""

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
    """Names of the client's tools."""


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


def request_echo(request: ResponseRequest, created: float, offered: list[str]) -> RequestEcho:
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
    return RequestEcho(
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


def response_document(id: str, echo: RequestEcho, status: Status, output: list[OutputItem]) -> ResponseDocument:
    return ResponseDocument(
        id=id,
        created_at=echo.created,
        status=status,
        model=echo.model,
        output=output,
        instructions=echo.instructions,
        previous_response_id=echo.previous,
        metadata=echo.metadata,
        tools=echo.tools,
        tool_choice=echo.tool_choice,
        text={"format": {"type": echo.format}},
        store=echo.store,
        background=echo.background,
    )


def output_items(turn: str, result: OpenAiOutcome) -> list[OutputItem]:
    said: list[OutputItem] = [message_item(turn, place, text) for place, text in result.texts]
    if result.refusal:
        said.append(OutputMessage(f"msg_{turn}_refusal", [OutputRefusal(result.refusal)]))
    return [*said, *(call_item(call) for call in result.calls)]


def message_item(turn: str, place: int | str, text: str) -> OutputMessage:
    return OutputMessage(f"msg_{turn}_{place}", [OutputText(text)])


def call_item(call: ToolCall) -> OutputCall:
    return OutputCall(f"fc_{call.id}", call.id, call.name, arguments_json(call))


def status_of(result: OpenAiOutcome) -> Status:
    if result.stopped:
        return "cancelled"
    if result.problem is not None:
        return "failed"
    return "incomplete" if result.finish in ("length", "content_filter") else "completed"


def incomplete_details(result: OpenAiOutcome) -> IncompleteDetails | None:
    match status_of(result), result.finish:
        case "incomplete", "content_filter":
            return IncompleteDetails("content_filter")
        case "incomplete", _:
            return IncompleteDetails("max_output_tokens")
    return None


def error_of(result: OpenAiOutcome) -> ResponseError | None:
    trouble = result.problem
    if trouble is None or result.stopped:
        return None
    return ResponseError("rate_limit_exceeded" if trouble.status == 429 else "server_error", trouble.detail)


def response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        total_tokens=usage.input + usage.output,
        input_tokens_details=InputTokensDetails(usage.cached, usage.cache_write),
        output_tokens_details=OutputTokensDetails(usage.reasoning),
    )


class ResponseEvents:
    """Builds the stream frames in order. Each message of the turn is one output item."""

    def __init__(self, id: str, echo: RequestEcho, turn: str, offered: frozenset[str]) -> None:
        self._id, self._asked, self._turn, self._offered = id, echo, turn, offered
        self._number = 0
        self._index = 0
        """Index of the open or next item."""
        self._item: OutputMessage | None = None
        """The open message item."""
        self._message = MessageText()
        self._messages = 0
        """Number of messages so far."""
        self._retractions = 0
        """Number of retracted messages."""
        self.texts: list[str] = []
        """Text sent, by message."""

    def opening_frames(self) -> bytes:
        started = response_document(self._id, self._asked, "in_progress", [])
        return self._frame("response.created", response=started) + self._frame("response.in_progress", response=started)

    def event_frames(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._delta(self._message.add(event))
            case Said(message) if message.role == "assistant":
                rest = self._message.complete(message.text)
                frames = self._delta(rest) if message.text.strip() else b""
                frames += self._close(message.text)
                self._messages += 1
                return frames
            case Retracted():
                sent = self._message.current
                self._retractions += self._message.drop()
                return self._close(sent, whole=False)
        if (data := tool_progress(event, self._offered)) is not None:
            return self._frame(TOOL_EVENT, alipes=data)
        return b""

    def calls(self, calls: tuple[ToolCall, ...]) -> bytes:
        """Frames for the calls that the client has to run."""
        return b"".join(self._call(call) for call in calls)

    def ending(self, answer: ResponseDocument) -> bytes:
        names = {"completed": "response.completed", "failed": "response.failed"}
        closing = self._close(self._message.current, whole=False)
        return closing + self._frame(names.get(answer.status, "response.incomplete"), response=answer)

    def _delta(self, text: str) -> bytes:
        if not text:
            return b""
        frames = b"" if self._item is not None else self._open()
        return frames + self._frame("response.output_text.delta", **self._at(), delta=text, logprobs=[])

    def _open(self) -> bytes:
        again = f"{self._messages}_{self._retractions}" if self._retractions else f"{self._messages}"
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
        started = structs.replace(item, arguments="", status="in_progress")
        at = {"item_id": item.id, "output_index": self._index}
        text = item.arguments
        frames = (
            self._frame("response.output_item.added", output_index=self._index, item=started)
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
