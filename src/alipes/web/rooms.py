"""All endpoints of the API, from the rooms that answer them. Another room joins by a line here."""

import msgspec
from msgspec import Struct
from starlette.responses import Response

from alipes.web import openai, runs, sessions
from alipes.web.endpoints import Call, Endpoint, House, Scope
from alipes.web.problems import FRESH
from alipes.web.runs_living import Runs


class Myself(Struct, frozen=True):
    """Whose key it is, and what it may do."""

    name: str
    scopes: list[Scope]


async def _myself(call: Call) -> Response:
    may = [scope for scope in _SCOPES if call.caller.may(scope)]
    content = msgspec.json.encode(Myself(call.caller.name, may))
    return Response(content, media_type="application/json", headers=FRESH)


_SCOPES: tuple[Scope, ...] = ("read", "run", "admin")
_OWN = Endpoint(
    method="GET",
    path="/v1/key",
    scope="read",
    handle=_myself,
    summary="Whose key is shown, and what it may do.",
    answer=Myself,
)


def endpoints(house: House, living: Runs) -> tuple[Endpoint, ...]:
    """`living` has to serve meanwhile; where it works, tools work for all callers."""
    return (
        _OWN,
        *runs.endpoints(house, living),
        *sessions.endpoints(house),
        *openai.endpoints(house, workdir=living.workdir),
    )
