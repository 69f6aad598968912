"""API endpoints as values, JSON responses, and errors as problem+json (RFC 9457) or in OpenAI's format."""

import asyncio
import http
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Struct, field, structs
from starlette.requests import Request
from starlette.responses import Response

from alipes.kernel.errors import (
    AlipesError,
    MessageRejected,
    ProviderError,
    SessionError,
    SessionHeld,
    StoreError,
    Transient,
)
from alipes.kernel.formatting import strip_object_addresses
from alipes.runtime.json_text import to_json_bytes
from alipes.store.sql.api_runs import API_PLATFORM

Scope: TypeAlias = Literal["read", "run", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
ErrorFormat: TypeAlias = Literal["problem", "openai"]
PLATFORM = API_PLATFORM
"""Platform name in the addresses of API conversations; their `user` is the caller's name."""
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that this task answers."""


class Caller(Struct, frozen=True):
    """The name of a key and its scopes. `admin` includes everything, `run` includes `read`."""

    name: str
    scopes: frozenset[Scope]
    sees_all: bool = False
    """True for the owner's browsers: every conversation may be read, whichever scopes they have."""
    browser: str = ""
    """The id of the browser, if it is one."""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes or (scope == "read" and "run" in self.scopes)


class ApiCall(Struct, frozen=True):
    """One authorized request with its decoded body and query."""

    request: Request
    caller: Caller
    body: Any = None
    """An instance of the endpoint's `body` type."""
    query: Any = None
    """An instance of the endpoint's `query` type."""
    arrived: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    """By the clock of the loop."""

    @property
    def path(self) -> Mapping[str, str]:
        """The path parameters by name."""
        return self.request.path_params

    def mark_admitted(self) -> None:
        """A turn was admitted for this request: from now on its errors say that it must not be repeated."""
        self.request.state.admitted = True


Handler: TypeAlias = Callable[[ApiCall], Awaitable[Response]]
Method = TypeVar("Method", bound=Callable[[Any, ApiCall], Awaitable[Response]])


async def _no_handler(_call: ApiCall) -> Response:
    raise NotImplementedError


class ApiEndpoint(Struct, frozen=True):
    """Decorates the method that handles it; `endpoints_of` collects them. Its docstring starts with the summary."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    """With parameters in braces, as in `/v1/runs/{id}`."""
    scope: Scope
    readable: bool = False
    """With the scope `admin`: a caller with `sees_all` and the scope `read` may call it as well."""
    handle: Handler = _no_handler
    summary: str = ""
    """One sentence for the OpenAPI document."""
    body: type | None = None
    """A Struct decoded from JSON; invalid bodies are refused before `handle` is called."""
    raw_body: bool = False
    """The body is the content of a file, which `handle` reads."""
    query: type | None = None
    """A Struct of scalars with defaults, decoded from the query string."""
    headers: Mapping[str, str] = {}
    """Request headers it uses, by name, with a description."""
    answer: Any = None
    """Type of the JSON response; None if there is no JSON."""
    status: int = 200
    streams: bool = False
    """True if it can also return Server-Sent Events."""
    errors: tuple[int, ...] = ()
    """Error statuses beyond those that every route with such a path, body and query can return."""

    @property
    def error_format(self) -> ErrorFormat:
        return error_format_at(self.path)

    def allows(self, caller: Caller) -> bool:
        return caller.may(self.scope) or (self.readable and caller.sees_all and caller.may("read"))

    def __call__(self, method: Method) -> Method:
        method.__dict__.setdefault("endpoints", []).insert(0, self)
        return method


def endpoints_of(handlers: object) -> Iterator[ApiEndpoint]:
    """The endpoints that the methods of `handlers` are decorated with, in the order of the source."""
    for name, method in vars(type(handlers)).items():
        for each in getattr(method, "endpoints", ()):
            summary = (method.__doc__ or "").partition("\n")[0]
            yield structs.replace(each, handle=getattr(handlers, name), summary=summary)


class HttpProblem(Exception):
    """An error response. `code` is for programs, `detail` for people."""

    def __init__(
        self, status: int, detail: str, *, code: str = "", param: str = "", headers: Mapping[str, str] | None = None
    ):
        """`param`: the field of the body that is wrong, such as `messages[0].content`."""
        super().__init__(detail)
        self.status, self.detail, self.code, self.param = status, detail, code, param
        self.headers = dict(headers or {})


class ServerState:
    """State that all routes share."""

    shutdown_reason = ""
    """Why no new work is accepted; empty while serving."""

    def __init__(self, profile: str = "") -> None:
        self.profile = profile
        """The name of the profile that is served; empty if it does not matter."""


JSON_PROBLEM = "application/problem+json"
_OPENAI_PATHS = tuple(
    f"/v1/{name}"
    for name in (
        *("assistants", "audio", "batches", "chat", "completions", "containers", "conversations", "embeddings"),
        *("files", "fine_tuning", "images", "models", "moderations", "realtime", "responses", "threads"),
        *("vector_stores", "videos"),
    )
)
"""Paths of OpenAI clients, including those we do not serve."""
_OPENAI_TYPES: Mapping[int, str] = {403: "permission_error", 429: "rate_limit_error"}
NO_STORE = {"cache-control": "no-store"}
"""Responses about our current state must not be cached."""


class ProblemDocument(Struct, frozen=True, omit_defaults=True):
    """An error: `code` is for programs, `detail` for people."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    code: str = ""
    request_id: str = ""
    """Also in the log and in the header `x-request-id`."""


class OpenAiError(Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAiErrorDocument(Struct, frozen=True):
    """An error in OpenAI's format."""

    error: OpenAiError


def problem_response(problem: HttpProblem, shape: ErrorFormat = "problem") -> Response:
    status, detail, code = problem.status, strip_object_addresses(problem.detail), problem.code
    document: ProblemDocument | OpenAiErrorDocument
    if shape == "openai":
        kind = _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        document = OpenAiErrorDocument(OpenAiError(detail, kind, problem.param or None, code or None))
    else:
        title = http.HTTPStatus(status).phrase if status in set(http.HTTPStatus) else "Error"
        document = ProblemDocument(title, status, detail, code=code, request_id=REQUEST_ID.get())
    media = "application/json" if shape == "openai" else JSON_PROBLEM
    headers = {**NO_STORE, **problem.headers}
    return Response(msgspec.json.encode(document), status, headers=headers, media_type=media)


DO_NOT_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients repeat a failed request, which would do the work of a turn again; this prevents it."""


def forbid_retry(request: Request, response: Response) -> Response:
    """The response; an error after a turn was admitted says that the request must not be repeated."""
    if response.status_code >= 400 and getattr(request.state, "admitted", False):
        response.headers.update(DO_NOT_RETRY)
    return response


async def answer_errors(work: Awaitable[Response], shape: ErrorFormat = "problem") -> Response:
    """The response of `work`, or of the error it raises."""
    try:
        return await work
    except HttpProblem as problem:
        return problem_response(problem, shape)
    except AlipesError as error:
        return problem_response(problem_from_error(error), shape)


def error_format_at(path: str) -> ErrorFormat:
    """Format of the errors at `path`, whether it has a route or not."""
    return "openai" if any(path == each or path.startswith(f"{each}/") for each in _OPENAI_PATHS) else "problem"


def problem_from_error(error: AlipesError) -> HttpProblem:
    """Translate an error of alipes into an error response."""
    match error:
        case MessageRejected():
            return HttpProblem(422, str(error), code="not_taken")
        case SessionError() | SessionHeld():
            return HttpProblem(409, str(error), code="session")
        case StoreError():
            return HttpProblem(503, str(error), code="store")
        case Transient():
            return HttpProblem(503, str(error), code="provider", headers=retry_after_header(error))
        case ProviderError():
            return HttpProblem(502, str(error), code="provider")
    return HttpProblem(503, str(error), code="settings")


def retry_after_header(error: Transient) -> dict[str, str]:
    return {} if error.retry_after is None else {"retry-after": str(max(1, math.ceil(error.retry_after)))}


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    content, headers = to_json_bytes(value), {**NO_STORE, **(headers or {})}
    return Response(content, status, headers=headers, media_type="application/json")


def no_content() -> Response:
    return Response(status_code=204, headers=NO_STORE)
