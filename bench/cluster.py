"""Clusters on PostgreSQL: light workers (store and turns, no model) on a private server of this machine.

`python -m bench cluster` runs all parts; each runs alone by its name. Every part makes its own server.
"""

import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.torture.cluster_checker import HISTORY_SQL, check_history, count_by_rule, count_in_flight
from tests.torture.cluster_history import load_history
from tests.torture.fault_injector import waits
from tests.world.cluster import LightCluster, LightWorkerProcess, MessageLoad, open_light_cluster
from tests.world.cluster_store import open_worker_store
from tests.world.cluster_worker import SENDS
from tests.world.postgres_pair import PostgresNode, PostgresPair, make_url, open_node, open_pair
from tests.world.serve_process import cpu
from tests.world.tcp_proxy import TcpProxy, open_proxy
from tests.world.wait import until

from alipes.kernel.messages import Text, assistant
from alipes.kernel.turns import Address, Inbound, Said
from bench.measure import Row, bounded, p

STEPS = 1000
CHATS, PER_SECOND, SECONDS = 2000, 200.0, float(os.environ.get("ALIPES_BENCH_CLUSTER_S", "60"))
THINK_S, TOOL_S = 0.025, 0.02
"""A turn of about 70 ms."""
RUNNING, STOPPED = 500, 2000
LONG_TOOL_S = 600.0
AWAY_S = (1.0, 4.0, 40.0)
SETTLE_S = 60.0


class Setup(Struct):
    node: PostgresNode
    cluster: LightCluster
    pair: PostgresPair | None = None

    @property
    def workers(self) -> list[LightWorkerProcess]:
        return self.cluster.workers


Fill = Callable[[PostgresNode], Awaitable[None]]


@asynccontextmanager
async def open_setup(
    count: int, *, standby: bool = False, fill: Fill | None = None, **options: Any
) -> AsyncIterator[Setup]:
    """A server, `count` light workers on it, and a note of each claim. `fill`: called before they start."""
    opened = open_pair if standby else open_node
    with tempfile.TemporaryDirectory() as name:
        async with opened(track_commit_timestamp="on", fsync="on") as server:
            nodes = (server.primary, server.standby) if isinstance(server, PostgresPair) else (server,)
            if fill is not None:
                await fill(nodes[0])
            options = {"think_s": THINK_S, "tool_s": TOOL_S, "proxied": False, **options}
            async with open_light_cluster(Path(name), count, nodes, **options) as cluster:
                await nodes[0].query(HISTORY_SQL)
                yield Setup(nodes[0], cluster, server if isinstance(server, PostgresPair) else None)


async def step() -> list[Row]:
    """One durable step of a turn, alone; its round trips, seen by a proxy."""
    with tempfile.TemporaryDirectory() as name:
        async with open_node(fsync="on") as node, open_proxy(("127.0.0.1", node.port)) as proxy:
            direct, _ = await _measure_steps(Path(name, "a"), node.url())
            _, trips = await _measure_steps(Path(name, "b"), make_url([proxy.port]), proxy)
        sqlite, _ = await _measure_steps(Path(name, "c"), "")
    limit = f"{p(sqlite, 50):.2f} ms (SQLite)"
    return [
        Row("durable step, p50", f"{p(direct, 50):.2f} ms", limit, "", "<= 1 ms", p(direct, 50) <= 1),
        bounded("durable step, round trips, with those of the lease meanwhile", trips, 2, ""),
    ]


async def _measure_steps(home: Path, url: str, proxy: TcpProxy | None = None) -> tuple[list[float], float]:
    """Milliseconds of each `record` of one turn, and round trips per step."""
    async with open_worker_store(home, url, frozenset({"web"})) as store:
        address = Address("test", "one")
        await store.turns.accept(Inbound("m1", address, "me", "hello"))
        turn = await store.turns.claim_next(address.key)
        assert turn is not None
        times, before = [], proxy.requests if proxy else 0
        for number in range(STEPS):
            began = time.perf_counter()
            await store.turns.record(turn, Said(assistant(Text(f"step {number}"))))
            times.append((time.perf_counter() - began) * 1000)
        return times, (proxy.requests - before if proxy else 0) / STEPS


async def store_cpu() -> list[Row]:
    """CPU of one light worker and of PostgreSQL per turn, 64 chats that write again once they are answered."""
    async with open_setup(1, think_s=0.0, tool_s=0.0) as world:
        load = MessageLoad(world.workers, 64, random.Random(1))
        await _converse(world.cluster, load, 64, 2)
        worker, server, done = cpu(world.workers[0].pid), world.node.cpu(), len(load.accepted)
        began = time.monotonic()
        await _converse(world.cluster, load, 64, 15)
        count, seconds = len(load.accepted) - done, time.monotonic() - began
        ours, theirs = cpu(world.workers[0].pid) - worker, world.node.cpu() - server
    each = (
        f"worker {ours / count * 1000:.2f} + PostgreSQL {theirs / count * 1000:.2f} ms, {count / seconds:.0f} turns/s"
    )
    return [bounded(f"store CPU per turn at 64 chats ({each})", (ours + theirs) / count * 1000, 1.5, "ms")]


