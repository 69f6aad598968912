"""One day on which the clocks change forward and back, lived by two processes that are killed at random.

The time is a file that the test writes, so a day passes in a minute, and it never moves on before all jobs of a moment
have a run: a lost fire is a timeout and a second one is found at the end. No zone of the world changes its clocks twice
on one day, so one is made for the test, with both changes within 24 hours. On the chosen day, 25 March 2018, real
clocks changed in both directions too: forward in Berlin, back in Asuncion. All expected times are written by hand.
"""

import asyncio
import os
import random
import struct
import zoneinfo
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from alipes.features.schedules.job import Job
from alipes.features.schedules.schedules import Schedules
from alipes.features.schedules.timetable import Timetable, next_time
from tests.torture.test_13_schedules import a_service, is_settled, open_jobs, start_worker, wait_for
from tests.torture.trials import LONG, seeds, trials

KILLS = trials(3, 100)
MADE = "Test/Twice"
START = datetime(2018, 3, 24, 23, tzinfo=UTC).timestamp()
"""Midnight in Berlin and in the made zone; the day has 24 hours of 60 minutes."""
HOUR = 3600.0
FORWARD, BACK = START + 2 * HOUR, START + 19 * HOUR
"""In the made zone: 02:00 becomes 03:00, and 20:00 becomes 19:00 again."""
FIXED = {
    # zone, cron expression: hours after START at which it fires
    (MADE, "30 1 * * *"): [1.5],
    (MADE, "0 2 * * *"): [2],  # skipped: at the end of the gap
    (MADE, "30 2 * * *"): [2],
    (MADE, "0 3 * * *"): [2],
    (MADE, "0 12 * * *"): [11],
    (MADE, "0 19 * * *"): [18],  # occurs twice: the first one
    (MADE, "30 19 * * *"): [18.5],
    (MADE, "0 20 * * *"): [20],
    (MADE, "15 2,12,19 * * *"): [2, 11.25, 18.25],
    (MADE, "0 0 25 3 0"): [0],
    ("Europe/Berlin", "30 2 * * *"): [2],
    ("Europe/Berlin", "0 9 * * *"): [8],
    ("Europe/Berlin", "59 23 * * *"): [22 + 59 / 60],
    ("America/Asuncion", "30 23 * * *"): [3.5],  # 24 March, which has two of them
    ("America/Asuncion", "0 0 * * *"): [5],
    ("America/Asuncion", "0 9 * * *"): [14],
}
STEP_MIN = 10 if LONG else 60
PASSING = {
    # these follow the passing time, through both changes
    (MADE, "*/10 * * * *" if LONG else "0 * * * *"): [n * STEP_MIN / 60 for n in range(24 * 60 // STEP_MIN)],
    ("America/Asuncion", "0 */1 * * *"): list(map(float, range(24))),
}
INTERVAL = [n * 1.5 for n in range(1, 16)]
"""Hours after START of a job that runs every 90 minutes, counted from START."""


def write_zone(file: Path) -> ZoneInfo:
    """A zone at UTC+1 with one day of summer time: less than a day, in fact."""
    offsets, names = [(3600, 0, 0), (7200, 1, 4)], b"TST\0TDT\0"
    changes = [(int(FORWARD), 1), (int(BACK), 0)]
    empty = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 1) + struct.pack(">lbB", 3600, 0, 0) + b"\0"
    head = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, len(changes), len(offsets), len(names))
    body = b"".join(struct.pack(">q", moment) for moment, _ in changes) + bytes(kind for _, kind in changes)
    body += b"".join(struct.pack(">lbB", *each) for each in offsets) + names
    file.parent.mkdir(parents=True)
    file.write_bytes(empty + head + body + b"\nTST-1\n")
    with file.open("rb") as opened:
        return ZoneInfo.from_file(opened, key=MADE)


def test_the_made_zone_changes_its_clocks_twice_in_one_day(tmp_path):
    zone = write_zone(tmp_path / MADE)
    shown = [
        datetime.fromtimestamp(moment, zone) for moment in (FORWARD - 1, FORWARD, BACK - 1, BACK, START + 24 * HOUR)
    ]
    assert [f"{each:%d %H:%M:%S %Z}" for each in shown] == [
        *("25 01:59:59 TST", "25 03:00:00 TDT"),
        *("25 19:59:59 TDT", "25 19:00:00 TST", "26 00:00:00 TST"),
    ]


