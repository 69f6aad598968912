"""`kill -9` at random moments of an update and of `--back`: a version starts every time, and reads the conversations."""

import asyncio
import json
import os
import random
import time

import pytest

from tests.e2e.test_update import UpdatedHome, furnish
from tests.world.environment import LIMIT_S

KILLS = int(os.environ.get("ALIPES_TORTURE_TRIALS", "4"))
BACK = ("--back",)
pytestmark = pytest.mark.deadline(120 + 30 * KILLS)


async def run_and_kill(home: UpdatedHome, seconds: float, *words: str) -> int | None:
    """The exit status; None if it was killed."""
    process = await asyncio.create_subprocess_exec(
        home.versions.launcher,
        *("update", "--yes", *words),
        env=home.environ(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            return await process.wait()
    except TimeoutError:
        os.killpg(process.pid, 9)
        await process.wait()
        return None


async def check(home: UpdatedHome) -> str:
    """A version starts and reads the conversation; returns its name."""
    version = (await home.start("--version")).out.strip()
    listed = await home.start("sessions", "list", "--json")
    assert [each["title"] for each in json.loads(listed.out)] == ["where do we go?"], listed.err
    return version


async def test_a_version_starts_after_every_kill(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    home, chance = UpdatedHome(tmp_path / "home", wheels), random.Random(os.environ.get("ALIPES_SEED", "1"))
    await furnish(home)
    home.offer("1.1")
    lasts = {words: await measure(home, *words) for words in (("--source", str(wheels)), BACK)}
    started, kills = set[str](), 0
    for _ in range(2 * KILLS):
        words = BACK if home.versions.current() == "1.1" else ("--source", str(wheels))
        kills += await run_and_kill(home, chance.uniform(0, lasts[words]), *words) is None
        started.add(await check(home))
        if kills == KILLS:
            break
    assert started <= {"alipes 1.0", "alipes 1.1"} and kills
    print(f"{kills} updates were killed; started afterwards: {sorted(started)}")
    assert (await home.start("update", "--yes", "--source", str(wheels))).status == 0
    assert [each.name for each in home.versions.folder.iterdir() if each.name.startswith(".")] == [".lock"]
    assert not [each.name for each in home.versions.backups.iterdir() if each.suffix != ".tgz"]


async def measure(home: UpdatedHome, *words: str) -> float:
    """Seconds that it takes without a kill."""
    began = time.monotonic()
    assert await run_and_kill(home, LIMIT_S, *words) == 0
    return time.monotonic() - began
