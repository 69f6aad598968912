"""Scheduled jobs: the cost of 10,000 jobs at rest, and how late jobs fire."""

import asyncio
import math
import tempfile
import time
from pathlib import Path

from tests.world import echo_model
from tests.world.serve_process import ServeProcess

from alipes.config.loader import load_settings
from alipes.features.schedules.job import Job
from alipes.features.schedules.schedules import Schedules
from alipes.features.schedules.timetable import Timetable
from alipes.runtime.json_text import to_json
from alipes.store.sqlite.store import open_store
from bench.measure import Row, bounded

JOBS = 10_000
REST = 20.0
FIRES, RATE = 300, 20.0
"""Jobs that fire, and how many a second."""


async def schedules() -> list[Row]:
    """All jobs are in the store of one service; then some of them fire, each once."""
    with tempfile.TemporaryDirectory() as name:
        async with echo_model.serve(Path(name)) as model:
            service = ServeProcess(Path(name))
            service.settle(model, None)
            config = service.home / "config.toml"
            config.write_text(f"schedules.parallel = 100\n{config.read_text()}")
            await _add_jobs(service.home)
            await service.start()
            try:
                await asyncio.sleep(3.0)
                before, began = service.cpu(), time.monotonic()
                await asyncio.sleep(REST)
                percent = 100 * (service.cpu() - before) / (time.monotonic() - began)
                late, doubled = await _fire(service.home)
            finally:
                await service.kill()
    p99 = sorted(late)[math.ceil(len(late) * 0.99) - 1]
    return [
        bounded(f"schedules: CPU at rest with {JOBS:,} jobs", percent, 0.5, "%"),
        bounded(f"schedules: fire time error, p99 of {len(late)} ({RATE:.0f} a second)", p99 * 1000, 250, "ms"),
        bounded("schedules: fires that ran twice or not at all", FIRES - len(late) + doubled, 0, ""),
    ]


async def _add_jobs(home: Path) -> None:
    """In one transaction: one at a time would take minutes."""
    now = time.time()
    rows = []
    for n in range(JOBS):
        job = Job(f"job{n}", "", Timetable("every", at=now, every_s=864_000.0 + n), "UTC", prompt="echo x")
        rows.append((f"job{n}", f"job{n}", to_json(job), now + 864_000 + n, now + 864_000 + n, now, now))
    sql = "INSERT INTO schedules (id, name, job, due, wake_at, created, updated) VALUES (?, ?, ?, ?, ?, ?, ?)"
    async with open_store(home) as store:
        await store.database.run(lambda db: db.executemany(sql, rows).rowcount)


async def _fire(home: Path) -> tuple[list[float], int]:
    """Seconds by which each fire was late, and how many runs had more than one turn."""
    async with open_store(home) as store:
        schedules, now = Schedules(load_settings(home, {}), store), time.time()
        for n in range(FIRES):
            due = now + 5 + n / RATE
            job = Job(f"fire{n}", "", Timetable("at", at=due), "UTC", prompt="echo x", targets=("none",))
            await schedules.jobs.add(job, due)
        await asyncio.sleep(5 + FIRES / RATE + 10)
        sql = "SELECT started - fire_at FROM schedule_runs WHERE name LIKE 'fire%' AND started IS NOT NULL"
        late = [row[0] for row in await store.database.fetch_all(sql)]
        sql = "SELECT count(*) FROM turns WHERE platform = 'schedule'"
        (turns,) = await store.database.fetch_one(sql)
        return late, turns - len(late)
