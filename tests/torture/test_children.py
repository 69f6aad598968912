"""Stop means stop for processes: stubborn trees stopped at random moments, and a killed host."""

import asyncio
import os
import random
import signal
import statistics
import sys
import textwrap
import time
from pathlib import Path

import pytest

from alipes.runtime.processes.child import open_child
from alipes.runtime.processes.process_tree import kill_orphans
from tests.world.environment import LIMIT_S
from tests.world.wait import until

ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": "src"}
TRIALS = int(os.environ.get("ALIPES_TORTURE_TRIALS", "20"))
CHAIN = "import os, time\nfor _ in range(400):\n    if os.fork(): os._exit(0)\n    time.sleep(0.001)\n"
STUBBORN = textwrap.dedent("""
    setsid bash -c 'trap "" TERM HUP INT; while :; do sleep 300.{name}; done' {name} &
    (env -i setsid -f bash -c 'trap "" TERM; sleep 300.{name}; sleep 300.{name}' {name} >/dev/null 2>&1)
""")
CHAINS = "{python} -Sc '{chain}' {name} & {python} -Sc '{chain}' {name} &"
"""Each process exits as soon as it has forked. A chain lasts longer than a trial, but ends before it fills the
process table."""
HOST = """
import asyncio, sys
from pathlib import Path
from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.processes.child import open_child

async def main():
    async with open_orphan_guard(Path(sys.argv[1])) as keeper:
        print(keeper.owner, flush=True)
        async with open_child(sys.argv[2], cwd="/", env={"PATH": sys.argv[3]}, keeper=keeper) as child:
            await child.wait()

asyncio.run(main())
"""


def tree(name: str, *, chains: bool = True) -> str:
    text = f"{STUBBORN}{CHAINS if chains else ''}\nsleep 300.{{name}}"
    return text.format(name=name, python=sys.executable, chain=CHAIN)


def find_processes(name: str) -> dict[int, str]:
    """The command lines of all other processes that contain `name`, by pid."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:  # gone meanwhile
            continue
        if name.encode() in line and entry.name != str(os.getpid()):
            found[int(entry.name)] = line.replace(b"\0", b" ").decode()[:80]
    return found


def find_running(name: str) -> list[str]:
    return list(find_processes(name).values())


def unique_name(random_: random.Random) -> str:
    return f"{random_.randrange(10**9):09d}{os.getpid():07d}"


@pytest.mark.deadline(300)
async def test_a_stubborn_tree_is_gone_when_its_scope_is_left_at_any_moment(figures, seed=2026):
    rng = random.Random(seed)
    seconds_taken = []
    for trial in range(TRIALS):
        name, moment = unique_name(rng), rng.uniform(0, 0.25)

        async def run_child(name=name):
            async with open_child(tree(name), cwd="/", env=ENV) as child:
                await child.wait()

        task = asyncio.create_task(run_child())
        await asyncio.sleep(moment)
        began = time.perf_counter()
        task.cancel()
        await asyncio.wait([task])
        seconds_taken.append(time.perf_counter() - began)
        assert find_running(name) == [], f"trial {trial} of seed {seed}, stopped after {moment:.3f} s"
    figures.tried(TRIALS)
    figures.worst("end of a stubborn tree", max(seconds_taken), "s")
    assert statistics.median(seconds_taken) < LIMIT_S / 6


@pytest.mark.deadline(120)
async def test_many_stubborn_trees_are_stopped_at_once():
    rng = random.Random(7)
    names = [unique_name(rng) for _ in range(4)]

    async def run_child(name):
        async with open_child(tree(name), cwd="/", env=ENV) as child:
            await child.wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(run_child(name))
    assert [line for name in names for line in find_running(name)] == []


async def start_host(run: Path, name: str) -> tuple[asyncio.subprocess.Process, int]:
    """Start a process with a stubborn tree; returns it and its owner number once the tree runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOST, str(run), tree(name, chains=False), ENV["PATH"]),
        env=ENV,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    owner = int(await process.stdout.readline())
    await until(lambda: sum(line.startswith("sleep") for line in find_running(name)) == 3)
    return process, owner


@pytest.mark.deadline(60)
async def test_a_tree_is_killed_when_its_host_is_killed(tmp_path):
    name = unique_name(random.Random())
    process, owner = await start_host(tmp_path, name)
    process.kill()
    await process.wait()
    await until(lambda: not find_running(name))
    await until(lambda: not find_running(f"alipes-watchdog\0{owner}"))


@pytest.mark.deadline(60)
async def test_a_tree_without_host_and_watchdog_is_killed_at_the_next_start(tmp_path):
    name = unique_name(random.Random())
    process, owner = await start_host(tmp_path, name)
    (watchdog,) = find_processes(f"alipes-watchdog\0{owner}")
    os.kill(watchdog, signal.SIGKILL)
    assert kill_orphans(tmp_path) == 0, "its host is running"
    process.kill()
    await process.wait()
    assert find_running(name) != []
    assert await asyncio.to_thread(kill_orphans, tmp_path) >= 2
    await until(lambda: not find_running(name))
    assert list((tmp_path / "children").iterdir()) == []


@pytest.mark.deadline(60)
async def test_an_interrupted_host_leaves_nothing_running(tmp_path):
    name = unique_name(random.Random())
    process, owner = await start_host(tmp_path, name)
    process.send_signal(signal.SIGINT)
    await process.wait()
    assert find_running(name) == []
    assert find_running(f"alipes-watchdog\0{owner}") == []
    assert list((tmp_path / "children").iterdir()) == []
