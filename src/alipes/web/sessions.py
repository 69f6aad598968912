"""Conversations over HTTP: listed, begun, read, forked, searched, exported, forgotten. It runs no turn."""

import os
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct
from starlette.responses import PlainTextResponse, Response

from alipes.kernel.messages import Message
from alipes.kernel.turns import Address
from alipes.store import export
from alipes.store.api_runs import Owner, SessionRow, SqliteRuns
from alipes.store.export import Hit
from alipes.web.endpoint import FRESH, PLATFORM, Call, Caller, Endpoint, House, Problem, answer, nothing
from alipes.web.runs.endpoints import may_see, owner
from alipes.web.runs.schema import Name

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=500)]
Title: TypeAlias = Annotated[str, Meta(max_length=200)]
NewName: TypeAlias = Annotated[
    str,
    Meta(
        max_length=200,
        pattern=r"^(?![0-9a-f]{12}$)[^\x00-\x1f\x7f/]*$",
        description="Not twelve of 0-9 and a-f: that is how an id looks.",
    ),
]


class ListQuery(Struct, frozen=True):
    limit: Limit = 50
    q: str = ""
    """Words that occur in the title or the first message."""
    before: Annotated[float, Meta(ge=0)] = 0.0
    """Those that were changed before; for the next page, `updated` of the last one."""


class MessagesQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """The last so many; zero: all."""


class SearchQuery(Struct, frozen=True):
    q: Annotated[str, Meta(max_length=1000)] = ""
    limit: Limit = 20


class NewSession(Struct, frozen=True, forbid_unknown_fields=True):
    name: NewName = ""
    """How you will call it; empty: we find a name."""
    title: Title = ""
    model: Name = ""
    """The model that answers in it; empty: the house's."""


class ForkBody(Struct, frozen=True, forbid_unknown_fields=True):
    name: NewName = ""
    title: Title = ""


