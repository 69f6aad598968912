"""What a caller is told who cannot be served: as problem+json (RFC 9457), or as OpenAI writes errors."""

import http
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from alipes.kernel.errors import (
    AlipesError,
    Held,
    NotTaken,
    ProviderError,
    SessionError,
    StoreError,
    Transient,
)
from alipes.plugins.dispatch import Hooks
from alipes.plugins.registry import Offers
from alipes.providers.registry import Choice, Models
from alipes.sessions.sessions import Lobby
from alipes.store.database import codec
from alipes.store.store import Store

Scope: TypeAlias = Literal["read", "run", "admin"]
PLATFORM = "api"
"""Of the addresses of conversations that are held over HTTP; `user` in them is the caller's name."""


class Caller(Struct, frozen=True):
    """Who asks: the name of a key, and what it may do. `admin` may do everything, `run` also reads."""

    name: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes or (scope == "read" and "run" in self.scopes)


class Call(Struct, frozen=True):
    """One request, checked: the caller may ask this, and what was sent is of the right form."""

    request: Request
    caller: Caller
    body: Any = None
    """Of the endpoint's `body`."""
    query: Any = None
    """Of the endpoint's `query`."""

    @property
    def path(self) -> Mapping[str, str]:
        """What stands in the path, by name."""
        return self.request.path_params


Handle: TypeAlias = Callable[[Call], Awaitable[Response]]


class Endpoint(Struct, frozen=True, kw_only=True):
    method: Literal["GET", "POST", "DELETE"]
    path: str
    """With names in braces, as in `/v1/runs/{id}`."""
    scope: Scope
    handle: Handle
    summary: str
    """One sentence for the document."""
    body: type | None = None
    """A Struct, decoded from JSON; what does not fit is refused before `handle`."""
    query: type | None = None
    """A Struct of scalars with defaults, from the query string."""
    headers: Mapping[str, str] = {}
    """Headers it heeds, by name, and what each is for."""
    answer: Any = None
    """What it gives as JSON, as a type; None: nothing, or no JSON."""
    status: int = 200
    streams: bool = False
    """It may also give Server-Sent Events."""
    errors: tuple[int, ...] = ()
    """Statuses it answers with beside those that every route may."""
    shape: Literal["problem", "openai"] = "problem"
    """How errors look: problem+json, or as OpenAI writes them."""


class Problem(Exception):
    """Whoever asked is told so, in the shape of the endpoint. `code` is for programs, `detail` for people."""

    def __init__(self, status: int, detail: str, *, code: str = "", headers: Mapping[str, str] | None = None):
        super().__init__(detail)
        self.status, self.detail, self.code, self.headers = status, detail, code, dict(headers or {})


class House(Protocol):
    """What of an app the API needs."""

    @property
    def lobby(self) -> Lobby: ...

    @property
    def store(self) -> Store: ...

    @property
    def hooks(self) -> Hooks: ...

    @property
    def offers(self) -> Offers: ...

    @property
    def models(self) -> Models: ...

    async def choice(self) -> Choice: ...


Shape: TypeAlias = Literal["problem", "openai"]
JSON_PROBLEM = "application/problem+json"
_OPENAI = tuple(f"/v1/{name}" for name in ("chat", "completions", "embeddings", "models", "responses"))
"""Where OpenAI's clients ask, also for what is not there."""
FRESH = {"cache-control": "no-store"}
"""What is told of us now is not kept by anyone."""


class ProblemDocument(Struct, frozen=True, omit_defaults=True):
    """What went wrong: `code` is for programs, `detail` for people."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    code: str = ""


class OpenAiError(Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAiErrorDocument(Struct, frozen=True):
    """What went wrong, as OpenAI tells it."""

    error: OpenAiError


def refusal(problem: Problem, shape: Shape = "problem") -> Response:
    """The answer that tells of `problem`."""
    document = _openai(problem) if shape == "openai" else _plain(problem)
    media = "application/json" if shape == "openai" else JSON_PROBLEM
    headers = {**FRESH, **problem.headers}
    return Response(msgspec.json.encode(document), problem.status, headers=headers, media_type=media)


def shape_at(path: str) -> Shape:
    """How errors look at an address that no route answers for."""
    return "openai" if path.startswith(_OPENAI) else "problem"


def _plain(problem: Problem) -> ProblemDocument:
    return ProblemDocument(_title(problem.status), problem.status, problem.detail, code=problem.code)


def _openai(problem: Problem) -> OpenAiErrorDocument:
    return OpenAiErrorDocument(OpenAiError(problem.detail, _kind(problem.status), code=problem.code or None))


def _title(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Error"


_KINDS: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def _kind(status: int) -> str:
    return _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")


def ours(error: AlipesError) -> Problem:
    """One of our own errors, as a caller is told of it."""
    match error:
        case NotTaken():
            return Problem(422, str(error), code="not_taken")
        case SessionError() | Held():
            return Problem(409, str(error), code="session")
        case StoreError():
            return Problem(503, str(error), code="store")
        case Transient(retry_after=None):
            return Problem(503, str(error), code="provider")
        case Transient(retry_after=float() | int() as seconds):
            headers = {"retry-after": str(max(1, round(seconds)))}
            return Problem(503, str(error), code="provider", headers=headers)
        case ProviderError():
            return Problem(502, str(error), code="provider")
    return Problem(503, str(error), code="settings")


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON of one of our values."""
    return Response(
        codec.encode(value), status, headers={**FRESH, **(headers or {})}, media_type="application/json"
    )


def nothing() -> Response:
    return Response(status_code=204, headers=FRESH)
