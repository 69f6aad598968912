"""Turns of OpenAI clients: places a request in a conversation, runs it, and collects its outcome."""

import asyncio
import copy
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from alipes.agent import loop
from alipes.config.extras import is_installed
from alipes.config.settings import OnTimeout
from alipes.core.app import App
from alipes.features.openai.requests import OutputFormat, ParsedRequest, conversation_hash
from alipes.features.openai.retries import JOIN_WITHIN_S, ClientRequest, client_left_problem, read_request, refuse_left
from alipes.features.openai.steps import ToolSteps
from alipes.kernel.errors import (
    ContextTooLong,
    NotAuthorised,
    OutOfCredit,
    ProviderError,
    Refused,
    ToolError,
    Transient,
)
from alipes.kernel.messages import Json, Message, Text, Thinking, ToolCall
from alipes.kernel.turns import (
    Address,
    AnswerApproval,
    AnswerQuestion,
    ApprovalAsked,
    Event,
    Inbound,
    QuestionAsked,
    Retracted,
    Said,
    Stop,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Turn,
    TurnEnded,
    TurnStarted,
    Usage,
)
from alipes.plugins.owner import CORE
from alipes.sessions.sessions import admit_message
from alipes.store.sql.api_history import AdmittedContinuation, Continuation, HistoryMismatch
from alipes.web.admission import TurnAdmission
from alipes.web.endpoint import DO_NOT_RETRY, PLATFORM, ApiCall, HttpProblem, retry_after_header
from alipes.web.sse import ClientGone, SendFrames, wait_for_disconnect
from alipes.web.templates import expand_input

MAX_ERRORS = 1000
"""Turns whose last provider error is kept; it is asked for at once."""


class ProviderErrors:
    def __init__(self) -> None:
        self._last: OrderedDict[str, ProviderError] = OrderedDict()

    async def request_failed(self, error: ProviderError, again: bool, turn: Turn) -> None:
        if again or turn.inbound.address.platform != PLATFORM:
            return
        self._last[turn.id] = copy.copy(error)  # without its traceback, which would keep the whole turn alive
        while len(self._last) > MAX_ERRORS:
            self._last.popitem(last=False)

    def take(self, turn: str) -> ProviderError | None:
        """Remove and return the last error of a turn."""
        return self._last.pop(turn, None)


Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
MESSAGE_SEPARATOR = "\n\n"
"""Between two messages of one turn, where the client sees only one."""
SCHEMA_MISMATCH = "schema_mismatch"
"""The code of the problem of a turn whose answer does not match its schema."""
_PASSED_ON = (400, 404, 413, 422)
"""Statuses of the model's server that say what is wrong with the request."""


class TurnRecord:
    """The messages and the ending of a turn, collected from its events."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.ended: TurnEnded | None = None

    def add(self, event: Event) -> None:
        match event:
            case Said(message):
                self.said.append(message)
            case TurnEnded():
                self.ended = event

    def thinking(self, steps: ToolSteps) -> str:
        """The model's thinking and the steps of the agent's tools, in order."""
        shown = list[str]()
        for message in self.said:
            shown += (part.text for part in message.parts if isinstance(part, Thinking) and part.text)
            shown += steps.add(message)
        return MESSAGE_SEPARATOR.join(shown)


class OpenAiOutcome(Struct, frozen=True):
    texts: tuple[tuple[int, str], ...]
    """Texts with their index among the model's messages."""
    thinking: str
    calls: tuple[ToolCall, ...]
    """Calls that the client has to run."""
    usage: Usage
    finish: Finish
    refusal: str = ""
    stopped: bool = False
    problem: HttpProblem | None = None

    @property
    def text(self) -> str:
        return MESSAGE_SEPARATOR.join(text for _, text in self.texts)

    def message(self, text: str | None = None) -> Message:
        """The answer as the client received it."""
        body = self.text if text is None else text
        return Message("assistant", (*((Text(body),) if body else ()), *self.calls))


