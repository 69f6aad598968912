"""Endpoints for the server itself: what it is, the checks of doctor, and restarting it."""

import asyncio
import time

from msgspec import Struct
from starlette.responses import Response

from alipes import __version__
from alipes.core.app import App
from alipes.kernel.errors import AlipesError
from alipes.web.control import DoctorCheck, ServerControl, refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response


class ServerDocument(Struct, frozen=True):
    version: str
    profile: str
    started: float
    address: str
    model: str
    """The default model; empty if there is none that can be used."""
    problem: str
    """Why there is none."""
    platforms: tuple[str, ...]
    """Messengers that are set up."""
    home: str
    workdir: str
    clustered: bool
    """True if the store is PostgreSQL, which several workers may serve."""


class DoctorBody(Struct, frozen=True, forbid_unknown_fields=True):
    live: bool = False
    """Also ask the model, which costs a few tokens."""


class DoctorDocument(Struct, frozen=True):
    checks: tuple[DoctorCheck, ...]
    seconds: float


class RestartDocument(Struct, frozen=True):
    restarting: bool
    done: str


class ServerEndpoints:
    def __init__(self, app: App, control: ServerControl) -> None:
        self._app, self._control, self._checking = app, control, asyncio.Lock()

    @ApiEndpoint("GET", "/v1/server", "admin", readable=True, answer=ServerDocument)
    async def look(self, _call: ApiCall) -> Response:
        """Get the version, profile, address and default model of the server."""
        app, control, model, problem = self._app, self._control, "", ""
        try:
            model = (await app.models.default()).model
        except AlipesError as error:
            problem = app.secrets(str(error))
        platforms = tuple(each.name for each in control.platforms() if each.configured)
        return json_response(
            ServerDocument(
                __version__,
                app.settings.profile,
                control.started,
                control.address,
                model,
                problem,
                platforms,
                str(app.settings.home),
                app.workdir,
                app.store.clustered,
            )
        )

    @ApiEndpoint("POST", "/v1/doctor", "admin", body=DoctorBody, answer=DoctorDocument, errors=(409,))
    async def doctor(self, call: ApiCall) -> Response:
        """Check the machine, the store, the model and the plugins, without changing anything."""
        body: DoctorBody = call.body
        if self._checking.locked():
            raise HttpProblem(409, "the checks are running already: try again in a moment", code="running")
        async with self._checking:
            started = time.monotonic()
            with refuse_invalid(409, "doctor"):
                checks = await self._control.check(live=body.live)
        return json_response(DoctorDocument(tuple(checks), round(time.monotonic() - started, 2)))

    @ApiEndpoint("POST", "/v1/server/restart", "admin", answer=RestartDocument, status=202, errors=(409,))
    async def restart(self, _call: ApiCall) -> Response:
        """Restart the server once running turns have reached a safe point; they are resumed."""
        with refuse_invalid(409, "config"):
            await asyncio.to_thread(self._control.check_settings)
        self._control.restart()
        return json_response(RestartDocument(True, "Restarting. Running tasks will resume in a moment."), 202)
