"""A light worker of a cluster as a program: a store and turns of one tool call each, without model, gateway and tools.

    python -m tests.world.cluster_worker '{"home": ..., "url": ..., "folder": ..., ...}'

Messages come as lines of JSON on stdin, `[id, chat, text]`, and are acknowledged on stdout when they are accepted.
Commands come in the same way with an id that starts with `/`: `/stop`, `/subscribe`, `/publish`.
Tool calls and sent answers are lines in files of `folder`. A worker that loses its lease starts over under a new id.
The mutations break the product on purpose, so that tests can show that the checker notices.
"""

import asyncio
import io
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from alipes.kernel.errors import AlipesError, Fenced, SessionHeld
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.outbox import Delivery, Outbound, lane
from alipes.kernel.turns import (
    Address,
    Envelope,
    Inbound,
    Op,
    Said,
    Stop,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Turn,
    Wake,
)
from tests.world import cluster_mutations
from tests.world.cluster_store import open_worker_store

PLATFORM = "test"
EFFECTS, SENDS, GATE = "effects", "sends", "gate"
RECOVER_S = 0.5


class WorkerOptions(Struct, frozen=True):
    home: str
    folder: str
    """Shared by all workers: the files of effects and of sent messages."""
    url: str = ""
    """Empty: SQLite."""
    direct: str = ""
    roles: tuple[str, ...] = ("listen", "work", "web")
    capacity: int = 500
    tool_s: float = 0.02
    think_s: float = 0.02
    gate: bool = False
    """Between the record of a tool call and the call itself, wait for a file `gate` in `folder`."""
    poll_s: float = 0.0
    """Interval at which the dispatcher looks for work without a notification; zero: its own."""
    mutation: str = ""


class LightWorker:
    """Serves sessions until cancelled or until the lease is lost."""

    def __init__(self, store: Any, options: WorkerOptions, group: asyncio.TaskGroup) -> None:
        self._store, self._options, self._group = store, options, group
        self._served: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._lanes: dict[str, asyncio.Lock] = {}

    async def run(self) -> None:
        store = self._store
        tell("ready", worker=store.host, pid=os.getpid())
        self._group.create_task(self._recover())
        if not self._options.url:
            for key in await store.turns.list_orphans():
                self.on_op(key, Wake())
        if self._options.url:
            await store.dispatcher.run(self.on_op, self._served.keys())
        else:
            await store.dispatcher.run(self.on_op)

    def on_op(self, key: str, op: Op) -> None:
        if isinstance(op, Stop) and (task := self._served.get(key)) is not None:
            tell("stopped", key=key, at=time.time())
            task.cancel()
        elif key in self._served:
            self._again.add(key)
        else:
            task = self._served[key] = self._group.create_task(self._serve(key))
            task.add_done_callback(lambda ended: self._forget(key, ended))

    def _forget(self, key: str, task: asyncio.Task[None]) -> None:
        if self._served.get(key) is task:
            del self._served[key]

    async def accept(self, id: str, chat: str, text: str) -> None:
        """Accept a message as a webhook does: it is stored before it is acknowledged."""
        address = Address(PLATFORM, chat)
        match id.partition(" ")[0]:
            case "/stop":
                await self._store.dispatcher.signal(address.key, Stop())
                return
            case "/subscribe":
                await self._report_events(address.key)
                return
            case "/publish":
                await self._publish(address.key, *map(float, text.split()))
                return
        admitted = await self._store.turns.admit(Inbound(id, address, "someone", text))
        await self._store.health.wait_synced()
        tell("accepted", id=id, at=time.time(), new=admitted is not None)
        await self._store.dispatcher.wake(address.key, admitted)

    async def _report_events(self, key: str) -> None:
        """Report the age of each event of `key` when it arrives, in milliseconds, until one says `end`."""
        ages = list[float]()
        async with self._store.bus.subscribe(key) as events:
            tell("subscribed", key=key)
            ended = False
            async for envelope in events:
                for line in getattr(envelope.event, "text", "").splitlines():  # chunks of text are merged on the way
                    moment, _, rest = line.partition(" ")
                    ended = ended or rest == "end"
                    ages.append((time.time() - float(moment)) * 1000)
                if ended:
                    break
        tell("received", key=key, ages=ages)

    async def _publish(self, key: str, per_second: float, seconds: float, size: float) -> None:
        """Publish events of `size` characters, each with the time at which it was."""
        began, filler = time.monotonic(), "x" * int(size)
        for number in range(int(per_second * seconds)):
            await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
            self._store.bus.publish(Envelope(key, "bench", TextDelta(f"{time.time()} {filler}\n")))
        await asyncio.sleep(1)
        self._store.bus.publish(Envelope(key, "bench", TextDelta(f"{time.time()} end\n")))

    async def _serve(self, key: str) -> None:
        turns = self._store.turns
        try:
            while True:
                self._again.discard(key)
                while (turn := await turns.claim_next(key, release=True)) is not None:
                    tell("claimed", key=key, turn=turn.id, epoch=turn.epoch, at=time.time(), text=turn.inbound.text)
                    with suppress(Fenced):
                        await self._run_turn(turn)
                if key not in self._again:
                    del self._served[key]  # now: what arrives from here on is served by another task
                    return
        except SessionHeld:
            await self._store.dispatcher.wake(key)

    async def _run_turn(self, turn: Turn) -> None:
        """The steps that its transcript lacks."""
        record, said = self._store.turns.record, list(turn.said)
        call = ToolCall(f"call-{turn.id}", "act", {})
        if not said:
            await self._say(turn, said, user(turn.inbound.text))
        if len(said) == 1:
            await asyncio.sleep(self._options.think_s)
            await self._say(turn, said, assistant(Text(f"e{turn.epoch}"), call))
        if len(said) == 2:
            result = await self._run_call(turn, call)
            await self._say(turn, said, Message("tool", (result,)))
        if len(said) == 3:
            await asyncio.sleep(self._options.think_s)
            token = turn.inbound.text.split()[-1]
            message = assistant(Text(f"{token} e{turn.epoch}"))
            outbound = Outbound(f"{turn.id}:1", turn.inbound.address, token, turn=turn.id)
            self._check_lease()
            await record(turn, Said(message), outbound)
        self._check_lease()
        await self._store.turns.finish(turn, "answered", "")
        self._group.create_task(self._deliver(lane(turn.inbound.address)))

    async def _say(self, turn: Turn, said: list[Message], message: Message) -> None:
        await self._store.turns.record(turn, Said(message))
        said.append(message)

    async def _run_call(self, turn: Turn, call: ToolCall) -> ToolResult:
        if call.id in turn.tool_results:  # an earlier claim began it
            return ToolResult(call.id, f"e{turn.epoch}", "ok" if turn.tool_results[call.id] else "unknown")
        await self._store.turns.record(turn, ToolStarted(call))
        await self._pass_gate()
        at = time.time()  # before the check: a pause after it is no fault of the worker
        self._check_lease()
        effect = {"worker": self._store.host, "key": turn.key, "turn": turn.id, "epoch": turn.epoch}
        append_line(Path(self._options.folder) / EFFECTS, {**effect, "call": call.id, "at": at})
        await asyncio.sleep(self._options.tool_s)
        result = ToolResult(call.id, f"e{turn.epoch}")
        await self._store.turns.record(turn, ToolFinished(call, result))
        return result

    async def _pass_gate(self) -> None:
        gate = Path(self._options.folder) / GATE
        while self._options.gate and not gate.exists():
            await asyncio.sleep(0.01)

    async def _deliver(self, lane: str) -> None:
        """Send what is due in this lane, in order."""
        outbox = self._store.outbox
        async with self._lanes.setdefault(lane, asyncio.Lock()):
            while (delivery := await outbox.take(lane, lambda _: True)) is not None and delivery.state == "sending":
                self._check_lease()
                line = {"lane": lane, "text": delivery.outbound.text, "at": time.time(), "worker": self._store.host}
                append_line(Path(self._options.folder) / SENDS, line)
                if (await outbox.mark_sent(delivery, delivery.outbound.id)).emptied_lane:
                    break

    async def _recover(self) -> None:
        """Send again what a dead worker was sending, and what it left."""
        outbox = self._store.outbox
        while True:
            interrupted: tuple[Delivery, ...] = await outbox.list_interrupted(PLATFORM)
            for delivery in interrupted:
                held = self._lanes.get(delivery.outbound.lane)
                if held is None or not held.locked():
                    await outbox.postpone(delivery, 0.0, "interrupted while being sent", uncertain=True)
            for each in await outbox.lanes(PLATFORM):
                await self._deliver(each)
            await asyncio.sleep(RECOVER_S)

    def _check_lease(self) -> None:
        if (check := getattr(self._store.processes, "check_lease", None)) is not None:
            check()


