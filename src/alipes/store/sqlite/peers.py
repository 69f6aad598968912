"""The processes of a home: which are alive (each holds a lock on a file), the messages between them, and the
event bus, with subscriptions in this process and in the others. The bus is fast and lossy.

The messages are lines of JSON over a Unix socket. Every request is answered by one `DoneFrame`, in order, on
the same connection; other frames may come in between.
"""

import asyncio
import fcntl
import logging
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from alipes.kernel.errors import StoreError
from alipes.kernel.turns import Envelope
from alipes.runtime.process_lock import short_socket_path
from alipes.runtime.processes.ancestors import list_ancestors, living_agents
from alipes.runtime.subscription import Subscription
from alipes.store.sql.errors import make_unusable_error
from alipes.store.sql.rows import to_json_bytes
from alipes.store.sqlite.migrations.migrations import SCHEMA

log = logging.getLogger(__name__)

STALE_AFTER_S = 60.0
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is not sent and counts as missed."""
SUSPENDED_TIMEOUT_S = 0.02
"""Time to write a line to the socket of a suspended process."""
_PEER = struct.Struct("3i")
"""Process, user and group of a peer."""
Spawn = Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]


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

    async def wait_until_gone(self, host: str, *, poll_s: float = 0.005, timeout_s: float | None = None) -> bool:
        """Wait for a process whose socket was closed to exit; False if it is still running."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while self.is_alive(host):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(poll_s)
        return True

    def check_lease(self) -> None:
        """A process of a home in one file never loses its sessions while it runs: the kernel holds its lock."""

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

    def is_tool_process(self, pid: int) -> bool:
        """True if a process of this home started `pid`, which is none itself: a command that the agent runs."""
        living = set(living_agents(self._run))
        return pid not in living and any(parent in living for parent in list_ancestors(pid))

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
        own = Peer(self.own_name, os.getpid(), str(self._socket_path(self.own_name)), time.time(), SCHEMA)
        lock = self._create_lock(own)
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
        with suppress(OSError):  # a read-only home has none
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


class SchedulesFrame(Struct, frozen=True, tag="schedules"):
    """Jobs or their runs have changed: look when the next is due."""


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


RequestFrame: TypeAlias = WakeFrame | OpsFrame | SchedulesFrame | HelloFrame | SubscribeFrame | UnsubscribeFrame
AnswerFrame: TypeAlias = DoneFrame | PublishedFrame | MissedFrame

request_decoder: msgspec.json.Decoder[RequestFrame] = msgspec.json.Decoder(RequestFrame)
answer_decoder: msgspec.json.Decoder[AnswerFrame] = msgspec.json.Decoder(AnswerFrame)


def encode_line(frame: RequestFrame | AnswerFrame) -> bytes:
    return to_json_bytes(frame) + b"\n"


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


def connected_pid(writer: asyncio.StreamWriter) -> int:
    """The process at the other end of a Unix socket; 0 if the system does not tell."""
    if sys.platform != "linux":
        return 0
    found = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(found)[0])


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


class _PeerConnection:
    """A connection to one process, the keys subscribed there, and the requests not answered yet."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.keys: set[str] = set()
        self.task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[RequestFrame] = []
        self._unanswered: deque[asyncio.Future[None]] = deque()

    def send(self, request: RequestFrame) -> "asyncio.Future[None]":
        """Send now, or once connected. The future is done when it is answered or the connection ends."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unanswered.append(done)
        if self._writer is None:
            self._unsent.append(request)
        else:
            self._writer.write(encode_line(request))
        return done

    async def run(self, bus: "LocalBus") -> None:
        """Read until the connection ends, then resolve the requests that are still open."""
        try:
            async with open_connection(self.peer.socket) as (reader, self._writer):
                self._writer.write(b"".join(map(encode_line, self._unsent)))
                while line := await reader.readline():
                    self._handle_line(line, bus)
        except (OSError, ValueError) as error:
            log.debug("the connection to process %s closed: %s", self.peer.pid, error)
        finally:
            while self._unanswered:
                self._resolve_request()

    def _handle_line(self, line: bytes, bus: "LocalBus") -> None:
        try:
            answer = answer_decoder.decode(line)
        except msgspec.DecodeError:  # an event that only a newer alipes knows
            bus.on_missed(1)
            return
        match answer:
            case DoneFrame():
                self._resolve_request()
            case PublishedFrame(envelope):
                bus.on_event(envelope, self.peer.host)
            case MissedFrame(count):
                bus.on_missed(count)

    def _resolve_request(self) -> None:
        if self._unanswered and not (done := self._unanswered.popleft()).done():
            done.set_result(None)


