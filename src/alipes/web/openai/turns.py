"""Turns of OpenAI clients: places a request in a conversation, runs it, and collects its outcome."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from msgspec import Struct
from starlette.requests import Request

from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import (
    Address,
    AnswerApproval,
    AnswerQuestion,
    ApprovalAsked,
    Event,
    Inbound,
    QuestionAsked,
    Stop,
)
from alipes.sessions.event_stream import TurnFollower
from alipes.sessions.sessions import Sessions, admit_message
from alipes.store.api_history import AdmittedContinuation, Continuation, HistoryMismatch, SqliteApiHistory
from alipes.store.api_runs import SqliteResponses
from alipes.web.endpoint import PLATFORM, ApiServices, Caller, HttpProblem
from alipes.web.openai.outcome import OpenAiOutcome, ProviderErrors, TurnRecord, build_outcome
from alipes.web.openai.parse import ParsedRequest, conversation_hash

DEFAULT_MODEL = "alipes"
"""Model name that means the default model."""
RUN_ERRORS = (400, 404, 409, 422, 500, 502)
"""Statuses of errors of a turn."""
NO_ANSWER = "Nobody can answer here. Decide yourself, or ask the question in your answer."


class TurnOptions(Struct, frozen=True):
    """How a request is stored and run."""

    after: str = ""
    """Id of the turn it continues."""
    response: tuple[str, str] | None = None
    passing: bool = False
    attended: bool = True
    """Stop the turn when the client disconnects."""


class OpenAiTurn(Struct, frozen=True):
    """A request that has its place in a conversation."""

    placed: AdmittedContinuation
    parsed: ParsedRequest
    caller: str
    terms: TurnOptions

    @property
    def key(self) -> str:
        return self.placed.address.key

    @property
    def names(self) -> frozenset[str]:
        """Names of the client's tools."""
        return frozenset(each.name for each in self.parsed.offered)


class _ClientGone(Exception):
    """The client disconnected."""


class OpenAiTurns:
    def __init__(self, app: ApiServices, *, workdir: str = "") -> None:
        """`workdir`: working directory of the agent's tools."""
        self._app, self._sessions, self._workdir = app, app.sessions, workdir
        self._seeding = SqliteApiHistory(app.store.database)
        self.responses = SqliteResponses(app.store.database, app.store.archive)
        self._errors = ProviderErrors()
        self._errors.register(app.hooks)

    async def begin(self, caller: Caller, kind: str, parsed: ParsedRequest, terms: TurnOptions) -> OpenAiTurn:
        """Store the request as a turn, which starts with `open_events` or `wake`. Raises `HttpProblem`."""
        model = await self._model(parsed.model)
        name = os.urandom(8).hex()
        inbound = Inbound(
            id=f"{kind}:{name}",
            address=Address(PLATFORM, f"{kind}-{name[:8]}", user=caller.name),
            sender=caller.name,
            text=parsed.text,
            attachments=parsed.images,
            model=model,
            workdir=self._workdir,
            instructions=parsed.instructions,
            offered=parsed.offered,
            attended=terms.attended,
        )
        placement = Continuation(
            inbound=await admit_message(inbound, self._app.hooks.dispatcher),
            history=parsed.before,
            history_hash=conversation_hash(caller.name, parsed.before) if parsed.before else b"",
            after=terms.after,
            results=parsed.results,
            response=terms.response,
            temporary=terms.passing,
        )
        try:
            placed = await self._seeding.admit_continuation(placement)
        except HistoryMismatch as error:
            raise HttpProblem(400, str(error), code=error.code) from error
        return OpenAiTurn(placed, parsed, caller.name, terms)

    @asynccontextmanager
    async def open_events(self, api_turn: OpenAiTurn) -> AsyncIterator["AutoAnsweredEvents"]:
        """Start the turn and follow its events to the end."""
        async with self._sessions.follow(api_turn.key, api_turn.placed.turn) as stream:
            await self._sessions.wake(api_turn.key)
            yield AutoAnsweredEvents(stream, self._sessions, api_turn)

    async def wake(self, api_turn: OpenAiTurn) -> None:
        """Start the turn without following it."""
        await self._sessions.wake(api_turn.key)

    async def wait_for_end(self, api_turn: OpenAiTurn, request: Request) -> TurnRecord:
        """Run the turn to its end. It is stopped when the client disconnects or the request times out."""
        record = TurnRecord()
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_wait_for_disconnect(request), name="client")
                async with self.open_events(api_turn) as events:
                    async for event in events:
                        record.add(event)
                watch.cancel()
        except* _ClientGone:
            raise HttpProblem(499, "the client disconnected before the answer", code="client_left") from None
        finally:
            if record.ended is None:
                await self.stop_turn(api_turn)
        return record

    async def stop_turn(self, api_turn: OpenAiTurn) -> None:
        """Stop the turn, also if it has not started: nobody could fetch the answer."""
        turn = api_turn.placed.turn
        await self._sessions.post(api_turn.key, Stop("disconnected", "disconnected", turn))
        await self._sessions.wake(api_turn.key)

    async def conclude(self, api_turn: OpenAiTurn, record: TurnRecord, text: str | None = None) -> OpenAiOutcome:
        """The outcome for the client. Also stores a hash of the conversation, so that it can be continued.

        `text`: what the client received, if that differs from the final messages.
        """
        error = self._errors.take(api_turn.placed.turn)
        result = build_outcome(record, api_turn.names, error)
        if api_turn.terms.passing:
            await self.responses.delete_temporary()
        elif not api_turn.terms.after and result.problem is None:  # else the client's copy is incomplete
            hash = conversation_hash(api_turn.caller, (*api_turn.parsed.said, result.message(text)))
            await self.responses.add_history_hash(api_turn.placed.turn, hash)
        return result

    async def _model(self, name: str) -> str:
        """Resolve a model name; empty means the default. Raises `HttpProblem` with similar names."""
        if not name or name == DEFAULT_MODEL:
            return ""
        try:
            return (await self._app.models.open(name)).name
        except ConfigError as error:
            why = f"model {name!r} is not available. {error} GET /v1/models lists the available ones."
            raise HttpProblem(404, why, code="model_not_found") from error


class AutoAnsweredEvents:
    """The events of a turn whose client cannot answer questions: approvals are denied, questions refused."""

    def __init__(self, stream: TurnFollower, sessions: Sessions, api_turn: OpenAiTurn) -> None:
        self._following, self._sessions, self._api_turn = stream, sessions, api_turn

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._following)
        key, caller = self._api_turn.key, self._api_turn.caller
        match event:
            case ApprovalAsked(ask):
                await self._sessions.post(key, AnswerApproval(ask, "no", caller))
            case QuestionAsked(ask):
                await self._sessions.post(key, AnswerQuestion(ask, NO_ANSWER, caller))
        return event


async def _wait_for_disconnect(request: Request) -> None:
    """Raise `_ClientGone` when the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise _ClientGone