def tell(kind: str, **fields: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode({"kind": kind, **fields}) + b"\n")
    sys.stdout.buffer.flush()


def append_line(path: Path, line: dict[str, object]) -> None:
    """One write, so that lines of several processes do not mix."""
    _open_file(path).write(msgspec.json.encode(line) + b"\n")


@cache
def _open_file(path: Path) -> io.FileIO:
    return open(path, "ab", buffering=0)


class Inbox:
    """The messages on stdin, for whichever life of the worker is running."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
        self._unread = b""
        os.set_blocking(0, False)
        asyncio.get_running_loop().add_reader(0, self._read)

    def _read(self) -> None:
        data = os.read(0, 1 << 20)
        if not data:
            asyncio.get_running_loop().remove_reader(0)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._lines.put_nowait(msgspec.json.decode(line, type=tuple[str, str, str]))

    async def accept_all(self, worker: LightWorker, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        while True:
            spawn(worker.accept(*await self._lines.get()))


async def live(options: WorkerOptions, inbox: Inbox) -> None:
    """One life: open the store, serve, close it."""
    roles = frozenset(options.roles)
    opened = open_worker_store(Path(options.home), options.url, roles, options.capacity)
    async with opened as store, asyncio.TaskGroup() as group:
        worker = LightWorker(store, options, group)
        group.create_task(inbox.accept_all(worker, group.create_task))
        await worker.run()


async def main(options: WorkerOptions) -> None:
    cluster_mutations.apply(options.mutation)
    if options.poll_s:
        cluster_mutations.set_poll(options.poll_s)
    inbox = Inbox()
    while True:
        try:
            await live(options, inbox)
        except* AlipesError as errors:
            tell("lost", why=[str(error) for error in errors.exceptions], at=time.time())
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(msgspec.json.decode(sys.argv[1], type=WorkerOptions)))