async def _converse(cluster: LightCluster, load: MessageLoad, chats: int, turns: int) -> None:
    """Each chat writes again as soon as its answer is sent."""
    watch = SendWatch(cluster.folder / SENDS)

    async def person(chat: str) -> None:
        for _ in range(turns):
            message = await load.write(chat)
            await watch.wait(message.token)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(watch.run())
        await asyncio.wait([group.create_task(person(f"p{number}")) for number in range(chats)])
        reading.cancel()


class SendWatch:
    """Reads the file of sent answers as it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._place = path, 0
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._seen: set[str] = set()

    async def wait(self, token: str) -> None:
        """Return when the answer with this token was sent."""
        if token not in self._seen:
            self._waiting[token] = asyncio.get_running_loop().create_future()
            await self._waiting[token]

    async def run(self) -> None:
        while True:
            for line in self._read_lines():
                token = json.loads(line)["text"]
                self._seen.add(token)
                if token in self._waiting:
                    self._waiting.pop(token).set_result(None)
            await asyncio.sleep(0.004)

    def _read_lines(self) -> list[bytes]:
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._place)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._place += len(whole)
        return whole.splitlines()


async def steady_load() -> list[Row]:
    """Four workers, 2,000 chats, 200 messages/s: how long messages wait, and what was lost."""
    async with open_setup(4) as world:
        return await steady_rows(world, "4 workers, 2,000 chats, 200 messages/s")


async def steady_rows(world: Setup, name: str) -> list[Row]:
    load = MessageLoad(world.workers, CHATS, random.Random(2))
    await load.run(PER_SECOND, SECONDS)
    await world.cluster.wait_until_done(SETTLE_S)
    seen = [wait * 1000 for wait in waits(world.cluster, load)]
    found = count_by_rule(check_history(await asyncio.to_thread(load_history, world.cluster, load)))
    return [
        bounded(f"{name}: accepted to begun, p50", p(seen, 50), 15, "ms"),
        bounded("the same, p99", p(seen, 99), 250, "ms"),
        Row(f"the same, lost, doubled, reordered of {len(load.accepted)}", f"{found or 0}", "", "", "0", not found),
    ]


async def scale() -> list[Row]:
    """Turns per second of one, two and four workers with as many chats as they can serve."""
    rows = []
    for count in (1, 2, 4):
        async with open_setup(count) as world:
            load = MessageLoad(world.workers, 256, random.Random(3))
            await _converse(world.cluster, load, 256, 1)
            began, done = time.monotonic(), len(load.accepted)
            await _converse(world.cluster, load, 256, 10)
            rate = (len(load.accepted) - done) / (time.monotonic() - began)
        rows.append(Row(f"256 chats, {count} workers", f"{rate:.0f} turns/s", "", "", "", True))
    return rows


async def _run_long_turns(world: Setup, load: MessageLoad, count: int) -> None:
    """Start `count` turns whose tool call lasts until the end."""
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(load.write(f"long{number}"))
    await until(lambda: len(world.cluster.effects) >= count)


async def _takeover(how: str, reach_ms: float) -> list[Row]:
    """A worker with 500 running turns is lost; when the others have claimed them."""
    async with open_setup(4, started=1, tool_s=LONG_TOOL_S, proxied=how == "silence") as world:
        victim, *others = world.workers
        load = MessageLoad([victim], 1, random.Random(4))
        await _run_long_turns(world, load, RUNNING)
        for worker in others:
            await worker.start()
        began = time.time()
        match how:
            case "kill":
                await victim.kill()
            case "pause":
                victim.pause()
            case _:
                victim.proxies[0].silence()
        await until(lambda: sum(len(each.reported("claimed")) for each in others) >= RUNNING)
        times = [(event["at"] - began) * 1000 for each in others for event in each.reported("claimed")]
        victim.resume()
        for proxy in victim.proxies:
            proxy.restore()
        if how != "kill":  # it notices that its lease is lost, and its late rows are refused
            await until(lambda: len(victim.reported("ready")) > 1)
        history = await asyncio.to_thread(load_history, world.cluster, load)
        late = [each for each in check_history(history) if each.rule in ("late row", "late call", "two holders")]
        found = count_by_rule(late)
    name = {"kill": "kill -9", "pause": "SIGSTOP", "silence": "silent partition"}[how]
    return [
        bounded(f"{name} of a worker with {RUNNING} turns: all claimed by others, p99", p(times, 99), reach_ms, "ms"),
        Row(
            "the same, late rows and calls",
            f"{found or 0}",
            f"{count_in_flight(history)} in flight",
            "",
            "0",
            not found,
        ),
    ]


async def kill() -> list[Row]:
    return await _takeover("kill", 250)


async def pause() -> list[Row]:
    return await _takeover("pause", 4000)


async def partition() -> list[Row]:
    return await _takeover("silence", 4000)


async def stops() -> list[Row]:
    """Stops sent by a worker that does not hold the session."""
    async with open_setup(4, tool_s=LONG_TOOL_S) as world:
        load = MessageLoad(world.workers, 1, random.Random(5))
        await _run_long_turns(world, load, STOPPED)
        holders = {event["key"]: each for each in world.workers for event in each.reported("claimed")}
        dice, sent = random.Random(6), dict[str, float]()
        for key in dice.sample(sorted(holders), 400):
            other = dice.choice([each for each in world.workers if each is not holders[key]])
            sent[key] = time.time()
            other.command("/stop", key.rpartition(":")[2])
            await asyncio.sleep(0.01)

        def seen() -> dict[str, float]:
            return {event["key"]: event["at"] for each in world.workers for event in each.reported("stopped")}

        await until(lambda: len(seen()) >= len(sent))
        times = [(seen()[key] - at) * 1000 for key, at in sent.items()]
    name = f"stop from another worker, {STOPPED} running turns on 4"
    return [bounded(f"{name}, p50", p(times, 50), 5, "ms"), bounded("the same, p99", p(times, 99), 50, "ms")]


async def bus() -> list[Row]:
    """10,000 events of 1 KB a second, published by one worker and read by all four."""
    async with open_setup(4) as world:
        for worker in world.workers:
            worker.command("/subscribe", "bus")
        await until(lambda: all(worker.reported("subscribed") for worker in world.workers))
        world.workers[0].command("/publish", "bus", "10000 5 1000")
        await until(lambda: all(worker.reported("received") for worker in world.workers))
        ages = [worker.reported("received")[0]["ages"] for worker in world.workers]
    least = min(map(len, ages))
    every = [age for each in ages for age in each]
    return [
        bounded(f"bus, 10,000 events/s of 1 KB to 4 workers, p99 (p50 {p(every, 50):.1f} ms)", p(every, 99), 20, "ms"),
        Row("the same, received by the worst reader of 50,000", f"{least}", "", "", "", True),
    ]


async def away() -> list[Row]:
    """PostgreSQL is stopped while turns run: when the first step is written after it is back."""
    rows = []
    for seconds in AWAY_S:
        async with open_setup(2) as world:
            load = MessageLoad(world.workers, 64, random.Random(7))
            async with asyncio.TaskGroup() as group:
                group.create_task(load.run(20, seconds + 10))
                await asyncio.sleep(3)
                await world.node.stop_immediate()
                await asyncio.sleep(seconds)
                await world.node.start()
                back = time.time()
            await world.cluster.wait_until_done(SETTLE_S)
            history = await asyncio.to_thread(load_history, world.cluster, load, server_crashed=True)
            first = min((message.at for message in history.messages if message.at > back), default=float("inf"))
            found = count_by_rule(check_history(history))
        rows += [
            bounded(f"PostgreSQL away for {seconds:.0f} s: first step after it is back", first - back, 1, "s"),
            Row("the same, violations", f"{found or 0}", "", "", "0", not found),
        ]
    return rows


async def promotion() -> list[Row]:
    """The primary is killed and its synchronous standby promoted."""
    async with open_setup(4, standby=True) as world:
        assert world.pair is not None
        load = MessageLoad(world.workers, 64, random.Random(8))
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(50, 12))
            await asyncio.sleep(4)
            began = time.time()
            await world.pair.promote()
            promoted = time.time() - began
        await world.cluster.wait_until_done(SETTLE_S)
        history = await asyncio.to_thread(load_history, world.cluster, load, server_crashed=True)
        first = min((message.at for message in history.messages if message.at > began + promoted), default=float("inf"))
        found = count_by_rule(check_history(history))
    name = f"standby promoted ({promoted:.2f} s for PostgreSQL): first step after that"
    return [
        bounded(name, first - began - promoted, 2, "s"),
        Row("the same, accepted messages lost, other violations", f"{found or 0}", "", "", "0", not found),
    ]


async def replacement() -> list[Row]:
    """Each of four workers leaves and is started again, one after the other, under load."""
    async with open_setup(4) as world:
        load = MessageLoad(world.workers, CHATS, random.Random(9))
        async with asyncio.TaskGroup() as group:
            loading = group.create_task(load.run(100, 40))
            await asyncio.sleep(5)
            calm = max(waits(world.cluster, load), default=0.0)
            for worker in world.workers:
                await worker.leave()
                await worker.start()
                await asyncio.sleep(1)
            await asyncio.wait([loading])
        await world.cluster.wait_until_done(SETTLE_S)
        longest = max(waits(world.cluster, load))
        found = count_by_rule(check_history(await asyncio.to_thread(load_history, world.cluster, load)))
    return [
        bounded(f"rolling replacement of 4: longest wait above that before ({calm:.2f} s)", longest - calm, 1, "s"),
        Row("the same, violations", f"{found or 0}", "", "", "0", not found),
    ]


ALL = {
    "clusterstep": step,
    "clustercpu": store_cpu,
    "clusterload": steady_load,
    "clusterscale": scale,
    "clusterkill": kill,
    "clusterpause": pause,
    "clusterpartition": partition,
    "clusterstops": stops,
    "clusterbus": bus,
    "clusteraway": away,
    "clusterpromotion": promotion,
    "clusterreplacement": replacement,
}
