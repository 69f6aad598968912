"""Which processes of a home are alive. Each is a locked file, which the kernel unlocks for the dead."""

import asyncio
import fcntl
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from alipes.kernel.turns import Envelope
from alipes.runtime.unix_socket_path import short
from alipes.store.database import codec
from alipes.store.database.writer import unusable

STALE = 60.0


class Peer(Struct, frozen=True):
    """What a process says of itself in its lock file."""

    host: str
    pid: int
    socket: str
    started: float


_peers = msgspec.json.Decoder(Peer)


class Hosts:
    """The folder `run` of a home, seen by the process `me`. All calls take microseconds and do not wait."""

    def __init__(self, run: Path, within: float) -> None:
        self.me = os.urandom(6).hex()
        self.within = within
        """Seconds for a living process to answer, or for a dying one to be gone."""
        self._run = run

    def alive(self, host: str | None) -> bool:
        """Does the process that called itself `host` still run? Asked of the kernel, not of a pid."""
        if host is None or host == self.me:
            return host is not None
        try:
            lock = os.open(self._lock(host), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    async def gone(self, host: str) -> bool:
        """Wait for the end of a process whose socket just fell silent; False when it lives on."""
        deadline = time.monotonic() + self.within
        while self.alive(host):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.005)
        return True

    def others(self) -> list[Peer]:
        """The living processes of this home, without us."""
        names = (entry.name for entry in os.scandir(self._run) if entry.name.endswith(".lock"))
        hosts = (name.removesuffix(".lock") for name in names)
        peers = (self.find(host) for host in hosts if host != self.me and self.alive(host))
        return [peer for peer in peers if peer is not None]

    def find(self, host: str) -> Peer | None:
        try:
            return _peers.decode(self._lock(host).read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def stopped(self, peer: Peer) -> bool:
        """Is it suspended (Ctrl-Z)? It lives then, but waiting for its answer would be in vain."""
        try:
            state = Path(f"/proc/{peer.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in (b"T", b"t")

    def listen(self) -> socket.socket:
        """Our socket, bound and listening; `join` tells the others where it is."""
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with short(self._socket(self.me)) as name:
                door.bind(name)
            self._socket(self.me).chmod(0o600)
            door.listen(128)
        except OSError as error:
            self.leave(door)
            raise unusable(f"the folder {self._run} cannot be used", self._run, error) from error
        return door

    @contextmanager
    def join(self) -> Iterator[None]:
        """Be alive, for as long as the context lasts."""
        lock = self._enter(Peer(self.me, os.getpid(), str(self._socket(self.me)), time.time()))
        try:
            yield
        finally:
            self._lock(self.me).unlink(missing_ok=True)
            os.close(lock)

    def _enter(self, me: Peer) -> int:
        """The file that says so appears locked and written, or not at all."""
        young = self._run / f"{self.me}.new"
        try:
            lock = os.open(young, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.write(lock, msgspec.json.encode(me))
                young.rename(self._lock(self.me))
            except OSError:
                os.close(lock)
                young.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise unusable(f"the folder {self._run} cannot be used", self._run, error) from error
        return lock

    def leave(self, door: socket.socket) -> None:
        """Take our socket away, once nobody can be told of it any more."""
        door.close()
        self._socket(self.me).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what the dead left behind."""
        long_ago = time.time() - STALE  # younger files without a lock may belong to someone who just starts
        for entry in list(os.scandir(self._run)):
            host, _, kind = entry.name.partition(".")
            with suppress(FileNotFoundError):
                if kind == "lock" and not self.alive(host):
                    self._socket(host).unlink(missing_ok=True)
                    os.unlink(entry.path)
                elif kind in ("sock", "new") and entry.stat().st_mtime < long_ago and not self.alive(host):
                    os.unlink(entry.path)

    def _lock(self, host: str) -> Path:
        return self._run / f"{host}.lock"

    def _socket(self, host: str) -> Path:
        return self._run / f"{host}.sock"


def open_hosts(home: Path, *, within: float) -> Hosts:
    """`home` and its `run`, made if need be and closed to others, swept of the dead."""
    run = home / "run"
    try:
        home.mkdir(0o700, parents=True, exist_ok=True)
        run.mkdir(0o700, exist_ok=True)
        if run.stat().st_mode & 0o077:
            run.chmod(0o700)
        hosts = Hosts(run, within)
        hosts.sweep()
    except OSError as error:
        raise unusable(f"the folder {home} cannot be used", home, error) from error
    return hosts


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
    return codec.encode(frame) + b"\n"


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
