"""Schedules under stress: several processes, kills, downtime, changed clocks, a failing model, removed jobs."""

import asyncio
import random
import sys
from collections import Counter
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from alipes.config.loader import load_settings
from alipes.config.time_zones import find_zone
from alipes.features.schedules.cron import next_cron_time, parse_cron
from alipes.features.schedules.job import Job, JobRun, plan_fire
from alipes.features.schedules.schedules import Schedules
from alipes.features.schedules.store.jobs import ScheduleStore
from alipes.features.schedules.timetable import Timetable
from alipes.kernel.turns import Stop
from alipes.store.sqlite.store import open_store
from alipes.testing.clock import Clock
from tests.torture.trials import seeds, trials
from tests.world import echo_model
from tests.world.environment import LIMIT_S, environment
from tests.world.serve_process import ServeProcess

KILLS = trials(3, 100)
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
CRONS = ("30 2 * * *", "*/20 * * * *", "0 1,2,3 * * *", "15 2 * * 0", "0 0 * * *", "59 23 * * *", "0 */2 * * *")


@asynccontextmanager
async def a_service(folder: Path):
    """`alipes serve` with a model, not started; messages go to files."""
    async with echo_model.serve(folder) as model:
        service = ServeProcess(folder)
        service.settle(model, None)
        config = service.home / "config.toml"
        config.write_text('timezone = "Europe/Berlin"\nsandbox.backend = "host"\n' + config.read_text())
        try:
            yield service
        finally:
            await service.kill()


@asynccontextmanager
async def open_jobs(service: ServeProcess):
    """The jobs, from another process than the service."""
    async with open_store(service.home) as store:
        yield Schedules(load_settings(service.home, {}), store), store


async def wait_for(find):
    """The first true result of `find()`."""
    async with asyncio.timeout(LIMIT_S):
        while not (found := await find()):
            await asyncio.sleep(0.05)
    return found


async def finished(schedules: Schedules, name: str) -> JobRun | None:
    runs = [run for run in await schedules.runs.latest(limit=100) if run.job.name == name]
    return next((run for run in runs if run.state not in ("waiting", "running")), None)


@pytest.mark.deadline(120 + 10 * KILLS)
@pytest.mark.parametrize("seed", seeds(1, 3))
async def test_each_fire_is_claimed_once_with_two_processes_that_are_killed_at_random(seed, tmp_path, figures):
    rng = random.Random(f"13 {seed}")
    async with a_service(tmp_path) as service:
        async with open_jobs(service) as (schedules, _):
            await _add_ticking_jobs(schedules)
        workers = [await start_worker(service, tmp_path) for _ in range(2)]
        try:
            for _ in range(KILLS):
                await asyncio.sleep(rng.random())  # the moment of the kill is random, not a condition
                victim = rng.randrange(2)
                workers[victim].kill()
                await workers[victim].wait()
                workers[victim] = await start_worker(service, tmp_path)
            async with open_jobs(service) as (schedules, _store):
                for view in await schedules.list():
                    await schedules.jobs.update(view.schedule.id, view.schedule.job, None, "done")
                await wait_for(lambda: is_settled(schedules))
                await _check_runs(schedules, figures)
        finally:
            for worker in workers:
                worker.kill()
                await worker.wait()


async def _add_ticking_jobs(schedules: Schedules) -> None:
    loop_clock = schedules._clock()
    for n in range(4):
        timetable = Timetable("every", at=loop_clock, every_s=0.3 + n / 10)
        job = Job(f"tick{n}", "", timetable, "UTC", prompt=f"echo tick{n}", targets=("files",), overlap="parallel")
        await schedules.jobs.add(job, loop_clock + timetable.every_s, id=f"tick{n}")


async def start_worker(
    service: ServeProcess, folder: Path, *clock: str, **variables: str
) -> asyncio.subprocess.Process:
    """`clock`: the file with the time."""
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.torture.schedule_worker", str(service.home), *clock),
        env=environment(folder, ALIPES_HOME=str(service.home), **variables),
        cwd=Path(__file__).parents[2],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert worker.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        assert await worker.stdout.readline() == b"ready\n"
    return worker


async def is_settled(schedules: Schedules) -> bool:
    sql = "SELECT count(*) FROM schedule_runs WHERE state IN ('waiting', 'running') OR settled = 0"
    (left,) = await schedules.runs._database.fetch_one(sql)
    return not left


