"""Every test of every suite is checked for leaks: open resources, temporary files, running tasks."""

import asyncio
import fcntl
import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import httpx2
import pytest

from alipes.testing import LeakCheck, LeakError
from alipes.testing.leaks import ClientProbe, command_line
from tests.world.leftovers import PREFIX, Leftovers, own_temporary_folder

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc")
ROOT = Path(__file__).parents[2]
CARELESS = """
    import asyncio, os, socket, subprocess, sys, tempfile, threading
    import httpx2
    from tests.contract.test_leftovers import orphaned

    KEPT = []

    async def test_task():
        KEPT.append(asyncio.create_task(asyncio.sleep(60), name="the poller"))

    async def test_client():
        KEPT.append(httpx2.AsyncClient(base_url="http://127.0.0.1:9/left"))

    def test_child():
        KEPT.append(subprocess.Popen(["sleep", "63"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def test_zombie():
        os.posix_spawn("/bin/true", ["true"], {})

    def test_orphan():
        orphaned()

    def test_descriptor(tmp_path):
        KEPT.append((tmp_path / "notes").open("w"))

    def test_socket():
        KEPT.append(socket.create_server(("127.0.0.1", 0)))

    def test_pipe():
        os.pipe()

    def test_thread():
        threading.Thread(target=threading.Event().wait, name="the worker", daemon=True).start()

    def test_folder():
        os.mkdir(os.path.join(tempfile.gettempdir(), "left-there"))

    async def test_tidy(tmp_path):
        with tempfile.TemporaryDirectory():
            await (await asyncio.create_subprocess_exec("true")).wait()
        async with httpx2.AsyncClient():
            pass

    def test_failed():
        KEPT.append(socket.create_server(("127.0.0.1", 0)))
        assert False, "this and nothing else"
"""
BRIEFLY = """
    import pytest
    from tests.conftest import leak_probes

    @pytest.fixture(autouse=True)
    def briefly(leaks):
        leaks.within = 0.05
"""
ACKNOWLEDGED = {
    "task": r"tasks +the poller",
    "client": r"clients +httpx2.AsyncClient http://127.0.0.1:9/left",
    "child": r"processes +\d+: sleep 63",
    "zombie": r"processes +\d+: \(exited, but not waited for\)",
    "orphan": r"strays +\d+: sleep 640",
    "descriptor": r"fds +\d+ -> \S+/notes",
    "socket": r"fds +\d+ -> socket:\[\d+\] \('127.0.0.1', \d+\)",
    "pipe": r"fds +\d+ -> pipe:",
    "thread": r"threads +the worker \(daemon\)",
    "folder": r"files +\S+/left-there",
}


def orphaned() -> int:
    """Start a process whose parent is gone; its pid."""
    script = (
        "import subprocess as s; nowhere = s.DEVNULL\n"
        "print(s.Popen(['sleep', '640'], stdin=nowhere, stdout=nowhere, stderr=nowhere).pid)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    for _ in range(10_000):
        if "sleep" in command_line(done.stdout.strip()):
            break
        time.sleep(0.001)  # it is on its way from one program to the other
    return int(done.stdout)


def test_each_kind_of_leak_fails_the_test_that_caused_it(tmp_path):
    folder = tmp_path / "careless"
    folder.mkdir()
    (folder / "test_careless.py").write_text(textwrap.dedent(CARELESS))
    (folder / "conftest.py").write_text(textwrap.dedent(BRIEFLY))
    ours = ("-c", ROOT / "pyproject.toml", f"--rootdir={ROOT}", "-p", "tests.conftest")
    said = subprocess.run(
        [sys.executable, "-m", "pytest", *ours, "-p", "no:xdist", "-rA", f"--basetemp={tmp_path / 'base'}", folder],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    for pid in re.findall(r"(?:strays|processes) +(\d+): sleep", said):
        os.kill(int(pid), signal.SIGKILL)
    for name, seen in ACKNOWLEDGED.items():
        assert re.search(rf"(?:ERROR|FAILED) \S+::test_{name} - ", said), (name, said)
        assert re.search(seen, said), (name, said)
    assert re.search(r"PASSED \S+::test_tidy", said), said
    assert "FAILED" in said and said.count("this and nothing else") and "ERROR at teardown of test_failed" not in said


def test_files_and_strays_are_left_only_once_and_only_by_who_made_them():
    with own_temporary_folder() as folder:
        check = LeakCheck(also=Leftovers(folder).looks).begin()
        assert tempfile.gettempdir() == str(folder)
        pid = orphaned()
        (folder / "made").mkdir()
        (folder / "made" / "sock").touch()
        assert check.find_leaks() == {"files": (f"{folder}/made sock",), "strays": (f"{pid}: sleep 640",)}
        assert LeakCheck(also=Leftovers(folder).looks).begin().find_leaks() == {}
        assert "strays" not in LeakCheck(also=Leftovers(folder / "made").looks).find_leaks()
        os.kill(pid, signal.SIGKILL)
        (folder / "made" / "sock").unlink()
        (folder / "made").rmdir()
        check.verify()


def test_the_folder_of_a_run_that_was_killed_is_removed_by_a_later_one_and_no_other():
    with own_temporary_folder() as place:
        dead, held, young = (place / f"{PREFIX}{name}" for name in ("dead", "held", "young"))
        for each in (dead, held, young):
            each.mkdir()
        for each in (dead, held):
            os.utime(each, (0, 0))
        lock = os.open(held, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with own_temporary_folder():
            assert not dead.exists() and young.exists() and held.exists()
        os.close(lock)


def test_what_is_lent_belongs_to_who_lent_it(tmp_path):
    check = LeakCheck().begin()
    with check.ignore_opened():
        lent = os.open(tmp_path / "theirs", os.O_CREAT)
    ours = os.open(tmp_path / "ours", os.O_CREAT)
    check.within = 0.01
    with pytest.raises(LeakError) as leaked:
        check.verify()
    assert "ours" in str(leaked.value) and "theirs" not in str(leaked.value)
    os.close(ours)
    check.verify()
    os.close(lent)


async def test_clients_are_searched_for_only_where_one_was_made():
    searched = 0

    class Counted(ClientProbe):
        def _changed(self, kinds):
            nonlocal searched
            changed = super()._changed(kinds)
            searched += changed
            return changed

    look = Counted()
    before = {each for each, _ in look()}
    list(look())
    settled = searched
    for _ in range(5):
        assert {each for each, _ in look()} == before
    assert searched == settled
    client = httpx2.AsyncClient()
    assert len({each for each, _ in look()} - before) == 1
    await client.aclose()
    assert {each for each, _ in look()} == before
    other = httpx2.AsyncClient()  # as many as before, once the first is gone
    del client
    gc.collect()
    assert len({each for each, _ in look()} - before) == 1
    await other.aclose()


async def test_what_ends_a_moment_later_is_waited_for(tmp_path):
    check = LeakCheck().begin()
    number = os.open(tmp_path / "notes", os.O_CREAT)
    asyncio.get_running_loop().call_later(0.05, os.close, number)
    await check.settle()
