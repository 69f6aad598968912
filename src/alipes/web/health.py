"""Health, readiness and metrics routes of `alipes serve`, and the routes of platform webhooks."""

import asyncio
import logging
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
from alipes.runtime.http.egress import EgressCounts
from alipes.store.ports.cluster import ClusterView
from alipes.web.auth import Authenticator, RequestLimits, WrongKeyDelay, read_body
from alipes.web.endpoint import NO_STORE, HttpProblem, ServerState, problem_response
from alipes.web.metrics import CONTENT_TYPE, ClusterMetrics, QueueDepths, ServerMetrics, render_metrics
from alipes.web.openapi import openapi_document
from alipes.web.router import ApiRouter, handle_error
from alipes.web.server import HostPolicy, HostPolicyMiddleware

log = logging.getLogger(__name__)
MODEL_CHECK_INTERVAL_S = 60.0
"""Seconds for which the last result of a model check is used."""
STORE_CHECK_INTERVAL_S = 5.0
"""Seconds for which a successful store check is used, so that frequent requests stay cheap."""
STORE_TIMEOUT_S = 3.0
"""Seconds in which the store must answer: writes to a server that is away wait for it."""
Probe = Callable[[], Awaitable[str]]
"""Checks something; returns why it failed, or an empty string."""


class PlatformHealth(Struct, frozen=True):
    """Whether a platform is ready, and why not."""

    name: str
    ready: bool
    why: str = ""


