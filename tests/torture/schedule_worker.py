"""A process with sessions and a scheduler, of which several may run on one home: `python -m ... HOME [CLOCK]`.

`CLOCK`: a file with the seconds since the epoch that the scheduler takes for the time.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.core.app import App
from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.schedules.scheduler import Scheduler, SchedulerLimits
from alipes.features.schedules.schedules import Schedules
from alipes.features.schedules.serve import make_lone_scheduler
from alipes.features.schedules.settlement import AnswerPlaces, RunSettler
from alipes.features.skills.feature import SkillsFeature
from alipes.gateway.outbound.policy import make_outbound_policy


async def work(home: Path, clock: Callable[[], float]) -> None:
    settings = load_settings(home)
    async with open_app(settings) as app:
        print("ready", flush=True)
        schedules = app.features.get(SchedulesFeature).schedules
        is_real = clock is time.time
        scheduler = make_lone_scheduler(app, schedules, "") if is_real else _make_scheduler(app, clock)
        await scheduler.run()


def _make_scheduler(app: App, clock: Callable[[], float]) -> Scheduler:
    schedules = Schedules(app.settings, app.store, sessions=app.sessions, clock=clock)
    outbound = make_outbound_policy(app.settings)
    places = AnswerPlaces(app.store.people, outbound, lambda: (), app.settings.paths.schedules)
    settler = RunSettler(schedules.runs, app.sessions, places, clock=clock)
    return Scheduler(
        schedules, app.sessions, settler, SchedulerLimits(), skills=app.features.get(SkillsFeature).skills, clock=clock
    )


def read_clock(file: Path) -> Callable[[], float]:
    return lambda: float(file.read_text())


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), read_clock(Path(sys.argv[2])) if len(sys.argv) > 2 else time.time))
