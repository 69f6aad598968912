"""Overwritten database pages, also while serving: reported as damage, never as saved; a backup restores them."""

import os
import random
import sqlite3
from contextlib import closing, suppress

import httpx2
import pytest

from tests.e2e.program import Home
from tests.torture.homes import calling, furnish, words
from tests.torture.trials import seeds
from tests.world.model_server import ModelServer, Say

PAGE = 4096
ACKNOWLEDGED = 12


def scribble(home: Home, dice: random.Random) -> None:
    """Over some pages of the file, not the first: nobody would open it then. As if its log had never been there."""
    path = home.path / "alipes.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        for _ in range(dice.choice((1, 3, pages // 2))):
            file.seek(dice.randrange(1, pages) * PAGE + dice.choice((0, 8, 100)))
            file.write(os.urandom(dice.choice((16, 200, 3000))))


def kept(home: Home, text: str) -> bool:
    sql = "SELECT count(*) FROM turns WHERE json_extract(inbound, '$.text') = ? AND ending = 'answered'"
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        return db.execute(sql, (text,)).fetchone() == (1,)


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(1, 20))
async def test_damage_is_reported_and_a_backup_restores_everything(tmp_path, seed):
    dice, home, backup = random.Random(seed), Home(tmp_path / "home"), tmp_path / "b.tar.gz"
    async with ModelServer(lambda body: Say(f"answer {words(body)}")) as model:
        furnish(home, model)
        async with calling(home) as (served, front):
            for number in range(ACKNOWLEDGED):
                assert (await front.finish(await front.begin(f"q{number}", session="s")))[
                    "status"
                ] == "answered"
            assert (await home.run("backup", str(backup))).status == 0
            if dice.random() < 0.5:  # while it serves
                scribble(home, dice)
                for number in range(3):
                    try:
                        run = await front.begin(f"live{number}", session=f"t{number}")
                        seen = await front.finish(run)
                    except (httpx2.HTTPError, AssertionError):  # it is gone, or says no
                        continue
                    if seen["status"] == "answered":
                        with suppress(sqlite3.DatabaseError):  # the outside reader meets the damage
                            assert kept(home, f"live{number}"), "reported as saved"
                if served.process.returncode is None:
                    await served.left()
                seen = (await served.process.stderr.read()).decode()
                assert "Traceback" not in seen and "internal error" not in seen, seen
            else:
                assert await served.left() == 0
                scribble(home, dice)
        done = await home.run("ask", "--session", "s", "after")
        assert "Traceback" not in done.err and "internal error" not in done.err, done
        if done.status:
            assert "damaged" in done.err or "cannot be read" in done.err, done
        else:
            assert kept(home, "after")
        doctor = await home.run("doctor")
        assert "Traceback" not in doctor.err, doctor
        done = await home.run("restore", "--force", str(backup))
        assert done.status == 0, done
        assert all(kept(home, f"q{number}") for number in range(ACKNOWLEDGED))
        assert (await home.run("ask", "--session", "s", "again")).status == 0
