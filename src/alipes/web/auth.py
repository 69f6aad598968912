"""How much, how slowly and how often a caller may ask. It knows no route."""

import asyncio
import hashlib
import hmac
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from alipes.web.endpoint import Caller, Problem

OPERATOR = "operator"
"""The name under which the one calls who has the key of the settings."""


class Known(Struct, frozen=True):
    """A caller, and how often they may ask in a minute; None: as often as everyone."""

    caller: Caller
    rate: int | None = None


Find: TypeAlias = Callable[[bytes], Awaitable[Known | None]]
"""The named key with this hash, unless it was revoked or is too old."""


async def _nobody(_hash: bytes) -> Known | None:
    return None


class Keys:
    """`key`: the operator's; empty: there is none. `find`: asks the store for the others."""

    def __init__(self, key: str, find: Find = _nobody) -> None:
        self._hash, self._find = hashed(key) if key else b"", find

    async def who(self, shown: str) -> Known | None:
        """Who shows this `Authorization`; None where that opens nothing."""
        scheme, _, key = shown.partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return None
        hash = hashed(key)
        # Hashes are compared, and in constant time: how long it takes tells nothing about the key.
        if self._hash and hmac.compare_digest(hash, self._hash):
            return Known(Caller(OPERATOR, frozenset({"admin"})))
        return await self._find(hash)


def hashed(key: str) -> bytes:
    """Keys are long and random, so that a plain hash is enough to keep."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def nobody() -> Problem:
    """What one is told who shows no key, or one that opens nothing."""
    return Problem(
        401,
        "show a key: Authorization: Bearer KEY (`alipes serve key` shows it)",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


IGNORED, IGNORED_SECONDS = 20_000_000, 2.0
"""Bytes of what is too long that are still read, and for how long."""
REMEMBERED = 1024
"""Names whose pace is kept in mind; the one that asked longest ago is forgotten first."""


class Limits(Struct, frozen=True):
    body: int = 20_000_000
    """Bytes that what is sent may have."""
    body_seconds: float = 30.0
    """Seconds in which it must have arrived."""
    wait: float = 600.0
    """Seconds that a caller waits for an answer; streams go on for as long as they like."""
    rate: int = 1200
    """Requests a minute that one key has, of which it may spend all at once; zero: as many as it likes."""


class _Bucket(Struct):
    left: float
    at: float


class Pace:
    """Counts by name; who asks too often is told when to come again."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def spend(self, name: str, rate: int) -> None:
        """One request more. Raises `Problem` where it is one too many; `rate` is what a minute holds."""
        if rate <= 0:
            return
        now, second = self._clock(), rate / 60
        bucket = self._buckets.pop(name, None) or _Bucket(rate, now)
        self._buckets[name] = bucket
        if len(self._buckets) > REMEMBERED:
            del self._buckets[next(iter(self._buckets))]
        bucket.left = min(float(rate), bucket.left + (now - bucket.at) * second)
        bucket.at = now
        if bucket.left < 1:
            seconds = math.ceil((1 - bucket.left) / second)
            raise Problem(
                429,
                f"{rate} requests a minute are enough; come again in {seconds} s",
                code="rate_limited",
                headers={"retry-after": str(seconds)},
            )
        bucket.left -= 1


async def body_of(request: Request, limits: Limits) -> bytes:
    """What was sent, whole; `Problem` where it is too long, or comes too slowly."""
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:19]) > limits.body:
        raise await _too_long(request, limits)
    pieces, length = list[bytes](), 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for piece in request.stream():
                pieces.append(piece)
                length += len(piece)
                if length > limits.body:
                    raise await _too_long(request, limits)
    except TimeoutError as late:
        raise Problem(
            408,
            f"what you send must arrive within {limits.body_seconds:g} s (api.body_seconds)",
            code="too_slow",
            headers={"connection": "close"},
        ) from late
    except ClientDisconnect as gone:
        raise Problem(400, "the rest never came", code="cut_off") from gone
    return b"".join(pieces)


async def _too_long(request: Request, limits: Limits) -> Problem:
    """Once some of the rest was read: who is still sending when the line is closed does not learn why."""
    # Who expects to be asked first waits with it.
    left = 0 if "expect" in request.headers else IGNORED
    with suppress(TimeoutError):
        async with asyncio.timeout(IGNORED_SECONDS):
            while left > 0 and (message := await request.receive()).get("more_body"):
                left -= len(message.get("body", b""))
    return Problem(413, f"at most {limits.body} bytes are taken", code="too_long")
