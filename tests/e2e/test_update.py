"""`alipes update` and `--back` between real environments of wheels: what starts, what is kept, what is refused."""

import asyncio
import json
import os
import sqlite3
from contextlib import closing

import pytest

from alipes.features.update.versions import Versions
from alipes.runtime.process_lock import find_holder
from alipes.store.backups.backup import read_schema
from alipes.store.sqlite.migrations.migrations import SCHEMA
from tests.e2e.program import Finished, Home, wait_finished
from tests.world.alipes_versions import build_wheel, install, read_commit
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer, Say

pytestmark = pytest.mark.deadline(180)

EARLIER = {17: "f8f431fc", 18: "884cb1ec"}
"""A commit of each earlier schema: that of release 0.1.0, and the one after."""


class UpdatedHome(Home):
    """A home with a conversation; 1.0 is current, and the wheels of other versions are in a folder."""

    def __init__(self, path, wheels):
        super().__init__(path)
        self.versions, self.wheels = Versions(path), wheels

    def environ(self, **more):
        return super().environ(**{"PYTHONPATH": "", **more})

    def offer(self, version, **traits):
        """Put a version into the folder, and its environment into the home, as if it had been installed."""
        install(self.versions, build_wheel(self.wheels, version, **traits))

    async def start(self, *words):
        """What the launcher does."""
        process = await asyncio.create_subprocess_exec(
            self.versions.launcher,
            *words,
            env=self.environ(),
            cwd=self.path.parent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        return await wait_finished(process)

    async def version(self):
        return (await self.start("--version")).out.strip()

    async def titles(self):
        return [each["title"] for each in json.loads((await self.start("sessions", "list", "--json")).out)]


@pytest.fixture
def home(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    home = UpdatedHome(tmp_path / "home", wheels)
    asyncio.run(furnish(home))
    return home


async def furnish(home, source=None):
    async with ModelServer([Say("To Rome.")]) as server:
        home.use(server)
        home.versions.folder.mkdir()
        home.offer("1.0", source=source)
        home.versions.write_launcher("/bin/false")
        home.versions.switch("1.0")
        done = await home.start("ask", "--session", "trip", "where do we go?")
        assert done.status == 0, done.err


async def continue_trip(home):
    """The last request to the model, when the conversation is continued."""
    async with ModelServer([Say("By train.")]) as server:
        home.use(server)
        done = await home.start("ask", "--session", "trip", "and how?")
        assert (done.status, done.out) == (0, "By train.\n"), done.err
        return json.dumps(server.requests[-1].body)


async def update(home, *words) -> Finished:
    return await home.start("update", "--yes", "--source", str(home.wheels), *words)


async def test_an_update_starts_the_newest_version_from_then_on(home):
    home.offer("1.1")
    done = await update(home)
    assert done.status == 0, done.err
    assert "alipes is now 1.1 (before: 1.0)." in done.out
    assert (await home.version(), await home.titles()) == ("alipes 1.1", ["where do we go?"])
    (backup,) = home.versions.backups.iterdir()
    assert str(backup) in done.out
    restored = await home.start("restore", str(backup), "--to", str(home.path.parent / "restored"))
    assert restored.status == 0 and "1 conversation" in restored.out


async def test_a_check_installs_nothing_and_exits_with_1_if_there_is_a_newer_version(home):
    build_wheel(home.wheels, "1.1")
    done = await home.start("update", "--check", "--source", str(home.wheels))
    assert (done.status, await home.version()) == (1, "alipes 1.0")
    assert f"alipes 1.1 is available in {home.wheels}; you have 1.0." in done.out
    assert [each.name for each in home.versions.list()] == ["1.0"]


async def test_a_version_whose_doctor_fails_on_a_copy_is_not_started(home):
    home.offer("1.1", broken="out of order")
    done = await update(home)
    assert done.status == 2 and "failed on a copy of the home: out of order" in done.err
    assert (await home.version(), await home.titles()) == ("alipes 1.0", ["where do we go?"])


async def test_back_starts_the_version_before(home):
    home.offer("1.1")
    await update(home)
    done = await home.start("update", "--back", "--yes")
    assert done.status == 0 and "alipes is now 1.0 (before: 1.1)." in done.out
    assert (await home.version(), await home.titles()) == ("alipes 1.0", ["where do we go?"])


async def test_back_is_refused_if_the_old_version_cannot_read_the_conversations(home):
    home.offer("1.1", migrates=True)
    assert (await update(home)).status == 0
    await home.titles()  # migrates
    done = await home.start("update", "--back", "--yes")
    assert done.status == 2 and "was written by a newer alipes" in done.err and "--back --restore" in done.err
    assert (await home.version(), await home.titles()) == ("alipes 1.1", ["where do we go?"])


async def test_back_with_restore_brings_the_conversations_of_the_backup_and_keeps_the_others(home):
    home.offer("1.1", migrates=True)
    await update(home)
    async with ModelServer([Say("To Oslo.")]) as server:
        home.use(server)
        assert (await home.start("ask", "and then?")).status == 0
    done = await home.start("update", "--back", "--restore", "--yes")
    assert done.status == 0, done.err
    assert (await home.version(), await home.titles()) == ("alipes 1.0", ["where do we go?"])
    (kept,) = home.versions.backups.glob("after-*.db")
    with closing(sqlite3.connect(kept)) as db:
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (2,)


async def test_a_version_that_migrates_waits_until_other_terminals_are_closed(home):
    home.offer("1.1", migrates=True)
    async with ModelServer([Say("late", delay=LIMIT_S)]) as server:
        home.use(server)
        other = await asyncio.create_subprocess_exec(
            home.versions.launcher,
            "ask",
            "wait",
            env=home.environ(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        while not server.requests:
            await asyncio.sleep(0.02)
        done = await update(home)
        other.terminate()
        await other.communicate()
    assert done.status == 2 and f"other terminals still use it (process {other.pid})" in done.err
    assert await home.version() == "alipes 1.0"


async def test_a_running_server_continues_with_the_new_version_in_the_same_process(home):
    home.offer("1.1")
    output = home.path.parent / "output"
    with output.open("w") as file:
        serving = await asyncio.create_subprocess_exec(
            home.versions.launcher,
            *("serve", "--port", "0"),
            env=home.environ(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=asyncio.subprocess.DEVNULL,
        )
    lock = home.path / "run" / "serve.claim"
    try:
        while (holder := find_holder(lock) if lock.exists() else None) is None or not holder.address:
            assert serving.returncode is None
            await asyncio.sleep(0.02)
        done = await update(home)
        assert done.status == 0 and "has not restarted" not in done.out, done.out + done.err
        now = find_holder(lock)
        assert now is not None and now.pid == holder.pid == serving.pid
        with open(f"/proc/{now.pid}/cmdline", "rb") as file:
            assert os.fsencode(home.versions.python("1.1")) in file.read()
        while "alipes is now 1.1. What is new: `alipes update --notes`" not in output.read_text():
            await asyncio.sleep(0.02)
    finally:
        serving.terminate()
        await serving.wait()


@pytest.mark.parametrize("schema", sorted(EARLIER))
async def test_a_home_of_an_earlier_schema_goes_forward_and_back_with_its_conversations(tmp_path, schema):
    if (source := read_commit(EARLIER[schema])) is None:
        pytest.skip("this checkout has no earlier commits")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    home = UpdatedHome(tmp_path / "home", wheels)
    await furnish(home, source)
    assert read_schema(home.path / "alipes.db") == schema
    home.offer("1.1")
    home.versions.switch("1.1")  # the earlier versions have no `alipes update`
    request = await continue_trip(home)
    assert "where do we go?" in request and "To Rome." in request
    assert read_schema(home.path / "alipes.db") == SCHEMA
    done = await update(home, "--to", "1.0")
    assert done.status == 2 and "was written by a newer alipes" in done.err
    assert await home.version() == "alipes 1.1"


async def test_a_home_of_this_schema_goes_back_with_what_was_said_since(home):
    home.offer("1.1")
    assert (await update(home)).status == 0
    await continue_trip(home)
    done = await home.start("update", "--back", "--yes")
    assert done.status == 0, done.err
    assert await home.version() == "alipes 1.0"
    assert "By train." in await continue_trip(home)
