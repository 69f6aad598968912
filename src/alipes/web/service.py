"""What `alipes serve` tells of itself: alive, ready, its figures; and where messengers bring messages."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from alipes.web.door import Porter
from alipes.web.metrics import TEXT, page
from alipes.web.readiness import Readiness
from alipes.web.tally import Depths, Tally

LARGEST = 2_000_000
"""Bytes that one message brought to us may have."""
Bring: TypeAlias = Callable[[Mapping[str, str], bytes], Awaitable[int]]
"""A messenger brought something: its headers, by small letters, and its body; the status it is told."""
_FRESH = {"cache-control": "no-store"}


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

    def app(self, host: str, key: str = "") -> ASGIApp:
        """`host`: where it listens, which decides whether callers need the `key`."""
        routes = [
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            *(Route(path, self._bringing(bring), methods=["POST"]) for path, bring in self._webhooks.items()),
        ]
        return Porter(Starlette(routes=routes), host=host, key=key, open_paths=tuple(self._webhooks))

    async def health(self, _request: Request) -> Response:
        """The loop turns, or nobody would answer."""
        return JSONResponse({"status": "alive"}, headers=_FRESH)

    async def ready(self, _request: Request) -> Response:
        troubles = await self._readiness.troubles()
        if not troubles:
            return JSONResponse({"status": "ready"}, headers=_FRESH)
        return JSONResponse({"status": "not ready", "because": troubles}, 503, headers=_FRESH)

    async def metrics(self, _request: Request) -> Response:
        self._tally.weigh(await self._depths(), self._messages())
        for line in self._readiness.lines():
            self._tally.up.set(line.ready, line.name)
        return PlainTextResponse(page(self._tally.metrics), media_type=TEXT, headers=_FRESH)

    def _bringing(self, bring: Bring) -> Callable[[Request], Awaitable[Response]]:
        async def take(request: Request) -> Response:
            body = b""
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST:
                    return Response(status_code=413)
            return Response(status_code=await bring(request.headers, body))

        return take
