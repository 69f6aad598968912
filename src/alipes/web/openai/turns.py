"""A question of a client of OpenAI's, from its place in a conversation to its end. It writes no wire."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from msgspec import Struct
from starlette.requests import Request

from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Address, Answer, ApprovalAsked, Asked, Event, Inbound, Reply, Stop
from alipes.sessions.event_stream import Following
from alipes.sessions.sessions import Lobby, admissible
from alipes.store.api_history import Placed, Seeding, Unfit, Wish
from alipes.store.api_runs import Responses
from alipes.web.endpoint import PLATFORM, Caller, House, Problem
from alipes.web.openai.outcome import Mishaps, Outcome, Told, outcome
from alipes.web.openai.parse import Question, mark

OURS = "alipes"
"""The model's name for whoever does not care which one the house asks."""
NOBODY = "Nobody can answer here. Decide by yourself, or put the question in your answer."


class Terms(Struct, frozen=True):
    """How a question wants to be kept."""

    after: str = ""
    """The turn it follows on."""
    response: tuple[str, str] | None = None
    passing: bool = False
    attended: bool = True
    """It is of no use once its client has left."""


class Errand(Struct, frozen=True):
    """A question that has its place."""

    placed: Placed
    asked: Question
    caller: str
    terms: Terms

    @property
    def key(self) -> str:
        return self.placed.address.key

    @property
    def names(self) -> frozenset[str]:
        """The tools that the client runs."""
        return frozenset(each.name for each in self.asked.offered)


class _Left(Exception):
    """Nobody waits for the answer any more."""


class Turns:
    def __init__(self, house: House, *, workdir: str = "") -> None:
        """`workdir`: where the agent's tools work."""
        self._house, self._lobby, self._workdir = house, house.lobby, workdir
        self._seeding = Seeding(house.store.database)
        self.responses = Responses(house.store.database, house.store.archive)
        self._mishaps = Mishaps()
        self._mishaps.listen(house.hooks)

    async def begin(self, caller: Caller, kind: str, asked: Question, terms: Terms) -> Errand:
        """Find its place and take it in; it is not lived before somebody attends to it. Raises `Problem`."""
        model = await self._model(asked.model)
        name = os.urandom(8).hex()
        inbound = Inbound(
            id=f"{kind}:{name}",
            address=Address(PLATFORM, f"{kind}-{name[:8]}", user=caller.name),
            sender=caller.name,
            text=asked.text,
            attachments=asked.images,
            model=model,
            workdir=self._workdir,
            instructions=asked.instructions,
            offered=asked.offered,
            attended=terms.attended,
        )
        wish = Wish(
            inbound=await admissible(inbound, self._house.hooks.relay),
            before=asked.before,
            mark=mark(caller.name, asked.before) if asked.before else b"",
            after=terms.after,
            results=asked.results,
            response=terms.response,
            passing=terms.passing,
        )
        try:
            placed = await self._seeding.place(wish)
        except Unfit as error:
            raise Problem(400, str(error), code=error.code) from error
        return Errand(placed, asked, caller.name, terms)

    @asynccontextmanager
    async def living(self, errand: Errand) -> AsyncIterator["Attended"]:
        """Its events to the end; it is lived from now on."""
        async with self._lobby.follow(errand.key, errand.placed.turn) as following:
            await self._lobby.wake(errand.key)
            yield Attended(following, self._lobby, errand)

    async def wake(self, errand: Errand) -> None:
        """Let it be lived with nobody attending."""
        await self._lobby.wake(errand.key)

    async def attend(self, errand: Errand, request: Request) -> Told:
        """Until it is over. A client that leaves, or who waits for it no longer, stops it."""
        told = Told()
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_leaving(request), name="client")
                async with self.living(errand) as events:
                    async for event in events:
                        told.hear(event)
                watch.cancel()
        except* _Left:
            raise Problem(499, "the client left before the answer", code="client_left") from None
        finally:
            if told.ended is None:
                await self.abandon(errand)
        return told

    async def abandon(self, errand: Errand) -> None:
        """Nobody could fetch the answer: end the turn, also where it was not yet begun."""
        turn = errand.placed.turn
        await self._lobby.post(errand.key, Stop("disconnected", "disconnected", turn))
        await self._lobby.wake(errand.key)

    async def conclude(self, errand: Errand, told: Told, text: str | None = None) -> Outcome:
        """What the client is to be told; and a mark, by which it may go on from there.

        `text`: what it has been told already, where that is not what was said in the end.
        """
        mishap = self._mishaps.take(errand.placed.turn)
        result = outcome(told, errand.names, mishap)
        if errand.terms.passing:
            await self.responses.sweep()
        elif not errand.terms.after and result.trouble is None:  # else the client has not all of it
            whole = (*errand.asked.said, result.message(text))
            await self.responses.remember(errand.placed.turn, mark(errand.caller, whole))
        return result

    async def _model(self, name: str) -> str:
        """As the agent knows it; empty for the house's own choice. Raises `Problem` with near matches."""
        if not name or name == OURS:
            return ""
        try:
            return (await self._house.models.open(name)).name
        except ConfigError as error:
            why = f"the model {name!r} cannot be asked here. {error} GET /v1/models lists those that can."
            raise Problem(404, why, code="model_not_found") from error


class Attended:
    """The events of a turn whose client can answer no question: what waits for a person's word is told so."""

    def __init__(self, following: Following, lobby: Lobby, errand: Errand) -> None:
        self._following, self._lobby, self._errand = following, lobby, errand

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._following)
        key, caller = self._errand.key, self._errand.caller
        match event:
            case ApprovalAsked(ask):
                await self._lobby.post(key, Answer(ask, "no", caller))
            case Asked(ask):
                await self._lobby.post(key, Reply(ask, NOBODY, caller))
        return event


async def _leaving(request: Request) -> None:
    """Raises `_Left` once the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise _Left
