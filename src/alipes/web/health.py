"""What `alipes serve` tells of itself: alive, ready, its figures; and where messengers bring messages."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from alipes.kernel.errors import AlipesError, ProviderError, Refused, Transient
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.web.auth import Keys, Limits, body_of
from alipes.web.endpoint import FRESH, Problem, refusal
from alipes.web.metrics import TEXT, Depths, Tally, page
from alipes.web.openapi import document
from alipes.web.routing import Api, unserved
from alipes.web.server import Doorway, Porter

MODEL_CHECK_INTERVAL_S = 60.0
"""Seconds for which it counts that the model was reached, or not."""
WRITTEN = 5.0
"""Seconds for which it counts that the store could be written: who asks often costs little."""
Probe = Callable[[], Awaitable[str]]
"""Looks whether something is there: empty, or why it is not."""


class Line(Struct, frozen=True):
    """How a platform stands."""

    name: str
    ready: bool
    why: str = ""


class Reach:
    """Whether the model was reachable lately: by what turns found out, else by a look at its server."""

    def __init__(self, probe: Probe, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._probe, self._clock = probe, clock
        self._known, self._why, self._stays = -MODEL_CHECK_INTERVAL_S, "", False

    def listen(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_answered)
        hooks.add(CORE, self.request_failed)

    async def request_answered(self) -> None:
        self._learn("")

    async def request_failed(self, error: ProviderError, again: bool) -> None:
        if again or isinstance(error, Refused):
            return  # a refusal is an answer
        # A wrong key or an empty purse is not mended by a server that can be connected to.
        self._learn(str(error), stays=not isinstance(error, Transient))

    async def trouble(self) -> str:
        if self._stays or self._clock() - self._known < MODEL_CHECK_INTERVAL_S:
            return self._why
        self._learn(await self._probe())
        return self._why

    def _learn(self, why: str, *, stays: bool = False) -> None:
        self._known, self._why, self._stays = self._clock(), why, stays


class Readiness:
    def __init__(
        self,
        *,
        lines: Callable[[], Iterable[Line]],
        write: Callable[[], Awaitable[None]],
        reach: Reach,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write`: puts something on the store's disk, and raises where that fails."""
        self.lines, self._write, self._reach, self._clock = lines, write, reach, clock
        self._written = -WRITTEN
        self.leaving = ""
        """Why nothing more is taken in; empty while we serve."""

    async def troubles(self) -> dict[str, str]:
        """What does not work, and why; empty when we can receive and answer."""
        found = {"serve": self.leaving} if self.leaving else {}
        found |= {line.name: line.why or "not ready" for line in self.lines() if not line.ready}
        if why := await self._store():
            found["store"] = why
        if why := await self._reach.trouble():
            found["model"] = why
        return found

    async def _store(self) -> str:
        if self._clock() - self._written < WRITTEN:
            return ""
        try:
            await self._write()
        except AlipesError as error:
            return str(error)
        self._written = self._clock()
        return ""


LARGEST = 2_000_000
"""Bytes that one message brought to us may have."""
Bring: TypeAlias = Callable[[Mapping[str, str], bytes], Awaitable[int]]
"""A messenger brought something: its headers, by small letters, and its body; the status it is told."""
BROUGHT = Limits(body=LARGEST)


class Service:
    """The routes. `depths` asks the store what waits; `messages` counts them by platform and fate."""

    def __init__(
        self,
        tally: Tally,
        readiness: Readiness,
        depths: Callable[[], Awaitable[Depths]],
        *,
        messages: Callable[[], Mapping[tuple[str, str], int]] = dict,
        webhooks: Mapping[str, Bring] | None = None,
    ) -> None:
        self._tally, self._readiness, self._depths, self._messages = tally, readiness, depths, messages
        self._webhooks = dict(webhooks or {})

    def app(
        self, doorway: Doorway, keys: Keys, api: Api | None = None, more: Sequence[Route] = ()
    ) -> ASGIApp:
        """`api`: what else can be asked, for who shows a key. `more`: routes that guard themselves."""
        told: dict[str, Callable[[Request], Awaitable[Response]]]
        told = {"/ready": self.ready, "/metrics": self.metrics}
        if api is not None:
            told["/openapi.json"] = _telling(document(api.endpoints))
        routes = [
            Route("/health", self.health),
            *(Route(path, tell) for path, tell in told.items()),
            *(Route(path, self._bringing(bring), methods=["POST"]) for path, bring in self._webhooks.items()),
            *(api.routes() if api is not None else ()),
            *more,
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: unserved, Exception: unserved})
        return Porter(app, doorway, keys, guarded=told)

    async def health(self, _request: Request) -> Response:
        """The loop turns, or nobody would answer."""
        return JSONResponse({"status": "alive"}, headers=FRESH)

    async def ready(self, _request: Request) -> Response:
        troubles = await self._readiness.troubles()
        if not troubles:
            return JSONResponse({"status": "ready"}, headers=FRESH)
        return JSONResponse({"status": "not ready", "because": troubles}, 503, headers=FRESH)

    async def metrics(self, _request: Request) -> Response:
        self._tally.weigh(await self._depths(), self._messages())
        for line in self._readiness.lines():
            self._tally.up.set(line.ready, line.name)
        return PlainTextResponse(page(self._tally.metrics), media_type=TEXT, headers=FRESH)

    def _bringing(self, bring: Bring) -> Callable[[Request], Awaitable[Response]]:
        async def take(request: Request) -> Response:
            try:
                body = await body_of(request, BROUGHT)
            except Problem as problem:
                return refusal(problem)
            return Response(status_code=await bring(request.headers, body))

        return take


def _telling(document: bytes) -> Callable[[Request], Awaitable[Response]]:
    async def tell(_request: Request) -> Response:
        return Response(document, media_type="application/json", headers=FRESH)

    return tell
