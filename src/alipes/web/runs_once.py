"""What is sent twice is done once: the names that `Idempotency-Key` gives, and who holds one now."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from alipes.store.runs import SqliteRuns
from alipes.web.endpoints import PLATFORM, Call, Problem

KEY = 255
"""The longest `Idempotency-Key`."""


class Naming(Struct, frozen=True):
    """The id of what was sent: the same for who sends it again under the same `Idempotency-Key`."""

    name: str
    digest: str
    again: bool
    """It may have been sent before."""

    @property
    def id(self) -> str:
        return f"{self.name}:{self.digest}"


def naming_of(call: Call) -> Naming:
    key = call.request.headers.get("idempotency-key", "").strip()
    if len(key) > KEY:
        raise Problem(422, f"an Idempotency-Key has {KEY} characters at most", code="idempotency_key")
    if not key:
        return Naming(os.urandom(8).hex(), os.urandom(8).hex(), again=False)
    name = hashlib.sha256(f"{call.caller.name}\0{key}".encode()).hexdigest()[:32]
    sent = msgspec.json.encode((call.request.url.path, call.body))
    return Naming(name, hashlib.sha256(sent).hexdigest()[:32], again=True)


class Once:
    def __init__(self, store: SqliteRuns) -> None:
        self._store = store
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lane(self, naming: Naming) -> AsyncIterator[str]:
        """The turn that it became before, if so; nobody else sends the same meanwhile."""
        if not naming.again:
            yield ""
            return
        async with self._lanes.setdefault(naming.name, asyncio.Lock()):
            found = await self._store.named(PLATFORM, f"{naming.name}:")
            turn, id = found or ("", "")
            if turn and id != naming.id:
                raise Problem(422, "this Idempotency-Key was used for something else", code="idempotency_key")
            yield turn