def build_outcome(
    record: TurnRecord, offered: frozenset[str], error: ProviderError | None = None, *, document: bool = False
) -> OpenAiOutcome:
    """`offered`: names of the client's tools. `document`: the answer is the last message alone, as it has a schema."""
    answers = [message for message in record.said if message.role == "assistant"]
    ended = record.ended or TurnEnded("", "failed", "the answer was cut off")
    calls = _client_calls(record.said, ended, offered)
    refused = ended.ending == "failed" and isinstance(error, Refused)
    finish = _finish(ended, record.said, calls, refused)
    texts = tuple((place, each.text) for place, each in enumerate(answers) if each.text.strip())
    if document and not calls:
        texts = () if ended.ending == "gave_up" else texts[-1:]
    return OpenAiOutcome(
        texts=texts,
        thinking=MESSAGE_SEPARATOR.join(
            part.text for each in answers for part in each.parts if isinstance(part, Thinking) and part.text
        ),
        calls=calls,
        usage=ended.usage or Usage(),
        finish=finish or "stop",
        refusal=ended.detail if refused else "",
        stopped=ended.ending == "stopped",
        problem=None if finish else _find_problem(ended, error),
    )


def _client_calls(said: list[Message], ended: TurnEnded, offered: frozenset[str]) -> tuple[ToolCall, ...]:
    """The calls that ended the turn: the client has to run them."""
    if ended.ending != "answered" or not said or said[-1].role != "tool":
        return ()
    calls = next((message.calls for message in reversed(said) if message.calls), ())
    return tuple(call for call in calls if call.name in offered)


def _finish(ended: TurnEnded, said: list[Message], calls: tuple[ToolCall, ...], refused: bool) -> Finish | None:
    """None if the turn failed."""
    match ended.ending:
        case "answered" | "steered":
            return "tool_calls" if calls else "stop"
        case "out_of_steps":
            return "length"
        case "failed" if refused:
            return "content_filter"
        case "failed" if loop.count_cutoffs(tuple(said)) >= loop.MAX_CUTOFFS:
            return "length"
    return None


def _find_problem(ended: TurnEnded, error: ProviderError | None) -> HttpProblem:
    if ended.ending == "gave_up":
        return HttpProblem(422, f"The model gave up: {ended.detail}", code=SCHEMA_MISMATCH, headers=DO_NOT_RETRY)
    if ended.ending == "stopped":
        return HttpProblem(409, f"the turn was stopped: {ended.detail}", code="stopped", headers=DO_NOT_RETRY)
    match error:
        case ContextTooLong():
            status, code = 400, "context_length_exceeded"
        case OutOfCredit():
            status, code = 429, "insufficient_quota"
        case Transient(status=429):
            status, code = 429, "rate_limit_exceeded"
        case Transient():
            status, code = 503, "model_unavailable"
        case NotAuthorised():  # a status 401 would say that the caller's own key is wrong
            why = f"the model's server rejected the key of alipes; yours is valid. {ended.detail}"
            return HttpProblem(502, why, code="model_not_authorised", headers=DO_NOT_RETRY)
        case ProviderError(status=int(status)) if status in _PASSED_ON:
            code = "model_rejected_request"
        case ProviderError():
            status, code = 502, "model_failed"
        case _:
            return HttpProblem(500, ended.detail or "the turn failed", code="turn_failed", headers=DO_NOT_RETRY)
    retry = retry_after_header(error) if isinstance(error, Transient) else {}
    return HttpProblem(status, ended.detail, code=code, headers={**retry, **DO_NOT_RETRY})


MAX_RESULT_CHARS = 2000
"""Characters of a tool result that are sent to the client; the model sees all of it."""
TOOL_EVENT = "alipes.tool"
"""Event about the agent's own tools, an extension of OpenAI's events."""


class MessageText:
    """Text of the current message as far as it was sent. Sent text cannot be retracted."""

    def __init__(self) -> None:
        self.current = ""
        """The part of the unfinished message that was sent."""

    def add(self, delta: TextDelta) -> str:
        self.current += delta.text
        return delta.text

    def complete(self, text: str) -> str:
        """The message is complete: return what was not sent yet. The bus may have dropped deltas."""
        current, self.current = self.current, ""
        if text.startswith(current):
            return text[len(current) :]
        return "" if text.strip() == current.strip() else text

    def drop(self) -> bool:
        """The message was retracted; True if some of it was sent."""
        current, self.current = self.current, ""
        return bool(current)


def tool_progress(event: Event, offered: frozenset[str]) -> dict[str, Json] | None:
    """Event data about one of the agent's tools; None for other events and for the client's tools."""
    match event:
        case ToolStarted(call) if call.name not in offered:
            return {"status": "started", "call_id": call.id, "name": call.name, "arguments": dict(call.args)}
        case ToolProgress(call_id, text):
            return {"status": "progress", "call_id": call_id, "text": _cut(text)}
        case ToolFinished(call, result, seconds) if call.name not in offered:
            record: dict[str, Json] = {"status": "finished", "call_id": call.id, "name": call.name}
            return {**record, "outcome": result.outcome, "text": _cut(result.text), "seconds": round(seconds, 3)}
    return None


