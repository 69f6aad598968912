"""Routes for API endpoints: authenticates, applies rate limits, decodes requests, cancels on shutdown."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from alipes.web.auth import (
    OPERATOR,
    Authenticator,
    RateLimiter,
    RequestLimits,
    peer_address,
    read_body,
    unauthorized_problem,
)
from alipes.web.endpoint import (
    ApiCall,
    ApiEndpoint,
    Caller,
    HttpProblem,
    ServerState,
    answer_errors,
    error_format_at,
    forbid_retry,
    problem_response,
)

DISCONNECT_GRACE_S = 0.1
"""Seconds that clients have to disconnect by themselves at shutdown."""
_ALLOWED_AT_SHUTDOWN = ("/stop", "/approval", "/reply", "/inbox/{ask}")
"""Calls that help a run to end are accepted during shutdown."""
_FOR_PEOPLE = ("/approval", "/inbox/{ask}", "/commands")
"""Calls by which a person decides: processes of the agent may not make them, whichever key they have."""


class ApiRouter:
    """Routes of the API endpoints, with the requests that are open."""

    def __init__(
        self,
        endpoints: Iterable[ApiEndpoint],
        keys: Authenticator,
        limits: RequestLimits,
        *,
        state: ServerState | None = None,
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._keys, self._limits, self._state = keys, limits, state or ServerState()
        self._rate_limiter = RateLimiter()
        self.requests = OpenRequests()

    async def disconnect_all(self) -> None:
        """Cancel all open requests, after a short grace period for clients that disconnect by themselves."""
        if self.requests.waiting:
            await asyncio.sleep(DISCONNECT_GRACE_S)
        self.requests.cancel_all()

    def routes(self) -> list[Route]:
        """One route per path, so that a wrong method gets the list of allowed ones."""
        paths: dict[str, dict[str, ApiEndpoint]] = {}
        for each in self.endpoints:
            paths.setdefault(each.path, {})[each.method] = each
        # Literal paths before paths with parameters.
        return [self._route(path, paths[path]) for path in sorted(paths, key=lambda path: path.count("{"))]

    def _route(self, path: str, methods: dict[str, ApiEndpoint]) -> Route:
        async def answer(request: Request) -> Response:
            endpoint = methods[request.method]
            return forbid_retry(request, await answer_errors(self._handle(endpoint, request), endpoint.error_format))

        route = Route(path, answer, methods=list(methods))
        route.methods = set(methods)  # without HEAD: a HEAD request for a stream would never end
        return route

    async def _handle(self, endpoint: ApiEndpoint, request: Request) -> Response:
        caller = await self.authorize(endpoint, request)
        query = _parse_query(endpoint.query, request)
        body = None
        if endpoint.body is not None:
            body = _decode_body(endpoint, request, await read_body(request, self._limits))
        try:
            async with self.requests.open(self._limits.wait):
                response = await endpoint.handle(ApiCall(request, caller, body, query))
        except TimeoutError as error:
            if self.requests.closed:
                raise _shutdown_problem("alipes has shut down") from error
            raise HttpProblem(504, f"no response after {self._limits.wait:g} s (api.wait)", code="timeout") from error
        return _CancellableStream(response, self.requests) if endpoint.streams else response

    async def authorize(self, endpoint: ApiEndpoint, request: Request) -> Caller:
        """The caller of a request, within its rate limit. Raises `HttpProblem`."""
        known = await self._keys.authenticate(request.headers.get("authorization", ""), peer_address(request.client))
        if known is None:
            raise unauthorized_problem()
        caller = known.caller
        if caller.name == OPERATOR or endpoint.scope == "admin" or endpoint.path.endswith(_FOR_PEOPLE):
            await self._keys.refuse_own_child(request.scope)
        if not endpoint.allows(caller):
            raise HttpProblem(403, f"this key lacks the scope {endpoint.scope}", code="scope")
        self._rate_limiter.check(caller.name, self._limits.rate if known.rate is None else known.rate)
        starts_work = endpoint.method == "POST" and endpoint.scope != "read"
        if starts_work and (why := self._state.shutdown_reason) and not endpoint.path.endswith(_ALLOWED_AT_SHUTDOWN):
            raise _shutdown_problem(why)
        return caller


class OpenRequests:
    """All requests that wait for a response, so that shutdown can cancel them."""

    def __init__(self) -> None:
        self.closed = False
        self.waiting: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def open(self, seconds: float | None) -> AsyncIterator[None]:
        """Raises `TimeoutError` after `seconds`, or on `cancel_all`."""
        async with asyncio.timeout(0 if self.closed else seconds) as limit:
            self.waiting.add(limit)
            try:
                yield
            finally:
                self.waiting.discard(limit)

    def cancel_all(self) -> None:
        self.closed = True
        for limit in self.waiting:
            if not limit.expired():  # it ends by itself
                limit.reschedule(0)


class _CancellableStream(Response):
    """A stream that shutdown can cut off. It then lacks its end, so no client takes it for complete."""

    def __init__(self, response: Response, lines: OpenRequests) -> None:
        self._response, self._requests = response, lines
        self.status_code, self.raw_headers = response.status_code, response.raw_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._requests.open(None):
                await self._response(scope, receive, send)
        except TimeoutError:
            if not self._requests.closed:
                raise


def _shutdown_problem(why: str) -> HttpProblem:
    return HttpProblem(503, f"{why}; try again", code="leaving", headers={"retry-after": "5"})


def _parse_query(kind: type | None, request: Request) -> Any:
    """The query string as the endpoint's `query` type."""
    if kind is None:
        return None
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    values = {name: value for name, value in request.query_params.items() if name in names}
    try:
        return msgspec.convert(values, kind, strict=False)
    except (msgspec.ValidationError, OverflowError) as error:
        raise HttpProblem(422, f"invalid query: {error}", code="query") from error


def _decode_body(endpoint: ApiEndpoint, request: Request, body: bytes) -> Any:
    status = 400 if endpoint.error_format == "openai" else 422
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and media != "application/json" and not media.endswith("+json"):
        raise HttpProblem(415, "the request body must be JSON (Content-Type: application/json)", code="media_type")
    try:
        return msgspec.json.decode(body or b"{}", type=endpoint.body)
    except msgspec.ValidationError as error:
        raise HttpProblem(status, f"invalid request body: {error}", code="body") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(400, f"the request body is not valid JSON: {error}", code="json") from error


async def handle_error(request: Request, error: Exception) -> Response:
    """Exception handler for Starlette: errors that no route has handled."""
    match error:
        case HTTPException(status_code=404):
            problem = HttpProblem(404, "not found", code="not_found")
        case HTTPException(status_code=405):
            methods = (error.headers or {}).get("Allow", "")
            detail = f"method not allowed; this path supports {methods}" if methods else "method not allowed"
            problem = HttpProblem(405, detail, code="method", headers={"allow": methods})
        case HTTPException():
            problem = HttpProblem(error.status_code, error.detail, headers=error.headers)
        case _:
            problem = HttpProblem(500, "internal error; see the log", code="internal")
    return forbid_retry(request, problem_response(problem, error_format_at(request.url.path)))
