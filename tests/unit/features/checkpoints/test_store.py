"""The store after stops and crashes, with several users, and its limits."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from alipes.config.settings import CheckpointsConfig
from alipes.features.checkpoints.prune import KEEP_ORPHANS_S, list_stored_folders
from alipes.features.checkpoints.store import CheckpointRecord
from alipes.runtime.processes.process_tree import open_orphan_guard
from tests.world.environment import ROOT

pytestmark = pytest.mark.deadline(90)
KILLED = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.world.checkpoints import CheckpointWorld

async def main():
    world = CheckpointWorld(Path({path!r}))
    turn = world.make_turn("before the crash")
    def change():
        world.write("a.txt", "half done")
        print("written", flush=True)
        import time
        time.sleep(60)
    await world.call(change, turn)

asyncio.run(main())
"""


def fill(world, count, size=200):
    for number in range(count):
        world.write(f"d{number % 20}/f{number}.txt", f"{number}\n" * size)


async def test_the_checkpoint_is_there_after_kill_9_in_the_middle_of_a_turn(world, tmp_path):
    world.write("a.txt", "one")
    code = KILLED.format(root=str(ROOT), path=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "written\n"
        process.kill()
    (listed,) = await world.listed()
    assert listed.checkpoint.record.words == "before the crash"
    assert listed.files == ("a.txt",)
    await world.restore(1)
    assert world.read("a.txt") == "one"


async def test_a_turn_that_resumes_after_a_crash_keeps_its_first_checkpoint(world):
    world.write("a.txt", "one")
    turn = world.make_turn()
    await world.call(lambda: world.write("a.txt", "half"), turn)
    world.use(world.make_engine())  # another process
    resumed = world.make_turn(id=turn.id, attempt=2)
    await world.call(lambda: world.write("a.txt", "whole"), resumed)
    await world.end(resumed)
    assert await world.numbers() == [1]
    await world.restore(1)
    assert world.read("a.txt") == "one"


@pytest.mark.parametrize("seed", range(6))
async def test_a_stop_in_the_middle_leaves_nothing_running_and_the_store_usable(world, seed, tmp_path):
    fill(world, 400)
    async with open_orphan_guard(tmp_path / "run") as guard:
        world.use(world.make_engine(guard=guard))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.006 * seed):
                await world.call(lambda: None, world.make_turn())
        await world.run_turn(lambda: world.write("a.txt", "x"))
        assert world.notices == []
        assert (await world.listed())[0].files == ("a.txt",)


async def test_lock_files_of_a_killed_git_are_removed(world):
    world.write("a.txt", "1")
    await world.run_turn(lambda: world.write("a.txt", "2"))
    directory = world.store_folder() / "git"
    (directory / "index.lock").write_text("")
    (directory / "HEAD.lock").write_text("")
    (directory / "refs" / "checkpoints" / "00000002.lock").write_text("")
    await world.run_turn(lambda: world.write("a.txt", "3"))
    assert await world.numbers() == [2, 1]


async def test_a_killed_git_releases_the_store(world):
    fill(world, 3000)
    (world.project / "d0" / "f0.txt").chmod(0o644)
    code = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from tests.world.checkpoints import CheckpointWorld\n"
        "world = CheckpointWorld(Path(sys.argv[1]))\n"
        "print('go', flush=True)\n"
        "asyncio.run(world.call(lambda: None, world.make_turn()))\n"
    )
    argv = [sys.executable, "-c", code, str(world.home.parent), str(ROOT)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        process.stdout.readline()
        while not (world.stores.exists() and any(world.stores.glob("*/git/index.lock"))) and process.poll() is None:
            await asyncio.sleep(0.001)
        process.kill()
    await world.run_turn(lambda: world.write("a.txt", "x"))
    assert world.notices == []
    assert (await world.listed())[0].files == ("a.txt",)


async def test_two_processes_wait_for_each_other(world):
    world.write("a.txt", "1")
    other = world.make_engine()
    made = await asyncio.wait_for(
        _gather(
            *(
                engine.make(str(world.project), CheckpointRecord(turn=f"{name}{number}", words=name))
                for number in range(4)
                for name, engine in (("one", world.engine), ("two", other))
            )
        ),
        60,
    )
    assert sorted(each.number for each in made) == list(range(1, 9))


async def _gather(*work):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
    return [task.result() for task in tasks]


async def test_only_the_latest_checkpoints_are_kept(world):
    world.use(world.make_engine(CheckpointsConfig(keep=3)))
    for number in range(6):
        await world.run_turn(lambda number=number: world.write("a.txt", f"{number}"))
    assert await world.numbers() == [6, 5, 4]
    await world.restore(4)
    assert world.read("a.txt") == "2"


async def test_the_store_stays_within_its_size(world):
    world.use(world.make_engine(CheckpointsConfig(max_mb=2)))
    for _ in range(6):
        await world.run_turn(lambda: world.write("a.bin", os.urandom(900_000)))
    (stored,) = list_stored_folders(world.stores)
    assert stored.size <= 2 << 20
    assert await world.numbers() == [6] or len(await world.numbers()) <= 2


async def test_checkpoints_of_a_folder_that_is_gone_are_removed_after_some_days(world):
    other = world.home / "other"
    other.mkdir()
    await world.run_turn(lambda: (other / "b.txt").write_text("x"), workdir=other)
    shutil.rmtree(other)
    await world.run_turn(lambda: world.write("a.txt", "1"))
    assert len(list_stored_folders(world.stores)) == 2
    old = time.time() - KEEP_ORPHANS_S - 10
    orphan = next(each.store for each in list_stored_folders(world.stores) if not each.exists)
    for name in ("folder", "lock"):
        os.utime(orphan / name, (old, old))
    await world.run_turn(lambda: world.write("a.txt", "2"))
    (left,) = list_stored_folders(world.stores)
    assert left.folder == str(world.project)


async def test_the_same_content_is_stored_once(world):
    data = os.urandom(500_000)
    world.write("a.bin", data)
    for number in range(4):
        await world.run_turn(lambda number=number: world.write(f"copy{number}.bin", data))
    (stored,) = list_stored_folders(world.stores)
    assert stored.checkpoints == 4
    assert stored.size < 700_000


async def test_many_packs_are_joined(world, monkeypatch):
    monkeypatch.setattr("alipes.features.checkpoints.store.MAX_PACKS", 2)
    for number in range(4):
        await world.run_turn(lambda number=number: world.write("a.txt", f"{number}"))
    packs = list((world.store_folder() / "git" / "objects" / "pack").glob("*.pack"))
    assert len(packs) <= 3
    await world.restore(1)
    assert world.read("a.txt") is None
