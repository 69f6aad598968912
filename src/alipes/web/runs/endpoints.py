"""Runs over HTTP: begun, looked at, listened to, stopped, answered and steered. A run is a turn."""

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from starlette.responses import Response

from alipes.kernel.turns import Address, Answer, ApprovalAsked, Asked, Inbound, Reply, Stop
from alipes.store.api_runs import Owner, SqliteRuns
from alipes.store.export import TurnFacts
from alipes.web.endpoint import PLATFORM, Call, Caller, Endpoint, House, Problem, answer, nothing
from alipes.web.runs.events import END, Runs, from_journal, mark
from alipes.web.runs.schema import (
    ApprovalBody,
    ReplyBody,
    Run,
    RunBody,
    SteerBody,
    Steered,
    ending,
    pictures,
    told,
)
from alipes.web.sse import EventStream, Tell, all_at_once

KEY = 255
"""The longest `Idempotency-Key`."""


class Naming(Struct, frozen=True):
    """The id of what was sent: the same for who sends it again under the same `Idempotency-Key`."""

    name: str
    digest: str
    again: bool
    """It may have been sent before."""

    @property
    def id(self) -> str:
        return f"{self.name}:{self.digest}"


def naming_of(call: Call) -> Naming:
    key = call.request.headers.get("idempotency-key", "").strip()
    if len(key) > KEY:
        raise Problem(422, f"an Idempotency-Key has {KEY} characters at most", code="idempotency_key")
    if not key:
        return Naming(os.urandom(8).hex(), os.urandom(8).hex(), again=False)
    name = hashlib.sha256(f"{call.caller.name}\0{key}".encode()).hexdigest()[:32]
    sent = msgspec.json.encode((call.request.url.path, call.body))
    return Naming(name, hashlib.sha256(sent).hexdigest()[:32], again=True)


class Once:
    def __init__(self, store: SqliteRuns) -> None:
        self._store = store
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lane(self, naming: Naming) -> AsyncIterator[str]:
        """The turn that it became before, if so; nobody else sends the same meanwhile."""
        if not naming.again:
            yield ""
            return
        async with self._lanes.setdefault(naming.name, asyncio.Lock()):
            found = await self._store.named(PLATFORM, f"{naming.name}:")
            turn, id = found or ("", "")
            if turn and id != naming.id:
                raise Problem(422, "this Idempotency-Key was used for something else", code="idempotency_key")
            yield turn


_ID = re.compile(r"[0-9a-f]{12}")


class Known(Struct, frozen=True):
    """A run that the caller may see."""

    turn: str
    inbound: Inbound
    facts: TurnFacts | None
    """As the store has it; None where it is known to live without a look."""

    @property
    def key(self) -> str:
        return self.inbound.address.key

    @property
    def over(self) -> bool:
        return self.facts is not None and self.facts.ending is not None


def endpoints(house: House, runs: Runs) -> tuple[Endpoint, ...]:
    """`runs` has to serve meanwhile."""
    room = Room(house, runs)
    return (*_seen(room), *_moved(room))


def _seen(room: "Room") -> tuple[Endpoint, ...]:
    """By which a run is begun and looked at."""
    return (
        Endpoint(
            method="POST",
            path="/v1/runs",
            scope="run",
            handle=room.begin,
            summary="Begin a run. Sent again with the same Idempotency-Key, it is the same run.",
            body=RunBody,
            answer=Run,
            status=202,
            errors=(404, 409),
        ),
        Endpoint(
            method="GET",
            path="/v1/runs/{id}",
            scope="read",
            handle=room.look,
            summary="What became of a run so far.",
            answer=Run,
            errors=(404,),
        ),
        Endpoint(
            method="GET",
            path="/v1/runs/{id}/events",
            scope="read",
            handle=room.listen,
            summary="The events of a run, from Last-Event-ID on, to its end.",
            headers={"Last-Event-ID": "The id of the last event that was heard; what came after it is told."},
            streams=True,
            errors=(404,),
        ),
    )


def _moved(room: "Room") -> tuple[Endpoint, ...]:
    """By which something is said to a run that lives."""
    return (
        Endpoint(
            method="POST",
            path="/v1/runs/{id}/stop",
            scope="run",
            handle=room.stop,
            summary="Stop a run; what it said so far stays.",
            answer=Run,
            status=202,
            errors=(404,),
        ),
        Endpoint(
            method="POST",
            path="/v1/runs/{id}/steer",
            scope="run",
            handle=room.steer,
            summary="Say something more to a run that lives.",
            body=SteerBody,
            answer=Steered,
            status=202,
            errors=(404, 409),
        ),
        Endpoint(
            method="POST",
            path="/v1/runs/{id}/approval",
            scope="run",
            handle=room.approve,
            summary="Allow or refuse a call that waits for a word.",
            body=ApprovalBody,
            answer=Run,
            status=202,
            errors=(404, 409),
        ),
        Endpoint(
            method="POST",
            path="/v1/runs/{id}/reply",
            scope="run",
            handle=room.reply,
            summary="Answer a question of the model's.",
            body=ReplyBody,
            answer=Run,
            status=202,
            errors=(404, 409),
        ),
    )


