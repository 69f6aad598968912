"""What `alipes doctor` reports about scheduled jobs."""

from alipes.config.paths import LOCK_NAME
from alipes.config.settings import Settings
from alipes.features.schedules.store.jobs import ScheduleStore
from alipes.features.schedules.store.runs import ScheduleRunStore
from alipes.kernel.checks import CheckResult
from alipes.kernel.formatting import format_count
from alipes.runtime.process_lock import find_holder
from alipes.store.sql.store import Store


async def check(settings: Settings, store: Store | None) -> list[CheckResult]:
    """Jobs that nobody runs, and the latest ones that failed."""
    if store is None:
        return []
    count = await store.tables(ScheduleStore, store.schedule_changes).count()
    last = await store.tables(ScheduleRunStore, store.schedule_changes).last_runs()
    if not count:
        return []
    failed = sorted(run.job.name for run in last.values() if run.state == "failed")
    names, says = ", ".join(failed[:5]), f"{format_count(count, 'job')} scheduled"
    if find_holder(settings.paths.run / LOCK_NAME) is None:
        return [CheckResult("schedules", "wrong", f"{says}, and no server runs them", "start `alipes serve`")]
    if failed:
        return [CheckResult("schedules", "note", f"{says}; last run failed: {names}", "see `alipes schedule history`")]
    return [CheckResult("schedules", "ok", says)]