class ShiftedClock:
    """The time of all processes: a file that is replaced as a whole."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def set(self, moment: float) -> None:
        partial = self.file.with_suffix(".part")
        partial.write_text(repr(moment))
        os.replace(partial, self.file)


class Workers:
    """Two processes that serve the same jobs."""

    def __init__(self, service, folder: Path, clock: ShiftedClock) -> None:
        self._service, self._folder, self._clock = service, folder, clock
        self._running: list[asyncio.subprocess.Process] = []
        self.kills = 0

    async def start(self) -> None:
        while len(self._running) < 2:
            paths = os.pathsep.join((str(self._folder / "zones"), *zoneinfo.TZPATH))
            started = await start_worker(
                self._service, self._folder, str(self._clock.file), PYTHONTZPATH=paths, PYTHONWARNINGS="error"
            )
            self._running.append(started)

    async def kill(self, count: int, rng: random.Random) -> None:
        for _ in range(count):
            victim = self._running.pop(rng.randrange(len(self._running)))
            victim.kill()
            await victim.wait()
            self.kills += 1

    async def close(self) -> None:
        for worker in self._running:
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()


@pytest.mark.deadline(180 + 10 * KILLS)
@pytest.mark.parametrize("seed", seeds(1, 3))
async def test_each_fire_of_a_day_with_both_clock_changes_is_claimed_once_under_random_kills(seed, tmp_path, figures):
    rng = random.Random(f"13 both changes {seed}")
    made = write_zone(tmp_path / "zones" / MADE)
    clock = ShiftedClock(tmp_path / "clock")
    clock.set(START - 60)
    async with a_service(tmp_path) as service, open_jobs(service) as (schedules, _store):
        expected = await _add_jobs(schedules, made)
        moments = sorted({fire for _, fire in expected})
        deaths = Counter(rng.choices(moments, k=KILLS))
        workers = Workers(service, tmp_path, clock)
        try:
            await workers.start()
            for moment in moments:
                clock.set(moment)
                await schedules.jobs.changes.announce()
                await _kill_some(workers, deaths[moment], rng)
                await wait_for(lambda: _has_fired(schedules, expected, moment))  # noqa: B023
            clock.set(START + 24 * HOUR - 1)
            await wait_for(lambda: _announce_until_settled(schedules))
        finally:
            await workers.close()
        assert workers.kills == KILLS
        await _check(schedules, expected)
        figures.tried(len(expected))


async def _add_jobs(schedules: Schedules, made: tzinfo) -> set[tuple[str, float]]:
    """Returns the fires that are expected: job and moment."""
    expected: set[tuple[str, float]] = set()
    for n, ((name, cron), hours) in enumerate((FIXED | PASSING).items()):
        zone = made if name == MADE else ZoneInfo(name)
        timetable = Timetable("cron", cron=cron)
        job = Job(f"job{n}", cron, timetable, name, prompt=f"echo {n}", targets=("none",), overlap="parallel")
        await schedules.jobs.add(job, next_time(timetable, START - 60, zone), id=job.name)
        expected |= {(job.name, round(START + hour * HOUR, 3)) for hour in hours}
    timetable = Timetable("every", at=START, every_s=1.5 * HOUR)
    job = Job("interval", "every 90m", timetable, MADE, prompt="echo interval", targets=("none",), overlap="parallel")
    await schedules.jobs.add(job, START + 1.5 * HOUR, id=job.name)
    return expected | {("interval", START + hour * HOUR) for hour in INTERVAL}


async def _kill_some(workers: Workers, deaths: int, rng: random.Random) -> None:
    """At random moments of the work that the new time has started; sometimes both processes at once."""
    while deaths:
        count = min(deaths, rng.choice((1, 1, 2)))
        await asyncio.sleep(rng.random() / 5)  # the moment of the kill is random, not a condition
        await workers.kill(count, rng)
        deaths -= count
        await workers.start()


async def _has_fired(schedules: Schedules, expected: set[tuple[str, float]], moment: float) -> bool:
    await schedules.jobs.changes.announce()
    rows = await schedules.runs._database.fetch_all("SELECT schedule_id FROM schedule_runs WHERE fire_at = ?", moment)
    return {name for name, fire in expected if fire == moment} <= {row[0] for row in rows}


async def _announce_until_settled(schedules: Schedules) -> bool:
    await schedules.jobs.changes.announce()
    return await is_settled(schedules)


async def _check(schedules: Schedules, expected: set[tuple[str, float]]) -> None:
    database = schedules.runs._database
    rows = await database.fetch_all("SELECT schedule_id, fire_at, state, turn_id, detail FROM schedule_runs")
    fires = Counter((name, round(fire, 3)) for name, fire, *_ in rows)
    assert fires == Counter(dict.fromkeys(expected, 1))
    wrong = [row for row in rows if row[2] != "ok" and "gave up after 3 attempts" not in row[4]]
    assert wrong == []
    turns = await database.fetch_all("SELECT inbound_id, id FROM turns WHERE platform = 'schedule'")
    assert sorted(row[3] for row in rows) == sorted(id for _, id in turns), "one turn each"
    assert max(Counter(inbound for inbound, _ in turns).values()) == 1
