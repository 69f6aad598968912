"""The processes of a home: which are alive (each holds a lock on a file), and the messages between them.

The messages are lines of JSON over a Unix socket. Every request is answered by one `DoneFrame`, in order, on
the same connection; other frames may come in between.
"""

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
from alipes.runtime.process_lock import short_socket_path
from alipes.store.database import codec
from alipes.store.database.migrations import SCHEMA
from alipes.store.database.writer import make_unusable_error

log = logging.getLogger(__name__)

STALE_AFTER_S = 60.0
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is not sent and counts as missed."""
SUSPENDED_TIMEOUT_S = 0.02
"""Time to write a line to the socket of a suspended process."""


class Peer(Struct, frozen=True):
    """A process of the home, as described in its lock file."""

    host: str
    """Its random name; not a network name."""
    pid: int
    socket: str
    started: float
    schema: int = 0
    """The database schema it uses; 0: it is of a release before this field existed."""


_peer_decoder = msgspec.json.Decoder(Peer)


class Processes:
    """The directory `run` of a home, seen by one process. Only the `wait_...` methods wait."""

    def __init__(self, run: Path, timeout_s: float) -> None:
        self.own_name = os.urandom(6).hex()
        self.timeout_s = timeout_s
        """How long a running process may take to answer, or an exiting one to be gone."""
        self._run = run

    def is_alive(self, host: str | None) -> bool:
        """True if the process named `host` is running: the kernel releases the lock of a dead one."""
        if host is None or host == self.own_name:
            return host is not None
        try:
            lock = os.open(self._lock_path(host), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    async def wait_until_gone(self, host: str) -> bool:
        """Wait for a process whose socket was closed to exit; False if it is still running."""
        deadline = time.monotonic() + self.timeout_s
        while self.is_alive(host):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.005)
        return True

    def list_peers(self) -> list[Peer]:
        """The other running processes of this home."""
        names = (entry.name for entry in os.scandir(self._run) if entry.name.endswith(".lock"))
        hosts = (name.removesuffix(".lock") for name in names)
        peers = (self.find_peer(host) for host in hosts if host != self.own_name and self.is_alive(host))
        return [peer for peer in peers if peer is not None]

    def find_peer(self, host: str) -> Peer | None:
        try:
            return _peer_decoder.decode(self._lock_path(host).read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def is_suspended(self, peer: Peer) -> bool:
        """True if it was suspended (Ctrl-Z): it is alive, but will not answer."""
        try:
            state = Path(f"/proc/{peer.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in (b"T", b"t")

    def open_socket(self) -> socket.socket:
        """Our socket, listening; `register` makes it known to the others."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with short_socket_path(self._socket_path(self.own_name)) as name:
                server.bind(name)
            self._socket_path(self.own_name).chmod(0o600)
            server.listen(128)
        except OSError as error:
            self.remove_socket(server)
            raise make_unusable_error(f"the directory {self._run} cannot be used", self._run, error) from error
        return server

    @contextmanager
    def register(self) -> Iterator[None]:
        """Count as alive while the context lasts."""
        lock = self._create_lock(
            Peer(self.own_name, os.getpid(), str(self._socket_path(self.own_name)), time.time(), SCHEMA)
        )
        try:
            yield
        finally:
            self._lock_path(self.own_name).unlink(missing_ok=True)
            os.close(lock)

    def _create_lock(self, own: Peer) -> int:
        """The lock file appears under its name only when it is locked and written."""
        part = self._run / f"{self.own_name}.new"
        try:
            lock = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.write(lock, msgspec.json.encode(own))
                part.rename(self._lock_path(self.own_name))
            except OSError:
                os.close(lock)
                part.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise make_unusable_error(f"the directory {self._run} cannot be used", self._run, error) from error
        return lock

    def remove_socket(self, server: socket.socket) -> None:
        server.close()
        self._socket_path(self.own_name).unlink(missing_ok=True)

    def remove_stale_files(self) -> None:
        """Remove the files of processes that are no longer alive."""
        oldest = time.time() - STALE_AFTER_S  # newer files without a lock may belong to a starting process
        for entry in list(os.scandir(self._run)):
            host, _, kind = entry.name.partition(".")
            with suppress(FileNotFoundError):
                if kind == "lock" and not self.is_alive(host):
                    self._socket_path(host).unlink(missing_ok=True)
                    os.unlink(entry.path)
                elif kind in ("sock", "new") and entry.stat().st_mtime < oldest and not self.is_alive(host):
                    os.unlink(entry.path)

    def _lock_path(self, host: str) -> Path:
        return self._run / f"{host}.lock"

    def _socket_path(self, host: str) -> Path:
        return self._run / f"{host}.sock"


