"""A cluster on one store: light workers or real `alipes serve` processes, each behind a proxy of its own, and people.

The same light workers run on SQLite too, where there is nothing between them and the file.
"""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from alipes.store.sqlite.files import DATABASE_FILE
from tests.world import echo_model
from tests.world.cluster_worker import EFFECTS, SENDS, WorkerOptions
from tests.world.environment import LIMIT_S, ROOT, environment
from tests.world.model_server import ModelProcess
from tests.world.network_namespace import NetworkNamespace
from tests.world.postgres_pair import PostgresNode, make_url
from tests.world.serve_process import ServeProcess
from tests.world.tcp_proxy import TcpProxy, open_proxy
from tests.world.telegram_control import TelegramProcess
from tests.world.telegram_control import serve as serve_telegram

RESEND_S = 3.0
"""A message that a worker does not acknowledge in this time is given to another."""


class LightWorkerProcess:
    """A light worker; `start` it again after each end."""

    def __init__(self, options: WorkerOptions, proxies: tuple[TcpProxy, ...] = (), enter: tuple[str, ...] = ()) -> None:
        """`enter`: the start of its command, such as that of a network namespace."""
        self.options, self.proxies, self._enter = options, proxies, enter
        self.events: list[dict[str, Any]] = []
        """What it reported, also in earlier lives."""
        self.name = ""
        """Its current id; empty until it is ready."""
        self.paused = False
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._ready = asyncio.Event()

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def takes_messages(self) -> bool:
        return self.is_running and not self.paused and bool(self.name)

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        folder = Path(self.options.home)
        folder.mkdir(parents=True, exist_ok=True)
        self._ready.clear()
        with open(folder / "stderr", "ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._enter, sys.executable, "-m", "tests.world.cluster_worker"),
                msgspec.json.encode(self.options).decode(),
                env=environment(folder) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                limit=1 << 24,
            )
        self._reader = asyncio.get_running_loop().create_task(self._read(self._process))
        async with asyncio.timeout(LIMIT_S):
            while not self._ready.is_set():
                assert self.is_running, f"the worker ended: {(folder / 'stderr').read_text()[-3000:]}"
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ready.wait(), 0.2)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if not line.endswith(b"\n"):
                break  # cut off by a kill
            event = json.loads(line) | {"worker": self.name}
            match event["kind"]:
                case "ready":
                    self.name = str(json.loads(line)["worker"])
                    self._ready.set()
                case "lost":
                    self.name = ""
                case "accepted" if (waiter := self._waiting.pop(event["id"], None)) is not None and not waiter.done():
                    waiter.set_result(None)
            self.events.append(event)
        self.name = ""
        for waiter in self._waiting.values():
            waiter.cancel()
        self._waiting.clear()

    async def accept(self, id: str, chat: str, text: str) -> bool:
        """Give it a message; False if it was not acknowledged in time."""
        assert self._process is not None and self._process.stdin is not None
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[id] = waiter
        try:
            self._process.stdin.write(json.dumps([id, chat, text]).encode() + b"\n")
            done, _ = await asyncio.wait([waiter], timeout=RESEND_S)
        except (ConnectionError, RuntimeError):
            return False
        return bool(done) and not waiter.cancelled()

    def command(self, name: str, chat: str, text: str = "") -> None:
        """Send a command that is not acknowledged."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, chat, text]).encode() + b"\n")

    def reported(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def pause(self) -> None:
        self.paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.paused = False

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def leave(self) -> None:
        await self._end(signal.SIGINT)

    def _signal(self, how: signal.Signals) -> None:
        if self.is_running:
            os.kill(self.pid, how)

    async def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._signal(how)
        if how is not signal.SIGKILL:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 10)
            self._signal(signal.SIGKILL)
        await self._process.wait()
        if self._reader is not None:
            await asyncio.wait([self._reader])
        self.paused, self.name = False, ""


class SentMessage(Struct, frozen=True):
    id: str
    chat: str
    token: str


class MessageLoad:
    """People who write: the messages of a chat in order, each to some worker until one has accepted it."""

    def __init__(self, workers: list[LightWorkerProcess], chats: int, dice: random.Random) -> None:
        self._workers, self._chats, self._dice = workers, chats, dice
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._count = 0
        self.accepted: list[SentMessage] = []
        """In the order in which each chat's were accepted."""
        self.times: dict[str, float] = {}
        """When each was accepted."""

    async def run(self, per_second: float, seconds: float) -> None:
        """Write at this rate, and return when everything was accepted."""
        async with asyncio.TaskGroup() as group:
            began = time.monotonic()
            for number in range(int(per_second * seconds)):
                await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
                group.create_task(self.write(f"c{self._dice.randrange(self._chats)}"))

    async def run_until(self, per_second: float, enough: asyncio.Event) -> None:
        """Write at this rate until `enough` is set, and return when everything was accepted."""
        async with asyncio.TaskGroup() as group:
            while not enough.is_set():
                group.create_task(self.write(f"c{self._dice.randrange(self._chats)}"))
                await asyncio.sleep(1 / per_second)

    async def write(self, chat: str) -> SentMessage:
        self._count += 1
        message = SentMessage(f"m{self._count}", chat, f"x{self._count}x")
        async with self._locks[chat]:
            while not await self._give(message):
                await asyncio.sleep(0.02)
            self.times[message.id] = time.time()
            self.accepted.append(message)
        return message

    async def _give(self, message: SentMessage) -> bool:
        able = [worker for worker in self._workers if worker.takes_messages]
        return bool(able) and await self._dice.choice(able).accept(message.id, message.chat, f"go {message.token}")


