"""Limits of commands, reached by real programs: each stops at its limit, and the scope ends."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from alipes.runtime.processes.child import open_child
from alipes.runtime.sandbox import starter
from alipes.runtime.sandbox.limits import ControlGroups, resource_limits
from alipes.runtime.sandbox.policy import SandboxLimits
from tests.unit.runtime.sandbox.test_landlock import make_machine
from tests.world.environment import require

PYTHON = [str(Path(sys.executable).resolve()), "-I", "-c"]
FORKS = """
import os, time
children, others = 0, int(open("/proc/loadavg").read().split()[3].partition("/")[2])
try:
    while children < 200 + others:
        if os.fork() == 0:
            time.sleep(300)
        children += 1
except BlockingIOError:
    print("stopped", flush=True)
else:
    print("all", flush=True)
time.sleep(300)
"""
"""A fork bomb with an end."""
MEMORY = "x = bytearray(int(1e9)); print('kept')"
FILE = "f = open('big', 'wb'); f.seek(10_000_000); f.write(b'x'); f.flush()"
CPU = "while True: pass"
ROOM = SandboxLimits(memory_bytes=2**29, processes=500, file_bytes=2**30, cpu_seconds=600)

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
with_landlock = pytest.mark.skipif(not starter.landlock_version(), reason="this kernel has no Landlock")


@pytest.fixture(params=["isolated", "landlock"])
def machine(request, tmp_path):
    return make_machine(tmp_path, isolate=request.param == "isolated")


def group_works() -> bool:
    with ControlGroups().open(SandboxLimits(processes=100)) as groups:
        return bool(groups)


@with_landlock
async def test_fork_bomb_stops_and_ends_with_its_scope(machine):
    if os.getuid() == 0 and not group_works():
        pytest.skip("root without control groups may start any number of processes")
    machine.set(limits=SandboxLimits(processes=64))
    async with machine.open([*PYTHON, FORKS]) as child:
        assert await child.read() == b"stopped\n"
    assert child.tree.living() == []


@with_landlock
async def test_memory_stops(machine):
    machine.set(limits=SandboxLimits(memory_bytes=300 * 2**20))
    code, output = await machine.run([*PYTHON, MEMORY])
    assert code != 0
    assert "kept" not in output


@with_landlock
async def test_file_stops_at_its_size(machine):
    machine.set(limits=SandboxLimits(file_bytes=1_000_000))
    await machine.run([*PYTHON, FILE])
    assert (machine.project / "big").stat().st_size == 0


@with_landlock
async def test_cpu_time_ends_a_command(machine):
    machine.set(limits=SandboxLimits(cpu_seconds=1))
    assert (await machine.run([*PYTHON, CPU]))[0] in (-signal.SIGKILL, 128 + signal.SIGKILL)


@with_landlock
async def test_limits_cannot_be_raised_inside(machine):
    machine.set(limits=SandboxLimits(file_bytes=1_000_000))
    assert "cannot modify limit" in (await machine.run("ulimit -f unlimited"))[1]


@with_landlock
@pytest.mark.parametrize("program", ["node -e 1", "java -version", "git --version", "python3 -c 1", "gcc --version"])
async def test_programs_that_reserve_much_memory_run_within_limits(program, isolated_machine):
    if shutil.which(program.split()[0], path=os.defpath) is None:
        pytest.skip(f"{program.split()[0]} is not installed")
    isolated_machine.set(limits=ROOM)
    assert (await isolated_machine.run(program))[0] == 0


@pytest.fixture
def isolated_machine(tmp_path):
    return make_machine(tmp_path, isolate=True)


@linux
async def test_control_group_limits_a_fork_bomb_of_root(tmp_path):
    groups = ControlGroups()
    with groups.open(SandboxLimits(processes=64)) as files:
        if not files:
            pytest.skip("no control group can be made here")
        joined = ["/bin/sh", "-c", 'echo 0 > "$0"; exec "$@"', files[0], *PYTHON, FORKS]
        async with open_child(joined, cwd="/", env={"PATH": os.defpath}) as child:
            assert await child.read() == b"stopped\n"
    with groups.open(SandboxLimits()) as none:
        assert none == ()
    assert not Path(files[0]).parent.exists()


def test_no_limits_need_no_calls():
    assert resource_limits(SandboxLimits()) == []


def test_processes_of_the_user_are_added_where_they_are_counted():
    limits = resource_limits(SandboxLimits(processes=10), other_processes=300)
    assert limits == [(resource.RLIMIT_NPROC, 310)]


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def make_groups(root: Path, membership: str, files: dict[str, str]) -> ControlGroups:
    write_tree(root / "groups", files)
    (root / "membership").write_text(membership)
    return ControlGroups(root / "groups", root / "membership")


def test_version_2_group_is_made_beside_our_own(tmp_path):
    files = {"a/cgroup.subtree_control": "cpu memory pids", "a/cgroup.procs": "", "a/ours/cgroup.procs": ""}
    groups = make_groups(tmp_path, "0::/a/ours\n", files)
    with groups.open(SandboxLimits(memory_bytes=5000, processes=7)) as (file,):
        group = Path(file).parent
        assert group.parent == tmp_path / "groups" / "a"
        counted = {"pids.max": "7"} if os.getuid() == 0 else {}  # for others the kernel counts them
        written = {path.name: path.read_text() for path in group.iterdir()}
        assert written == {"memory.max": "5000", "memory.swap.max": "0", **counted}


def test_no_group_is_made_without_the_controllers(tmp_path):
    groups = make_groups(tmp_path, "0::/a/ours\n", {"a/cgroup.subtree_control": "cpu", "a/cgroup.procs": ""})
    with groups.open(SandboxLimits(memory_bytes=5000, processes=7)) as files:
        assert files == ()


def test_groups_of_ended_processes_are_removed_but_not_those_of_other_process_namespaces(tmp_path):
    files = {"a/cgroup.subtree_control": "pids", "a/cgroup.procs": "", "a/ours/cgroup.procs": ""}
    groups, here = make_groups(tmp_path, "0::/a/ours\n", files), os.stat("/proc/self/ns/pid").st_ino
    owners = (f"p{here}-99999999", f"p{here}-{os.getpid()}", f"p{here + 1}-99999999", "99999999")
    found = [tmp_path / f"groups/a/alipes-{owner}-0" for owner in owners]
    for group in found:
        group.mkdir()
    with groups.open(SandboxLimits(processes=7)):
        assert [group.exists() for group in found] == [False, True, True, True]


ANOTHER = """
import sys
from alipes.runtime.sandbox.limits import ControlGroups
from alipes.runtime.sandbox.policy import SandboxLimits
with ControlGroups().open(SandboxLimits(processes=7)) as joined:
    print(*joined, flush=True)
    sys.stdin.readline()
"""


def test_two_in_different_process_namespaces_leave_the_groups_of_each_other_alone():
    require("unshare")
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make process namespaces")
    with ControlGroups().open(SandboxLimits(processes=7)) as ours, ExitStack() as stack:
        if not ours:
            pytest.skip("this user may not make control groups")
        for _ in range(2):  # each has the same number in its namespace
            argv = [*unshare, sys.executable, "-c", ANOTHER]
            other = stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert other.stdin is not None and other.stdout is not None
            stack.callback(other.stdin.close)
            theirs = other.stdout.readline().split()
            assert theirs and theirs != ours and all(map(os.path.exists, (*ours, *theirs)))
        with ControlGroups().open(SandboxLimits(processes=7)):
            assert all(map(os.path.exists, (*ours, *theirs)))
