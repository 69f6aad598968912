"""Endpoints for the checkpoints of a conversation: list, compare, go back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import PlainTextResponse, Response

from alipes.core.app import App
from alipes.features.checkpoints.checkpoints import ListedCheckpoint, NoCheckpoint
from alipes.features.checkpoints.commands import Part, find_checkpoints, roll_back
from alipes.features.checkpoints.feature import CheckpointsFeature
from alipes.features.checkpoints.git import CheckpointError
from alipes.features.server import Server
from alipes.kernel.turns import Inbound
from alipes.sessions.commands.context import CommandContext
from alipes.store.sql.api_runs import ApiSession
from alipes.web.endpoint import NO_STORE, ApiCall, ApiEndpoint, HttpProblem, endpoints_of, json_response
from alipes.web.runs.lookup import find_session


class DiffQuery(Struct, frozen=True):
    checkpoint: Annotated[int, Meta(ge=1)] = 1
    """Number of the checkpoint."""


class RollbackBody(Struct, frozen=True, forbid_unknown_fields=True):
    checkpoint: Annotated[int, Meta(ge=1)]
    """Number of the checkpoint."""
    restore: Part = "files"
    """`files`, `conversation` (its turn and all after it are undone) or `both`."""
    force: bool = False
    """Also restore files that were changed since by hand or by another conversation."""


class CheckpointDocument(Struct, frozen=True):
    number: int
    created: float
    run: str
    """The run before which it was made; empty for one that was made by a rollback."""
    text: str
    """The first words of its message."""
    files: tuple[str, ...]
    """Files that the run changed."""


class CheckpointList(Struct, frozen=True):
    checkpoints: tuple[CheckpointDocument, ...]
    """Latest first."""
    unavailable: str = ""
    """Why there are no checkpoints here."""


class RollbackDocument(Struct, frozen=True):
    restored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Files that are not part of the checkpoint and were left alone."""
    failed: tuple[str, ...] = ()
    undo: int = 0
    """The checkpoint of the state before; 0 if no file was changed."""
    undone_runs: int = 0


class CheckpointEndpoints:
    def __init__(self, app: App, *, workdir: str = "") -> None:
        """`workdir`: working directory of the agent's tools."""
        self._app, self._workdir = app, workdir
        self._store = app.store.api_runs

    @ApiEndpoint("GET", "/v1/sessions/{id}/checkpoints", "read", answer=CheckpointList)
    async def list(self, call: ApiCall) -> Response:
        """List the checkpoints of a conversation: states of the project before its runs changed files."""
        row, context = await self._find(call)
        try:
            found = await find_checkpoints(context).list_checkpoints(self._workdir)
        except CheckpointError as error:
            return json_response(CheckpointList((), str(error)))
        own = (each for each in found if each.checkpoint.record.session == row.id)
        return json_response(CheckpointList(tuple(map(_to_document, own))))

    @ApiEndpoint("GET", "/v1/sessions/{id}/checkpoints/diff", "read", query=DiffQuery, errors=(409,))
    async def diff(self, call: ApiCall) -> Response:
        """Get what has changed since a checkpoint, as a unified diff."""
        query: DiffQuery = call.query
        row, context = await self._find(call)
        with _translate_errors():
            await self._check_owner(context, row, query.checkpoint)
            text = await find_checkpoints(context).diff(self._workdir, query.checkpoint)
        return PlainTextResponse(text, media_type="text/x-diff", headers=NO_STORE)

    @ApiEndpoint(
        "POST", "/v1/sessions/{id}/rollback", "run", body=RollbackBody, answer=RollbackDocument, errors=(404, 409)
    )
    async def rollback(self, call: ApiCall) -> Response:
        """Go back to a checkpoint: files, conversation or both."""
        body: RollbackBody = call.body
        row, context = await self._find(call)
        with _translate_errors():
            await self._check_owner(context, row, body.checkpoint)
            done = await roll_back(context, body.checkpoint, body.restore, force=body.force)
        files = done.files
        if done.blocked and files is not None:
            names = ", ".join(files.plan.conflicts)
            raise HttpProblem(409, f"changed since, use force to restore anyway: {names}", code="conflict")
        if files is None:
            return json_response(RollbackDocument(undone_runs=done.undone))
        plan, acted = files.plan, bool(files.undo)
        document = RollbackDocument(
            restored=tuple(each.path for each in plan.write) if acted else (),
            removed=plan.remove if acted else (),
            kept=plan.kept,
            failed=files.failed,
            undo=files.undo,
            undone_runs=done.undone,
        )
        return json_response(document)

    async def _find(self, call: ApiCall) -> tuple[ApiSession, CommandContext]:
        row = await find_session(self._store, call.caller, call.path["id"])
        inbound = Inbound("", row.address, call.caller.name, "", workdir=self._workdir)
        return row, self._app.context(inbound, local_files=False)

    async def _check_owner(self, context: CommandContext, row: ApiSession, number: int) -> None:
        """Raises `HttpProblem` unless the checkpoint belongs to the active conversation."""
        active = await context.store.sessions.active(row.address.key)
        if active is None or active.session != row.id:
            raise HttpProblem(409, "this conversation is no longer active", code="session")
        found = await find_checkpoints(context).find(self._workdir, number)
        if found.record.session != row.id:
            raise NoCheckpoint(f"There is no checkpoint {number}.")


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        missing = isinstance(error, NoCheckpoint)
        code = "no_checkpoint" if missing else "checkpoint"
        raise HttpProblem(404 if missing else 409, str(error), code=code) from error


def _to_document(listed: ListedCheckpoint) -> CheckpointDocument:
    record = listed.checkpoint.record
    files = tuple(each.encode(errors="replace").decode() for each in listed.files)
    return CheckpointDocument(listed.checkpoint.number, record.time, record.turn, record.words, files)


def endpoints(feature: CheckpointsFeature, server: Server) -> Iterator[ApiEndpoint]:
    return endpoints_of(CheckpointEndpoints(feature.app, workdir=server.workdir))
