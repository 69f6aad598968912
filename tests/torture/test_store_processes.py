"""The store with real processes: a killed one frees its sessions, and nothing acknowledged is lost."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from alipes.kernel.messages import user
from alipes.kernel.turns import Address, Envelope, Inbound, Said, Stop, TextDelta, Wake
from alipes.store.sqlite.store import open_store
from tests.torture.trials import seeds
from tests.world.environment import LIMIT_S

HERE = Address("cli", "here")
ROOT = Path(__file__).parents[2]

PRELUDE = """
import asyncio, json, os, sys
from pathlib import Path
from alipes.kernel.errors import *
from alipes.kernel.messages import *
from alipes.kernel.turns import *
from alipes.store.sqlite.store import open_store

home, HERE = Path(sys.argv[1]), Address("cli", "here")

def tell(*words):
    print(*words, flush=True)

def inbound(id, address=HERE):
    return Inbound(id=str(id), address=address, sender="me", text="hello")
"""

HOLD = """
async def main():
    async with open_store(home) as store, asyncio.TaskGroup() as group:
        await store.turns.accept(inbound("held"))
        turn = await store.turns.claim_next(HERE.key)
        await store.turns.record(turn, Said(user("hello")))
        group.create_task(store.dispatcher.run(lambda key, op: tell(key, type(op).__name__)))
        await asyncio.sleep(0)
        tell("holding", store.host)
        for line in iter(lambda: None, 0):
            await asyncio.sleep(0.01)
            store.bus.publish(Envelope(HERE.key, turn.id, TextDelta("tick")))
asyncio.run(main())
"""

ACCEPT = """
async def main():
    async with open_store(home) as store, asyncio.TaskGroup() as group:
        async def client(n):
            address = Address("cli", f"{os.getpid()} {n}")
            for message in range(10_000):
                id = await store.turns.accept(inbound(f"{address.chat} {message}", address))
                tell(id)
                turn = await store.turns.claim_next(address.key)
                await store.turns.record(turn, Said(user("hello")))
                await store.turns.finish(turn, "answered", "")
                tell("ended", turn.id)
        for n in range(8):
            group.create_task(client(n))
asyncio.run(main())
"""

FIRST = """
async def main():
    async with open_store(home) as store:
        tell(await store.turns.accept(inbound(os.getpid())))
