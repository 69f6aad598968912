"""`alipes update` and `--back` between real environments of wheels: what starts, what is kept, what is refused."""

import asyncio
import hashlib
import json
import os
import sqlite3
import subprocess
from contextlib import closing

import pytest

from alipes.features.update.release import SUMS
from alipes.features.update.versions import Versions
from alipes.runtime.process_lock import find_holder
from alipes.store.backups.backup import read_schema
from alipes.store.sqlite.migrations.migrations import SCHEMA
from tests.e2e.program import Finished, Home, read_until
from tests.world.alipes_versions import FIRST_RELEASE, build_wheel, install, require_commit
from tests.world.environment import LIMIT_S, require
from tests.world.model_server import ModelServer, Say

pytestmark = pytest.mark.deadline(180)

EARLIER = {17: FIRST_RELEASE, 18: "884cb1ec", 19: "52493ef9", 20: "56d03a4d"}
"""A commit of each earlier schema: that of release 0.1.0, and the three last ones."""


COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "first")


class UpdatedHome(Home):
    """A home with a conversation; 1.0 is current, and the wheels of other versions are in a folder."""

    def __init__(self, path, wheels, command=()):
        super().__init__(path)
        self.versions, self.wheels, self._command = Versions(path), wheels, command

    def environ(self, **more):
        return super().environ(**{"PYTHONPATH": "", **more})

    @property
    def command(self):
        return self._command or (str(self.versions.launcher),)

    def offer(self, version, **traits):
        """Put a version into the folder, and its environment into the home, as if it had been installed."""
        install(self.versions, build_wheel(self.wheels, version, **traits))

    async def version(self):
        return (await self.run("--version")).out.strip()

    async def titles(self):
        listed = await self.run("sessions", "list", "--json")
        assert listed.status == 0, listed.err
        return [each["title"] for each in json.loads(listed.out)]


