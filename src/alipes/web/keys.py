"""Whose key is it? The operator's own, and those that were given names. It decides nothing about routes."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from alipes.web.endpoints import Caller, Problem

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