def _cut(text: str) -> str:
    return text if len(text) <= MAX_RESULT_CHARS else text[:MAX_RESULT_CHARS] + "…"


RUN_ERRORS = (400, 404, 409, 413, 422, 500, 501, 502)
"""Statuses of errors of a turn."""
NO_ANSWER = "Nobody can answer here. Decide yourself, or ask the question in your answer."


class TurnOptions(Struct, frozen=True):
    """How a request is stored and run."""

    after: str = ""
    """Id of the turn it continues."""
    conversation: str = ""
    """Id of the conversation it continues, instead of a turn."""
    response: tuple[str, str] | None = None
    passing: bool = False
    attended: bool = True
    """Stop the turn when the client disconnects."""

    @property
    def continues(self) -> bool:
        """The client sends only what is new."""
        return bool(self.after or self.conversation)


class OpenAiTurn(Struct, frozen=True):
    """A request that has its place in a conversation."""

    placed: AdmittedContinuation
    parsed: ParsedRequest
    caller: str
    terms: TurnOptions
    client: ClientRequest
    joined: bool = False
    """The turn was begun by an earlier request, which this one repeats."""

    @property
    def key(self) -> str:
        return self.placed.address.key

    @property
    def names(self) -> frozenset[str]:
        """Names of the client's tools."""
        return frozenset(each.name for each in self.parsed.offered)


class CompleteDeltas:
    """Leaves out pieces of a message whose first ones came before it was followed: the whole message comes later."""

    def __init__(self, behind: int | None) -> None:
        """`behind`: the events of the past that come first; None if it is followed from its start."""
        self._past, self._within = behind or 0, behind is not None

    def has_start_of(self, event: Event) -> bool:
        self._past -= 1
        if self._past < 0 and isinstance(event, Said | TurnStarted | Retracted | ToolStarted | ToolFinished):
            self._within = False
        return not (self._within and isinstance(event, TextDelta))


