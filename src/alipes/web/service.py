"""What `alipes serve` tells of itself: alive, ready, its figures; and where messengers bring messages."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from alipes.web.door import Doorway, Porter
from alipes.web.endpoints import Problem
from alipes.web.keys import Keys
from alipes.web.limits import Limits, body_of
from alipes.web.metrics import TEXT, page
from alipes.web.openapi import document
from alipes.web.problems import FRESH, refusal
from alipes.web.readiness import Readiness
from alipes.web.serving import Api, unserved
from alipes.web.tally import Depths, Tally

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
