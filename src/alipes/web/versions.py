"""Endpoints for versions: take a message back, ask again, and show what was there before."""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.core.app import App
from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Steer, Stop
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response, no_content
from alipes.web.runs.lookup import RunLookup, RunPlace

RunId = Annotated[str, Meta(min_length=1, max_length=200)]


class VersionBody(Struct, frozen=True, forbid_unknown_fields=True):
    run: RunId


class UndoneRuns(Struct, frozen=True):
    runs: tuple[str, ...]
    """The runs that are no longer part of the conversation, the latest first."""


class RetriedRun(Struct, frozen=True):
    run: str
    """The run that answers again."""


class VersionEndpoints:
    def __init__(self, app: App, lookup: RunLookup) -> None:
        self._app, self._lookup = app, lookup
        self._sessions = app.store.sessions

    @ApiEndpoint("POST", "/v1/sessions/{id}/rewind", "run", body=VersionBody, answer=UndoneRuns, errors=(404, 409))
    async def rewind(self, call: ApiCall) -> Response:
        """Take a run and all after it out of the conversation. Files that they changed stay as they are."""
        key = (await self._place(call)).address.key
        count = await self._sessions.count_turns_since(key, call.body.run)
        if not count:
            raise HttpProblem(404, "this conversation has no such run, or it was undone", code="no_run")
        undone = await self._sessions.undo(key, count, all_or_none=True)
        for each in undone:
            if each.running:
                await self._app.sessions.stop(key, Stop("user_stop", "session_interrupt", each.turn))
        return json_response(UndoneRuns(tuple(each.turn for each in undone)))

    @ApiEndpoint("POST", "/v1/sessions/{id}/retry", "run", answer=RetriedRun, status=202, errors=(409,))
    async def retry(self, call: ApiCall) -> Response:
        """Ask the last message again. The answer before stays as a version."""
        key, sessions = (await self._place(call)).address.key, self._app.sessions
        retried = await self._sessions.retry(key)
        if retried is None:
            raise HttpProblem(409, "there is no message to ask again", code="no_run")
        if retried.undone.running:
            await sessions.post(key, Stop("user_stop", "session_interrupt", retried.undone.turn))
        await sessions.wake(key)
        for turn in retried.steered:
            await sessions.post(key, Steer(turn))
        return json_response(RetriedRun(retried.turn), 202)

    @ApiEndpoint("POST", "/v1/sessions/{id}/versions", "run", body=VersionBody, status=204, errors=(409,))
    async def show(self, call: ApiCall) -> Response:
        """Show a run that another one replaced, with all that followed it."""
        try:
            await self._sessions.show_version((await self._place(call)).address.key, call.body.run)
        except SessionError as error:
            raise HttpProblem(409, str(error), code="version") from error
        return no_content()

    async def _place(self, call: ApiCall) -> RunPlace:
        """The conversation in the path, if the caller may continue it."""
        return await self._lookup.place(call.caller, call.path["id"])
