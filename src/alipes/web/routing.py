"""Endpoints as routes: who asks, how often, and is it of the right form. What they do, it does not know."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from alipes.kernel.errors import AlipesError
from alipes.web.auth import Keys, Limits, Pace, body_of, nobody
from alipes.web.endpoint import Call, Caller, Endpoint, Problem, ours, refusal, shape_at

GOODBYE = 0.1
"""Seconds for who goes by themselves."""
_PASSING = ("/stop", "/approval", "/reply")
"""What helps a run to its end is also taken in while we leave."""


class Api:
    """`leaving`: why nothing more is taken in; empty while we serve."""

    def __init__(
        self, endpoints: Iterable[Endpoint], keys: Keys, limits: Limits, *, leaving: Callable[[], str] = str
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._keys, self._limits, self._leaving = keys, limits, leaving
        self._pace = Pace()
        self._lines = Lines()

    async def hang_up(self) -> None:
        """Let everyone go who still waits, once those have gone by themselves who were told that we leave."""
        if self._lines.some:
            await asyncio.sleep(GOODBYE)
        self._lines.cut()

    def routes(self) -> list[Route]:
        """One for each path, so that whoever uses a wrong method is told all that there are."""
        paths: dict[str, dict[str, Endpoint]] = {}
        for each in self.endpoints:
            paths.setdefault(each.path, {})[each.method] = each
        # What is spelt out goes before what has names in it.
        return [self._route(path, paths[path]) for path in sorted(paths, key=lambda path: path.count("{"))]

    def _route(self, path: str, methods: dict[str, Endpoint]) -> Route:
        async def answer(request: Request) -> Response:
            endpoint = methods[request.method]
            try:
                return await self._answer(endpoint, request)
            except Problem as problem:
                return refusal(problem, endpoint.shape)
            except AlipesError as error:
                return refusal(ours(error), endpoint.shape)

        route = Route(path, answer, methods=list(methods))
        route.methods = set(methods)  # without HEAD, whose answer to a stream would never end
        return route

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        caller = await self._admitted(endpoint, request)
        query = _asked(endpoint.query, request)
        body = None
        if endpoint.body is not None:
            body = _decoded(endpoint, request, await body_of(request, self._limits))
        try:
            async with self._lines.open(self._limits.wait):
                response = await endpoint.handle(Call(request, caller, body, query))
        except TimeoutError as late:
            if self._lines.over:
                raise _leaving("it has left") from late
            raise Problem(
                504, f"there is no answer after {self._limits.wait:g} s (api.wait)", code="timeout"
            ) from late
        return _Held(response, self._lines) if endpoint.streams else response

    async def _admitted(self, endpoint: Endpoint, request: Request) -> Caller:
        known = await self._keys.who(request.headers.get("authorization", ""))
        if known is None:
            raise nobody()
        caller = known.caller
        if not caller.may(endpoint.scope):
            raise Problem(403, f"this key may not: the scope {endpoint.scope} is needed", code="scope")
        self._pace.spend(caller.name, self._limits.rate if known.rate is None else known.rate)
        if (why := self._leaving()) and _begins_something(endpoint):
            raise _leaving(why)
        return caller


class Lines:
    """Everyone who waits for an answer, until they are let go."""

    def __init__(self) -> None:
        self.over = False
        self._open: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def open(self, seconds: float | None) -> AsyncIterator[None]:
        """`TimeoutError` after so many seconds, or when it is cut."""
        async with asyncio.timeout(0 if self.over else seconds) as limit:
            self._open.add(limit)
            try:
                yield
            finally:
                self._open.discard(limit)

    @property
    def some(self) -> bool:
        return bool(self._open)

    def cut(self) -> None:
        self.over = True
        for limit in self._open:
            if not limit.expired():  # such a one ends by itself
                limit.reschedule(0)


class _Held(Response):
    """A stream that may be cut: without its end, so that nobody takes it for whole."""

    def __init__(self, response: Response, lines: Lines) -> None:
        self._response, self._lines = response, lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._lines.open(None):
                await self._response(scope, receive, send)
        except TimeoutError:
            if not self._lines.over:
                raise


def _leaving(why: str) -> Problem:
    return Problem(503, f"{why}; ask again", code="leaving", headers={"retry-after": "5"})


def _begins_something(endpoint: Endpoint) -> bool:
    return endpoint.method == "POST" and endpoint.scope != "read" and not endpoint.path.endswith(_PASSING)


def _asked(kind: type | None, request: Request) -> Any:
    """What stands in the query, as the endpoint wants it."""
    if kind is None:
        return None
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    given = {name: value for name, value in request.query_params.items() if name in names}
    try:
        return msgspec.convert(given, kind, strict=False)
    except (msgspec.ValidationError, OverflowError) as error:
        raise Problem(422, f"the query is not as it should be: {error}", code="query") from error


def _decoded(endpoint: Endpoint, request: Request, body: bytes) -> Any:
    wrong = 400 if endpoint.shape == "openai" else 422
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and media != "application/json" and not media.endswith("+json"):
        raise Problem(415, "send JSON, as Content-Type: application/json", code="media_type")
    try:
        return msgspec.json.decode(body or b"{}", type=endpoint.body)
    except msgspec.ValidationError as error:
        raise Problem(wrong, f"the body is not as it should be: {error}", code="body") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is no JSON that can be read: {error}", code="json") from error


async def unserved(request: Request, error: Exception) -> Response:
    """What no route has answered, for `Starlette(exception_handlers=...)`."""
    match error:
        case HTTPException(status_code=404):
            problem = Problem(404, "there is nothing at this address", code="not_found")
        case HTTPException(status_code=405):
            methods = (error.headers or {}).get("Allow", "")
            words = f"this address takes {methods} only" if methods else "not by this method"
            problem = Problem(405, words, code="method", headers={"allow": methods})
        case HTTPException():
            problem = Problem(error.status_code, error.detail, headers=error.headers)
        case _:
            problem = Problem(500, "something went wrong here; the log tells what", code="internal")
    return refusal(problem, shape_at(request.url.path))