asyncio.run(main())
"""


def command(script: str, home: Path) -> list[str]:
    return [sys.executable, "-c", PRELUDE + script, str(home)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


@asynccontextmanager
async def child(script: str, home: Path):
    process = await asyncio.create_subprocess_exec(
        *command(script, home), stdout=asyncio.subprocess.PIPE, env=ENVIRONMENT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.stdout.read()
        await process.wait()


async def line(process) -> list[str]:
    return (await process.stdout.readline()).decode().split()


@pytest.mark.deadline(60)
async def test_the_sessions_of_a_killed_process_are_free_at_once(tmp_path):
    async with open_store(tmp_path) as store, child(HOLD, tmp_path) as holder:
        _, host = await line(holder)
        assert await store.turns.holder(HERE.key) == host
        assert await store.turns.list_orphans() == ()
        holder.kill()
        await holder.wait()
        assert await store.turns.holder(HERE.key) is None
        assert await store.turns.list_orphans() == (HERE.key,)
        turn = await store.turns.claim_next(HERE.key)
        assert (turn.attempt, turn.said) == (2, (user("hello"),))


@pytest.mark.deadline(60)
async def test_files_of_a_killed_process_are_removed_by_the_next(tmp_path):
    async with child(HOLD, tmp_path) as holder:
        await line(holder)
        run = tmp_path / "run"
        assert len(list(run.iterdir())) == 2
        assert run.stat().st_mode & 0o077 == 0
        assert all(file.stat().st_mode & 0o077 == 0 for file in run.iterdir())
        holder.kill()
        await holder.wait()
    async with open_store(tmp_path) as store:
        assert {file.stem for file in run.iterdir()} == {store.host}
    assert list(run.iterdir()) == []


@pytest.mark.deadline(60)
async def test_a_suspended_process_keeps_its_sessions(tmp_path):
    async with open_store(tmp_path, peer_timeout_s=600) as store, child(HOLD, tmp_path) as holder:
        _, host = await line(holder)
        holder.send_signal(signal.SIGSTOP)
        await store.dispatcher.wake(HERE.key)
        async with store.bus.subscribe(HERE.key), open_store(tmp_path, peer_timeout_s=600) as other:
            assert await other.turns.holder(HERE.key) == host
            assert await other.turns.claim_next("something else") is None, "no call waited for the suspended process"
        holder.send_signal(signal.SIGCONT)
        assert await line(holder) == [HERE.key, "Wake"]


@pytest.mark.deadline(60)
async def test_a_stop_and_a_wake_reach_the_other_process(tmp_path):
    async with open_store(tmp_path) as store, child(HOLD, tmp_path) as holder:
        await line(holder)
        await store.dispatcher.signal(HERE.key, Stop())
        assert await line(holder) == [HERE.key, "Stop"]
        await store.dispatcher.wake(HERE.key)
        assert await line(holder) == [HERE.key, "Wake"]


@pytest.mark.deadline(60)
async def test_a_subscriber_gets_events_of_another_process_until_it_is_killed(tmp_path):
    async with open_store(tmp_path) as store, child(HOLD, tmp_path) as holder:
        await line(holder)
        async with store.bus.subscribe(HERE.key) as events:
            for _ in range(3):
                assert isinstance((await anext(events)).event, TextDelta)
            holder.kill()
            async for _ in events:
                pass
        assert await store.turns.list_orphans() == (HERE.key,)


async def wake_until_received(store, ops):
    while ops.empty():
        await store.dispatcher.wake(HERE.key)


@pytest.mark.deadline(60)
async def test_a_process_that_wakes_a_session_while_its_holder_is_killed_gets_the_work(tmp_path):
    ops = asyncio.Queue()
    async with open_store(tmp_path) as store, asyncio.TaskGroup() as group:
        serving = group.create_task(store.dispatcher.run(lambda key, op: ops.put_nowait((key, op))))
        async with child(HOLD, tmp_path) as holder:
            await line(holder)
            waking = group.create_task(wake_until_received(store, ops))
            holder.kill()
            await waking
        assert await ops.get() == (HERE.key, Wake())
        assert (await store.turns.claim_next(HERE.key)).attempt == 2
        serving.cancel()


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(3, 20))
async def test_nothing_acknowledged_is_lost_by_killing_writers_at_any_moment(tmp_path, seed):
    rng = random.Random(seed)
    acknowledged = []

    async def kill_randomly():
        async with child(ACCEPT, tmp_path) as writer:
            acknowledged.append((await writer.stdout.readline()).decode())
            asyncio.get_running_loop().call_later(rng.uniform(0.05, 0.5), writer.kill)
            while text := await writer.stdout.readline():
                if text.endswith(b"\n"):
                    acknowledged.append(text.decode())

    for _ in range(2):
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(kill_randomly())
    with closing(sqlite3.connect(tmp_path / "alipes.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        endings = dict(db.execute("SELECT id, ending FROM turns").fetchall())
    for promise in acknowledged:
        *word, id = promise.split()
        assert id in endings, f"seed {seed}: accepted and lost"
        assert not word or endings[id] == "answered", f"seed {seed}: ended and forgotten"
    assert len(acknowledged) > 20
    async with open_store(tmp_path) as store:
        orphans = await store.turns.list_orphans()
        assert len(orphans) == len({t for t, ending in endings.items() if ending is None})
        for key in orphans:
            turn = await store.turns.claim_next(key)
            await store.turns.finish(turn, "answered", "")
        assert await store.turns.list_orphans() == ()
        assert await store.archive.check() == []


@pytest.mark.deadline(60)
async def test_many_processes_may_open_a_new_home_at_once(tmp_path):
    home = tmp_path / "new"
    started = [subprocess.Popen(command(FIRST, home), stdout=subprocess.PIPE, env=ENVIRONMENT) for _ in range(6)]
    printed = await asyncio.to_thread(lambda: [process.communicate()[0].decode().strip() for process in started])
    assert [process.returncode for process in started] == [0] * 6
    async with open_store(home) as store:
        for id in printed:
            assert (await store.archive.turn(id)).ending is None
        assert len(await store.archive.sessions()) == 1, "all six used one conversation"


@pytest.mark.deadline(60)
async def test_a_home_with_a_long_path_has_its_sockets_in_it_too(tmp_path):
    home = tmp_path / ("deep " * 12) / ("deeper " * 12)
    async with open_store(home) as store:
        ours = set((home / "run").iterdir())
        assert {each.suffix for each in ours} == {".lock", ".sock"}
        async with child(HOLD, home) as holder:
            await line(holder)
            await store.dispatcher.signal(HERE.key, Stop())
            assert await line(holder) == [HERE.key, "Stop"]
            holder.kill()
            await holder.wait()
        assert set((home / "run").iterdir()) > ours
        async with open_store(home) as next_one:
            theirs = {f"{next_one.host}.lock", f"{next_one.host}.sock"}
            left = {each.name for each in (home / "run").iterdir()}
            assert left == theirs | {each.name for each in ours}, "the next process cleans up after the dead"
    assert list((home / "run").iterdir()) == []


@pytest.mark.deadline(60)
async def test_short_lived_processes_leave_nothing_behind(tmp_path):
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with open_store(tmp_path) as store, store.bus.subscribe(HERE.key) as events:
        baseline = held()
        for n in range(30):
            async with open_store(tmp_path) as other:
                await other.turns.accept(Inbound(id=str(n), address=HERE, sender="me", text="hello"))
                turn = await other.turns.claim_next(HERE.key)
                await other.turns.record(turn, Said(user("hello")))
                other.bus.publish(Envelope(HERE.key, turn.id, TextDelta(str(n))))
                await other.turns.finish(turn, "answered", "")
            if n == 0:
                assert [e.event.text async for e in events] == ["0"]
        async with asyncio.timeout(LIMIT_S):  # SQLite keeps one descriptor of a file that is open twice
            while held() > baseline + 1 or len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)
