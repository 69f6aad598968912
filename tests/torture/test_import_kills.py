"""`kill -9` at random moments of an import, then the same command again: the same home as one run."""

import asyncio
import os
import random
import shutil
import sqlite3
import time
from contextlib import closing

import pytest

from tests.e2e.program import Home
from tests.world.imports import ImportingHome, copy_home, write_hermes

KILLS = min(50, int(os.environ.get("ALIPES_TORTURE_TRIALS", "3")))
AT_ONCE = 10
"""Kills of one test."""
pytestmark = pytest.mark.deadline(120 + 60 * min(KILLS, AT_ONCE))


async def import_and_kill(home: Home, source, seconds: float | None) -> int | None:
    """The exit status; None if it was killed."""
    async with home.started(
        "import", "hermes", str(source), "--yes", "--secrets", "--owner", "telegram:1001"
    ) as process:
        try:
            async with asyncio.timeout(seconds):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return None
        return process.returncode


def make_source(tmp_path):
    """The sample, with many more conversations in its database."""
    source = copy_home("hermes", tmp_path)
    more = write_hermes(tmp_path / "more", 60, 1200)
    with closing(sqlite3.connect(source / "state.db")) as db, db:
        db.execute("ATTACH ? AS more", (str(more / "state.db"),))
        for table in ("sessions", "messages"):
            columns = ", ".join(
                row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "id" or table == "sessions"
            )
            db.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM more.{table}")
    return source


@pytest.mark.parametrize("first", range(0, KILLS, AT_ONCE))
async def test_the_home_is_the_same_as_after_one_run(tmp_path, first):
    source, chance = make_source(tmp_path), random.Random(f"{os.environ.get('ALIPES_SEED', '1')} {first}")
    once, kills = ImportingHome(tmp_path / "once"), min(AT_ONCE, KILLS - first)
    started = time.monotonic()
    assert await import_and_kill(Home(once.path), source, None) == 0
    lasts, rows, files = time.monotonic() - started, once.tables(times=False), once.files()
    killed = tries = 0
    while killed < kills:
        tries += 1
        assert tries <= 5 * kills, "most imports ended before they were killed"
        home = ImportingHome(tmp_path / f"home{tries}")
        killed += await import_and_kill(Home(home.path), source, chance.uniform(0.1, lasts)) is None
        assert await import_and_kill(Home(home.path), source, None) in (0, 1)
        again = home.tables(times=False)
        assert {name for name in rows if rows[name] != again[name]} == set(), tries
        ours = home.files()
        different = {name for name in {*files, *ours} if files.get(name) != ours.get(name)}
        assert {
            name for name in different if "/.versions/weigh-hives/" not in name and not name.endswith(".pins.json")
        } == set(), tries
        shutil.rmtree(home.path)
    print(f"{killed} imports were killed")
