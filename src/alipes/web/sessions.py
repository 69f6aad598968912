"""Endpoints for conversations: list, create, read, fork, search, export, delete."""

import os
import time
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, structs
from starlette.responses import PlainTextResponse, Response

from alipes.core.app import App
from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address, BusyMode, Effort, PermissionMode
from alipes.store import export
from alipes.store.html_export import to_html
from alipes.store.ports.search import MAX_MESSAGES, SearchContext, SearchHit
from alipes.store.sql.api_runs import ApiSession, Maker, SessionQuery, SessionStatus
from alipes.web.admission import TurnAdmission
from alipes.web.endpoint import NO_STORE, PLATFORM, ApiCall, ApiEndpoint, Caller, HttpProblem, json_response, no_content
from alipes.web.runs.lookup import Name, describe_origin, find_session, visible_scope

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=500)]
MAX_FOLDER_CHARS = 60
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
    """Only those updated before this time."""
    platform: Annotated[str, Meta(max_length=100)] = ""
    """Only those of this surface, such as `telegram`, `terminal` or `api`."""
    cursor: Annotated[str, Meta(max_length=100)] = ""
    """For the next page: `cursor` of the page before."""
    pinned: bool = False
    """Only pinned ones."""
    archived: Literal["", "yes", "no"] = ""
    folder: Annotated[str, Meta(max_length=MAX_FOLDER_CHARS)] = ""
    """Only those in this folder."""
    made_by: Maker | Literal[""] = ""
    """Only those begun by a person, by `alipes ask`, or by a program with an API key."""
    parent: Name = ""
    """Only the branches of this conversation."""


class SearchQuery(Struct, frozen=True):
    q: Annotated[str, Meta(max_length=1000)] = ""
    limit: Limit = 20


class HtmlQuery(Struct, frozen=True):
    shared: bool = False
    """For others: without its folder, notes to the model, and what the model thought."""


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
    permission_mode: PermissionMode | Literal[""] | None = None
    """What it may do without asking. Empty: the default. `all` needs an admin key."""
    effort: Effort | None = None
    """How much the model thinks. Empty: the default."""
    pinned: bool | None = None
    archived: bool | None = None
    folder: Annotated[str, Meta(max_length=MAX_FOLDER_CHARS)] | None = None
    """Empty: in no folder."""


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
    message: Annotated[int, Meta(ge=0, le=2**62)] = 0
    """Number of a message: the fork has its run and all before it. Zero: all that have finished."""


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
    status: SessionStatus
    model: str = ""
    parent: str = ""
    """Id of the session it was forked from."""
    user: str = ""
    """Name of its owner, or the person in a group."""
    chat_type: str = ""
    thread: str = ""
    origin: str = ""
    """Where it takes place, for people: `Telegram · Ann`, `terminal`, `API · ci`."""
    current: bool = False
    """It is the active conversation of its place: messages there continue it."""
    preview: str = ""
    """The start of the last message."""
    busy: str = ""
    permission_mode: str = ""
    effort: str = ""
    workdir: str = ""
    pinned: bool = False
    archived: bool = False
    folder: str = ""
    made_by: Maker = "person"
    unlisted: bool = False
    """It belongs to an API key whose conversations the page does not show."""


class FolderInfo(Struct, frozen=True):
    name: str
    conversations: int


class FolderList(Struct, frozen=True):
    folders: tuple[FolderInfo, ...]


class SessionList(Struct, frozen=True):
    sessions: tuple[SessionDocument, ...]
    more: bool
    """True if there are older ones."""
    cursor: str
    """For the next page; empty if this is the last one."""


class FoundMessage(SearchHit, frozen=True):
    """A message that matches a search; `message` is its number."""

    origin: str = ""


class SearchResults(Struct, frozen=True):
    hits: tuple[FoundMessage, ...]


class SessionExport(Struct, frozen=True):
    format: str
    session: dict[str, Any]
    turns: tuple[dict[str, Any], ...]


