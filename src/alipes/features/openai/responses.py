"""OpenAI's Responses API: create, get, delete, cancel. A response is stored as its turn."""

import asyncio
import base64
import os
import time
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs
from starlette.responses import Response

from alipes.core.app import App
from alipes.features.openai.documents import RequestDocuments
from alipes.features.openai.requests import ConversationName, ResponseRequest, parse_response
from alipes.features.openai.steps import ToolSteps, wants_steps
from alipes.features.openai.turns import (
    MESSAGE_SEPARATOR,
    RUN_ERRORS,
    SCHEMA_MISMATCH,
    TOOL_EVENT,
    CompleteDeltas,
    MessageText,
    OpenAiOutcome,
    OpenAiTurn,
    OpenAiTurns,
    TurnOptions,
    TurnRecord,
    build_outcome,
    to_json,
    tool_progress,
)
from alipes.kernel.messages import Message, ToolCall
from alipes.kernel.turns import Event, Retracted, Said, Stop, TextDelta, Usage
from alipes.providers.wire import arguments_json
from alipes.sessions.event_stream import TurnProgress
from alipes.store.ports.archive import TurnFacts
from alipes.store.sql.api_runs import StoredResponse
from alipes.web.endpoint import PLATFORM, ApiCall, ApiEndpoint, HttpProblem
from alipes.web.runs.lookup import find_session
from alipes.web.sse import EventStream, SendFrames, frame

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


class SummaryText(Struct, frozen=True, tag="summary_text", tag_field="type"):
    text: str


class OutputReasoning(Struct, frozen=True, tag="reasoning", tag_field="type"):
    """Steps of the agent's own tools."""

    id: str
    summary: list[SummaryText]
    status: Literal["in_progress", "completed", "incomplete"] = "completed"


OutputItem: TypeAlias = OutputMessage | OutputCall | OutputReasoning


class InputText(Struct, frozen=True, tag="input_text", tag_field="type"):
    text: str


class InputImage(Struct, frozen=True, tag="input_image", tag_field="type"):
    image_url: str
    detail: Literal["auto"] = "auto"


class InputMessage(Struct, frozen=True, tag="message", tag_field="type"):
    id: str
    content: list[InputText | InputImage]
    role: Literal["user"] = "user"
    status: Literal["completed"] = "completed"


class InputItemQuery(Struct, frozen=True):
    after: str = ""


class InputItemList(Struct, frozen=True):
    data: list[InputMessage]
    first_id: str
    last_id: str
    has_more: bool = False
    object: Literal["list"] = "list"


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
    conversation: str | None = None
    metadata: dict[str, str] = {}
    tools: list[dict[str, Any]] = []
    tool_choice: Any = "auto"
    format: str = "text"
    name: str = "answer"
    schema: dict[str, Any] = {}
    """What the text must match; empty: anything."""
    store: bool = True
    background: bool = False
    offered: list[str] = []
    """Names of the client's tools."""
    steps: bool = False
    """Steps of the agent's own tools are output items."""


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
    conversation: ConversationName | None = None
    usage: ResponseUsage | None = None
    object: Literal["response"] = "response"
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"


class ResponseQuery(Struct, frozen=True):
    stream: bool = False
    """Send its events, as they were or as they come."""
    starting_after: Annotated[int, Meta(ge=-1)] = -1
    """Only events with a greater `sequence_number`."""