class LocalBus:
    """Events between the processes of this machine. `is_abandoned(key)`: it has work that no running process holds."""

    def __init__(self, processes: Processes, spawn: Spawn, is_abandoned: Callable[[str], Awaitable[bool]]) -> None:
        self._processes, self._spawn, self._is_abandoned = processes, spawn, is_abandoned
        self._connections: dict[str, _PeerConnection] = {}
        self._local: dict[str, set[Subscription]] = {}
        self._remote: dict[str, set[Subscription]] = {}

    def publish(self, envelope: Envelope) -> None:
        self.on_event(envelope, self._processes.own_name)
        for subscription in self._remote.get(envelope.key, ()):
            subscription.put(envelope, self._processes.own_name)

    def has_subscribers(self, key: str) -> bool:
        return bool(self._local.get(key) or self._remote.get(key))

    @asynccontextmanager
    async def subscribe(self, key: str, into: Subscription | None = None) -> AsyncIterator[Subscription]:
        subscription: Subscription = into or Subscription()
        local = self._local.setdefault(key, set())
        local.add(subscription)  # before the peers are listed: a process that starts later asks us (`HelloFrame`)
        try:
            sent = [(peer, self._send_subscribe(peer, key)) for peer in self._processes.list_peers()]
            await self._wait_confirmed([done for peer, done in sent if not self._processes.is_suspended(peer)])
            yield subscription
        finally:
            local.discard(subscription)
            if not local:
                del self._local[key]
                self._unsubscribe_peers(key)

    async def subscribe_all_at(self, host: str) -> None:
        """A new process: subscribe there to everything that we are subscribed to."""
        if (peer := self._processes.find_peer(host)) is not None:
            await self._wait_confirmed([self._send_subscribe(peer, key) for key in list(self._local)])

    def _unsubscribe_peers(self, key: str) -> None:
        for host, connection in list(self._connections.items()):
            connection.keys.discard(key)
            if connection.keys:
                connection.send(UnsubscribeFrame(key))
            elif connection.task is not None:
                del self._connections[host]
                connection.task.cancel()

    def _send_subscribe(self, peer: Peer, key: str) -> "asyncio.Future[None]":
        connection = self._connections.get(peer.host)
        if connection is None:
            connection = self._connections[peer.host] = _PeerConnection(peer)
            connection.task = self._spawn(self._run(connection))
        connection.keys.add(key)
        return connection.send(SubscribeFrame(key))

    async def _run(self, connection: _PeerConnection) -> None:
        await connection.run(self)
        host = connection.peer.host
        if self._connections.get(host) is connection:
            del self._connections[host]
        await self._close_subscriptions(host)

    async def _wait_confirmed(self, requests: "list[asyncio.Future[None]]") -> None:
        if requests:
            _, unanswered = await asyncio.wait(requests, timeout=self._processes.timeout_s)
            if unanswered:
                log.warning("a process of this home does not answer; its events may be missed")

    def on_event(self, envelope: Envelope, host: str) -> None:
        """The process `host` published this."""
        for subscription in self._local.get(envelope.key, ()):
            subscription.put(envelope, host)

    def on_missed(self, count: int) -> None:
        """Another process dropped `count` envelopes. Their keys are not known, so it counts for everyone."""
        for local in self._local.values():
            for subscription in local:
                subscription.missed += count

    async def _close_subscriptions(self, host: str) -> None:
        """The connection to `host` ended: close the subscriptions whose events it would have published."""
        gone = await self._processes.wait_until_gone(host)
        for key, local in list(self._local.items()):
            ended = not gone or await self._has_ended(key)
            for subscription in list(local):
                if ended or subscription.source == host:
                    subscription.close()

    async def _has_ended(self, key: str) -> bool:
        try:
            return await self._is_abandoned(key)
        except StoreError:  # the subscriber asks the store next and gets this error itself
            return True

    def add_remote(self, key: str, subscription: Subscription) -> None:
        """Also put what is published here under `key` into `subscription`, for another process."""
        self._remote.setdefault(key, set()).add(subscription)

    def remove_remote(self, key: str, subscription: Subscription) -> None:
        remote = self._remote.get(key, set())
        remote.discard(subscription)
        if not remote:
            self._remote.pop(key, None)

    def close(self) -> None:
        """Nothing more is published here: close all subscriptions."""
        for local in self._local.values():
            for subscription in local:
                subscription.close()
