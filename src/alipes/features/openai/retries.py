"""Requests that clients repeat by themselves: a retry joins the turn of the request that it repeats.

The SDKs of OpenAI send with each request how often it was repeated and how long they wait. So a request that is left
after that time was not given up by a person, and a repeated request with the same key and body is the same request.
"""

import asyncio
import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from alipes.web.endpoint import ApiCall, HttpProblem

JOIN_WITHIN_S = 600.0
"""A retry gets the answer of a turn that ended this long ago."""
_COUNT = "x-stainless-retry-count"
_LIMITS = ("x-stainless-read-timeout", "x-stainless-timeout")
_EARLY_S = 0.5
"""A client may leave this much before its limit, as we see it: some round theirs down to whole seconds."""


class ClientRequest(Struct, frozen=True):
    """What a request says of the client that may repeat it."""

    fingerprint: str
    """The same for the same body at the same path, with the same key."""
    retries: int
    """How often the client has repeated it so far."""
    leaves_at: float | None
    """When the client stops waiting, by the clock of the loop; None if it does not say so."""

    @property
    def has_timed_out(self) -> bool:
        """If it left now, it was because it had waited too long."""
        return self.leaves_at is not None and asyncio.get_running_loop().time() >= self.leaves_at


def client_left_problem() -> HttpProblem:
    return HttpProblem(499, "the client disconnected before the answer", code="client_left")


async def refuse_left(call: ApiCall, client: ClientRequest) -> None:
    """No turn for a client that has waited too long already, as for a document: its retry begins one. Raises
    `HttpProblem`."""
    if client.has_timed_out and await call.request.is_disconnected():
        raise client_left_problem()


def read_request(call: ApiCall) -> ClientRequest:
    sent = msgspec.json.encode((call.caller.name, call.request.url.path, call.body))
    headers = call.request.headers
    limit = next((seconds for name in _LIMITS if (seconds := _number(headers, name))), None)
    leaves_at = None if limit is None else call.arrived + limit - _EARLY_S
    return ClientRequest(hashlib.sha256(sent).hexdigest()[:32], int(_number(headers, _COUNT)), leaves_at)


def _number(headers: Mapping[str, str], name: str) -> float:
    """A number of a header; 0 if there is none."""
    try:
        return max(0.0, min(float(headers.get(name, "")), 1e6))
    except ValueError:
        return 0.0
