"""Turns stopped at random moments of a stream over TLS, while others in the process open and close SQLite files.

What a closed connection still writes must never land in a file that was given its descriptor.
"""

import asyncio
import random
import sqlite3
import time
from contextlib import closing

import pytest

from tests.e2e.program import Home
from tests.torture.homes import calling, complaints, door, furnish, open_files
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


def replies(dice):
    """Stalls before it begins, in its midst, or drips; now and then it is done at once."""

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        kinds = (Stall(None), Stall(""), Stall("half of an answer"), Say("word " * 40, pieces=40, delay=0.02))
        return dice.choice(kinds) if "hello" not in str(body["messages"][-1]) else Say("well")

    return reply


def lasting(pid: int) -> int:
    """Open files but for those of the workers, which come and go."""
    return sum("/files/w" not in where for where in open_files(pid))


async def one(front: ApiClient, dice: random.Random, lane: int, number: int, took: list[float]) -> None:
    run = await front.begin(f"go {number}", session=f"s{lane}")
    await asyncio.sleep(dice.choice((0.0, dice.uniform(0, 0.03), dice.uniform(0, 0.3))))
    began = time.perf_counter()
    for _ in range(dice.choice((1, 1, 2))):
        assert (await front.ask("POST", f"/runs/{run}/stop")).status_code in (202, 409)
    seen = await front.finish(run)
    took.append(time.perf_counter() - began)
    assert seen["status"] in ("stopped", "answered"), seen


async def lane(front: ApiClient, dice: random.Random, number: int, turns: int, took: list[float]) -> None:
    for turn in range(turns):
        await one(front, dice, number, turn, took)


@pytest.mark.deadline(600)
@pytest.mark.parametrize("seed", seeds(1, 5))
async def test_no_byte_of_a_stopped_stream_lands_in_a_file(tmp_path, seed, figures):
    dice, took, home = random.Random(seed), [], Home(tmp_path / "home")
    async with ModelServer(replies(dice), tls=server_context()) as model:
        furnish(home, model, plugin=STORM)
        async with calling(home, SSL_CERT_FILE=str(ca_file(tmp_path))) as (served, front):
            await lane(front, dice, 0, 2, [])  # everything is loaded once
            await front.finish(await front.begin("hello"))
            before = lasting(served.process.pid)
            async with door(served) as crowd, asyncio.TaskGroup() as lanes:
                for number in range(LANES):
                    own = random.Random(dice.random())
                    lanes.create_task(lane(crowd, own, number, trials(10, 64), took))
            assert (await front.finish(await front.begin("hello")))["status"] == "answered"
            async with asyncio.timeout(LIMIT_S):
                await model.idle()
                await until(lambda: lasting(served.process.pid) <= before + 2)
            assert await served.left() == 0
            assert await served.process.stderr.read() == b""
    assert len(list(home.path.rglob("w*.db"))) == WORKERS
    for path in home.path.rglob("*.db"):
        assert path.read_bytes()[:16] == b"SQLite format 3\0", path
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], path
    assert complaints(home) == []
    figures.tried(len(took))
    figures.worst("stop", max(took), "s")