class Room:
    def __init__(self, house: House, runs: Runs) -> None:
        self._house, self._runs = house, runs
        self._store = SqliteRuns(house.store.database)
        self._once = Once(self._store)

    async def begin(self, call: Call) -> Response:
        body: RunBody = call.body
        naming = naming_of(call)
        async with self._once.lane(naming) as before:
            if before:
                return await self._again(before)
            address = await self._address(call.caller, body.session)
            inbound = Inbound(
                naming.id,
                address,
                call.caller.name,
                body.input,
                pictures(body.images),
                model=body.model,
                workdir=self._runs.workdir,
                instructions=body.instructions,
                only=body.tools,
                attended=body.on_disconnect == "stop",
            )
            turn = await self._runs.begin(inbound, body.busy)
        assert turn is not None  # nobody else has this name
        return _accepted(Run(turn, address.chat, "queued", input=body.input))

    async def look(self, call: Call) -> Response:
        known = await self._known(call)
        return answer(await self._run(known.turn))

    async def listen(self, call: Call) -> Response:
        heard = call.request.headers.get("last-event-id", "")
        known = await self._known(call)
        if heard.strip() == END:
            return nothing()  # so that a browser does not ask again
        since = mark(heard)
        if known.facts is not None and known.over:
            return all_at_once(from_journal(known.facts.said, ending(known.facts), since))
        living = await self._runs.follow(known.turn, known.inbound)

        async def speak(tell: Tell) -> None:
            await self._runs.tell(living, since, tell)

        async def left() -> None:
            await self._runs.left(living)

        return EventStream(speak, left=left)

    async def stop(self, call: Call) -> Response:
        known = await self._known(call)
        if not known.over:
            stop = Stop("user_stop", "session_interrupt", known.turn)
            await self._house.lobby.post(known.key, stop)
        return answer(await self._run(known.turn), 202)

    async def steer(self, call: Call) -> Response:
        body: SteerBody = call.body
        naming = naming_of(call)
        async with self._once.lane(naming) as before:
            if before:
                return answer(Steered(call.path["id"], before), 202)
            known = await self._living(call)
            inbound = Inbound(
                naming.id,
                known.inbound.address,
                call.caller.name,
                body.input,
                pictures(body.images),
                workdir=known.inbound.workdir,
            )
            message = await self._runs.begin(inbound, "steer")
        assert message is not None
        return answer(Steered(known.turn, message), 202)

    async def approve(self, call: Call) -> Response:
        body: ApprovalBody = call.body
        if body.choice == "always" and not call.caller.may("admin"):
            raise Problem(403, "`always` counts for everybody: only admin keys say it", code="scope")
        known = await self._living(call)
        ask = self._which(known, body.ask, ApprovalAsked)
        await self._house.lobby.post(known.key, Answer(ask, body.choice, call.caller.name))
        return answer(await self._run(known.turn), 202)

    async def reply(self, call: Call) -> Response:
        body: ReplyBody = call.body
        known = await self._living(call)
        ask = self._which(known, body.ask, Asked)
        await self._house.lobby.post(known.key, Reply(ask, body.text, call.caller.name))
        return answer(await self._run(known.turn), 202)

    def _which(self, known: Known, named: str, kind: type[ApprovalAsked] | type[Asked]) -> str:
        """The question that is meant."""
        if named and not self._house.lobby.at_work(known.key):
            return named  # another process lives it, and knows its questions
        questions = self._runs.questions(known.key, known.turn)
        waiting = [each.ask for each in questions if isinstance(each, kind)]
        if named in waiting or (not named and len(waiting) == 1):
            return named or waiting[0]
        several = "several questions wait: name one with `ask`"
        raise Problem(409, several if waiting and not named else "no such question waits", code="no_question")

    async def _known(self, call: Call) -> Known:
        """The run in the path; to who may not see it, it does not exist."""
        turn, caller = call.path["id"], call.caller
        living = self._runs.find(turn)
        facts = None if living is not None else await self._house.store.archive.turn(turn)
        inbound = living.inbound if living is not None else facts and facts.inbound
        if not inbound or not may_see(caller, inbound.address):
            raise Problem(404, f"there is no run {turn}", code="no_run")
        return Known(turn, inbound, facts)

    async def _living(self, call: Call) -> Known:
        known = await self._known(call)
        if known.over:
            raise Problem(409, "the run is over", code="over")
        return known

    async def _run(self, turn: str) -> Run:
        facts = await self._house.store.archive.turn(turn)
        if facts is None:
            raise Problem(404, f"there is no run {turn}", code="no_run")
        return told(facts, self._runs.questions(facts.inbound.address.key, turn))

    async def _again(self, turn: str) -> Response:
        return _accepted(await self._run(turn), {"idempotent-replayed": "true"})

    async def _address(self, caller: Caller, session: str) -> Address:
        """Where a run takes place: in a conversation of this name, or in the one with this id."""
        if not _ID.fullmatch(session):
            return Address(PLATFORM, session or f"run-{os.urandom(6).hex()}", user=caller.name)
        row = await self._store.session(session)
        if row is None or not may_see(caller, row.address):
            raise Problem(404, f"there is no session {session}", code="no_session")
        if row.address.platform != PLATFORM or not row.goes_on:
            raise Problem(409, "that conversation does not go on here; fork it", code="elsewhere")
        return row.address


def may_see(caller: Caller, address: Address) -> bool:
    return caller.may("admin") or owner(caller).has(address)


def owner(caller: Caller) -> Owner:
    return Owner(PLATFORM, caller.name)


def _accepted(run: Run, headers: dict[str, str] | None = None) -> Response:
    return answer(run, 202, {"location": f"/v1/runs/{run.id}", **(headers or {})})