class OpenAiTurns:
    def __init__(
        self, app: App, admission: TurnAdmission, *, workdir: str = "", on_timeout: OnTimeout = "continue"
    ) -> None:
        """`workdir`: working directory of the agent's tools. `on_timeout`: as in `ApiConfig`."""
        self._on_timeout = on_timeout
        self._app, self._admission, self._sessions, self._workdir = app, admission, app.sessions, workdir
        self._seeding = app.store.api_history
        self.responses = app.store.responses
        self._errors = ProviderErrors()
        app.hooks.add(CORE, self._errors.request_failed)

    async def require_schemas(self, output_format: OutputFormat | None) -> None:
        """Install what checking a schema needs, if that is allowed. Raises `HttpProblem` with the command."""
        if output_format is None or output_format.named_schema is None or is_installed("schema"):
            return
        try:
            await self._app.extras.require("schema")
        except ToolError as error:
            raise HttpProblem(501, str(error), code="packages_missing", headers=DO_NOT_RETRY) from error

    async def begin(self, call: ApiCall, kind: str, parsed: ParsedRequest, terms: TurnOptions) -> OpenAiTurn:
        """Store the request as a turn; `follow`, or waking its session, starts it. Raises `HttpProblem`."""
        client = read_request(call)
        if (found := await self._find_copy(kind, client)) is not None:
            call.mark_admitted()
            return OpenAiTurn(found, parsed, call.caller.name, terms, client, joined=True)
        caller, model = call.caller, await self._admission.resolve_model(parsed.model)
        name = os.urandom(8).hex()
        inbound = Inbound(
            id=f"{kind}:{client.fingerprint}:{name}",
            address=Address(PLATFORM, f"{kind}-{name[:8]}", user=caller.name),
            sender=caller.name,
            text=parsed.text,
            attachments=parsed.images,
            model=model,
            workdir=self._workdir,
            instructions=parsed.instructions,
            offered=parsed.offered,
            untrusted=parsed.untrusted,
            attended=terms.attended,
            owner=caller.may("admin"),
            output_schema=parsed.schema,
        )
        placement = Continuation(
            inbound=await expand_input(self._app, await admit_message(inbound, self._app.hooks.dispatcher)),
            history=parsed.before,
            history_hash=conversation_hash(caller.name, parsed.before) if parsed.before else b"",
            after=terms.after,
            conversation=terms.conversation,
            results=parsed.results,
            response=terms.response,
            temporary=terms.passing,
        )
        try:
            async with self._admission.open_slot(caller):
                await refuse_left(call, client)
                placed = await self._seeding.admit_continuation(placement)
        except HistoryMismatch as error:
            status = 409 if error.code == "conversation_locked" else 400
            raise HttpProblem(status, str(error), code=error.code) from error
        call.mark_admitted()
        return OpenAiTurn(placed, parsed, caller.name, terms, client)

    async def _find_copy(self, kind: str, client: ClientRequest) -> AdmittedContinuation | None:
        """The turn of the request that this one repeats, if there is one."""
        if not client.retries or self._on_timeout == "stop":
            return None
        return await self._seeding.find_copy(PLATFORM, f"{kind}:{client.fingerprint}:", within=JOIN_WITHIN_S)

    async def follow(
        self,
        api_turn: OpenAiTurn,
        record: TurnRecord,
        encode: Callable[[Event], bytes] = lambda _event: b"",
        send: SendFrames | None = None,
    ) -> None:
        """Start the turn and record its events to the end; `send` gets them as frames by `encode`.

        The client cannot answer questions: approvals are denied, questions refused.
        """
        async with self._sessions.follow(api_turn.key, api_turn.placed.turn, wake=True) as events:
            deltas = CompleteDeltas(events.behind if api_turn.joined else None)
            if send is not None:
                await self.wait_stored()
            async for event in events:
                record.add(event)
                await self._answer(api_turn, event)
                if send is not None and deltas.has_start_of(event) and (frames := encode(event)):
                    await send(frames)

    async def _answer(self, api_turn: OpenAiTurn, event: Event) -> None:
        match event:
            case ApprovalAsked(ask):
                await self._sessions.post(api_turn.key, AnswerApproval(ask, "no", api_turn.caller))
            case QuestionAsked(ask):
                await self._sessions.post(api_turn.key, AnswerQuestion(ask, NO_ANSWER, api_turn.caller))

    async def wait_stored(self) -> None:
        """Return once the accepted turns are on disk: only then may a client hear of one that is not answered."""
        await self._app.store.health.wait_synced()

    async def wait_for_end(self, api_turn: OpenAiTurn, request: Request) -> TurnRecord:
        """Run the turn to its end. It is stopped when the client disconnects or the request times out."""
        record, disconnected = TurnRecord(), False
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(wait_for_disconnect(request.receive), name="client")
                await self.follow(api_turn, record)
                watch.cancel()
        except* ClientGone:  # what is raised here would become an ExceptionGroup
            disconnected = True
        finally:
            if record.ended is None:
                await self.leave(api_turn)
        if disconnected:
            raise client_left_problem()
        return record

    async def leave(self, api_turn: OpenAiTurn, *, answered: bool = False) -> None:
        """The client has left before the end. If it had waited too long, the turn continues for its retry; `answered`:
        not if it got a part of the answer already, since clients do not repeat that."""
        if answered or self._on_timeout == "stop" or not api_turn.client.has_timed_out:
            await self.stop_turn(api_turn)

    async def stop_turn(self, api_turn: OpenAiTurn) -> None:
        """Stop the turn, also if it has not started: nobody could fetch the answer."""
        await self._sessions.post(api_turn.key, Stop("disconnected", "disconnected", api_turn.placed.turn))
        await self._sessions.wake(api_turn.key)

    async def conclude(self, api_turn: OpenAiTurn, record: TurnRecord, text: str | None = None) -> OpenAiOutcome:
        """The outcome for the client. Also stores a hash of the conversation, so that it can be continued.

        `text`: what the client received, if that differs from the final messages.
        """
        error = self._errors.take(api_turn.placed.turn)
        result = build_outcome(record, api_turn.names, error, document=bool(api_turn.parsed.schema))
        if api_turn.terms.passing:
            await self.responses.delete_temporary()
        elif (
            not (api_turn.terms.after or api_turn.terms.conversation) and result.problem is None
        ):  # else the client's copy is incomplete
            hash = conversation_hash(api_turn.caller, (*api_turn.parsed.said, result.message(text)))
            self.responses.add_history_hash(api_turn.placed.turn, hash)
        return result


def to_json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