class ModelHealth:
    """Whether the model can be reached, from recent requests or by connecting to its server."""

    def __init__(self, probe: Probe, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._probe, self._clock = probe, clock
        self._checked_at, self._problem, self._permanent = -MODEL_CHECK_INTERVAL_S, "", False

    def register(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_answered)
        hooks.add(CORE, self.request_failed)

    async def request_answered(self) -> None:
        self._update("")

    async def request_failed(self, error: ProviderError, again: bool) -> None:
        if again or isinstance(error, Refused):
            return  # a refusal is an answer
        # Connecting to the server says nothing about a wrong key or missing credit.
        self._update(str(error), stays=not isinstance(error, Transient))

    async def find_problem(self) -> str:
        if self._permanent or self._clock() - self._checked_at < MODEL_CHECK_INTERVAL_S:
            return self._problem
        self._update(await self._probe())
        return self._problem

    def _update(self, why: str, *, stays: bool = False) -> None:
        self._checked_at, self._problem, self._permanent = self._clock(), why, stays


class Readiness:
    def __init__(
        self,
        *,
        platforms: Callable[[], Iterable[PlatformHealth]],
        write: Callable[[], Awaitable[None]],
        model: ModelHealth,
        state: ServerState | None = None,
        cluster: ClusterView | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write` writes something to the store's disk and raises on failure."""
        self.cluster = cluster
        self.platforms, self._write, self._model, self._clock = platforms, write, model, clock
        self.state = state or ServerState()
        self._store_checked_at = -STORE_CHECK_INTERVAL_S

    async def find_problems(self) -> dict[str, str]:
        """What does not work and why, by name; empty if we can receive and answer."""
        found = {"serve": self.state.shutdown_reason} if self.state.shutdown_reason else {}
        found |= {each.name: each.why or "not ready" for each in self.platforms() if not each.ready}
        if why := await self._store():
            found["store"] = why
        if why := await self._model.find_problem():
            found["model"] = why
        return found

    async def _store(self) -> str:
        if self._clock() - self._store_checked_at < STORE_CHECK_INTERVAL_S:
            return ""
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await self._write()
        except AlipesError as error:
            return str(error)
        except TimeoutError:
            return f"the store did not answer within {STORE_TIMEOUT_S:.0f} s"
        self._store_checked_at = self._clock()
        return ""


MAX_PLATFORM_BODY_BYTES = 2_000_000
"""Maximum size of a message that a platform delivers by webhook, in bytes."""
ReceiveWebhook: TypeAlias = Callable[[Mapping[str, str], bytes], Awaitable[int]]
"""Handles a platform's webhook call, given its headers (lower case) and body; returns the response status."""
PLATFORM_WEBHOOK_LIMITS = RequestLimits(body=MAX_PLATFORM_BODY_BYTES)


class ServiceRoutes:
    """The routes. `depths` reads queue sizes from the store, `messages` counts by platform and result."""

    def __init__(
        self,
        server_metrics: ServerMetrics,
        readiness: Readiness,
        depths: Callable[[], Awaitable[QueueDepths]],
        *,
        messages: Callable[[], Mapping[tuple[str, str], int]] = dict,
        webhooks: Mapping[str, ReceiveWebhook] | None = None,
        egress: EgressCounts | None = None,
    ) -> None:
        self._metrics, self._readiness, self._egress = server_metrics, readiness, egress or EgressCounts()
        self._depths, self._messages, self._cluster = depths, messages, ClusterMetrics()
        self._webhooks = dict(webhooks or {})
        self._wrong_keys = WrongKeyDelay()

    def app(
        self, policy: HostPolicy, keys: Authenticator, api: ApiRouter | None = None, more: Sequence[Route] = ()
    ) -> ASGIApp:
        """The whole ASGI app. `api`: routes that need a key; `more`: routes that check access themselves."""
        self._wrong_keys = keys.delay
        guarded: dict[str, Callable[[Request], Awaitable[Response]]]
        guarded = {"/ready": self.ready, "/metrics": self.metrics}
        if api is not None:
            document = openapi_document(api.endpoints)

            async def show_document(_request: Request) -> Response:
                return Response(document, media_type="application/json", headers=NO_STORE)

            guarded["/openapi.json"] = show_document
        routes = [
            Route("/health", self.health),
            *(Route(path, handler) for path, handler in guarded.items()),
            *(Route(path, self._webhook_handler(bring), methods=["POST"]) for path, bring in self._webhooks.items()),
            *(api.routes() if api is not None else ()),
            *more,
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: handle_error, Exception: handle_error})
        return HostPolicyMiddleware(app, policy, keys, guarded=guarded)

    async def health(self, _request: Request) -> Response:
        """Answers as long as the event loop runs."""
        return JSONResponse({"status": "alive"}, headers=NO_STORE)

    async def ready(self, _request: Request) -> Response:
        troubles = await self._readiness.find_problems()
        name = self._readiness.state.profile
        facts: dict[str, object] = {"profile": name} if name else {}
        if (cluster := self._readiness.cluster) is not None:
            facts |= {"store": "postgresql", "worker": cluster.worker, "roles": sorted(cluster.roles)}
        if not troubles:
            return JSONResponse({"status": "ready", **facts}, headers=NO_STORE)
        return JSONResponse({"status": "not ready", **facts, "because": troubles}, 503, headers=NO_STORE)

    async def metrics(self, _request: Request) -> Response:
        cluster = self._readiness.cluster
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S if cluster is not None else None):
                self._metrics.update_gauges(await self._depths(), self._messages())
                if cluster is not None:
                    self._cluster.update(await cluster.status(), cluster, full=await cluster.is_full())
        except TimeoutError:
            log.warning("the store did not answer in time: its metrics are those of the last time")
        self._metrics.wrong_keys.set(self._wrong_keys.total)
        self._metrics.update_egress(self._egress)
        for platform in self._readiness.platforms():
            self._metrics.up.set(platform.ready, platform.name)
        shown = (*self._metrics.metrics, *(self._cluster.metrics if cluster is not None else ()))
        return PlainTextResponse(render_metrics(shown), media_type=CONTENT_TYPE, headers=NO_STORE)

    def _webhook_handler(self, bring: ReceiveWebhook) -> Callable[[Request], Awaitable[Response]]:
        async def take(request: Request) -> Response:
            try:
                body = await read_body(request, PLATFORM_WEBHOOK_LIMITS)
            except HttpProblem as problem:
                return problem_response(problem)
            return Response(status_code=await bring(request.headers, body))

        return take
