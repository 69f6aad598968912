"""Messages between the workers of a cluster: `NOTIFY` on one channel per worker.

They are sent on a connection of their own, never inside a transaction of the store, all that wait in one statement.
A payload is `SENDER NUMBER KIND TEXT`. The numbers show what was lost, and what was sent twice after a reconnect.
"""

import asyncio
import logging
import zlib
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeAlias

import msgspec
from msgspec import Struct

from alipes.runtime.subscription import MAX_BACKLOG
from alipes.store.postgres.direct import ConnectionLost, open_direct
from alipes.store.postgres.workers import RECONNECT_S, Workers, application_name, channel_of
from alipes.store.sql.rows import to_json_bytes
from alipes.store.sqlite.peers import MissedFrame, OpsFrame, PublishedFrame, SchedulesFrame, WakeFrame

log = logging.getLogger(__name__)

MAX_PAYLOAD_BYTES = 7900
"""PostgreSQL allows less than 8000."""
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""A longer frame is not sent and counts as missed."""
MAX_STATEMENT_PAYLOADS = 1000
SEND_TIMEOUT_S = 5.0
_COMPRESSED = b"~"
"""The start of frames that are compressed together; no frame begins with it."""
_LINES, _PIECE, _LAST_PIECE = "=", "+", "."
_GONE, _OPS = "!gone ", "!ops "
"""Sent by functions of the database."""


class JoinedFrame(Struct, frozen=True, tag="joined"):
    """A worker that may publish, and the keys it subscribes to. Answer with `SubscriptionsFrame`."""

    keys: tuple[str, ...] = ()


class SubscriptionsFrame(Struct, frozen=True, tag="subscriptions"):
    """All keys that the sender subscribes to."""

    keys: tuple[str, ...] = ()


class AddedFrame(Struct, frozen=True, tag="added"):
    """The sender subscribes to `key`. Answer with `ConfirmedFrame(number)`."""

    key: str
    number: int


class RemovedFrame(Struct, frozen=True, tag="removed"):
    key: str


class ConfirmedFrame(Struct, frozen=True, tag="confirmed"):
    number: int


class WorkFrame(Struct, frozen=True, tag="work"):
    """A session waits for a worker."""


class ProbeFrame(Struct, frozen=True, tag="probe"):
    """Sent to oneself: how long does it take?"""

    sent: float


Frame: TypeAlias = (
    JoinedFrame
    | SubscriptionsFrame
    | AddedFrame
    | RemovedFrame
    | ConfirmedFrame
    | WorkFrame
    | ProbeFrame
    | WakeFrame
    | OpsFrame
    | SchedulesFrame
    | PublishedFrame
    | MissedFrame
)
OnFrame: TypeAlias = Callable[[str, Frame], None]
_decoder: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)


@lru_cache(maxsize=1)
def compress(frames: tuple[bytes, ...]) -> bytes:
    """Many frames as one text. The last is kept: the same events often go to several workers."""
    return _COMPRESSED + b64encode(zlib.compress(b"\n".join(frames), 1))


def split_frames(text: str) -> list[str]:
    """The frames in a text. Raises `zlib.error` or `ValueError` if its first pieces were lost."""
    if text.startswith(_COMPRESSED.decode()):
        text = zlib.decompress(b64decode(text[1:])).decode()
    return text.split("\n")


class _Outgoing:
    """The unsent frames for one worker. Events beyond the backlog are dropped, the oldest first."""

    def __init__(self) -> None:
        self.controls: list[bytes] = []
        self.events: deque[bytes] = deque(maxlen=MAX_BACKLOG)
        self.missed = 0
        self.number = 0

    def put_event(self, frame: bytes) -> None:
        if len(self.events) == MAX_BACKLOG:
            self.missed += 1
        self.events.append(frame)

    def take_payloads(self, sender: str) -> Iterator[str]:
        """All that waits, as payloads: many small frames in one, a large frame in pieces."""
        frames = [*self.controls, *self.events]
        self.controls, size, lines = [], 0, list[bytes]()
        self.events.clear()
        large = sum(len(frame) > MAX_FRAME_BYTES for frame in frames)
        if self.missed or large:
            frames.append(to_json_bytes(MissedFrame(self.missed + large)))
            self.missed = 0
        if sum(map(len, frames)) > MAX_PAYLOAD_BYTES * 2:
            yield from self._pieces(sender, compress(tuple(each for each in frames if len(each) <= MAX_FRAME_BYTES)))
            return
        for frame in frames:
            if lines and size + len(frame) >= MAX_PAYLOAD_BYTES - 64:
                yield self._payload(sender, _LINES, b"\n".join(lines))
                size, lines = 0, []
            if len(frame) < MAX_PAYLOAD_BYTES - 64:
                lines.append(frame)
                size += len(frame) + 1
            elif len(frame) <= MAX_FRAME_BYTES:
                yield from self._pieces(sender, frame)
        if lines:
            yield self._payload(sender, _LINES, b"\n".join(lines))

    def _pieces(self, sender: str, frame: bytes) -> Iterator[str]:
        start = 0
        while start < len(frame):
            end = min(start + MAX_PAYLOAD_BYTES - 64, len(frame))
            while end < len(frame) and frame[end] & 0xC0 == 0x80:  # not inside a character
                end -= 1
            yield self._payload(sender, _PIECE if end < len(frame) else _LAST_PIECE, frame[start:end])
            start = end

    def _payload(self, sender: str, kind: str, text: bytes) -> str:
        self.number += 1
        return f"{sender} {self.number} {kind} {text.decode()}"


class _Incoming:
    """What came from one worker."""

    def __init__(self) -> None:
        self.number = 0
        self.pieces: list[str] = []


class Notifications:
    """Sends frames to the other workers, and passes on those that arrive."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._outgoing: dict[str, _Outgoing] = {}
        self._incoming: dict[str, _Incoming] = {}
        self._unsent: list[tuple[str, str]] = []
        self._waiting = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.listens = asyncio.Event()
        """Set while our channel is listened to."""

    def send(self, host: str, frame: Frame) -> None:
        """Send soon; never waits. It may be lost."""
        if host not in self._outgoing:
            self._outgoing[host] = _Outgoing()
        self._outgoing[host].controls.append(to_json_bytes(frame))
        self._wake_sender()

    def send_event(self, hosts: set[str], frame: PublishedFrame) -> None:
        encoded = to_json_bytes(frame)
        for host in hosts:
            if (outgoing := self._outgoing.get(host)) is None:
                outgoing = self._outgoing[host] = _Outgoing()
            outgoing.put_event(encoded)
        self._wake_sender()

    def forget(self, host: str) -> None:
        """`host` is gone."""
        self._outgoing.pop(host, None)
        self._incoming.pop(host, None)

    async def flush(self, timeout_s: float) -> None:
        """Wait until everything is sent, for a limited time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.info("messages to other workers were not sent before the exit")

    def _wake_sender(self) -> None:
        self._idle.clear()
        self._waiting.set()

    async def run(self, on_frame: OnFrame, on_interrupted: Callable[[], None]) -> None:
        """Serve until cancelled. `on_interrupted`: some may have been lost, and nobody knows how many."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(on_frame, on_interrupted), name="notifications in")
            group.create_task(self._send_all(), name="notifications out")

    async def _listen(self, on_frame: OnFrame, on_interrupted: Callable[[], None]) -> None:
        own, first = self._workers.own_name, True

        def on_ready() -> None:
            nonlocal first
            if not first:
                on_interrupted()
            first = False
            self.listens.set()

        while True:
            try:
                async with open_direct(self._workers.url, application_name(own)) as connection:
                    await connection.listen(channel_of(own), lambda text: self._on_payload(text, on_frame), on_ready)
            except ConnectionLost as error:
                log.info("notifications are read on another connection: %s", error)
            self.listens.clear()
            await asyncio.sleep(RECONNECT_S)

    def _on_payload(self, payload: str, on_frame: OnFrame) -> None:
        if payload.startswith(_GONE):
            self._workers.on_gone(payload.removeprefix(_GONE))
            return
        if payload.startswith(_OPS):
            on_frame("", OpsFrame(payload.removeprefix(_OPS)))
            return
        sender, number, kind, text = payload.split(" ", 3)
        incoming = self._incoming.setdefault(sender, _Incoming())
        last, incoming.number = incoming.number, max(incoming.number, int(number))
        if int(number) <= last:
            return  # sent again after a reconnect
        if last and int(number) > last + 1:
            incoming.pieces.clear()
            on_frame(sender, MissedFrame(int(number) - last - 1))
        if kind != _LINES:
            incoming.pieces.append(text)
            if kind == _PIECE:
                return
            text, incoming.pieces = "".join(incoming.pieces), []
        try:
            lines = split_frames(text)
        except (zlib.error, ValueError):
            lines = [""]
        for line in lines:
            try:
                frame = _decoder.decode(line)
            except msgspec.DecodeError:  # of a newer release, or its first pieces were lost
                frame = MissedFrame(1)
            on_frame(sender, frame)

    async def _send_all(self) -> None:
        name = application_name(self._workers.own_name)
        while True:
            try:
                async with open_direct(self._workers.url, name) as connection:
                    await connection.fetch("SET synchronous_commit = off", timeout_s=SEND_TIMEOUT_S)
                    while True:
                        self._collect()
                        if not self._unsent:
                            self._idle.set()
                            await self._waiting.wait()
                            continue
                        batch = self._unsent[:MAX_STATEMENT_PAYLOADS]
                        sql = "SELECT count(pg_notify(c, p)) FROM unnest(%s::text[], %s::text[]) AS batch (c, p)"
                        channels, payloads = [c for c, _ in batch], [p for _, p in batch]
                        await connection.fetch(sql, channels, payloads, timeout_s=SEND_TIMEOUT_S)
                        del self._unsent[: len(batch)]
            except ConnectionLost as error:
                log.info("notifications are sent on another connection: %s", error)
                await asyncio.sleep(RECONNECT_S)

    def _collect(self) -> None:
        self._waiting.clear()
        if self._unsent:
            return
        for host, outgoing in self._outgoing.items():
            channel = channel_of(host)
            self._unsent += [(channel, each) for each in outgoing.take_payloads(self._workers.own_name)]