def make_home(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    return UpdatedHome(tmp_path / "home", wheels)


@pytest.fixture
def home(tmp_path):
    home = make_home(tmp_path)
    asyncio.run(furnish(home))
    return home


def start_with(home, version, **traits):
    """Make a version the current one of a new home."""
    home.versions.folder.mkdir(parents=True)
    home.offer(version, **traits)
    home.versions.write_launcher("/bin/false")
    home.versions.switch(version)


async def furnish(home, source=None):
    start_with(home, "1.0", source=source)
    async with ModelServer([Say("To Rome.")]) as server:
        home.use(server)
        done = await home.run("ask", "--session", "trip", "where do we go?")
        assert done.status == 0, done.err


async def continue_trip(home):
    """The last request to the model, when the conversation is continued."""
    async with ModelServer([Say("By train.")]) as server:
        home.use(server)
        done = await home.run("ask", "--session", "trip", "and how?")
        assert (done.status, done.out) == (0, "By train.\n"), done.err
        return json.dumps(server.requests[-1].body)


async def update(home, *words) -> Finished:
    return await home.run("update", "--yes", "--source", str(home.wheels), *words)


async def test_an_update_starts_the_newest_version_from_then_on(home):
    home.offer("1.1")
    done = await update(home)
    assert done.status == 0, done.err
    assert "alipes is now 1.1 (before: 1.0)." in done.out
    assert (await home.version(), await home.titles()) == ("alipes 1.1", ["where do we go?"])
    (backup,) = home.versions.backups.iterdir()
    assert str(backup) in done.out
    restored = await home.run("restore", str(backup), "--to", str(home.path.parent / "restored"))
    assert restored.status == 0 and "1 conversation" in restored.out


async def test_a_check_installs_nothing_and_exits_with_1_if_there_is_a_newer_version(home):
    build_wheel(home.wheels, "1.1")
    done = await home.run("update", "--check", "--source", str(home.wheels))
    assert (done.status, await home.version()) == (1, "alipes 1.0")
    assert f"alipes 1.1 is available in {home.wheels}; you have 1.0." in done.out
    assert [each.name for each in home.versions.list()] == ["1.0"]


async def test_a_version_whose_doctor_fails_on_a_copy_is_not_started(home):
    home.offer("1.1", broken="out of order")
    done = await update(home)
    assert done.status == 2 and "failed on a copy of the home: out of order" in done.err
    assert (await home.version(), await home.titles()) == ("alipes 1.0", ["where do we go?"])


async def test_a_version_that_needs_a_newer_python_is_refused(home):
    build_wheel(home.wheels, "1.1", python=">=3.99")
    done = await update(home)
    assert done.status == 2 and "alipes 1.1 needs Python 3.99 or newer, and this is 3." in done.err
    assert [each.name for each in home.versions.list()] == ["1.0"]


async def test_a_broken_wheel_is_refused(home):
    (home.wheels / "alipes-1.1-py3-none-any.whl").write_text("no wheel")
    (home.wheels / SUMS).write_text(f"{hashlib.sha256(b'no wheel').hexdigest()}  alipes-1.1-py3-none-any.whl\n")
    done = await update(home)
    assert done.status == 2 and "is no wheel that can be read" in done.err and "Nothing was changed." in done.err
    assert await home.version() == "alipes 1.0"


async def test_a_check_without_a_release_says_so(home):
    build_wheel(home.path.parent, "1.1rc1")
    done = await home.run("update", "--check", "--source", str(home.path.parent))
    assert done.status == 2 and "has no release of alipes. `--channel next` shows versions before" in done.err


async def test_a_check_of_a_repository_without_releases_names_its_newest_commit(home):
    git, repository = require("git"), home.path.parent / "repository"
    for words in (("init", "--quiet", str(repository)), ("-C", str(repository), *COMMIT)):
        subprocess.run((git, *words), check=True)
    commit = subprocess.check_output((git, "-C", str(repository), "rev-parse", "HEAD"), text=True)
    done = await home.run("update", "--check", "--source", str(repository))
    assert done.status == 1
    assert f"alipes commit {commit[:8]} is available in {repository}; you have 1.0." in done.out


async def test_back_starts_the_version_before(home):
    home.offer("1.1")
    await update(home)
    done = await home.run("update", "--back", "--yes")
    assert done.status == 0 and "alipes is now 1.0 (before: 1.1)." in done.out
    assert (await home.version(), await home.titles()) == ("alipes 1.0", ["where do we go?"])


async def test_back_is_refused_if_the_old_version_cannot_read_the_conversations(home):
    home.offer("1.1", migrates=True)
    assert (await update(home)).status == 0
    await home.titles()  # migrates
    done = await home.run("update", "--back", "--yes")
    assert done.status == 2 and "was written by a newer alipes" in done.err and "--back --restore" in done.err
    assert (await home.version(), await home.titles()) == ("alipes 1.1", ["where do we go?"])


async def test_back_with_restore_brings_the_conversations_of_the_backup_and_keeps_the_others(home):
    home.offer("1.1", migrates=True)
    await update(home)
    async with ModelServer([Say("To Oslo.")]) as server:
        home.use(server)
        assert (await home.run("ask", "and then?")).status == 0
    done = await home.run("update", "--back", "--restore", "--yes")
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


async def wait_served(home, serving):
    lock = home.path / "run" / "serve.claim"
    while (holder := find_holder(lock) if lock.exists() else None) is None or not holder.address:
        assert serving.returncode is None
        await asyncio.sleep(0.02)
    return holder


def command_line(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return os.fsdecode(file.read())


async def test_a_running_server_continues_with_the_new_version_in_the_same_process(home):
    home.offer("1.1")
    async with home.started("serve", "--port", "0") as serving:
        holder = await wait_served(home, serving)
        done = await update(home)
        assert done.status == 0 and "stop it" not in done.out, done.out + done.err
        now = await wait_served(home, serving)
        assert now.pid == holder.pid == serving.pid
        assert str(home.versions.python("1.1")) in command_line(now.pid)
        await read_until(serving.stdout, "alipes is now 1.1. What is new: `alipes update --notes`")
        serving.terminate()


async def test_a_server_of_a_release_without_updates_is_to_be_started_again(tmp_path):
    old = make_home(tmp_path)
    start_with(old, "0.1.0", source=require_commit(FIRST_RELEASE))
    async with ModelServer([]) as server:
        old.use(server)
        old.offer("1.1")
        new = UpdatedHome(old.path, old.wheels, (str(old.versions.python("1.1")), "-m", "alipes"))
        async with old.started("serve", "--port", "0", PYTHONWARNINGS="ignore") as serving:
            await wait_served(old, serving)
            done = await update(new)
            assert done.status == 0, done.err
            assert f"(process {serving.pid}) still runs the other version: stop it, then start" in done.out
            assert await old.version() == "alipes 1.1"
            listed = await old.run("sessions", "list")
            assert listed.status and f"process {serving.pid} of the previous release is using" in listed.err
            serving.terminate()


async def test_a_server_in_a_terminal_is_not_stopped(home):
    home.offer("1.1")
    ours, terminal = os.openpty()
    try:
        async with home.started("serve", "--port", "0", stdin=terminal) as serving:
            await wait_served(home, serving)
            done = await update(home)
            assert done.status == 0 and "runs in a terminal: stop it there with Ctrl-C" in done.out
            assert serving.returncode is None
            serving.terminate()
    finally:
        os.close(ours)
        os.close(terminal)


@pytest.mark.parametrize("schema", sorted(EARLIER))
async def test_a_home_of_an_earlier_schema_goes_forward_and_back_with_its_conversations(tmp_path, schema):
    source = require_commit(EARLIER[schema])
    home = make_home(tmp_path)
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
    done = await home.run("update", "--back", "--yes")
    assert done.status == 0, done.err
    assert await home.version() == "alipes 1.0"
    assert "By train." in await continue_trip(home)
