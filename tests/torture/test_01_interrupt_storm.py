"""Turns stopped at random moments of a TLS stream while plugin workers open and close SQLite files.

A closed connection must never write into a file that got its descriptor.
"""

import asyncio
import random
import sqlite3
import time
from contextlib import closing

import pytest

from tests.e2e.program import Home
from tests.torture.homes import logged_errors, open_client, open_files, open_service, write_home
from tests.torture.trials import seeds, trials
from tests.world.api_harness import ApiClient
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer, Say, Stall
from tests.world.tls import ca_file, server_context
from tests.world.wait import until

WORKERS, LANES = 8, 8
STORM = '''
"""Eight workers that open, commit and close SQLite files, in threads, as libraries do."""

import asyncio, itertools, sqlite3, time
from contextlib import closing


def work(folder, number):
    path = folder / f"w{number}.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER, text TEXT)")
        db.execute("INSERT INTO t VALUES (?, ?)", (time.monotonic_ns(), "x" * 300))


async def setup(ctx):
    folder = ctx.folder / "files"
    folder.mkdir(parents=True, exist_ok=True)

    async def worker(number):
        while True:
            await asyncio.to_thread(work, folder, number)
            await asyncio.sleep(0.002)

    for number in range(8):
        ctx.run(worker(number), f"worker {number}")
'''


def replies(rng):
    """Stall before or during the answer, stream slowly, or sometimes answer at once."""

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        kinds = (Stall(None), Stall(""), Stall("half of an answer"), Say("word " * 40, pieces=40, delay=0.02))
        return rng.choice(kinds) if "hello" not in str(body["messages"][-1]) else Say("well")

    return reply


def count_files(pid: int) -> int:
    """Number of open files, without those of the workers."""
    return sum("/files/w" not in where for where in open_files(pid))


async def run_and_stop(api: ApiClient, rng: random.Random, lane: int, number: int, seconds_taken: list[float]) -> None:
    run = await api.begin(f"go {number}", session=f"s{lane}")
    await asyncio.sleep(rng.choice((0.0, rng.uniform(0, 0.03), rng.uniform(0, 0.3))))
    began = time.perf_counter()
    for _ in range(rng.choice((1, 1, 2))):
        assert (await api.ask("POST", f"/runs/{run}/stop")).status_code in (202, 409)
    seen = await api.finish(run)
    seconds_taken.append(time.perf_counter() - began)
    assert seen["status"] in ("stopped", "answered"), seen


async def run_lane(api: ApiClient, rng: random.Random, number: int, turns: int, seconds_taken: list[float]) -> None:
    for turn in range(turns):
        await run_and_stop(api, rng, number, turn, seconds_taken)


@pytest.mark.deadline(600)
@pytest.mark.parametrize("seed", seeds(1, 5))
async def test_no_byte_of_a_stopped_stream_lands_in_a_file(tmp_path, seed, figures):
    rng, seconds_taken, home = random.Random(seed), [], Home(tmp_path / "home")
    async with ModelServer(replies(rng), tls=server_context()) as model:
        write_home(home, model, plugin=STORM)
        async with open_service(home, SSL_CERT_FILE=str(ca_file(tmp_path))) as (served, api):
            await run_lane(api, rng, 0, 2, [])  # warm up
            await api.finish(await api.begin("hello"))
            before = count_files(served.process.pid)
            async with open_client(served) as crowd, asyncio.TaskGroup() as lanes:
                for number in range(LANES):
                    own = random.Random(rng.random())
                    lanes.create_task(run_lane(crowd, own, number, trials(10, 64), seconds_taken))
            assert (await api.finish(await api.begin("hello")))["status"] == "answered"
            async with asyncio.timeout(LIMIT_S):
                await model.idle()
                await until(lambda: count_files(served.process.pid) <= before + 2)
            assert await served.left() == 0
            assert await served.process.stderr.read() == b""
    assert len(list(home.path.rglob("w*.db"))) == WORKERS
    for path in home.path.rglob("*.db"):
        assert path.read_bytes()[:16] == b"SQLite format 3\0", path
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], path
    assert logged_errors(home) == []
    figures.tried(len(seconds_taken))
    figures.worst("stop", max(seconds_taken), "s")