async def _check_runs(schedules: Schedules, figures) -> None:
    database = schedules.runs._database
    rows = await database.fetch_all("SELECT schedule_id, fire_at, state, turn_id, detail FROM schedule_runs")
    assert len(rows) > 5
    doubled = [fire for fire, count in Counter(row[:2] for row in rows).items() if count > 1]
    assert doubled == []
    wrong = [row for row in rows if row[2] not in ("ok", "skipped") and "gave up after 3 attempts" not in row[4]]
    assert wrong == []
    turns = await database.fetch_all("SELECT inbound_id, id FROM turns WHERE platform = 'schedule'")
    assert {row[3] for row in rows if row[3]} <= {id for _, id in turns}  # old rows are removed, turns are not
    assert max(Counter(inbound for inbound, _ in turns).values()) == 1
    figures.tried(len(rows))


async def test_a_failing_model_is_a_failure_that_is_recorded_and_delivered_and_never_ok(tmp_path):
    async with a_service(tmp_path) as service:
        await service.start()
        async with open_jobs(service) as (schedules, _store):
            await schedules.add({"when": "in 1s", "prompt": "fail no service", "name": "bad", "targets": "files"})
            run = await wait_for(lambda: finished(schedules, "bad"))
            assert run.state == "failed" and "no service" in run.detail
            folder = service.home / "schedules" / "bad"
            await wait_for(lambda: asyncio.to_thread(folder.exists))
            (file,) = await wait_for(lambda: asyncio.to_thread(lambda: list(folder.glob("*.md"))))
            assert file.read_text().startswith("The job bad failed: ")


async def test_a_job_that_is_removed_while_it_runs_stays_removed_after_a_kill(tmp_path):
    async with a_service(tmp_path) as service:
        await service.start()
        async with open_jobs(service) as (schedules, _store):
            await schedules.add({"when": "in 1s", "prompt": "stall it", "name": "gone", "retries": 3})
            await wait_for(schedules.runs.running)
            await schedules.remove("gone")
        await service.kill()
        await service.start()
        async with open_jobs(service) as (schedules, store):
            (run,) = await schedules.runs.running()
            await store.dispatcher.signal(run.address.key, Stop(turn=run.turn))
            assert (await wait_for(lambda: finished(schedules, "gone"))).state == "stopped"
            assert await schedules.list() == () and len(await schedules.runs.latest()) == 1


@pytest.mark.parametrize(("missed", "state"), [("once", "ok"), ("skip", "skipped"), ("10m", "skipped"), ("2h", "ok")])
async def test_after_downtime_a_missed_time_follows_its_policy(missed, state, tmp_path):
    async with a_service(tmp_path) as service:
        async with open_jobs(service) as (schedules, _store):
            hour_ago = schedules._clock() - 3600
            timetable = Timetable("at", at=hour_ago)
            job = Job("late", "", timetable, "UTC", prompt="echo late", targets=("files",), missed=missed)
            await schedules.jobs.add(job, hour_ago)
        await service.start()
        async with open_jobs(service) as (schedules, _store):
            assert (await wait_for(lambda: finished(schedules, "late"))).state == state


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("start", [(2026, 3, 28), (2026, 10, 24), (2026, 3, 7), (2026, 10, 31), (2026, 4, 4)])
async def test_a_weekend_with_a_change_of_the_clocks_has_one_fire_each_at_the_right_local_time(start, zone, tmp_path):
    first = datetime(*start, tzinfo=ZoneInfo(zone)).timestamp()
    clock, last = Clock(first), first + 2 * 86_400
    async with open_store(tmp_path) as store:
        jobs = ScheduleStore(store.database, store.schedule_changes, clock=clock)
        for n, cron in enumerate(CRONS):
            job = Job(f"job{n}", cron, Timetable("cron", cron=cron), zone, prompt="x")
            await jobs.add(job, next_cron_time(parse_cron(cron), first, find_zone(zone)))
        while (wake := await jobs.next_wake(clock.now)) is not None and wake <= last:
            clock.now = wake
            await jobs.fire_due(wake, lambda schedule: plan_fire(schedule, clock.now, find_zone(schedule.job.zone)))
        rows = await store.database.fetch_all("SELECT name, fire_at FROM schedule_runs ORDER BY fire_at")
    for n, cron in enumerate(CRONS):
        expected, moment = [], first
        while (moment := next_cron_time(parse_cron(cron), moment, find_zone(zone))) <= last:
            expected.append(moment)
        assert [fire for name, fire in rows if name == f"job{n}"] == expected
