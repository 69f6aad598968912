"""Authentication of API callers, their rate limits, and limits on request bodies."""

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from alipes.config.paths import Paths, all_homes
from alipes.runtime.processes.socket_peers import find_connected_child
from alipes.runtime.redaction import SecretRegistry
from alipes.web.endpoint import Caller, HttpProblem

OPERATOR = "operator"
"""Caller name for the key from the settings."""
MIN_KEY_CHARS = 24
"""A shorter operator's key could be guessed."""
FREE_ATTEMPTS, FIRST_DELAY_S, MAX_DELAY_S = 5, 0.1, 1.6
"""Wrong keys of one peer that are answered at once, and the delays of the following ones, each twice the last."""
FORGET_AFTER_S = 60.0
MAX_WAITING = 16
"""Answers to one peer that are delayed at the same time."""


class KeyHolder(Struct, frozen=True):
    """A caller and its rate limit in requests per minute; None means the default."""

    caller: Caller
    rate: int | None = None


FindKey: TypeAlias = Callable[[bytes], Awaitable[KeyHolder | None]]
"""Returns the named key with this hash, unless it was revoked or has expired."""


async def _find_no_key(_hash: bytes) -> KeyHolder | None:
    return None


class _Peer(Struct):
    count: int
    at: float
    lock: asyncio.Lock
    waiting: int = 0


class WrongKeyDelay:
    """Delays the answers to wrong keys, one after the other for each peer. Other requests are not delayed."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._peers: dict[str, _Peer] = {}
        self.total = 0
        """Wrong keys so far."""

    async def wait(self, host: str) -> None:
        """Count a wrong key from `host`, and wait. Raises `HttpProblem` if too many are waiting already."""
        self.total += 1
        peer = self._peer(_network(host))
        if peer.count <= FREE_ATTEMPTS:
            return
        if peer.waiting >= MAX_WAITING:
            raise HttpProblem(429, "too many wrong keys", code="wrong_keys", headers={"retry-after": "60"})
        delay = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(peer.count - FREE_ATTEMPTS - 1, 10))
        peer.waiting += 1
        try:
            async with peer.lock:
                await self._sleep(delay)
        finally:
            peer.waiting -= 1

    def _peer(self, name: str) -> _Peer:
        now = self._clock()
        peer = self._peers.pop(name, None)
        if peer is None or now - peer.at > FORGET_AFTER_S:
            peer = _Peer(0, now, asyncio.Lock())
        peer.count, peer.at = peer.count + 1, now
        self._peers[name] = peer
        if len(self._peers) > MAX_PEERS:
            del self._peers[next(iter(self._peers))]
        return peer


def _network(host: str) -> str:
    """The address, or the /64 network of an IPv6 address: one peer usually has all of it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


class Authenticator:
    """Checks bearer keys: `key` is the operator's (may be empty), `find` looks up named keys in the store.

    Keys that are used are added to `secrets`, so that they are masked from then on. `run`: the home's directory that
    names its processes; without it, nobody is taken for a child of ours.
    """

    def __init__(
        self,
        key: str,
        find: FindKey = _find_no_key,
        *,
        secrets: SecretRegistry | None = None,
        delay: WrongKeyDelay | None = None,
        run: Path | None = None,
    ) -> None:
        self._hash, self._find, self._run = hash_key(key) if key else b"", find, run
        self._secrets, self.delay = secrets or SecretRegistry(), delay or WrongKeyDelay()

    async def authenticate(self, header: str, peer: str = "") -> KeyHolder | None:
        """The holder of the key in an `Authorization` header, or None, after a delay, if the key is not valid.

        `peer`: the address of the caller.
        """
        scheme, _, key = header.partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return None
        hash = hash_key(key)
        # Compare hashes in constant time, so that timing reveals nothing about the key.
        if self._hash and hmac.compare_digest(hash, self._hash):
            return KeyHolder(Caller(OPERATOR, frozenset({"admin"})))
        holder = await self._find(hash)
        if holder is None:
            await self.delay.wait(peer)
        else:
            self._secrets.add(key)
        return holder

    async def refuse_own_child(self, scope: Mapping[str, Any], *, agents: bool = False) -> None:
        """Raises `HttpProblem` if a process that the agent started sent this request; with `agents`, also if the
        agent itself did, for a tool of a conversation."""
        client, server = scope.get("client"), scope.get("server")
        if self._run is None or client is None or server is None:
            return
        runs = [Paths(home).run for home in all_homes(self._run.parent)]  # the child of any profile may have a key
        find = partial(find_connected_child, agents=agents)
        child = await asyncio.to_thread(find, tuple(client), tuple(server), self._run, *runs)
        if child is not None:
            whose = "belongs to" if agents else "was started by"
            why = f"refused: process {child} {whose} alipes, and may not act as a person"
            raise HttpProblem(403, why, code="own_child")


def peer_address(client: Any) -> str:
    """The address in the `client` of an ASGI scope or request; empty if there is none."""
    return str(client[0]) if client else ""


def hash_key(key: str) -> bytes:
    """SHA-256 of a key. Keys are long and random, so a plain hash is enough."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def unauthorized_problem() -> HttpProblem:
    """The answer to a request without a valid key."""
    why = "missing or invalid key: send Authorization: Bearer KEY (get one with `alipes serve key`)"
    return HttpProblem(401, why, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


DRAIN_MAX_BYTES, DRAIN_TIMEOUT_S = 20_000_000, 2.0
"""How much of an oversized body is still read before the response, and for how long."""
MAX_PEERS = 1024
"""Peers with wrong keys that are remembered; the least recently used one is dropped first."""


class RequestLimits(Struct, frozen=True):
    body: int = 20_000_000
    """Maximum size of a request body in bytes."""
    body_seconds: float = 30.0
    """Seconds in which the whole body must arrive."""
    wait: float = 600.0
    """Seconds a caller waits for a response; streams are not limited."""
    rate: int = 1200
    """Requests per minute and key, all of which may come at once; zero means unlimited."""


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """The whole request body. Raises `HttpProblem` if it is too large or too slow."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:19]) > limits.body:
        raise await _drain_too_long(request, limits)
    chunks, length = list[bytes](), 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                chunks.append(chunk)
                length += len(chunk)
                if length > limits.body:
                    raise await _drain_too_long(request, limits)
    except TimeoutError as error:
        why = f"the request body must arrive within {limits.body_seconds:g} s (api.body_seconds)"
        raise HttpProblem(408, why, code="too_slow", headers={"connection": "close"}) from error
    except ClientDisconnect as error:
        raise HttpProblem(400, "incomplete request body", code="cut_off") from error
    return b"".join(chunks)


async def _drain_too_long(request: Request, limits: RequestLimits) -> HttpProblem:
    """Read some of the rest first: a client that is still sending would not see the response."""
    # A client that sent `Expect` has not started sending the body.
    left = 0 if "expect" in request.headers else DRAIN_MAX_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            while left > 0 and (message := await request.receive()).get("more_body"):
                left -= len(message.get("body", b""))
    return HttpProblem(413, f"request body too large; the limit is {limits.body} bytes", code="too_long")
