"""Overwritten database pages, also while serving: reported as damage, never as saved; a backup restores them."""

import os
import random
import sqlite3
from contextlib import closing, suppress

import httpx2
import pytest

from tests.e2e.program import Home
from tests.torture.homes import last_user_text, open_service, write_home
from tests.torture.trials import seeds
from tests.world.model_server import ModelServer, Say

PAGE = 4096
ACKNOWLEDGED = 12


def corrupt_pages(home: Home, rng: random.Random) -> None:
    """Overwrite some pages, but not the first one, without which the file could not be opened."""
    path = home.path / "alipes.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        for _ in range(rng.choice((1, 3, pages // 2))):
            file.seek(rng.randrange(1, pages) * PAGE + rng.choice((0, 8, 100)))
            file.write(os.urandom(rng.choice((16, 200, 3000))))


def is_stored(home: Home, text: str) -> bool:
    sql = "SELECT count(*) FROM turns WHERE json_extract(inbound, '$.text') = ? AND ending = 'answered'"
    with closing(sqlite3.connect(home.path / "alipes.db")) as db:
        return db.execute(sql, (text,)).fetchone() == (1,)


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(1, 20))
async def test_damage_is_reported_and_a_backup_restores_everything(tmp_path, seed):
    rng, home, backup = random.Random(seed), Home(tmp_path / "home"), tmp_path / "b.tar.gz"
    async with ModelServer(lambda body: Say(f"answer {last_user_text(body)}")) as model:
        write_home(home, model)
        async with open_service(home) as (served, api):
            for number in range(ACKNOWLEDGED):
                assert (await api.finish(await api.begin(f"q{number}", session="s")))["status"] == "answered"
            assert (await home.run("backup", str(backup))).status == 0
            if rng.random() < 0.5:  # while it serves
                corrupt_pages(home, rng)
                for number in range(3):
                    try:
                        run = await api.begin(f"live{number}", session=f"t{number}")
                        seen = await api.finish(run)
                    except (httpx2.HTTPError, AssertionError):  # it is gone or refuses
                        continue
                    if seen["status"] == "answered":
                        with suppress(sqlite3.DatabaseError):  # our own read hits the damage
                            assert is_stored(home, f"live{number}"), "reported as saved"
                if served.process.returncode is None:
                    await served.left()
                seen = (await served.process.stderr.read()).decode()
                assert "Traceback" not in seen and "internal error" not in seen, seen
            else:
                assert await served.left() == 0
                corrupt_pages(home, rng)
        done = await home.run("ask", "--session", "s", "after")
        assert "Traceback" not in done.err and "internal error" not in done.err, done
        if done.status:
            assert "damaged" in done.err or "cannot be read" in done.err, done
        else:
            assert is_stored(home, "after")
        doctor = await home.run("doctor")
        assert "Traceback" not in doctor.err, doctor
        done = await home.run("restore", "--force", str(backup))
        assert done.status == 0, done
        assert all(is_stored(home, f"q{number}") for number in range(ACKNOWLEDGED))
        assert (await home.run("ask", "--session", "s", "again")).status == 0
