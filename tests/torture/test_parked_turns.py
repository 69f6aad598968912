"""Turns that wait for a limit, in two processes that are killed at random: each resumes once, none early, none lost."""

import asyncio
import json
import random
import sys
import time
from collections import defaultdict
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from alipes.kernel.turns import Address, Inbound
from alipes.store.postgres.store import OWN_TURNS
from alipes.store.postgres.store import open_postgres_store as open_cluster_store
from alipes.store.sqlite.store import open_store
from tests.torture.trials import trials
from tests.world.environment import LIMIT_S, environment
from tests.world.postgres_server import postgres_schema, postgres_server

TURNS, KILLS = trials(60, 1000), trials(4, 50)
SPREAD_S = 1.2 * KILLS
"""The limits reset one after the other, while processes are killed."""


@pytest.fixture(scope="session", autouse=True)
def shared_postgres():
    """It starts before the first test, so that it does not count as left behind by the first one that uses it."""
    with suppress(pytest.skip.Exception):  # the test that needs it is skipped
        postgres_server()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    """Where the store is, as the worker takes it."""
    if request.param == "sqlite":
        yield str(tmp_path / "home")
        return
    with postgres_schema() as url:
        yield url


def open_here(store: str):
    return open_cluster_store(store, limits=OWN_TURNS) if "://" in store else open_store(Path(store))


class Workers:
    def __init__(self, folder: Path, store: str) -> None:
        self.log, self.resets = folder / "log", folder / "resets.json"
        self.killed: dict[int, float] = {}
        """When each process was killed, by its id."""
        self._folder, self._store = folder, store
        self._living: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.torture.limit_worker", self._store, str(self.log), str(self.resets)),
            env=environment(self._folder),
            cwd=Path(__file__).parents[2],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        self._living.append(worker)
        assert worker.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            assert await worker.stdout.readline() == b"ready\n"

    async def kill(self, place: int) -> None:
        worker = self._living.pop(place)
        worker.kill()
        await worker.wait()
        self.killed[worker.pid] = time.time()

    async def close(self) -> None:
        while self._living:
            await self.kill(0)


async def wait_for_rows(home, sql: str, count: int) -> None:
    async with asyncio.timeout(LIMIT_S + TURNS / 5 + SPREAD_S):
        while (await home.database.fetch_one(sql))[0] < count:
            await asyncio.sleep(0.1)


@pytest.mark.deadline(240 + TURNS // 2 + 8 * KILLS)
async def test_each_parked_turn_resumes_once_not_early_and_none_is_lost(store, tmp_path, figures, seed=34):
    rng, workers = random.Random(seed), Workers(tmp_path, store)
    chats = [f"chat{n}" for n in range(TURNS)]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(workers.close)
        async with open_here(store) as home:
            for chat in chats:
                await home.turns.accept(Inbound(chat, Address("test", chat), "me", chat))
            await _park_all(home, workers, chats)
            for _ in range(KILLS):
                await asyncio.sleep(rng.random())  # the moment of the kill is random, not a condition
                await workers.kill(rng.randrange(2))
                await workers.start()
            await wait_for_rows(home, "SELECT count(*) FROM turns WHERE ending IS NOT NULL", TURNS)
            await _check(home, workers, chats, figures)
    figures.tried(KILLS)


async def _park_all(home, workers: Workers, chats: list[str]) -> None:
    """First the limits are far away; then each turn is given the time at which its own resets."""
    workers.resets.write_text(json.dumps(dict.fromkeys(chats, time.time() + 36_000)))
    await workers.start()
    await workers.start()
    await wait_for_rows(home, "SELECT count(*) FROM turns WHERE resume_at > 0", len(chats))
    for place in (1, 0):
        await workers.kill(place)
    start = time.time() + 3
    resets = {chat: start + SPREAD_S * n / len(chats) for n, chat in enumerate(chats)}
    workers.resets.write_text(json.dumps(resets))
    workers.log.write_text("")
    for chat, until in resets.items():
        await home.database.execute("UPDATE turns SET resume_at = ? WHERE inbound_id = ?", until, chat)
    for _ in range(2):
        await workers.start()


async def _check(home, workers: Workers, chats: list[str], figures) -> None:
    resets = json.loads(workers.resets.read_text())
    asked: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for line in workers.log.read_text().splitlines():
        _, chat, moment, process = line.split()
        asked[chat].append((float(moment), int(process)))
    rows = await home.database.fetch_all("SELECT inbound_id, id, ending, detail FROM turns")
    assert [row for row in rows if row[2:] != ("answered", "")] == []
    assert {chat for chat, times in asked.items() if min(times)[0] < resets[chat]} == set(), "resumed early"
    for chat, times in asked.items():
        for (_, before), (then, _) in pairwise(times):
            assert before in workers.killed and workers.killed[before] <= then + 0.5, f"{chat} ran twice: {times}"
    for chat, turn, _, _ in rows:
        said = [message.text for message in (await home.archive.turn(turn)).said if message.role == "assistant"]
        assert said == [f"answer to {chat}"]
    figures.worst("turns asked again after a kill", sum(len(times) - 1 for times in asked.values()))
    figures.worst("resumed after its limit", max(min(times)[0] - resets[chat] for chat, times in asked.items()), "s")
