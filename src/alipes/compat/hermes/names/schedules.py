"""`cron.jobs`: the house keeps no schedules yet. Questions are answered truly, wishes are refused."""

from typing import Any, NoReturn

from alipes.compat.hermes.names.bound import NotHere

_INSTEAD = "run it from your system's own cron with `alipes ask`"


def load_jobs() -> list[dict[str, Any]]:
    return []


def list_jobs(include_disabled: bool = False, **_more: Any) -> list[dict[str, Any]]:
    return []


def get_due_jobs() -> list[dict[str, Any]]:
    return []


def get_job(job_id: str) -> dict[str, Any] | None:
    return None


def remove_job(job_id: str) -> bool:
    """False: there is none of that name."""
    return False


def create_job(*_given: Any, **_more: Any) -> NoReturn:
    raise NotHere("cron.jobs.create_job (schedules)", _INSTEAD)


def update_job(job_id: str, *_given: Any, **_more: Any) -> dict[str, Any] | None:
    return None


def pause_job(job_id: str, *_given: Any, **_more: Any) -> dict[str, Any] | None:
    return None


def resume_job(job_id: str) -> dict[str, Any] | None:
    return None


def trigger_job(job_id: str) -> dict[str, Any] | None:
    return None


def save_jobs(jobs: list[dict[str, Any]]) -> None:
    """Nothing is kept, so that only nothing may be given."""
    if jobs:
        raise NotHere("cron.jobs.save_jobs (schedules)", _INSTEAD)
