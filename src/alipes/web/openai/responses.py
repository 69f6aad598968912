"""Endpoints for responses: create, get, delete, cancel. A response is stored as its turn."""

import asyncio
import os
import time

import msgspec
from msgspec import Struct, structs
from starlette.responses import Response

from alipes.kernel.turns import Said, Stop, TurnEnded
from alipes.store.api_runs import StoredResponse
from alipes.store.export import TurnFacts
from alipes.web.endpoint import ApiCall, ApiEndpoint, ApiServices, HttpProblem
from alipes.web.openai import parse as reading
from alipes.web.openai.outcome import MESSAGE_SEPARATOR, OpenAiOutcome, TurnRecord, build_outcome
from alipes.web.openai.response_objects import (
    RequestEcho,
    ResponseDeleted,
    ResponseDocument,
    ResponseEvents,
    error_of,
    incomplete_details,
    output_items,
    request_echo,
    response_document,
    response_usage,
    status_of,
)
from alipes.web.openai.schema import ResponseRequest
from alipes.web.openai.turns import RUN_ERRORS, OpenAiTurn, OpenAiTurns, TurnOptions
from alipes.web.sse import EventStream, SendFrames

STOP_TIMEOUT_S = 5.0
"""Seconds in which a stopped turn must have ended."""
_echoes = msgspec.json.Decoder(RequestEcho)


class PendingResponse(Struct, frozen=True):
    """A response in progress."""

    id: str
    asked: RequestEcho
    api_turn: OpenAiTurn


class ResponseEndpoints:
    def __init__(self, app: ApiServices, turns: OpenAiTurns) -> None:
        self._app, self._turns = app, turns

    @ApiEndpoint(
        "POST", "/v1/responses", "run", body=ResponseRequest, answer=ResponseDocument, streams=True, errors=RUN_ERRORS
    )
    async def create(self, call: ApiCall) -> Response:
        """Create a response, optionally as a continuation of another one."""
        request: ResponseRequest = call.body
        if request.background and request.store is False:
            raise HttpProblem(400, "background responses must be stored", code="background")
        asked = reading.parse_response(request)
        previous = await self._previous(call, request.previous_response_id)
        id = f"resp_{os.urandom(12).hex()}"
        record = request_echo(request, time.time(), [each.name for each in asked.offered])
        terms = TurnOptions(
            after=previous,
            response=(id, msgspec.json.encode(record).decode()) if record.store else None,
            passing=not record.store,
            attended=not record.background,
        )
        api_turn = await self._turns.begin(call.caller, "response", asked, terms)
        pending = PendingResponse(id, record, api_turn)
        if request.stream:
            return self._stream(pending)
        if request.background:
            await self._turns.wake(api_turn)
            return _json(response_document(id, record, "queued", []))
        account = await self._turns.wait_for_end(api_turn, call.request)
        result = await self._turns.conclude(api_turn, account)
        if result.problem is not None:
            raise result.problem
        return _json(finished_document(id, record, api_turn.placed.turn, result))

    @ApiEndpoint("GET", "/v1/responses/{id}", "read", answer=ResponseDocument)
    async def show(self, call: ApiCall) -> Response:
        """Get a response, finished or not."""
        named = await self._find_response(call, call.path["id"])
        return _json(await self._stored_document(named))

    @ApiEndpoint("DELETE", "/v1/responses/{id}", "run", answer=ResponseDeleted)
    async def delete(self, call: ApiCall) -> Response:
        """Delete a response; deleting the last one of a conversation deletes the conversation."""
        named = await self._find_response(call, call.path["id"])
        await self._turns.responses.delete(named)
        return _json(ResponseDeleted(named.id))

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
        return _json(await self._stored_document(named))

    def _stream(self, pending: PendingResponse) -> EventStream:
        api_turn, turn = pending.api_turn, pending.api_turn.placed.turn
        events = ResponseEvents(pending.id, pending.asked, turn, api_turn.names)

        async def write(send: SendFrames) -> None:
            record = TurnRecord()
            await send(events.opening_frames())
            async with self._turns.open_events(api_turn) as happening:
                async for event in happening:
                    record.add(event)
                    if frames := events.event_frames(event):
                        await send(frames)
            result = await self._turns.conclude(api_turn, record, MESSAGE_SEPARATOR.join(events.texts))
            answer = finished_document(pending.id, pending.asked, turn, result)
            await send(events.calls(result.calls) + events.ending(answer))

        async def left() -> None:
            if not pending.asked.background:
                await self._turns.stop_turn(api_turn)

        return EventStream(write, left=left)

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
        for message in facts.said:
            record.add(Said(message))
        record.add(TurnEnded(named.turn, facts.ending, facts.detail, facts.spent.usage))
        return finished_document(named.id, asked, named.turn, build_outcome(record, frozenset(asked.offered)))


def finished_document(id: str, asked: RequestEcho, turn: str, result: OpenAiOutcome) -> ResponseDocument:
    return structs.replace(
        response_document(id, asked, status_of(result), output_items(turn, result)),
        error=error_of(result),
        incomplete_details=incomplete_details(result),
        usage=response_usage(result.usage),
    )


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
