"""What a caller is told who cannot be served: as problem+json (RFC 9457), or as OpenAI writes errors."""

import http
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
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
from alipes.web.endpoints import Problem

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
