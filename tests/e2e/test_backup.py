"""Backup of a home in use, and restore: elsewhere, under another name, without secrets."""

import asyncio
import os
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.program import Home
from tests.e2e.service import open_serve
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say

pytestmark = pytest.mark.deadline(90)
KEY = "sk-canary-0123456789abcdef"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def furnish(home, server):
    """A conversation, settings, keys, a plugin, a chat file, and files that must not be in a backup."""
    home.use(server)
    (home.path / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    (home.path / ".env").chmod(0o600)
    (home.path / "SOUL.md").write_text("Be kind.")
    for name, text in {
        "plugins/lamp/__init__.py": "x = 1",
        "files/telegram/1-a.png": "picture",
        "files/matrix/login.json": KEY,
        "files/matrix/keys.db": KEY,
        "logs/alipes.log": KEY,
        "spill/long.txt": "much",
        "sandbox/homes/1/.cache/x": "much",
        "run/old.sock": KEY,
    }.items():
        path = home.path / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text)
    done = await home.run("ask", "--session", "trip", "where do we go?")
    assert done.status == 0, done.err


def names(file):
    with tarfile.open(file) as archive:
        return archive.getnames()


async def test_a_backup_contains_all_data_and_no_secrets(home, tmp_path):
    async with ModelServer([Say("To Rome.")]) as server:
        await furnish(home, server)
    done = await home.run("backup", str(tmp_path / "all.tgz"))
    assert done.status == 0 and "Keys (.env) and secrets of webhooks are not included" in done.out
    kept = {"alipes.db", "config.toml", "SOUL.md", "plugins/lamp/__init__.py", "files/telegram/1-a.png"}
    assert kept <= set(names(tmp_path / "all.tgz"))
    assert not [
        each for each in names(tmp_path / "all.tgz") if each.startswith((".env", "run", "logs", "spill", "sandbox"))
    ]
    with tarfile.open(tmp_path / "all.tgz") as archive:
        assert not any(KEY.encode() in archive.extractfile(each).read() for each in archive)
    assert (tmp_path / "all.tgz").stat().st_mode & 0o077 == 0
    assert not [each for each in os.listdir(tmp_path) if each.endswith(".part")]
    again = await home.run("backup", str(tmp_path / "all.tgz"))
    assert again.status != 0 and "already exists" in again.err


async def test_a_backup_is_restored_under_another_path(home, tmp_path):
    async with ModelServer([Say("To Rome."), Say("By train.")]) as server:
        await furnish(home, server)
        await home.run("backup", str(tmp_path / "all.tgz"))
        other = Home(tmp_path / "second")
        dry = await other.run("restore", str(tmp_path / "all.tgz"), "--dry-run")
        assert dry.status == 0 and "Nothing changed" in dry.out and not other.path.exists()
        async with open_serve(home):
            busy = await home.run("restore", str(tmp_path / "all.tgz"), "--dry-run")
            assert busy.status == 0 and "alipes is running on" in busy.out
        done = await other.run("restore", str(tmp_path / "all.tgz"))
        assert done.status == 0 and "1 conversation" in done.out and "backups contain no keys" in done.out
        assert (other.path / "SOUL.md").read_text() == "Be kind." and other.path.stat().st_mode & 0o077 == 0
        assert (await other.run("ask", "--session", "trip", "how?")).out == "By train.\n"
        assert [each["content"] for each in server.bodies[-1]["messages"][-3:]] == [
            "where do we go?",
            "To Rome.",
            "how?",
        ]
        found = await other.run("sessions", "search", "Rome")
        assert "Rome" in found.out


async def test_an_existing_home_is_moved_aside_and_keeps_its_keys(home, tmp_path):
    async with ModelServer([Say("To Rome."), Say("Now.")]) as server:
        await furnish(home, server)
        await home.run("backup", str(tmp_path / "all.tgz"))
        await home.run("ask", "a later question")
        refused = await home.run("restore", str(tmp_path / "all.tgz"))
        assert refused.status != 0 and "--force" in refused.err
        done = await home.run("restore", "--force", str(tmp_path / "all.tgz"))
    assert done.status == 0, done.err
    assert KEY in (home.path / ".env").read_text()
    (before,) = tmp_path.glob("home.before-*")
    assert (before / "files/matrix/keys.db").read_text() == KEY
    listed = await home.run("sessions", "list")
    assert (
        "trip" in listed.out + (await home.run("sessions", "list", "--json")).out
        and "a later question" not in listed.out
    )


