"""What processes of one home say to each other over a unix socket: lines of JSON. Who listens is elsewhere.

Every request is answered by one `Done`, in order, on its own connection; whatever else comes back between.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import msgspec
from msgspec import Struct

from alipes.kernel.turns import Envelope
from alipes.runtime.short_names import short
from alipes.store import rows
from alipes.store.hosts import Hosts

log = logging.getLogger(__name__)

LINE = 64 * 1024 * 1024
"""The longest line; what would be longer is not sent and counts as missed."""
BRIEFLY = 0.02
"""Seconds to put a line into the socket of a suspended process."""


class Wake(Struct, frozen=True, tag="wake"):
    """Something waits for a session that you hold."""

    key: str


class Controls(Struct, frozen=True, tag="controls"):
    """Ops were left in the store for a session that you hold."""

    key: str


class Hello(Struct, frozen=True, tag="hello"):
    """A process that may publish; `Done` once everyone at your place who listens does so at ours."""

    host: str


class Listen(Struct, frozen=True, tag="listen"):
    """Send what is published under `key`, from now on, over this connection."""

    key: str


class Ignore(Struct, frozen=True, tag="ignore"):
    key: str


class Done(Struct, frozen=True, tag="done"):
    pass


class Published(Struct, frozen=True, tag="published"):
    envelope: Envelope


class Missed(Struct, frozen=True, tag="missed"):
    """You did not keep up; `count` envelopes were dropped."""

    count: int


Request: TypeAlias = Wake | Controls | Hello | Listen | Ignore
Answer: TypeAlias = Done | Published | Missed

requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def line(frame: Request | Answer) -> bytes:
    return rows.encode(frame) + b"\n"


@asynccontextmanager
async def connected(path: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the socket at `path`. Raises `OSError` when nobody is there."""
    with short(path) as name:
        reader, writer = await asyncio.open_unix_connection(name, limit=LINE)
    try:
        yield reader, writer
    finally:
        await hang_up(writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()  # a reader that does not read must not keep us from leaving
    with suppress(OSError):
        await writer.wait_closed()


async def tell(hosts: Hosts, host: str, request: Request) -> bool:
    """Say `request` to `host`; False when it is gone, or went before it said `Done`.

    One that lives but does not answer in time counts as told: the line lies in its socket.
    """
    peer = hosts.find(host)
    if peer is None:
        return False
    try:
        limit = asyncio.timeout(BRIEFLY if hosts.stopped(peer) else hosts.within)
        async with limit, connected(peer.socket) as (reader, writer):
            writer.write(line(request))
            return bool(await reader.readline())
    except TimeoutError:
        log.warning("process %s does not answer", peer.pid)
        return True
    except OSError:
        return False
