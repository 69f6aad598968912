"""Children of a scope: what they write, how they end, and that nothing of theirs stays behind."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from alipes.runtime.processes import process_tree
from alipes.runtime.processes.child import open_child
from alipes.runtime.processes.process_tree import kill_orphans, open_orphan_guard
from tests.world.environment import LIMIT_S

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
STUBBORN = "trap '' TERM HUP INT; while :; do sleep 300; done"


async def output(command, **more):
    """What the command wrote and its return code."""
    async with open_child(command, **{"cwd": "/", "env": ENV, **more}) as child:
        written = b""
        while piece := await child.read():
            written += piece
        return written, await child.wait()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def numbers(folder: Path, count: int) -> list[int]:
    """The process numbers that the processes of a tree wrote down as file names, once all did."""
    while len(found := [int(path.name) for path in folder.iterdir()]) < count:
        await asyncio.sleep(0.005)
    return found


def children() -> set[int]:
    """Our children, zombies too."""
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for listed in lists for pid in listed.split()}


def fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def test_output_of_both_streams_comes_in_order_with_the_return_code():
    assert await output("echo one; echo two >&2; echo three; exit 7") == (b"one\ntwo\nthree\n", 7)


async def test_an_argv_is_run_without_a_shell(tmp_path):
    assert await output(["printf", "%s", "$HOME;x"], cwd=str(tmp_path)) == (b"$HOME;x", 0)
    assert await output(["pwd"], cwd=str(tmp_path)) == (f"{tmp_path}\n".encode(), 0)


async def test_a_signal_is_a_negative_return_code():
    assert await output("kill -SEGV $$") == (b"", -signal.SIGSEGV)


async def test_the_environment_is_what_was_given_and_the_mark():
    written, _ = await output(["env"], env={"A": "1"})
    assert {line.partition(b"=")[0] for line in written.splitlines()} == {b"A", process_tree.VARIABLE.encode()}


async def test_a_child_reads_end_of_file_and_has_no_terminal():
    assert (await output("cat; test -t 0 || echo none; (: </dev/tty) 2>/dev/null || echo detached"))[0] == (
        b"none\ndetached\n"
    )


async def test_what_cannot_be_started_is_an_os_error_and_leaks_nothing():
    before = fds()
    for command, cwd in ((["/no/such/program"], "/"), ("true", "/no/such/folder")):
        with pytest.raises(OSError, match="no/such"):
            await output(command, cwd=cwd)
    assert fds() == before


async def test_a_background_child_that_keeps_the_pipe_open_does_not_keep_the_reader():
    began = time.monotonic()
    written, code = await output("sleep 300 & echo started")
    assert (written, code) == (b"started\n", 0)
    assert time.monotonic() - began < LIMIT_S


async def test_a_background_flood_ends_with_the_child():
    written, code = await output("yes & sleep 0.1")
    assert code == 0
    assert written.startswith(b"y\n")


async def test_a_last_burst_of_a_full_pipe_is_read_whole():
    written, _ = await output([sys.executable, "-c", "import os; os.write(1, b'x' * 65536)"])
    assert len(written) == 65536


async def test_closed_output_is_not_yet_the_end_of_the_child():
    async with open_child("exec >&- 2>&-; sleep 0.1; exit 4", cwd="/", env=ENV) as child:
        assert await child.read() == b""
        assert await child.wait() == 4


async def test_a_flood_leaves_the_loop_to_others():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group, open_child("yes", cwd="/", env=ENV) as child:
        task = group.create_task(other())
        for _ in range(200):
            await child.read()
        task.cancel()
    assert turns >= 100


@pytest.mark.parametrize("how", ["normally", "by an error", "by cancellation"])
async def test_leaving_the_scope_ends_the_child(how):
    entered = asyncio.Event()
    pids = []

    async def scope():
        async with open_child("sleep 300", cwd="/", env=ENV) as child:
            pids.append(child.pid)
            entered.set()
            if how == "by an error":
                raise LookupError
            if how == "by cancellation":
                await child.wait()

    task = asyncio.create_task(scope())
    await entered.wait()
    if how == "by cancellation":
        task.cancel()
    await asyncio.wait([task])
    assert not os.path.exists(f"/proc/{pids[0]}")
    assert task.cancelled() == (how == "by cancellation")


async def test_a_child_is_asked_before_it_is_killed(tmp_path):
    note = tmp_path / "note"
    command = f"trap 'echo tidied > {note}; exit' TERM; echo ready; while :; do sleep 0.001; done"
    async with open_child(command, cwd="/", env=ENV) as child:
        assert await child.read() == b"ready\n"
    assert note.read_text() == "tidied\n"


TREES = {
    "a stubborn child": f"touch $D/$$; {STUBBORN}",
    "a stubborn session leader": f"setsid sh -c 'touch $D/$$; {STUBBORN}' & touch $D/$$; wait",
    "a daemon by double fork": f"(setsid sh -c '(touch $D/$$; {STUBBORN}) &' &); touch $D/$$; sleep 300",
    "a daemon without environment": f"(env -i D=$D setsid -f sh -c 'touch $D/$$; {STUBBORN}' >/dev/null 2>&1 </dev/null); touch $D/$$; sleep 300",
    "a stopped process": "sh -c 'touch $D/$$; kill -STOP $$' & touch $D/$$; wait",
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize("root_first", [False, True], ids=["root alive", "root gone"])
async def test_the_whole_tree_dies_with_the_scope(tree, root_first, tmp_path):
    wanted = 1 if tree.startswith("touch") else 2
    async with open_child(tree, cwd="/", env={**ENV, "D": str(tmp_path)}) as child:
        pids = await numbers(tmp_path, wanted)
        if root_first:
            os.kill(child.pid, signal.SIGKILL)
            await child.wait()
    assert [pid for pid in pids if alive(pid)] == []


async def test_scopes_end_their_own_and_nobody_elses(tmp_path):
    stranger = await asyncio.create_subprocess_exec("sleep", "300", start_new_session=True)
    daemon = f"setsid -f sh -c 'touch $D/$$; {STUBBORN}'; sleep 300"
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir(), second.mkdir()
    async with open_child(daemon, cwd="/", env={**ENV, "D": str(first)}):
        async with open_child(daemon, cwd="/", env={**ENV, "D": str(second)}):
            (kept,), (ended,) = await numbers(first, 1), await numbers(second, 1)
        assert (alive(kept), alive(ended)) == (True, False)
    assert not alive(kept)
    assert alive(stranger.pid)
    stranger.kill()
    assert await stranger.wait() == -signal.SIGKILL


async def test_what_another_thread_starts_at_the_same_moment_is_no_kin():
    begun: list[subprocess.Popen[bytes]] = []

    def elsewhere():
        for _ in range(60):
            begun.append(subprocess.Popen(["sleep", "300"]))

    async with asyncio.TaskGroup() as group:
        others = group.create_task(asyncio.to_thread(elsewhere))
        while not others.done():
            await output("true")
    for popen in begun:
        popen.kill()
    assert [popen.wait() for popen in begun] == [-signal.SIGKILL] * 60


async def test_orphans_that_die_by_themselves_leave_no_zombie():
    before = children()
    async with open_child("for i in 1 2 3; do setsid -f true; done; sleep 0.2", cwd="/", env=ENV) as child:
        await child.wait()
    assert children() == before


async def test_a_second_cancellation_during_the_ending_still_leaves_nothing(tmp_path):
    async def scope():
        async with open_child(TREES["a stubborn session leader"], cwd="/", env={**ENV, "D": str(tmp_path)}) as child:
            await child.wait()

    task = asyncio.create_task(scope())
    pids = await numbers(tmp_path, 2)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []


async def test_a_hundred_children_leave_no_descriptor_and_no_process():
    await output("true")
    before = fds(), children()
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(output("sleep 300 & echo x"))
    assert (fds(), children()) == before


async def test_the_portable_way_ends_the_process_group():
    process_tree.adopt_orphans()  # so that the inner one can be waited for here; the portable way itself does not need it
    async with open_child("sleep 300 & echo $!; trap '' TERM; sleep 300", cwd="/", env=ENV, portable=True) as child:
        inner = int(await child.read())
        assert alive(inner)
    with suppress(ChildProcessError):  # another test's process tree may have reaped it
        os.waitpid(inner, 0)
    assert (alive(inner), alive(child.pid)) == (False, False)
    assert await output("echo hi; exit 3", portable=True) == (b"hi\n", 3)


async def test_a_mark_survives_a_cleared_environment_and_is_not_ours():
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    async with open_child("exec env -i sleep 300", cwd="/", env=ENV) as child:
        while Path(f"/proc/{child.pid}/environ").read_bytes():
            await asyncio.sleep(0.001)
        assert resource.prlimit(child.pid, resource.RLIMIT_RTTIME)[0] > 10**16
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == before


async def test_marks_add_up_when_one_runs_inside_another():
    assert process_tree.marked_environment({"A": "1"}, 5) == {"A": "1", process_tree.VARIABLE: "5"}
    assert process_tree.marked_environment({process_tree.VARIABLE: "5"}, 6) == {process_tree.VARIABLE: "5:6"}


async def test_a_number_given_to_another_process_is_not_signalled():
    async with open_child("sleep 300", cwd="/", env=ENV) as child:
        (found,) = child.tree.living()
        process_tree.send_signal(found._replace(start=found.start + 1), signal.SIGKILL)
        process_tree.send_signal(process_tree.ProcessId(2**22 - 1, 1), signal.SIGKILL)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await child.wait()


async def test_a_keeper_is_idle_until_the_first_child_and_gone_after_it(tmp_path):
    before = children()
    async with open_orphan_guard(tmp_path) as keeper:
        assert list(tmp_path.iterdir()) == []
        assert await output("echo hi", keeper=keeper) == (b"hi\n", 0)
        assert [path.name for path in (tmp_path / "children").iterdir()] == [str(keeper.owner)]
        assert kill_orphans(tmp_path) == 0
    assert list((tmp_path / "children").iterdir()) == []
    assert children() == before


async def test_a_dead_watchdog_is_replaced(tmp_path):
    before = children()
    async with open_orphan_guard(tmp_path) as keeper:
        await output("true", keeper=keeper)
        (first,) = children() - before
        os.kill(first, signal.SIGKILL)
        while alive(first):
            await asyncio.sleep(0.001)
        await output("true", keeper=keeper)
        (second,) = children() - before
        assert second != first and alive(second)


async def test_the_standard_error_can_be_read_apart_from_the_output():
    command = "read line; echo out $line; echo problem >&2"
    async with open_child(command, cwd="/", env={"PATH": os.environ["PATH"]}, link="streams") as child:
        await child.input.write(b"hello\n", 5)
        output = errors = b""
        while piece := await child.read():
            output += piece
        while piece := await child.read_errors():
            errors += piece
    assert (output, errors) == (b"out hello\n", b"problem\n")
