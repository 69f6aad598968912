"""What a route of the API says of itself: who may call it, what it takes and gives. It serves nothing."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from alipes.hooks.offers import Offers
from alipes.hooks.relay import Hooks
from alipes.providers.choice import Choice
from alipes.providers.opening import Models
from alipes.sessions.lobby import Lobby
from alipes.store.opening import Store

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
