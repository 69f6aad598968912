"""`cron.jobs`, which alipes does not implement."""

from typing import Any, NoReturn

from alipes.compat.hermes.modules.current_app import NotAvailable

_USE_SYSTEM_CRON = "use your system's cron with `alipes ask`"


def load_jobs() -> list[dict[str, Any]]:
    return []


def list_jobs(include_disabled: bool = False, **_more: Any) -> list[dict[str, Any]]:
    return []


def get_due_jobs() -> list[dict[str, Any]]:
    return []


def get_job(job_id: str) -> dict[str, Any] | None:
    return None


def remove_job(job_id: str) -> bool:
    """There are no jobs."""
    return False


def create_job(*_given: Any, **_more: Any) -> NoReturn:
    raise NotAvailable("cron.jobs.create_job (schedules)", _USE_SYSTEM_CRON)


def update_job(job_id: str, *_given: Any, **_more: Any) -> dict[str, Any] | None:
    return None


def pause_job(job_id: str, *_given: Any, **_more: Any) -> dict[str, Any] | None:
    return None


def resume_job(job_id: str) -> dict[str, Any] | None:
    return None


def trigger_job(job_id: str) -> dict[str, Any] | None:
    return None


def save_jobs(jobs: list[dict[str, Any]]) -> None:
    """Jobs are not stored, so only an empty list is accepted."""
    if jobs:
        raise NotAvailable("cron.jobs.save_jobs (schedules)", _USE_SYSTEM_CRON)
