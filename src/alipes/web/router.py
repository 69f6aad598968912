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

from alipes.kernel.lazy import lazy_pattern
from alipes.web.auth import (
    OPERATOR,
    Authenticator,
    KeyHolder,
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
from alipes.web.page.browsers import BrowserLogins
from alipes.web.rate_limit import RateLimiter

DISCONNECT_GRACE_S = 0.1
"""Seconds that clients have to disconnect by themselves at shutdown."""
_ALLOWED_AT_SHUTDOWN = ("/stop", "/approval", "/reply", "/inbox/{ask}")
"""Calls that help a run to end are accepted during shutdown."""
BROWSER_CHECK_INTERVAL_S = 10.0
"""How soon a stream to a browser ends after it was logged out."""
_FOR_PEOPLE = ("/approval", "/inbox/{ask}", "/commands")
"""Calls by which a person decides: processes of the agent may not make them, whichever key they have."""


class ApiRouter:
    """Routes of the API endpoints, with the requests that are open. `logins`: of browsers; without, only keys count."""

    def __init__(
        self,
        endpoints: Iterable[ApiEndpoint],
        keys: Authenticator,
        limits: RequestLimits,
        *,
        state: ServerState | None = None,
        logins: BrowserLogins | None = None,
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._keys, self._limits, self._state, self._logins = keys, limits, state or ServerState(), logins
        self.rate_limiter = RateLimiter("api")
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
        allowed = {*methods, "OPTIONS"}
        if "GET" in methods and not methods["GET"].streams:  # a HEAD request for a stream would never end
            allowed.add("HEAD")

        async def answer(request: Request) -> Response:
            if request.method == "OPTIONS":
                return Response(status_code=204, headers={"allow": ", ".join(sorted(allowed))})
            endpoint = methods["GET" if request.method == "HEAD" else request.method]
            return forbid_retry(request, await answer_errors(self._handle(endpoint, request), endpoint.error_format))

        route = Route(path, answer, methods=list(methods))
        route.methods = allowed
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
        if not endpoint.streams:
            return response
        return _CancellableStream(response, self.requests, caller.browser, self._logins)

    async def authorize(self, endpoint: ApiEndpoint, request: Request) -> Caller:
        """The caller of a request, within its rate limit. Raises `HttpProblem`."""
        known = await self._identify(request)
        caller = known.caller
        for_people = endpoint.scope == "admin" or endpoint.path.endswith(_FOR_PEOPLE)
        if caller.browser or caller.name == OPERATOR or for_people:
            await self._keys.refuse_own_child(request.scope, agents=bool(caller.browser))
        if not endpoint.allows(caller):
            what = "this browser may only read: run `alipes page` for a link that may change things"
            why = what if caller.browser else f"this key lacks the scope {endpoint.scope}"
            raise HttpProblem(403, why, code="scope")
        rate = self._limits.rate if known.rate is None else known.rate
        self.rate_limiter.check(caller.browser or caller.name, rate)
        starts_work = endpoint.method == "POST" and endpoint.scope != "read"
        if starts_work and (why := self._state.shutdown_reason) and not endpoint.path.endswith(_ALLOWED_AT_SHUTDOWN):
            raise _shutdown_problem(why)
        return caller

    async def _identify(self, request: Request) -> KeyHolder:
        """The browser or the holder of the key that sent the request. Raises `HttpProblem`."""
        header = request.headers.get("authorization", "")
        if not header and self._logins is not None and self._logins.is_browser(request):
            return await self._logins.authenticate(request)
        known = await self._keys.authenticate(header, peer_address(request.client))
        if known is None:
            raise unauthorized_problem()
        return known


class OpenRequests:
    """All requests that wait for a response, so that shutdown can cancel them."""

    def __init__(self) -> None:
        self.closed = False
        self.waiting: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def open(self, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
        """Raises `TimeoutError` after `seconds`, or on `cancel_all`."""
        async with asyncio.timeout(0 if self.closed else seconds) as limit:
            self.waiting.add(limit)
            try:
                yield limit
            finally:
                self.waiting.discard(limit)

    def cancel_all(self) -> None:
        self.closed = True
        for limit in self.waiting:
            if not limit.expired():  # it ends by itself
                limit.reschedule(0)


class _CancellableStream(Response):
    """A stream that shutdown can cut off, and the logout of its browser. It then lacks its end, so no client takes it
    for complete."""

    def __init__(self, response: Response, lines: OpenRequests, browser: str, logins: BrowserLogins | None) -> None:
        self._response, self._requests, self._browser, self._logins = response, lines, browser, logins
        self.status_code, self.raw_headers = response.status_code, response.raw_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._requests.open(None) as limit:
                if not self._browser or self._logins is None:
                    return await self._response(scope, receive, send)
                async with asyncio.TaskGroup() as group:
                    watch = group.create_task(self._watch_login(self._logins, limit))
                    await self._response(scope, receive, send)
                    watch.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        except TimeoutError:
            if not limit.expired():
                raise

    async def _watch_login(self, logins: BrowserLogins, limit: asyncio.Timeout) -> None:
        while await logins.browsers.exists(self._browser):  # noqa: ASYNC110 - another process may have logged it out
            await asyncio.sleep(BROWSER_CHECK_INTERVAL_S)
        limit.reschedule(0)


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
        code, param = _explain_invalid(str(error)) if endpoint.error_format == "openai" else ("body", "")
        raise HttpProblem(status, f"invalid request body: {error}", code=code, param=param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(400, f"the request body is not valid JSON: {error}", code="json") from error


_PLACE = lazy_pattern(r" - at `\$\.?([^`]*)`$")
_MISSING = lazy_pattern(r"missing required field `([^`]+)`")


def _explain_invalid(text: str) -> tuple[str, str]:
    """The code and the field that OpenAI names for a wrong body, from the message of the decoder."""
    found = _PLACE.search(text)
    place = found[1] if found else ""
    if missing := _MISSING.search(text):
        return "missing_required_parameter", f"{place}.{missing[1]}".lstrip(".")
    return ("invalid_type" if text.startswith("Expected `") and ", got `" in text else "invalid_value"), place


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
