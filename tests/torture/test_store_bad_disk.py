"""The store on a disk that is full, read-only or damaged: a clear sentence, and nothing saved that is not."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

PRELUDE = """
import asyncio, contextlib, os, resource, signal, sys
from pathlib import Path
from alipes.kernel.errors import *
from alipes.kernel.messages import *
from alipes.kernel.turns import *
from alipes.store.backups.backup import backup_database
from alipes.store.sqlite.store import open_archive, open_store

home, HERE = Path(sys.argv[1]), Address("cli", "here")

def tell(*words):
    print(*words, flush=True)

def inbound(id, text="hello"):
    return Inbound(id=str(id), address=HERE, sender="me", text=text)
"""

FILL = """
async def fill(store):
    "Accept messages until one is refused; each that is acknowledged is printed."
    async with asyncio.TaskGroup() as group:
        async def client(n):
            for message in range(10_000):
                try:
                    tell("kept", await store.turns.accept(inbound(f"{n} {message}", "x" * 3000)))
                except StoreError as error:
                    tell("refused", error)
                    return
        for n in range(8):
            group.create_task(client(n))
"""

FULL = """
async def main():
    async with open_store(home) as store:
        await fill(store)
        os.unlink(home / "ballast")
        tell("kept", await store.turns.accept(inbound("after")))
asyncio.run(main())
"""

LIMITED = """
async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with open_store(home) as store:
        await store.turns.accept(inbound("first"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, resource.RLIM_INFINITY))
        await fill(store)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        tell("kept", await store.turns.accept(inbound("after")))
asyncio.run(main())
"""

AS_NOBODY = """
import concurrent.futures.thread
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)

async def main():
    try:
        async with open_store(home) as store:
            await store.turns.accept(inbound("1"))
            tell("kept")
    except StoreError as error:
        tell("refused", error)
asyncio.run(main())
"""


def run(script: str, home: Path, *before: str) -> list[str]:
    command = [*before, sys.executable, "-c", PRELUDE + script, str(home)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def kept_and_refused(lines: list[str], path: Path) -> tuple[set[str], list[str]]:
    kept = {line.split()[1] for line in lines if line.startswith("kept")}
    refused = [line for line in lines if line.startswith("refused")]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        stored = {id for (id,) in db.execute("SELECT id FROM turns")}
    assert kept <= stored, "acknowledged but not stored"
    return kept, refused


def test_a_file_that_may_not_grow_refuses_and_recovers(tmp_path):
    kept, refused = kept_and_refused(run(FILL + LIMITED, tmp_path), tmp_path / "alipes.db")
    assert len(kept) > 5
    assert len(refused) == 8 and all("nothing was saved" in line for line in refused)


def may_mount() -> bool:
    if os.getuid() or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def test_a_full_disk_refuses_and_recovers(tmp_path):
    if not may_mount():
        pytest.skip("only root may mount a small disk; the test of the file limit covers the same")
    home, copy = tmp_path / "small", tmp_path / "copy.db"
    home.mkdir()
    script = (
        f"mount -t tmpfs -o size=3m small {home} && head -c 1500000 /dev/zero > {home}/ballast && "
        f'"$@"; status=$?; cat {home}/alipes.db > {copy}; exit $status'
    )
    lines = run(FILL + FULL, home, "unshare", "--mount", "sh", "-c", script, "sh")
    kept, refused = kept_and_refused(lines, copy)
    assert len(kept) > 10
    assert refused and all("is full and nothing was saved; free some space" in line for line in refused)


READ_FULL = """
async def main():
    async with open_store(home) as store:
        await store.turns.accept(inbound("first"))
    with contextlib.suppress(OSError), open(home / "more", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    async with open_archive(home) as archive:
        tell("kept", (await archive.facts()).turns)
    await backup_database(home / "alipes.db", Path(sys.argv[2]))
    tell("kept", "backup")
asyncio.run(main())
"""


def test_conversations_can_be_read_and_copied_on_a_full_disk(tmp_path):
    if not may_mount():
        pytest.skip("only root may mount a small disk")
    home, copy = tmp_path / "small", tmp_path / "copy.db"
    home.mkdir()
    script = f'mount -t tmpfs -o size=3m small {home} && "$@" {copy}'
    assert run(READ_FULL, home, "unshare", "--mount", "sh", "-c", script, "sh") == ["kept 1", "kept backup"]
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT count(*) FROM turns").fetchall() == [(1,)]


@pytest.fixture
def shared_home():
    """A home that a stranger may reach, unlike the folders of pytest."""
    home = Path(tempfile.mkdtemp(prefix="alipes-test-"))
    home.chmod(0o777)
    yield home
    shutil.rmtree(home)


def test_a_read_only_file_is_reported_with_a_fix(shared_home):
    assert run(AS_NOBODY, shared_home) == ["kept"]
    (shared_home / "alipes.db").chmod(0o444)
    if os.getuid() == 0:
        shutil.chown(shared_home / "alipes.db", 0)
    (line,) = run(AS_NOBODY, shared_home)
    assert "alipes.db" in line and "read-only" in line and "make it writable or use another home" in line


def test_a_read_only_home_is_reported_with_a_fix(shared_home):
    shared_home.chmod(0o555)
    if os.getuid() == 0:
        shutil.chown(shared_home, 0)
    (line,) = run(AS_NOBODY, shared_home)
    assert str(shared_home) in line and "make it writable or use another home" in line


def test_a_home_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (line,) = run(AS_NOBODY.replace("os.setresuid(65534, 65534, 65534)", "pass"), tmp_path / "file" / "home")
    assert "cannot be used" in line


def test_a_backup_can_replace_a_damaged_store(tmp_path):
    script = """
async def main():
    async with open_store(home) as store:
        for n in range(50):
            await store.turns.accept(inbound(n, "x" * 2000))
        await store.archive.backup(home / "good.db")
asyncio.run(main())
"""
    run(script, tmp_path)
    (tmp_path / "alipes.db").write_bytes(b"\xff" * 100_000)
    look = """
async def main():
    try:
        async with open_store(home) as store:
            tell(len(await store.turns.list_orphans()), await store.archive.check())
    except StoreError as error:
        tell(error)
asyncio.run(main())
"""
    assert "restore a backup with `alipes restore`" in run(look, tmp_path)[0]
    os.replace(tmp_path / "good.db", tmp_path / "alipes.db")
    assert run(look, tmp_path) == ["1 []"]