class LightCluster(Struct):
    folder: Path
    workers: list[LightWorkerProcess]
    url: str
    """The address of the store without a proxy; empty: SQLite."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the store, read past all proxies."""
        if not self.url:
            with closing(sqlite3.connect(Path(self.workers[0].options.home, DATABASE_FILE))) as db:
                return db.execute(sql).fetchall()
        import psycopg  # an optional part

        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as remote:
            return remote.execute(sql).fetchall()  # type: ignore[arg-type]

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    @property
    def effects(self) -> list[dict[str, Any]]:
        return self.read_lines(EFFECTS)

    @property
    def sends(self) -> list[dict[str, Any]]:
        return self.read_lines(SENDS)

    async def wait_until_done(self, seconds: float = LIMIT_S) -> None:
        """Wait until every turn has an ending and every answer is sent; returns as well when time is up."""
        sql = """SELECT (SELECT count(*) FROM turns WHERE ending IS NULL)
            + (SELECT count(*) FROM outbox WHERE state IN ('queued', 'sending'))"""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(Exception):  # the server may be away
                if (await asyncio.to_thread(self.query, sql))[0][0] == 0:
                    return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def open_light_cluster(
    folder: Path,
    count: int,
    nodes: tuple[PostgresNode, ...] = (),
    *,
    started: int | None = None,
    proxied: bool = True,
    roles_of: Mapping[int, tuple[str, ...]] = {},
    namespaces: Mapping[int, NetworkNamespace] = {},
    **options: Any,
) -> AsyncIterator[LightCluster]:
    """`count` workers; each reaches each of `nodes` through a proxy of its own. No nodes: SQLite.

    `started`: start only so many of them. `proxied`: False for no proxies. `roles_of`: the roles of some, by place.
    `namespaces`: of those that have a network of their own; they reach the first node past all proxies.
    """
    nodes_url = make_url([node.port for node in nodes]) if nodes else ""
    async with AsyncExitStack() as stack:
        workers = list[LightWorkerProcess]()
        stack.push_async_callback(_end_all, workers)
        for place in range(count):
            behind = nodes if proxied else ()
            proxies = [await stack.enter_async_context(open_proxy(("127.0.0.1", node.port))) for node in behind]
            url = make_url([proxy.port for proxy in proxies]) if proxies else nodes_url
            if (namespace := namespaces.get(place)) is not None:
                url = nodes[0].url(host=namespace.host_address)
            home = folder / (f"home{place}" if nodes else "home")
            own = {**options, "roles": roles_of[place]} if place in roles_of else options
            given = WorkerOptions(home=str(home), folder=str(folder), url=url, **own)
            workers.append(LightWorkerProcess(given, tuple(proxies), namespace.enter if namespace else ()))
        cluster = LightCluster(folder, workers, nodes_url)
        await workers[0].start()  # it makes the tables
        async with asyncio.TaskGroup() as group:
            for worker in workers[1:started]:
                group.create_task(worker.start())
        yield cluster


async def _end_all(workers: list[LightWorkerProcess]) -> None:
    for worker in workers:
        await worker.kill()


class ServeCluster(Struct):
    """Real `alipes serve` processes with one messenger and one model."""

    folder: Path
    services: list[ServeProcess]
    messenger: TelegramProcess
    model: ModelProcess


@asynccontextmanager
async def open_serve_cluster(
    folder: Path, count: int, node: PostgresNode, *, roles: tuple[tuple[str, ...], ...] = (), plugin: str = ""
) -> AsyncIterator[ServeCluster]:
    """The services are not started yet. `roles`: those of each; without them, each has all."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(echo_model.serve(folder))
        messenger = await stack.enter_async_context(serve_telegram())
        services = list[ServeProcess]()
        for place in range(count):
            own = folder / f"worker{place}"
            own.mkdir()
            service = ServeProcess(own)
            service.work = folder / "work"  # workspaces are shared
            service.settle(model, messenger, plugin=plugin)
            _join_store(service, node.url(), roles[place] if roles else ())
            services.append(service)
            stack.push_async_callback(service.kill)
        yield ServeCluster(folder, services, messenger, model)


def _join_store(service: ServeProcess, url: str, roles: tuple[str, ...]) -> None:
    config = service.home / "config.toml"
    lines = [f'store = "{url}"', config.read_text()]
    if roles:
        lines += ["[cluster]", f"roles = {json.dumps(list(roles))}"]
    config.write_text("\n".join(lines) + "\n")