def open_processes(home: Path, *, timeout_s: float) -> Processes:
    """Create `home` and its `run` directory if necessary, private to the user, and remove stale files."""
    run = home / "run"
    try:
        home.mkdir(0o700, parents=True, exist_ok=True)
        run.mkdir(0o700, exist_ok=True)
        if run.stat().st_mode & 0o077:
            run.chmod(0o700)
        processes = Processes(run, timeout_s)
        processes.remove_stale_files()
    except OSError as error:
        raise make_unusable_error(f"the directory {home} cannot be used", home, error) from error
    return processes


class WakeFrame(Struct, frozen=True, tag="wake"):
    """A turn is queued for a session that you hold."""

    key: str


class OpsFrame(Struct, frozen=True, tag="controls"):
    """Ops are in the store for a session that you hold."""

    key: str


class HelloFrame(Struct, frozen=True, tag="hello"):
    """A new process that may publish. Answer once all your subscriptions are registered there."""

    host: str


class SubscribeFrame(Struct, frozen=True, tag="listen"):
    """Send the events published under `key` over this connection, from now on."""

    key: str


class UnsubscribeFrame(Struct, frozen=True, tag="ignore"):
    key: str


class DoneFrame(Struct, frozen=True, tag="done"):
    pass


class PublishedFrame(Struct, frozen=True, tag="published"):
    envelope: Envelope


class MissedFrame(Struct, frozen=True, tag="missed"):
    """You read too slowly; `count` envelopes were dropped."""

    count: int


RequestFrame: TypeAlias = WakeFrame | OpsFrame | HelloFrame | SubscribeFrame | UnsubscribeFrame
AnswerFrame: TypeAlias = DoneFrame | PublishedFrame | MissedFrame

request_decoder: msgspec.json.Decoder[RequestFrame] = msgspec.json.Decoder(RequestFrame)
answer_decoder: msgspec.json.Decoder[AnswerFrame] = msgspec.json.Decoder(AnswerFrame)


def encode_line(frame: RequestFrame | AnswerFrame) -> bytes:
    return codec.to_json_bytes(frame) + b"\n"


@asynccontextmanager
async def open_connection(path: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the socket at `path`. Raises `OSError` if no process listens there."""
    with short_socket_path(path) as name:
        reader, writer = await asyncio.open_unix_connection(name, limit=MAX_LINE_BYTES)
    try:
        yield reader, writer
    finally:
        await close_connection(writer)


async def close_connection(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()  # do not wait for a peer that does not read
    with suppress(OSError):
        await writer.wait_closed()


async def send_request(processes: Processes, host: str, request: RequestFrame) -> bool:
    """Send `request` to `host`; False if it is gone, or exits before it answers.

    A running process that does not answer in time counts as reached: the line is in its socket.
    """
    peer = processes.find_peer(host)
    if peer is None:
        return False
    try:
        limit = asyncio.timeout(SUSPENDED_TIMEOUT_S if processes.is_suspended(peer) else processes.timeout_s)
        async with limit, open_connection(peer.socket) as (reader, writer):
            writer.write(encode_line(request))
            return bool(await reader.readline())
    except TimeoutError:
        log.warning("process %s does not answer", peer.pid)
        return True
    except OSError:
        return False
