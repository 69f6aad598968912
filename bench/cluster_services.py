"""Real `alipes serve` processes on PostgreSQL: Telegram beside SQLite's figures, the leader's death, a large home."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.world.cluster import ServeCluster, open_serve_cluster
from tests.world.postgres_pair import open_node
from tests.world.telegram_load import FIRST

from bench import gateway
from bench.measure import Row, bounded, p

CHATS, ROUNDS = 64, 10
LEADERS = 5


@asynccontextmanager
async def open_services(count: int) -> AsyncIterator[ServeCluster]:
    """A server and `count` started services on it, after some warm-up turns."""
    with tempfile.TemporaryDirectory() as name:
        async with open_node(fsync="on") as node, open_serve_cluster(Path(name), count, node) as cluster:
            for service in cluster.services:
                await service.start()
            await cluster.messenger.call("polled")
            await cluster.messenger.call("converse", chats=1, turns=3)
            yield cluster


async def telegram() -> list[Row]:
    """Turns per second at 64 chats, beside SQLite, and the warm turn."""
    async with gateway.open_service() as world:
        sqlite = await _rate(world.messenger.call)
    async with open_services(1) as cluster:
        ours = await _rate(cluster.messenger.call)
        spent = [await _warm(cluster) for _ in range(3)]
    ratio, warm = ours / sqlite * 100, p([each for times in spent for each in times], 50)
    what = f"Telegram, {CHATS} chats, of SQLite's turns/s"
    return [
        Row(what, f"{ours:.1f} turns/s", f"{sqlite:.1f} turns/s", f"{ratio / 100:.2f}", ">= 0.6", ratio >= 60),
        bounded("warm turn beyond model and messenger, with the way there and back, p50", warm, 4, "ms"),
    ]


async def _rate(call: Callable[..., Awaitable[list[dict[str, float]]]]) -> float:
    await call("converse", chats=CHATS, turns=2)
    began = time.monotonic()
    seen = await call("converse", chats=CHATS, turns=ROUNDS)
    return len(seen) / (time.monotonic() - began)


async def _warm(cluster: ServeCluster) -> list[float]:
    """Milliseconds of each turn of a conversation."""
    before = len(cluster.model.log_lines("request"))
    seen = await cluster.messenger.call("converse", chats=1, turns=20, pause=0.05)
    await cluster.messenger.call("say", text="/new", chat=FIRST)
    await asyncio.sleep(0.2)
    asked = [line["came"] for line in cluster.model.log_lines("request")][before:]
    answered = [line["time"] for line in cluster.model.log_lines("answered")][before:]
    return [
        (each["answered"] - each["asked"] - each["own"] - (after - since)) * 1000
        for each, since, after in zip(seen, asked, answered, strict=False)
    ]


async def leader() -> list[Row]:
    """The process that polls Telegram is killed: when another polls."""
    times = []
    async with open_services(3) as cluster:
        for _ in range(LEADERS):
            began, place = await _kill_leader(cluster)
            await cluster.messenger.call("polled")
            times.append(time.time() - began)
            await cluster.services[place].start()
        answered = await cluster.messenger.call("converse", chats=5, turns=2, within=30)
    return [
        bounded(f"listening leader killed: another listens, worst of {LEADERS}", max(times), 0.5, "s"),
        Row("the same, answered afterwards", f"{len(answered)} of 10", "", "", "10", len(answered) == 10),
    ]


async def _kill_leader(cluster: ServeCluster) -> tuple[float, int]:
    """Kill the service that polls the messenger; when, and its place. Others are killed and started again before it is
    found: all of them have connections to the messenger."""
    for place, service in enumerate(cluster.services):
        polls, began = len(await cluster.messenger.call("calls", method="getUpdates")), time.time()
        await service.kill()
        while time.time() < began + 0.2:
            if not (await cluster.messenger.call("state"))["polls"] or (
                len(await cluster.messenger.call("calls", method="getUpdates")) > polls
            ):
                return began, place
            await asyncio.sleep(0.005)
        await service.start()
    raise AssertionError("nobody listens")


async def replacement() -> list[Row]:
    """Three services leave and are started again one after the other while 20 people talk."""
    async with open_services(3) as cluster:
        calm = await cluster.messenger.call("converse", chats=20, turns=5)
        async with asyncio.TaskGroup() as group:
            talk = partial(cluster.messenger.call, "converse", chats=20, turns=100, pause=0.2, within=60)
            talking = group.create_task(talk())
            for service in cluster.services:
                await service.leave()
                await service.start()
        seen = talking.result()
    usual = statistics.median(each["answered"] - each["asked"] for each in calm)
    longest = max(each["answered"] - each["asked"] for each in seen)
    return [bounded("rolling replacement of 3 services: longest wait above the usual", longest - usual, 1, "s")]


ALL = {"clustertelegram": telegram, "clusterleader": leader, "clusterservices": replacement}
