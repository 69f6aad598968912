"""Endpoints for conversations: list, create, read, fork, search, export, delete."""

import os
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs
from starlette.responses import PlainTextResponse, Response

from alipes.kernel.errors import SessionError
from alipes.kernel.messages import Message
from alipes.kernel.turns import Address, BusyMode
from alipes.store import export
from alipes.store.api_runs import ApiSession, SqliteApiRuns
from alipes.store.export import SearchContext, SearchHit
from alipes.store.search.context import MAX_MESSAGES
from alipes.web.admission import TurnAdmission
from alipes.web.endpoint import (
    NO_STORE,
    PLATFORM,
    ApiCall,
    ApiEndpoint,
    ApiServices,
    Caller,
    HttpProblem,
    json_response,
    no_content,
)
from alipes.web.runs.lookup import Name, find_session, visible_scope

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=500)]
Title: TypeAlias = Annotated[str, Meta(max_length=200)]
NewName: TypeAlias = Annotated[
    str,
    Meta(
        max_length=200,
        pattern=r"^(?![0-9a-f]{12}$)[^\x00-\x1f\x7f/]*$",
        description="Must not look like an id (twelve digits 0-9 or letters a-f).",
    ),
]


class ListQuery(Struct, frozen=True):
    limit: Limit = 50
    q: str = ""
    """Words in the title or the first message."""
    before: Annotated[float, Meta(ge=0)] = 0.0
    """Only those updated before this time; for the next page, `updated` of the last one."""


class MessagesQuery(Struct, frozen=True):
    limit: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """Only the last messages; zero means all."""


class SearchQuery(Struct, frozen=True):
    q: Annotated[str, Meta(max_length=1000)] = ""
    limit: Limit = 20


class AroundQuery(Struct, frozen=True):
    message: Annotated[int, Meta(ge=1)]
    """`message` of a hit."""
    before: Annotated[int, Meta(ge=0, le=MAX_MESSAGES)] = 5
    after: Annotated[int, Meta(ge=0, le=MAX_MESSAGES)] = 5


class NewSession(Struct, frozen=True, forbid_unknown_fields=True):
    name: NewName = ""
    """Name of the conversation; empty means a generated one."""
    title: Title = ""
    model: Name = ""
    """Model of the conversation; empty means the default."""


class SessionChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """What is not given stays as it is."""

    title: Title | None = None
    """Empty: the first words of the conversation."""
    model: Name | None = None
    """Empty: the default model."""
    busy: BusyMode | Literal[""] | None = None
    """What a new message does while a turn runs. Empty: the default."""


class QueueBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do with the runs that have not started."""

    action: Literal["send", "drop"]
    """`send` starts those that a stop kept back, in order; `drop` ends all that have not started."""
    run: Name = ""
    """Only this one, for `drop`."""


class QueueResult(Struct, frozen=True):
    runs: tuple[str, ...]
    """The runs that were sent or dropped, in order."""


class ForkBody(Struct, frozen=True, forbid_unknown_fields=True):
    name: NewName = ""
    title: Title = ""


class SessionDocument(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    platform: str
    """`api`, or the platform of a chat."""
    title: str
    created: float
    updated: float
    turns: int
    unfinished: int
    """Running and queued runs."""
    messages: int
    model: str = ""
    parent: str = ""
    """Id of the session it was forked from."""
    user: str = ""
    """Name of its owner."""


class SessionList(Struct, frozen=True):
    sessions: tuple[SessionDocument, ...]
    more: bool
    """True if there are older ones."""


class MessageList(Struct, frozen=True):
    messages: tuple[Message, ...]
    first: int
    """Number of earlier messages."""


class SearchResults(Struct, frozen=True):
    hits: tuple[SearchHit, ...]


class SessionExport(Struct, frozen=True):
    format: str
    session: dict[str, Any]
    turns: tuple[dict[str, Any], ...]


def session_document(row: ApiSession) -> SessionDocument:
    address = {"name": row.address.chat, "platform": row.address.platform, "user": row.address.user}
    return msgspec.convert({**structs.asdict(row), **address}, SessionDocument)


class SessionEndpoints:
    def __init__(self, app: ApiServices, admission: TurnAdmission) -> None:
        self._app, self._admission = app, admission
        self._store = SqliteApiRuns(app.store.database)

    @ApiEndpoint("GET", "/v1/sessions", "read", query=ListQuery, answer=SessionList)
    async def list(self, call: ApiCall) -> Response:
        """List conversations, latest first."""
        query: ListQuery = call.query
        found = await self._store.sessions(
            visible_scope(call.caller).owner, limit=query.limit + 1, words=query.q, before=query.before
        )
        return json_response(SessionList(tuple(map(session_document, found[: query.limit])), len(found) > query.limit))

    @ApiEndpoint("POST", "/v1/sessions", "run", body=NewSession, answer=SessionDocument, status=201, errors=(404, 409))
    async def create(self, call: ApiCall) -> Response:
        """Create a conversation."""
        body: NewSession = call.body
        model = await self._admission.resolve_model(body.model)
        address = await self._new_address(call.caller, body.name)
        conversation = await self._app.store.sessions.open(address)
        if body.title or model:
            await self._app.store.sessions.configure(conversation.session, title=body.title, model=model)
        return await self._created(conversation.session)

    @ApiEndpoint("GET", "/v1/sessions/search", "read", query=SearchQuery, answer=SearchResults)
    async def search(self, call: ApiCall) -> Response:
        """Search messages for all words, best match first."""
        query: SearchQuery = call.query
        found = await self._app.search.search(query.q, query.limit, scope=visible_scope(call.caller), marks=("", ""))
        return json_response(SearchResults(tuple(found)))

    @ApiEndpoint("GET", "/v1/sessions/search/around", "read", query=AroundQuery, answer=SearchContext, errors=(404,))
    async def around(self, call: ApiCall) -> Response:
        """Get the messages around a hit of a search, oldest first."""
        query: AroundQuery = call.query
        try:
            found = await self._app.store.archive.around(
                query.message, query.before, query.after, scope=visible_scope(call.caller)
            )
        except SessionError as error:
            raise HttpProblem(404, str(error), code="no_message") from error
        return json_response(found)

    @ApiEndpoint("GET", "/v1/sessions/{id}", "read", answer=SessionDocument)
    async def look(self, call: ApiCall) -> Response:
        """Get a conversation by id or name."""
        return json_response(session_document(await self._find_session(call)))

    @ApiEndpoint("PATCH", "/v1/sessions/{id}", "run", body=SessionChanges, answer=SessionDocument, errors=(409,))
    async def change(self, call: ApiCall) -> Response:
        """Change the title, the model or the busy mode of a conversation."""
        body: SessionChanges = call.body
        model = None if body.model is None else await self._admission.resolve_model(body.model)
        row = await self._find_session(call)
        await self._app.store.sessions.configure(row.id, title=body.title, model=model, busy=body.busy)
        return json_response(session_document(await self._find_session(call)))

    @ApiEndpoint("POST", "/v1/sessions/{id}/queue", "run", body=QueueBody, answer=QueueResult)
    async def queue(self, call: ApiCall) -> Response:
        """Send or drop the queued runs of a conversation."""
        body: QueueBody = call.body
        key, sessions = (await self._find_session(call)).address.key, self._app.sessions
        done = await (sessions.release(key) if body.action == "send" else sessions.drop(key, body.run))
        return json_response(QueueResult(tuple(each.id for each in done)))

    @ApiEndpoint("DELETE", "/v1/sessions/{id}", "run", status=204, errors=(409,))
    async def delete(self, call: ApiCall) -> Response:
        """Delete a conversation permanently."""
        row = await self._find_session(call)
        await self._app.store.archive.delete(row.id)
        self._app.search.clean_soon()
        return no_content()

    @ApiEndpoint("GET", "/v1/sessions/{id}/messages", "read", query=MessagesQuery, answer=MessageList)
    async def messages(self, call: ApiCall) -> Response:
        """Get the messages of a conversation as the model sees them."""
        query: MessagesQuery = call.query
        row = await self._find_session(call)
        said = await self._app.store.archive.messages(row.id)
        first = max(len(said) - query.limit, 0) if query.limit else 0
        return json_response(MessageList(said[first:], first))

    @ApiEndpoint(
        "POST", "/v1/sessions/{id}/fork", "run", body=ForkBody, answer=SessionDocument, status=201, errors=(409,)
    )
    async def fork(self, call: ApiCall) -> Response:
        """Create a conversation that shares the finished turns of this one."""
        body: ForkBody = call.body
        row = await self._find_session(call)
        address = await self._new_address(call.caller, body.name)
        return await self._created(await self._store.fork(row.id, address, body.title))

    @ApiEndpoint("GET", "/v1/sessions/{id}/export", "read", answer=SessionExport)
    async def export(self, call: ApiCall) -> Response:
        """Export the whole conversation, including undone turns."""
        row = await self._find_session(call)
        return json_response(await self._app.store.archive.export(row.id))

    @ApiEndpoint("GET", "/v1/sessions/{id}/export/markdown", "read")
    async def markdown(self, call: ApiCall) -> Response:
        """Export the conversation as Markdown."""
        row = await self._find_session(call)
        text = export.to_markdown(await self._app.store.archive.export(row.id))
        return PlainTextResponse(text, media_type="text/markdown", headers=NO_STORE)

    async def _created(self, session: str) -> Response:
        row = await self._store.session(session)
        if row is None:
            raise HttpProblem(409, "the session was deleted in the meantime", code="session")
        return json_response(session_document(row), 201, {"location": f"/v1/sessions/{row.id}"})

    async def _find_session(self, call: ApiCall) -> ApiSession:
        """The session in the path, if the caller may see it."""
        return await find_session(self._store, call.caller, call.path["id"])

    async def _new_address(self, caller: Caller, name: str) -> Address:
        """The address of a new conversation. Raises `HttpProblem` if the name is taken."""
        address = _address(caller, name or f"session-{os.urandom(6).hex()}")
        if name and await self._store.find_current(address) is not None:
            raise HttpProblem(409, f"a session named {name} already exists", code="name_taken")
        return address


def _address(caller: Caller, name: str) -> Address:
    return Address(PLATFORM, name, user=caller.name)
