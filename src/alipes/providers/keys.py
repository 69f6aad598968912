"""Several keys of one provider: a conversation keeps its key while it works, and uses the next when it is exhausted."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

from msgspec import structs

from alipes.kernel.api_keys import KeyRest, describe_keys
from alipes.kernel.errors import NotAuthorised, OutOfCredit, ProviderError, Transient
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Provider, Request
from alipes.kernel.turns import Delta, ModelReply, Usage

log = logging.getLogger(__name__)
LIMIT_REST_S, OTHER_REST_S = 60.0, 600.0
"""How long a key rests if the provider names no time: after a rate limit; without credit, or rejected."""


class KeyRecords(Protocol):
    """What all processes know about the keys."""

    async def look(self, provider: str, session: str) -> tuple[Mapping[str, KeyRest], str]:
        """The rests of the provider's keys by variable, also past ones, and the key that the conversation used last."""

    async def rest(self, provider: str, rest: KeyRest) -> None: ...

    async def count(self, provider: str, variable: str, session: str, model: str, usage: Usage) -> None:
        """Add a call to the bill of a key."""


class LocalKeyRecords:
    """Records of this process only, for commands without a store."""

    def __init__(self) -> None:
        self._rests: dict[str, dict[str, KeyRest]] = {}

    async def look(self, provider: str, _session: str) -> tuple[Mapping[str, KeyRest], str]:
        return self._rests.get(provider, {}), ""

    async def rest(self, provider: str, rest: KeyRest) -> None:
        self._rests.setdefault(provider, {})[rest.variable] = rest

    async def count(self, *_call: object) -> None:
        """Nobody asks for the bill."""


class KeyRing:
    """A provider with several keys."""

    def __init__(
        self,
        endpoint: Endpoint,
        open_provider: Callable[[Endpoint], Provider],
        records: KeyRecords,
        cost: Callable[[str, Usage], float | None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`open_provider` opens the endpoint with one key; `cost(model, usage)` is the price of a call."""
        self.name, self.records, self.clock, self.cost = endpoint.name, records, clock, cost
        self.variables = tuple(each.variable for each in endpoint.keys)
        self._endpoint, self._open_provider = endpoint, open_provider
        self._providers: dict[str, Provider] = {}

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        return _KeyedStream(self, request)

    def provider(self, variable: str) -> Provider:
        """The provider with this key."""
        if variable not in self._providers:
            key = next(each.key for each in self._endpoint.keys if each.variable == variable)
            one = structs.replace(self._endpoint, key=key, key_env=variable, keys=())
            self._providers[variable] = self._open_provider(one)
        return self._providers[variable]

    def all_rest(self, rests: Mapping[str, KeyRest]) -> ProviderError:
        """The error if no key can be used: for the loop a limit that resets when the first key can be used again."""
        now = self.clock()
        resting = [rests[each] for each in self.variables if each in rests and rests[each].until > now]
        described = describe_keys([each.variable for each in resting], rests, "", now)
        usable_again = [each.until for each in resting if each.reason != "rejected"]
        if not usable_again:
            return NotAuthorised(f"{self.name} rejected all keys: {described}")
        brief = f"All keys of {self.name} are at their limit"
        error = Transient(f"{brief}: {described}", min(usable_again) - now, brief=brief)
        error.status = 429
        return error


def rest_after(error: ProviderError, variable: str, now: float) -> KeyRest | None:
    """How long a key rests after an error; None if the error says nothing about the key."""
    match error:
        case OutOfCredit():
            return KeyRest(variable, "credit", now + (error.retry_after or OTHER_REST_S))
        case NotAuthorised() if error.status != 403:  # that may mean the model only
            return KeyRest(variable, "rejected", now + OTHER_REST_S)
        case Transient(status=429):
            return KeyRest(variable, "limit", now + (error.retry_after or LIMIT_REST_S))
    return None


class _KeyedStream(AbstractAsyncContextManager[AsyncIterator[Delta]]):
    """One answer: with the first key that is served. Keys are not changed once something was received."""

    def __init__(self, ring: KeyRing, request: Request) -> None:
        self._ring, self._request = ring, request
        self._stack = AsyncExitStack()
        self._deltas: AsyncIterator[Delta] | None = None
        self._key = ""
        self._tried: set[str] = set()
        self._failure: ProviderError | None = None
        self._received = False

    async def __aenter__(self) -> AsyncIterator[Delta]:
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._failure = None
        await self._stack.__aexit__(*error)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while True:
            try:
                if self._deltas is None:
                    self._deltas = await self._open()
                delta = await anext(self._deltas)
            except (OutOfCredit, NotAuthorised, Transient) as error:
                await self._leave_key(error)
                continue
            self._received = True
            if isinstance(delta, ModelReply):
                await self._count(delta)
            return delta

    async def _open(self) -> AsyncIterator[Delta]:
        ring = self._ring
        rests, last = await ring.records.look(ring.name, self._request.session)
        now = ring.clock()
        free = [each for each in ring.variables if each not in rests or rests[each].until <= now]
        left = [each for each in free if each not in self._tried]
        if not left:
            raise ring.all_rest(rests) if not free else self._failure or ring.all_rest(rests)
        self._key = last if last in left else left[0]
        self._tried.add(self._key)
        return await self._stack.enter_async_context(ring.provider(self._key).stream(self._request))

    async def _leave_key(self, error: ProviderError) -> None:
        """Note why the key cannot be used. Raises the error if another key would not help."""
        ring, was_open = self._ring, self._deltas is not None
        if not was_open and not self._key:  # no key is left
            raise error
        rest = rest_after(error, self._key, ring.clock())
        if rest is not None:
            log.info("key %s of %s rests: %s", self._key, ring.name, error)
            await ring.records.rest(ring.name, rest)
        elif not isinstance(error, NotAuthorised):
            raise error
        if self._received:
            raise error
        self._failure, self._deltas, self._key = error, None, ""
        await self._stack.aclose()

    async def _count(self, reply: ModelReply) -> None:
        ring, usage = self._ring, reply.usage
        if usage.cost is None:
            usage = structs.replace(usage, cost=ring.cost(self._request.model, usage))
        await ring.records.count(ring.name, self._key, self._request.session, self._request.model, usage)
