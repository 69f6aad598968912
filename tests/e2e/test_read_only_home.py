"""Commands that only read work on a read-only home: a real read-only mount, by bubblewrap."""

import asyncio
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from alipes.kernel.messages import Text, assistant
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store.sqlite.store import open_store
from tests.e2e.program import Finished, Home

pytestmark = pytest.mark.deadline(60)
HOLD_WAL = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE sessions SET title = 'changed'")
db.commit()
import os
os._exit(0)  # leaves the log behind, as a kill does
"""


def can_mount() -> bool:
    """True if bubblewrap can make a read-only mount here."""
    if not (program := shutil.which("bwrap")):
        return False
    return subprocess.run([program, "--ro-bind", "/", "/", "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.path.mkdir(mode=0o700)
    asyncio.run(talk(home))
    return home


async def talk(home: Home) -> None:
    async with open_store(home.path) as store:
        inbound = Inbound("1", Address("terminal", "weather"), "me", "will it rain?")
        await store.turns.accept(inbound)
        turn = await store.turns.claim_next(inbound.address.key)
        await store.turns.record(turn, Said(inbound.message))
        await store.turns.record(turn, Said(assistant(Text("It will not."))))
        await store.turns.finish(turn, "answered", "")
        await store.turns.release(inbound.address.key)


async def run_read_only(home: Home, *words: str) -> Finished:
    if not can_mount():
        pytest.skip("bubblewrap cannot make a read-only mount here")
    path = str(home.path)
    under = ("bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--ro-bind", path, path)
    async with home.started(*words, under=under) as process:
        out, err = await process.communicate()
        return Finished(process.returncode or 0, out.decode(), err.decode())


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("sessions", "list"), "will it rain?"),
        (("sessions", "show", "weather"), "It will not."),
        (("sessions", "search", "rain"), "rain"),
        (("sessions", "export", "weather"), "It will not."),
        (("usage",), "in the last 30 days"),
    ],
)
async def test_what_only_reads_works(home, words, shown):
    done = await run_read_only(home, *words)
    assert (done.status, done.err) == (0, "") and shown in done.out


async def test_doctor_says_that_the_home_is_read_only(home):
    done = await run_read_only(home, "doctor")
    assert "is read-only" in done.out and "1 conversation, 1 turn" in done.out
    assert "Traceback" not in done.err


async def test_a_backup_is_made_outside_of_it(home, tmp_path):
    done = await run_read_only(home, "backup", str(tmp_path / "out.tgz"))
    assert (done.status, done.err) == (0, "") and (tmp_path / "out.tgz").stat().st_size


async def test_what_a_killed_process_left_in_the_log_is_read_too(home):
    path = home.path / "alipes.db"
    done = subprocess.run([shutil.which("python3") or "python3", "-c", HOLD_WAL, str(path)], check=False)
    assert done.returncode == 0 and (home.path / "alipes.db-wal").stat().st_size
    (home.path / "alipes.db-shm").unlink()
    done = await run_read_only(home, "sessions", "list")
    assert done.status == 0 and "changed" in done.out, done.err


@pytest.mark.parametrize("words", [("ask", "hello"), ("sessions", "delete", "weather", "--yes"), ("serve",)])
async def test_what_must_write_says_so_in_a_sentence(home, words):
    done = await run_read_only(home, *words)
    assert done.status in (1, 2) and "writable" in done.err and "Traceback" not in done.err


async def test_a_lost_database_is_reported_by_doctor(home: Home):
    Path(home.path / "alipes.db").unlink()
    done = await home.run("doctor")
    assert "is gone" in done.out and "alipes restore" in done.out
    done = await home.run("sessions", "list")
    assert done.status == 1 and "is gone" in done.err and "Traceback" not in done.err


async def test_a_row_that_cannot_be_read_is_named_and_the_rest_is_shown(home: Home):
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        db.execute("UPDATE messages SET message = '{\"role' WHERE number = 1")
        db.commit()
    shown = await home.run("sessions", "show", "weather")
    assert shown.status == 0 and "message 1 cannot be read" in shown.out and "It will not." in shown.out, shown.err
    checked = await home.run("doctor")
    assert "row 1 of messages" in checked.out


@pytest.mark.parametrize("files", [8, 10, 12, 14])
@pytest.mark.parametrize("words", [("sessions", "list"), ("doctor",), ("serve", "--port", "0"), ("ask", "hello")])
async def test_too_few_files_are_reported_in_a_sentence(home: Home, files: int, words: tuple[str, ...]):
    seconds = 50 if files <= 10 else 5  # with more, `serve` may work and not end by itself
    under = ("sh", "-c", f'ulimit -n {files}; exec timeout {seconds} "$@"', "sh")
    async with home.started(*words, under=under) as process:
        out, err = await process.communicate()
    said = out.decode() + err.decode()
    assert "Traceback" not in said and "internal error" not in said and "ExceptionGroup" not in said, said
    assert files > 10 or "too many files" in " ".join(said.split()), said