class Session(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    platform: str
    """Where it is held: `api`, or a chat's."""
    title: str
    created: float
    updated: float
    turns: int
    unfinished: int
    """Runs that live or wait in it."""
    messages: int
    model: str = ""
    parent: str = ""
    """The session it was forked from."""
    user: str = ""
    """Whose it is."""


class Sessions(Struct, frozen=True):
    sessions: tuple[Session, ...]
    more: bool
    """There are older ones."""


class Messages(Struct, frozen=True):
    messages: tuple[Message, ...]
    first: int
    """How many came before these."""


class Found(Struct, frozen=True):
    hits: tuple[Hit, ...]


class Export(Struct, frozen=True):
    format: str
    session: dict[str, Any]
    turns: tuple[dict[str, Any], ...]


def told(row: SessionRow) -> Session:
    return Session(
        id=row.id,
        name=row.address.chat,
        platform=row.address.platform,
        title=row.title,
        created=row.created,
        updated=row.updated,
        turns=row.turns,
        unfinished=row.unfinished,
        messages=row.messages,
        model=row.model,
        parent=row.parent,
        user=row.address.user,
    )


def endpoints(house: House) -> tuple[Endpoint, ...]:
    room = Room(house)
    return (*_all(room), *_each(room))


def _all(room: "Room") -> tuple[Endpoint, ...]:
    """About conversations as a whole."""
    return (
        Endpoint(
            method="GET",
            path="/v1/sessions",
            scope="read",
            handle=room.list,
            summary="The conversations, the latest first.",
            query=ListQuery,
            answer=Sessions,
        ),
        Endpoint(
            method="POST",
            path="/v1/sessions",
            scope="run",
            handle=room.create,
            summary="Begin a conversation.",
            body=NewSession,
            answer=Session,
            status=201,
            errors=(409,),
        ),
        Endpoint(
            method="GET",
            path="/v1/sessions/search",
            scope="read",
            handle=room.search,
            summary="Messages in which all the words occur, the best first.",
            query=SearchQuery,
            answer=Found,
        ),
    )


def _each(room: "Room") -> tuple[Endpoint, ...]:
    """About one of them."""
    return (
        Endpoint(
            method="GET",
            path="/v1/sessions/{id}",
            scope="read",
            handle=room.look,
            summary="One conversation, by its id or by the name that you gave it.",
            answer=Session,
            errors=(404,),
        ),
        Endpoint(
            method="DELETE",
            path="/v1/sessions/{id}",
            scope="run",
            handle=room.delete,
            summary="Forget a conversation for good.",
            status=204,
            errors=(404, 409),
        ),
        Endpoint(
            method="GET",
            path="/v1/sessions/{id}/messages",
            scope="read",
            handle=room.messages,
            summary="What was said in it, as the model is told it.",
            query=MessagesQuery,
            answer=Messages,
            errors=(404,),
        ),
        Endpoint(
            method="POST",
            path="/v1/sessions/{id}/fork",
            scope="run",
            handle=room.fork,
            summary="Begin a conversation that shares what was finished in this one.",
            body=ForkBody,
            answer=Session,
            status=201,
            errors=(404, 409),
        ),
        Endpoint(
            method="GET",
            path="/v1/sessions/{id}/export",
            scope="read",
            handle=room.export,
            summary="The whole of it, also what was undone.",
            answer=Export,
            errors=(404,),
        ),
        Endpoint(
            method="GET",
            path="/v1/sessions/{id}/export/markdown",
            scope="read",
            handle=room.markdown,
            summary="What was said in it, as a text to read.",
            errors=(404,),
        ),
    )


class Room:
    def __init__(self, house: House) -> None:
        self._house, self._store = house, SqliteRuns(house.store.database)

    async def list(self, call: Call) -> Response:
        query: ListQuery = call.query
        found = await self._store.sessions(
            _whose(call.caller), limit=query.limit + 1, words=query.q, before=query.before
        )
        return answer(Sessions(tuple(map(told, found[: query.limit])), len(found) > query.limit))

    async def create(self, call: Call) -> Response:
        body: NewSession = call.body
        address = await self._free(call.caller, body.name)
        standing = await self._house.store.sessions.open(address)
        if body.title or body.model:
            await self._house.store.sessions.configure(standing.session, title=body.title, model=body.model)
        return await self._begun(standing.session)

    async def look(self, call: Call) -> Response:
        return answer(told(await self._named(call)))

    async def messages(self, call: Call) -> Response:
        query: MessagesQuery = call.query
        row = await self._named(call)
        said = await self._house.store.archive.messages(row.id)
        first = max(len(said) - query.limit, 0) if query.limit else 0
        return answer(Messages(said[first:], first))

    async def fork(self, call: Call) -> Response:
        body: ForkBody = call.body
        row = await self._named(call)
        address = await self._free(call.caller, body.name)
        return await self._begun(await self._store.fork(row.id, address, body.title))

    async def delete(self, call: Call) -> Response:
        row = await self._named(call)
        await self._house.store.archive.delete(row.id)
        return nothing()

    async def search(self, call: Call) -> Response:
        query: SearchQuery = call.query
        return answer(Found(tuple(await self._store.search(_whose(call.caller), query.q, query.limit))))

    async def export(self, call: Call) -> Response:
        row = await self._named(call)
        return answer(await self._house.store.archive.export(row.id))

    async def markdown(self, call: Call) -> Response:
        row = await self._named(call)
        text = export.markdown(await self._house.store.archive.export(row.id))
        return PlainTextResponse(text, media_type="text/markdown", headers=FRESH)

    async def _begun(self, session: str) -> Response:
        row = await self._store.session(session)
        if row is None:
            raise Problem(409, "it was deleted meanwhile", code="session")
        return answer(told(row), 201, {"location": f"/v1/sessions/{row.id}"})

    async def _named(self, call: Call) -> SessionRow:
        """The session in the path; to who may not see it, it does not exist."""
        name, caller = call.path["id"], call.caller
        row = await self._store.session(name)
        if row is None or not may_see(caller, row.address):
            row = await self._store.at(_address(caller, name))
        if row is None:
            raise Problem(404, f"there is no session {name}", code="no_session")
        return row

    async def _free(self, caller: Caller, name: str) -> Address:
        """Where a conversation of this name can be begun."""
        address = _address(caller, name or f"session-{os.urandom(6).hex()}")
        if name and await self._store.at(address) is not None:
            raise Problem(409, f"there is a session {name} already", code="name_taken")
        return address


def _address(caller: Caller, name: str) -> Address:
    return Address(PLATFORM, name, user=caller.name)


def _whose(caller: Caller) -> Owner | None:
    return None if caller.may("admin") else owner(caller)