def session_document(row: ApiSession) -> SessionDocument:
    place = row.address
    return SessionDocument(
        id=row.id,
        name=place.chat,
        platform=place.platform,
        title=row.title,
        created=row.created,
        updated=row.updated,
        turns=row.turns,
        unfinished=row.unfinished,
        messages=row.messages,
        model=row.model,
        parent=row.parent,
        user=place.user,
        chat_type="" if place.platform == PLATFORM else place.chat_type,
        thread=place.thread,
        origin=describe_origin(place, row.person),
        current=row.is_current,
        status=row.status,
        preview=row.preview,
        busy=row.busy,
        permission_mode=row.permission_mode,
        effort=row.effort,
        workdir=row.workdir,
        pinned=row.pinned,
        archived=row.archived,
        folder=row.folder,
        made_by=row.made_by,
        unlisted=row.unlisted,
    )


class SessionEndpoints:
    def __init__(self, app: App, admission: TurnAdmission) -> None:
        self._app, self._admission = app, admission
        self._store = app.store.api_runs
        self._transcripts = app.store.transcripts

    @ApiEndpoint("GET", "/v1/sessions", "read", query=ListQuery, answer=SessionList)
    async def list(self, call: ApiCall) -> Response:
        """List conversations, latest first."""
        query: ListQuery = call.query
        wanted = SessionQuery(
            limit=query.limit + 1,
            words=query.q,
            before=query.before,
            cursor=query.cursor,
            platform=query.platform,
            pinned=query.pinned,
            archived=None if not query.archived else query.archived == "yes",
            folder=query.folder,
            made_by=query.made_by,
            parent=query.parent,
            listed=bool(call.caller.browser),
        )
        try:
            found = await self._store.sessions(visible_scope(call.caller).owner, wanted)
        except SessionError as error:
            raise HttpProblem(422, str(error), code="query") from error
        shown, more = found[: query.limit], len(found) > query.limit
        cursor = shown[-1].cursor if more else ""
        return json_response(SessionList(tuple(map(session_document, shown)), more, cursor))

    @ApiEndpoint("GET", "/v1/session-folders", "read", answer=FolderList)
    async def folders(self, call: ApiCall) -> Response:
        """List the folders of conversations, with how many are in each."""
        found = await self._store.folders(visible_scope(call.caller).owner)
        return json_response(FolderList(tuple(FolderInfo(*each) for each in found)))

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
        hits = [(each, await self._store.session(each.parent or each.session)) for each in found]
        shown = (
            FoundMessage(**structs.asdict(each), origin="" if row is None else describe_origin(row.address, row.person))
            for each, row in hits
            if row is None or not (row.unlisted and call.caller.browser)
        )
        return json_response(SearchResults(tuple(shown)))

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
        """Change the title, model, busy or permission mode, or effort of a conversation; pin, archive or file it."""
        body: SessionChanges = call.body
        if body.permission_mode == "all" and not call.caller.may("admin"):
            raise HttpProblem(403, "the mode `all` needs an admin key", code="scope")
        model = None if body.model is None else await self._admission.resolve_model(body.model)
        row = await self._find_session(call)
        await self._app.store.sessions.configure(
            row.id, title=body.title, model=model, busy=body.busy, effort=body.effort
        )
        if (body.pinned, body.archived, body.folder) != (None, None, None):
            order = {"pinned": body.pinned, "archived": body.archived}
            await self._app.store.sessions.organize(row.id, folder=body.folder, **order)
        if body.permission_mode is not None:
            await self._app.sessions.permissions.set_mode(row.address.key, row.id, body.permission_mode)
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

    @ApiEndpoint(
        "POST", "/v1/sessions/{id}/fork", "run", body=ForkBody, answer=SessionDocument, status=201, errors=(409,)
    )
    async def fork(self, call: ApiCall) -> Response:
        """Create a conversation that shares the finished turns of this one."""
        body: ForkBody = call.body
        row = await self._find_session(call)
        address = await self._new_address(call.caller, body.name)
        try:
            until = await self._transcripts.turn_of(row.id, body.message) if body.message else 0
        except SessionError as error:
            raise HttpProblem(404, str(error), code="no_message") from error
        return await self._created(await self._store.fork(row.id, address, body.title, until))

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

    @ApiEndpoint("GET", "/v1/sessions/{id}/export/html", "read", query=HtmlQuery)
    async def html(self, call: ApiCall) -> Response:
        """Export the conversation as one HTML page."""
        row = await self._find_session(call)
        text = to_html(await self._app.store.archive.export(row.id), shared=time.time() if call.query.shared else 0.0)
        headers = {**NO_STORE, "content-disposition": f'attachment; filename="{row.id}.html"'}
        return Response(text.encode("utf-8", "replace"), media_type="text/html", headers=headers)

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
