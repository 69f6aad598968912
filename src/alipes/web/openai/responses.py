"""Responses: made, shown, deleted, cancelled. The turn is where a response is kept; this tells of it."""

import asyncio
import os
import time

import msgspec
from msgspec import Struct, structs
from starlette.responses import Response

from alipes.kernel.turns import Said, Stop, TurnEnded
from alipes.store.api_runs import Named
from alipes.store.export import TurnFacts
from alipes.web.endpoint import Call, House, Problem
from alipes.web.openai import parse as reading
from alipes.web.openai.outcome import BREAK, Outcome, Told, outcome
from alipes.web.openai.response_objects import (
    Echo,
    ResponseDeleted,
    ResponseDocument,
    ResponseEvents,
    counts,
    document,
    echo,
    error_of,
    items,
    status_of,
    why_incomplete,
)
from alipes.web.openai.schema import ResponseRequest
from alipes.web.openai.turns import Errand, Terms, Turns
from alipes.web.sse import EventStream, Tell

PATIENCE = 5.0
"""Seconds in which a turn that was stopped is over."""
_echoes = msgspec.json.Decoder(Echo)


class Making(Struct, frozen=True):
    """A response that is being made."""

    id: str
    asked: Echo
    errand: Errand


class Answers:
    def __init__(self, house: House, turns: Turns) -> None:
        self._house, self._turns = house, turns

    async def create(self, call: Call) -> Response:
        request: ResponseRequest = call.body
        if request.background and request.store is False:
            raise Problem(400, "what runs in the background has to be stored", code="background")
        asked = reading.response(request)
        previous = await self._previous(call, request.previous_response_id)
        id = f"resp_{os.urandom(12).hex()}"
        told = echo(request, time.time(), [each.name for each in asked.offered])
        terms = Terms(
            after=previous,
            response=(id, msgspec.json.encode(told).decode()) if told.store else None,
            passing=not told.store,
            attended=not told.background,
        )
        errand = await self._turns.begin(call.caller, "response", asked, terms)
        making = Making(id, told, errand)
        if request.stream:
            return self._stream(making)
        if request.background:
            await self._turns.wake(errand)
            return _json(document(id, told, "queued", []))
        account = await self._turns.attend(errand, call.request)
        result = await self._turns.conclude(errand, account)
        if result.trouble is not None:
            raise result.trouble
        return _json(finished(id, told, errand.placed.turn, result))

    async def show(self, call: Call) -> Response:
        named = await self._named(call, call.path["id"])
        return _json(await self._kept(named))

    async def delete(self, call: Call) -> Response:
        named = await self._named(call, call.path["id"])
        await self._turns.responses.delete(named)
        return _json(ResponseDeleted(named.id))

    async def cancel(self, call: Call) -> Response:
        """Stop it, if it lives; and show what there is of it."""
        named = await self._named(call, call.path["id"])
        facts = await self._facts(named)
        key, lobby = facts.inbound.address.key, self._house.lobby
        if facts.ending is None:
            async with asyncio.timeout(PATIENCE), lobby.follow(key, named.turn) as events:
                await lobby.post(key, Stop("user_stop", "session_interrupt", named.turn))
                await lobby.wake(key)
                async for _ in events:
                    pass
        return _json(await self._kept(named))

    def _stream(self, making: Making) -> EventStream:
        errand, turn = making.errand, making.errand.placed.turn
        events = ResponseEvents(making.id, making.asked, turn, errand.names)

        async def speak(tell: Tell) -> None:
            told = Told()
            await tell(events.opening())
            async with self._turns.living(errand) as happening:
                async for event in happening:
                    told.hear(event)
                    if frames := events.of(event):
                        await tell(frames)
            result = await self._turns.conclude(errand, told, BREAK.join(events.texts))
            answer = finished(making.id, making.asked, turn, result)
            await tell(events.calls(result.calls) + events.ending(answer))

        async def left() -> None:
            if not making.asked.background:
                await self._turns.abandon(errand)

        return EventStream(speak, left=left)

    async def _previous(self, call: Call, id: str | None) -> str:
        if not id:
            return ""
        try:
            return (await self._named(call, id)).turn
        except Problem as problem:
            why = f"the previous response {id!r} is not there; it may not have been stored"
            raise Problem(400, why, code="previous_response_not_found") from problem

    async def _named(self, call: Call, id: str) -> Named:
        """Raises `Problem` where there is none, or it is not theirs."""
        named = await self._turns.responses.find(id)
        if named is None or not (named.caller == call.caller.name or call.caller.may("admin")):
            raise Problem(404, f"there is no response {id!r}", code="response_not_found")
        return named

    async def _facts(self, named: Named) -> TurnFacts:
        facts = await self._house.store.archive.turn(named.turn)
        if facts is None:
            raise Problem(404, f"there is no response {named.id!r}", code="response_not_found")
        return facts

    async def _kept(self, named: Named) -> ResponseDocument:
        facts, asked = await self._facts(named), _echoes.decode(named.asked)
        if facts.ending is None:
            return document(named.id, asked, "in_progress" if facts.attempts else "queued", [])
        told = Told()
        for message in facts.said:
            told.hear(Said(message))
        told.hear(TurnEnded(named.turn, facts.ending, facts.detail, facts.spent.usage))
        return finished(named.id, asked, named.turn, outcome(told, frozenset(asked.offered)))


def finished(id: str, asked: Echo, turn: str, result: Outcome) -> ResponseDocument:
    return structs.replace(
        document(id, asked, status_of(result), items(turn, result)),
        error=error_of(result),
        incomplete_details=why_incomplete(result),
        usage=counts(result.usage),
    )


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