class ResponseDeleted(Struct, frozen=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


def request_echo(request: ResponseRequest, created: float, offered: list[str]) -> RequestEcho:
    tools = [tool for tool in request.tools or () if tool.type == "function" and tool.name]
    wanted = request.text.format if request.text else None
    return RequestEcho(
        model=request.model,
        created=int(created),
        instructions=request.instructions,
        previous=request.previous_response_id,
        metadata=request.metadata or {},
        tools=[{**structs.asdict(tool), "strict": False} for tool in tools],
        tool_choice=request.tool_choice if isinstance(request.tool_choice, str) else "auto",
        format=wanted.type if wanted else "text",
        name=(wanted and wanted.name) or "answer",
        schema=(wanted and wanted.named_schema) or {},
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
        text={"format": {"type": echo.format, **({"name": echo.name, "schema": echo.schema} if echo.schema else {})}},
        store=echo.store,
        background=echo.background,
        conversation=None if echo.conversation is None else ConversationName(echo.conversation),
    )


def output_items(record: TurnRecord, result: OpenAiOutcome, asked: RequestEcho) -> list[OutputItem]:
    turn = record.ended.turn if record.ended is not None else ""
    texts, steps, place = dict(result.texts), ToolSteps(frozenset(asked.offered)), 0
    said: list[OutputItem] = []
    for number, message in enumerate(record.said):
        if message.role == "assistant":
            said += [OutputMessage(f"msg_{turn}_{place}", [OutputText(texts[place])])] if place in texts else []
            place += 1
        if asked.steps and (summary := steps.add(message)):
            said.append(reasoning_item(turn, number, summary))
    if result.refusal:
        said.append(OutputMessage(f"msg_{turn}_refusal", [OutputRefusal(result.refusal)]))
    return [*said, *(call_item(call) for call in result.calls)]


def reasoning_item(turn: str, number: int, steps: Iterable[str]) -> OutputReasoning:
    """`number`: of the message with the results, in the turn."""
    return OutputReasoning(f"rs_{turn}_{number}", [SummaryText(each) for each in steps])


def call_item(call: ToolCall) -> OutputCall:
    return OutputCall(f"fc_{call.id}", call.id, call.name, arguments_json(call))


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

    def __init__(self, id: str, echo: RequestEcho, turn: str, offered: frozenset[str], *, since: int = -1) -> None:
        """`since`: the number of the last event that the client has; earlier ones are left out."""
        self._id, self._asked, self._turn, self.offered = id, echo, turn, offered
        self._steps, self._said = ToolSteps(offered), 0
        self._since, self._number = since, 0
        """Numbers count characters of text, not pieces: so a replay has the same numbers."""
        self._index = 0
        """Index of the open or next item."""
        self._item: OutputMessage | None = None
        """The open message item."""
        self._item_number = 0
        self._message = MessageText()
        self._messages = 0
        """Number of messages so far."""
        self._retractions = 0
        """Number of retracted messages."""
        self.opened = False
        """The first frames were made."""
        self.texts: list[str] = []
        """Text sent, by message."""

    def opening_frames(self) -> bytes:
        """The first frames, once; empty afterwards."""
        if self.opened:
            return b""
        self.opened = True
        started = response_document(self._id, self._asked, "in_progress", [])
        return self._frame("response.created", response=started) + self._frame("response.in_progress", response=started)

    def event_frames(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return b"" if self._asked.schema else self._delta(self._message.add(event))
            case Said(message) if message.role == "assistant" and self._asked.schema:
                self._messages += 1
                return self._reasoning(message)
            case Said(message) if message.role == "assistant":
                rest = self._message.complete(message.text)
                frames = self._delta(rest) if message.text.strip() else b""
                frames += self._close(message.text)
                self._messages += 1
                return frames + self._reasoning(message)
            case Said(message):
                return self._reasoning(message)
            case Retracted():
                sent = self._message.current
                self._retractions += self._message.drop()
                self._number = self._item_number  # the journal does not know what was retracted
                return self._close(sent, whole=False, counted=False)
        if (data := tool_progress(event, self.offered)) is not None:
            return self._frame(TOOL_EVENT, counted=False, alipes=data)
        return b""

    def _reasoning(self, message: Message) -> bytes:
        """Frames for the steps that a message completes, if the client asked for them."""
        number, self._said = self._said, self._said + 1
        if not self._asked.steps or not (steps := self._steps.add(message)):
            return b""
        item, index = reasoning_item(self._turn, number, steps), self._index
        begun = structs.replace(item, summary=[], status="in_progress")
        frames = self._frame("response.output_item.added", output_index=index, item=begun)
        for place, part in enumerate(item.summary):
            at: dict[str, Any] = {"item_id": item.id, "output_index": index, "summary_index": place}
            frames += self._frame("response.reasoning_summary_part.added", **at, part=SummaryText(""))
            frames += self._frame("response.reasoning_summary_text.delta", **at, delta=part.text)
            frames += self._frame("response.reasoning_summary_text.done", **at, text=part.text)
            frames += self._frame("response.reasoning_summary_part.done", **at, part=part)
        self._index += 1
        return frames + self._frame("response.output_item.done", output_index=index, item=item)

    def ending_frames(self, result: OpenAiOutcome, answer: ResponseDocument) -> bytes:
        """The last frames: a text that was held until it matched its schema, and calls for the client to run."""
        names = {"completed": "response.completed", "failed": "response.failed"}
        frames = list[bytes]()
        for place, text in result.texts if self._asked.schema and result.problem is None else ():
            self._messages = place
            frames += [self._delta(text), self._close(text)]
        frames += map(self._call_frames, result.calls)
        frames.append(self._close(self._message.current, whole=False))
        frames.append(self._frame(names.get(answer.status, "response.incomplete"), response=answer))
        return b"".join(frames)

    def _delta(self, text: str) -> bytes:
        if not text:
            return b""
        frames = b"" if self._item is not None else self._open()
        shown = text[max(0, self._since + 1 - self._number) :]
        self._number += len(text) - 1
        return frames + self._frame("response.output_text.delta", **self._at(), delta=shown, logprobs=[])

    def _open(self) -> bytes:
        again = f"{self._messages}_{self._retractions}" if self._retractions else f"{self._messages}"
        self._item, self._item_number = OutputMessage(f"msg_{self._turn}_{again}", [], "in_progress"), self._number
        added = self._frame("response.output_item.added", output_index=self._index, item=self._item)
        return added + self._frame("response.content_part.added", **self._at(), part=OutputText(""))

    def _close(self, text: str, *, whole: bool = True, counted: bool = True) -> bytes:
        if self._item is None:
            return b""
        part, make_frame = OutputText(text), partial(self._frame, counted=counted)
        done = structs.replace(self._item, content=[part], status="completed" if whole else "incomplete")
        frames = (
            make_frame("response.output_text.done", **self._at(), text=text, logprobs=[])
            + make_frame("response.content_part.done", **self._at(), part=part)
            + make_frame("response.output_item.done", output_index=self._index, item=done)
        )
        self.texts.append(text)
        self._item, self._index = None, self._index + 1
        return frames

    def _call_frames(self, call: ToolCall) -> bytes:
        """Frames for a call that the client has to run."""
        item = call_item(call)
        started = structs.replace(item, arguments="", status="in_progress")
        at: dict[str, Any] = {"item_id": item.id, "output_index": self._index}
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

    def _frame(self, name: str, /, *, counted: bool = True, **fields: object) -> bytes:
        """`counted`: a replay from the journal has it too; others repeat the number before them."""
        opening = self.opening_frames()
        number = self._number - (not counted)
        self._number += counted
        if counted and number <= self._since:
            return opening
        data = msgspec.json.encode({"type": name, "sequence_number": number, **fields})
        return opening + frame(data, event=name)


STOP_TIMEOUT_S = 5.0
"""Seconds in which a stopped turn must have ended."""
_echoes = msgspec.json.Decoder(RequestEcho)


class ResponseEndpoints:
    def __init__(self, app: App, turns: OpenAiTurns, documents: RequestDocuments) -> None:
        self._app, self._turns, self._documents = app, turns, documents
        self._sessions = app.store.api_runs

    @ApiEndpoint(
        "POST", "/v1/responses", "run", body=ResponseRequest, answer=ResponseDocument, streams=True, errors=RUN_ERRORS
    )
    async def create(self, call: ApiCall) -> Response:
        """Create a response, optionally as a continuation of another one."""
        request: ResponseRequest = call.body
        if request.background and request.store is False:
            raise HttpProblem(400, "background responses must be stored", code="background")
        await self._turns.require_schemas(request.text.format if request.text else None)
        loaded, untrusted = await self._documents.load(request, call.caller)
        asked = structs.replace(parse_response(loaded), untrusted=untrusted)
        conversation = await self._conversation(call, request.conversation_id)
        previous = await self._previous(call, request.previous_response_id)
        id = f"resp_{os.urandom(12).hex()}"
        record = request_echo(request, time.time(), [each.name for each in asked.offered])
        record = structs.replace(record, conversation=conversation or None, steps=wants_steps(call, request.steps))
        terms = TurnOptions(
            after=previous,
            conversation=conversation,
            response=(id, msgspec.json.encode(record).decode()) if record.store else None,
            passing=not record.store,
            attended=not record.background,
        )
        api_turn = await self._turns.begin(call, "response", asked, terms)
        if api_turn.joined and (known := await self._turns.responses.of_turn(api_turn.placed.turn)) is not None:
            id, record = known.id, _echoes.decode(known.request)
        if request.stream:
            return self._stream(id, record, api_turn)
        if request.background:
            await self._app.sessions.wake(api_turn.key)
            await self._turns.wait_stored()
            return to_json(response_document(id, record, "queued", []))
        account = await self._turns.wait_for_end(api_turn, call.request)
        result = await self._turns.conclude(api_turn, account)
        if result.problem is not None:
            raise result.problem
        return to_json(finished_document(id, record, account, result))

    @ApiEndpoint("GET", "/v1/responses/{id}/input_items", "read", query=InputItemQuery, answer=InputItemList)
    async def input_items(self, call: ApiCall) -> Response:
        """List what a response was asked: the text and the images of its request, newest first."""
        query: InputItemQuery = call.query
        named = await self._find_response(call, call.path["id"])
        facts = await self._facts(named)
        parts: list[InputText | InputImage] = [InputText(facts.inbound.text)] if facts.inbound.text else []
        for image in facts.inbound.attachments:
            parts.append(InputImage(f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"))
        item = InputMessage(f"msg_{named.turn}_input", parts)
        return to_json(InputItemList([] if query.after == item.id else [item], item.id, item.id))

    @ApiEndpoint("GET", "/v1/responses/{id}", "read", query=ResponseQuery, answer=ResponseDocument, streams=True)
    async def show(self, call: ApiCall) -> Response:
        """Get a response, finished or not; with `stream`, as its events."""
        query: ResponseQuery = call.query
        named = await self._find_response(call, call.path["id"])
        if query.stream:
            return EventStream(partial(self._replay, named, await self._facts(named), query.starting_after))
        return to_json(await self._stored_document(named))

    @ApiEndpoint("DELETE", "/v1/responses/{id}", "run", answer=ResponseDeleted)
    async def delete(self, call: ApiCall) -> Response:
        """Delete a response; deleting the last one of a conversation deletes the conversation."""
        named = await self._find_response(call, call.path["id"])
        await self._turns.responses.delete(named)
        return to_json(ResponseDeleted(named.id))

    @ApiEndpoint("POST", "/v1/responses/{id}/cancel", "run", answer=ResponseDocument)
    async def cancel(self, call: ApiCall) -> Response:
        """Cancel a response in progress."""
        named = await self._find_response(call, call.path["id"])
        facts = await self._facts(named)
        key, sessions = facts.inbound.address.key, self._app.sessions
        if facts.ending is None:
            async with asyncio.timeout(STOP_TIMEOUT_S), sessions.follow(key, named.turn) as events:
                await sessions.post(key, Stop("user_stop", "session_interrupt", named.turn))
                await sessions.wake(key)
                async for _ in events:
                    pass
        return to_json(await self._stored_document(named))

    def _stream(self, id: str, asked: RequestEcho, api_turn: OpenAiTurn) -> EventStream:
        turn = api_turn.placed.turn
        events = ResponseEvents(id, asked, turn, api_turn.names)

        async def write(send: SendFrames) -> None:
            record = TurnRecord()
            if asked.background:  # the client needs its id, to come back
                await send(events.opening_frames())
            await self._turns.follow(api_turn, record, events.event_frames, send)
            sent = None if asked.schema else MESSAGE_SEPARATOR.join(events.texts)
            result = await self._turns.conclude(api_turn, record, sent)
            if result.problem is not None and not events.opened:
                raise result.problem
            answer = finished_document(id, asked, record, result)
            await send(events.ending_frames(result, answer))

        async def left() -> None:
            if not asked.background:
                await self._turns.leave(api_turn, answered=events.opened)

        return EventStream(write, left=left, failures="openai")

    async def _replay(self, named: StoredResponse, facts: TurnFacts, since: int, send: SendFrames) -> None:
        """Send its events after number `since`: those of the past from the journal, then as they come."""
        asked, record = _echoes.decode(named.request), TurnRecord()
        events = ResponseEvents(named.id, asked, named.turn, frozenset(asked.offered), since=since)
        async with self._app.sessions.follow(facts.inbound.address.key, named.turn) as following:
            deltas = CompleteDeltas(following.behind)
            await send(events.opening_frames())
            async for event in following:
                record.add(event)
                if deltas.has_start_of(event) and (frames := events.event_frames(event)):
                    await send(frames)
        result = build_outcome(record, events.offered, document=bool(asked.schema))
        await send(events.ending_frames(result, finished_document(named.id, asked, record, result)))

    async def _conversation(self, call: ApiCall, name: str) -> str:
        """The id of the conversation to continue; empty if none is named."""
        if not name:
            return ""
        try:
            found = await find_session(self._sessions, call.caller, name)
        except HttpProblem as problem:
            why = f"no conversation {name!r}; POST /v1/sessions creates one"
            raise HttpProblem(404, why, code="conversation_not_found") from problem
        if found.address.platform != PLATFORM or not found.is_current:
            raise HttpProblem(409, "that conversation cannot be continued here; fork it", code="elsewhere")
        return found.id

    async def _previous(self, call: ApiCall, id: str | None) -> str:
        if not id:
            return ""
        try:
            return (await self._find_response(call, id)).turn
        except HttpProblem as problem:
            why = f"previous response {id!r} not found; it may not have been stored"
            raise HttpProblem(400, why, code="previous_response_not_found") from problem

    async def _find_response(self, call: ApiCall, id: str) -> StoredResponse:
        """Raises `HttpProblem` if it does not exist or belongs to somebody else."""
        named = await self._turns.responses.find(id)
        if named is None or not (named.caller == call.caller.name or call.caller.may("admin")):
            raise HttpProblem(404, f"no response {id!r}", code="response_not_found")
        return named

    async def _facts(self, named: StoredResponse) -> TurnFacts:
        facts = await self._app.store.archive.turn(named.turn)
        if facts is None:
            raise HttpProblem(404, f"no response {named.id!r}", code="response_not_found")
        return facts

    async def _stored_document(self, named: StoredResponse) -> ResponseDocument:
        facts, asked = await self._facts(named), _echoes.decode(named.request)
        if facts.ending is None:
            return response_document(named.id, asked, "in_progress" if facts.attempts else "queued", [])
        record = TurnRecord()
        for event in TurnProgress().catch_up(named.turn, facts):
            record.add(event)
        result = build_outcome(record, frozenset(asked.offered), document=bool(asked.schema))
        return finished_document(named.id, asked, record, result)


def finished_document(id: str, asked: RequestEcho, record: TurnRecord, result: OpenAiOutcome) -> ResponseDocument:
    status: Status = "completed"
    error = incomplete = None
    if result.stopped:
        status = "cancelled"
    elif problem := result.problem:
        status = "failed"
        code = problem.code if problem.code == SCHEMA_MISMATCH else "server_error"
        error = ResponseError("rate_limit_exceeded" if problem.status == 429 else code, problem.detail)
    elif result.finish in ("length", "content_filter"):
        status = "incomplete"
        incomplete = IncompleteDetails("max_output_tokens" if result.finish == "length" else "content_filter")
    return structs.replace(
        response_document(id, asked, status, output_items(record, result, asked)),
        error=error,
        incomplete_details=incomplete,
        usage=response_usage(result.usage),
    )
