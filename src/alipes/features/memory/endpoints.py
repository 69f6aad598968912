"""Endpoints for the memory: the notes of the owner and of others, their changes, rewriting and undoing."""

from collections.abc import Iterator
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.features.memory.change import OWNER, MemoryAuthor, MemoryChange, MemoryOrigin, MemoryTarget
from alipes.features.memory.entries import format_diff, parse_entries
from alipes.features.memory.feature import MemoryFeature
from alipes.features.memory.files import FILE_NAMES
from alipes.features.memory.memory import MAX_HISTORY, MemoryConflict, describe_change
from alipes.features.server import Server
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import hash_text
from alipes.web.control import refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, endpoints_of, json_response

PersonScope: TypeAlias = Annotated[
    str, Meta(max_length=1000, description="Whose notes: empty for the owner's, or `scope` of one of `people`.")
]


class MemoryQuery(Struct, frozen=True):
    person: PersonScope = ""


class ChangesQuery(Struct, frozen=True):
    person: PersonScope = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = MAX_HISTORY


class NotesDocument(Struct, frozen=True):
    """One file of notes."""

    target: MemoryTarget
    file: str
    text: str
    entries: tuple[str, ...]
    used: int
    limit: int
    base: str
    """Give it with a change, so that a change made meanwhile is not overwritten."""


class MemoryPerson(Struct, frozen=True):
    """Somebody, or a group, with notes of their own."""

    scope: str
    label: str


class MemoryDocument(Struct, frozen=True):
    targets: tuple[NotesDocument, ...]
    people: tuple[MemoryPerson, ...]
    pending: int
    """Proposed notes that wait for a decision."""
    enabled: bool


class MemoryChanges(Struct, frozen=True, forbid_unknown_fields=True):
    target: MemoryTarget
    text: Annotated[str, Meta(max_length=256_000)]
    """The whole new text."""
    base: Annotated[str, Meta(max_length=100)]
    """`base` of the text that was edited."""
    person: PersonScope = ""


class MemoryVersion(Struct, frozen=True, omit_defaults=True):
    number: int
    target: MemoryTarget
    created: float
    what: str
    """The change in words."""
    author: MemoryAuthor
    diff: str
    session: str = ""
    run: str = ""
    sources: tuple[str, ...] = ()
    """Text of strangers that had been read, if no person confirmed the change."""
    undone_by: int | None = None


class MemoryVersions(Struct, frozen=True):
    versions: tuple[MemoryVersion, ...]
    """Latest first."""


class UndoBody(Struct, frozen=True, forbid_unknown_fields=True):
    version: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """0: the last change that was not undone."""
    person: PersonScope = ""


class MemoryEndpoints:
    def __init__(self, feature: MemoryFeature) -> None:
        self._app, self._service, self._memory = feature.app, feature.service, feature.service.memory

    @ApiEndpoint(
        "GET", "/v1/memory", "admin", readable=True, query=MemoryQuery, answer=MemoryDocument, errors=(404, 409)
    )
    async def look(self, call: ApiCall) -> Response:
        """Get the notes that are kept from one conversation to the next."""
        query: MemoryQuery = call.query
        people = await self._list_people()
        self._check_scope(query.person, people)
        with refuse_invalid(409):
            targets = [await self._read(query.person, target) for target in FILE_NAMES]
        pending = await self._service.proposals.list_pending(query.person, "memory")
        enabled = not self._service.why_unavailable()
        return json_response(MemoryDocument(tuple(targets), people, len(pending), enabled))

    @ApiEndpoint("PATCH", "/v1/memory", "admin", body=MemoryChanges, answer=NotesDocument, errors=(404, 409))
    async def change(self, call: ApiCall) -> Response:
        """Replace the text of a file of notes. New conversations see the change."""
        body: MemoryChanges = call.body
        self._check_scope(body.person, await self._list_people())
        try:
            await self._memory.rewrite(
                body.person, body.target, body.text, base=body.base, origin=MemoryOrigin("person")
            )
        except MemoryConflict as error:
            raise HttpProblem(409, str(error), code="changed") from error
        except ToolError as error:
            raise HttpProblem(422, str(error), code="invalid") from error
        return json_response(await self._read(body.person, body.target))

    @ApiEndpoint(
        "GET",
        "/v1/memory/versions",
        "admin",
        readable=True,
        query=ChangesQuery,
        answer=MemoryVersions,
        errors=(404, 409),
    )
    async def versions(self, call: ApiCall) -> Response:
        """List the changes of the notes with their diffs, latest first."""
        query: ChangesQuery = call.query
        self._check_scope(query.person, await self._list_people())
        with refuse_invalid(409):
            changes = await self._memory.history(query.person, query.limit)
        return json_response(MemoryVersions(tuple(map(self._version, changes))))

    @ApiEndpoint("POST", "/v1/memory/undo", "admin", body=UndoBody, answer=MemoryVersion, errors=(404, 409))
    async def undo(self, call: ApiCall) -> Response:
        """Take back a change of the notes."""
        body: UndoBody = call.body
        self._check_scope(body.person, await self._list_people())
        with refuse_invalid(409):
            return json_response(
                self._version(await self._memory.undo(body.person, body.version, MemoryOrigin("person")))
            )

    async def _read(self, scope: str, target: MemoryTarget) -> NotesDocument:
        text = await self._memory.read(scope, target)
        shown = self._app.secrets(text)
        entries = tuple(entry.text for entry in parse_entries(shown))
        file = str(self._memory.files.path(scope, target))
        return NotesDocument(target, file, shown, entries, len(text), self._memory.limit(target), hash_text(text))

    async def _list_people(self) -> tuple[MemoryPerson, ...]:
        names = {(each.platform, each.person): each.name for each in await self._app.store.people.all()}
        found = []
        for scope in await self._memory.list_scopes():
            if scope != OWNER:
                kind, platform, id = (*scope.split("/", 2), "", "")[:3]
                name = f"group {id}" if kind == "chats" else names.get((platform, id)) or id
                found.append(MemoryPerson(scope, f"{name} ({platform})"))
        return tuple(found)

    def _check_scope(self, scope: str, people: tuple[MemoryPerson, ...]) -> None:
        if scope != OWNER and scope not in (each.scope for each in people):
            raise HttpProblem(404, f"there are no notes of {scope!r}: use a scope that is listed", code="no_person")

    def _version(self, change: MemoryChange) -> MemoryVersion:
        mask, origin = self._app.secrets, change.origin
        return MemoryVersion(
            change.number,
            change.target,
            change.created,
            mask(describe_change(change)),
            origin.author,
            mask(format_diff(change.before, change.after, FILE_NAMES[change.target])),
            session=origin.session,
            run=origin.turn,
            sources=origin.sources,
            undone_by=change.undone_by,
        )


def endpoints(feature: MemoryFeature, _server: Server) -> Iterator[ApiEndpoint]:
    return endpoints_of(MemoryEndpoints(feature))