async def test_restore_refuses_a_home_in_use(home, tmp_path):
    async with ModelServer([Say("To Rome."), Say("wait", wait=30)]) as server:
        await furnish(home, server)
        await home.run("backup", str(tmp_path / "all.tgz"))
        async with home.started("ask", "take your time") as living:
            await server.asked(2)
            done = await home.run("restore", "--force", str(tmp_path / "all.tgz"))
            assert done.status != 0 and "stop it first" in done.err
            living.kill()


async def test_restored_running_turns_are_ended_and_their_calls_answered(home, tmp_path):
    nap = Calls((Call("terminal", {"command": "sleep 60"}),), "I wait.")
    async with ModelServer([Say("To Rome."), nap, Say("Here I am.")]) as server:
        await furnish(home, server)
        async with home.started("ask", "--session", "trip", "wait for it") as living:
            await server.asked(2)
            await until_running(home.path)
            await home.run("backup", str(tmp_path / "all.tgz"))
            living.kill()
        other = Home(tmp_path / "other")
        done = await other.run("restore", str(tmp_path / "all.tgz"))
        assert "ended 1 turn still running at backup time; use /retry" in done.out
        assert (await other.run("ask", "--session", "trip", "are you there?")).out == "Here I am.\n"
        assert len(server.bodies) == 3  # it was not run again
        roles = [each["role"] for each in server.bodies[-1]["messages"]]
        assert roles[-3:] == ["assistant", "tool", "user"]


async def until_running(home: Path):
    """Wait until the call is in the journal."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with closing(sqlite3.connect(home / "alipes.db")) as db:
                if db.execute("SELECT count(*) FROM tool_calls").fetchone()[0]:
                    return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("harm", ["cut", "flip", "text", "foreign", "path"])
async def test_an_invalid_backup_changes_nothing(home, tmp_path, harm):
    async with ModelServer([Say("To Rome.")]) as server:
        await furnish(home, server)
    file = tmp_path / "all.tgz"
    await home.run("backup", str(file))
    data = file.read_bytes()
    match harm:
        case "cut":
            file.write_bytes(data[: len(data) // 2])
        case "flip":
            file.write_bytes(data[:-2000] + bytes([data[-2000] ^ 255]) + data[-1999:])
        case "text":
            file.write_text("not a backup")
        case _:
            (tmp_path / "x").write_text("x")
            with tarfile.open(file, "w:gz") as archive:
                archive.add(tmp_path / "x", "other" if harm == "foreign" else "../../evil")
    other = Home(tmp_path / "other")
    done = await other.run("restore", str(file))
    assert done.status != 0 and str(file) in done.err and not other.path.exists()
    assert not (tmp_path / "evil").exists() and not list(tmp_path.glob(".other*"))


async def test_a_backup_of_the_previous_release_is_restored_and_its_conversations_continue(tmp_path):
    backup = Path(__file__).parents[1] / "unit/store/home_of_previous_release.tgz"
    home = Home(tmp_path / "home")
    done = await home.run("restore", str(backup))
    assert done.status == 0 and "13 conversations, 5" in done.out, done.err
    async with ModelServer([Say("By train.")]) as server:
        home.use(server)
        assert (await home.run("ask", "--session", "trip", "how?")).out == "By train.\n"
        texts = [message["content"] for message in server.bodies[-1]["messages"]]
        assert "Where do we go? To Rome by train." in texts
    found = await home.run("sessions", "search", "Tycho")
    assert "Tycho" in found.out


async def test_secrets_of_webhooks_are_not_in_the_backup_and_the_restore_says_so(tmp_path):
    home = Home(tmp_path / "home")
    secret = (await home.run("webhook", "add", "ci", "--prompt", "look")).out.strip()
    assert (await home.run("backup", str(tmp_path / "b.tgz"))).status == 0
    with tarfile.open(tmp_path / "b.tgz") as archive:
        assert secret.encode() not in archive.extractfile("alipes.db").read()
    done = await home.run("restore", str(tmp_path / "b.tgz"), "--to", str(tmp_path / "new"))
    assert done.status == 0 and "webhook ci needs a secret: run `alipes webhook secret ci`" in done.out
