"""Stubborn background process trees: started and stopped at random, with their session, scope or host."""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from alipes.tools.common import Places, child_environment
from alipes.tools.shell.background import BackgroundProcesses
from alipes.tools.shell.output import SpillFolder
from alipes.tools.shell.terminal import ProcessTool, TerminalTool
from tests.torture.test_children import TRIALS, find_running, tree, unique_name
from tests.world.wait import until

ENV = child_environment({"PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
STUBBORN = """
setsid bash -c 'trap "" TERM HUP INT; while :; do sleep 300.{name}; done' {name} &
(env -i setsid -f bash -c 'trap "" TERM; sleep 300.{name}; sleep 300.{name}' {name} >/dev/null 2>&1)
trap '' TERM HUP INT; while :; do sleep 300.{name}; done
"""
HOST = """
import asyncio, sys
from pathlib import Path
from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.sandbox.backend import CommandScope, HostBackend
from alipes.tools.shell.background import BackgroundProcesses
from alipes.tools.shell.output import SpillFolder

async def main():
    run, command, path = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    async with open_orphan_guard(run) as keeper, BackgroundProcesses(SpillFolder(run / "spill"), backend=HostBackend(keeper)) as background:
        for pty in False, True:
            await background.start(CommandScope("s"), command, cwd="/", env={"PATH": path}, pty=pty)
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Call:
    call_id, workdir, turn = "c1", "/", None

    def __init__(self, session):
        self.session = session

    async def progress(self, text):
        pass


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for listed in lists for pid in listed.split()}


async def run_turn(
    background: BackgroundProcesses, spill: SpillFolder, session: str, name: str, rng: random.Random
) -> None:
    """What a model may do in a turn: start processes, write to them, run another command, wait."""
    places = Places(home="/nonexistent", alipes_home="/nonexistent")
    terminal, process = TerminalTool(places, ENV, spill, background=background), ProcessTool(background)
    call = Call(session)
    for command in f"echo {name}; cat", f"trap '' TERM; yes {name}", f"echo; {tree(name)}":
        await terminal.run({"command": command, "background": True, "pty": rng.random() < 0.5}, call)
    for job in background.running(session):
        if not job.child.input.closed and "cat" in job.command:
            await process.run({"action": "write", "session_id": job.name, "data": "hello\n"}, call)
        await process.run({"action": "poll", "session_id": job.name}, call)
    await terminal.run({"command": tree(name), "timeout": 1}, call)
    await process.run({"action": "wait", "session_id": background.running(session)[0].name}, call)


@pytest.mark.deadline(600)
async def test_processes_of_a_stopped_turn_are_gone_with_its_session(tmp_path, figures, seed=3):
    rng = random.Random(seed)
    seconds_taken, survived = [], 0
    spill = SpillFolder(tmp_path / "spill")
    await asyncio.to_thread(time.sleep, 0)  # start the first thread of the pool before counting
    baseline, before = fds(), children()
    async with BackgroundProcesses(spill) as background:
        for trial in range(TRIALS):
            name, session = unique_name(rng), f"s{trial}"
            moment = rng.choice([0, rng.uniform(0, 1.2), rng.uniform(0, 1.2)])
            task = asyncio.create_task(run_turn(background, spill, session, name, rng))
            await asyncio.sleep(moment)
            task.cancel()
            await asyncio.wait([task])
            outlived = len(background.running(session))
            survived += outlived
            began = time.perf_counter()
            await background.session_left(session)
            if outlived:
                seconds_taken.append(time.perf_counter() - began)
            assert find_running(name) == [], f"trial {trial} of seed {seed}, stopped after {moment:.3f} s"
            assert background.processes_of(session) == ()
        assert fds() <= baseline + 2
    assert survived > 0
    figures.tried(TRIALS)
    figures.worst("end of a session with background trees", max(seconds_taken), "s")
    assert (fds(), children()) == (baseline, before)


@pytest.mark.deadline(300)
async def test_all_processes_are_gone_when_the_scope_is_left_at_any_moment(tmp_path, seed=4):
    rng = random.Random(seed)
    spill = SpillFolder(tmp_path / "spill")
    await asyncio.to_thread(time.sleep, 0)
    baseline, before = fds(), children()
    for trial in range(max(5, TRIALS // 10)):
        names = [unique_name(rng) for _ in range(3)]

        async def scope(names=names):
            async with BackgroundProcesses(spill) as background, asyncio.TaskGroup() as turns:
                for name in names:
                    turns.create_task(run_turn(background, spill, name, name, rng))

        task, moment = asyncio.create_task(scope()), rng.uniform(0, 1.5)
        await asyncio.sleep(moment)
        task.cancel()
        if rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0, 0.3))
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        left = [line for name in names for line in find_running(name)]
        assert left == [], f"trial {trial} of seed {seed}, left after {moment:.3f} s"
    assert (fds(), children()) == (baseline, before)


@pytest.mark.deadline(60)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
async def test_background_trees_die_with_their_host(number, tmp_path):
    name = unique_name(random.Random())
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": "src"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOST,
        str(tmp_path),
        STUBBORN.format(name=name),
        env["PATH"],
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.stdout.readline() == b"up\n"
    await until(lambda: sum(line.startswith("sleep") for line in find_running(name)) >= 6)
    process.send_signal(number)
    await process.wait()
    await until(lambda: not find_running(name))
