"""Scheduled jobs of Hermes, from `cron/jobs.json`."""

from collections.abc import Iterator
from typing import Any

from alipes.features.importer.formats import SourceError, content_hash, plain_text, read_json
from alipes.features.importer.hermes.settings import items, table, text
from alipes.features.importer.records import FoundSchedule, LeftOut, Record, RecordSource
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.formatting import format_count

JOBS = "cron/jobs.json"


def read_jobs(home: SourceHome, zone: str) -> Iterator[Record]:
    """`zone`: the time zone of the settings there."""
    content = home.read_text(JOBS)
    if content is None:
        return
    found = read_json(content, JOBS)
    for number, job in enumerate(items(found if isinstance(found, list) else table(found).get("jobs"))):
        id = plain_text(table(job).get("id")) or str(number)
        try:
            yield _read_job(home, table(job), RecordSource(JOBS, id, content_hash(_lasting(job))), zone)
        except (SourceError, ValueError) as error:
            what = plain_text(table(job).get("name")) or id
            yield LeftOut(source=RecordSource(JOBS, id, ""), kind="schedules", what=what, why=str(error))


def _lasting(job: object) -> object:
    """Without what changes with each run."""
    changing = ("last_", "next_run", "state", "updated", "provider_snapshot", "model_snapshot", "paused")
    return {name: value for name, value in table(job).items() if not name.startswith(changing)}


def _read_job(home: SourceHome, job: dict[str, Any], source: RecordSource, zone: str) -> Record:
    notes = []
    script, prompt = text(job.get("script")), plain_text(job.get("prompt"))
    shell = _read_script(home, script) if script else ""
    if script and not job.get("no_agent"):
        notes.append(f"the output of {script} is not put before the prompt here")
        shell = ""
    if runs_left := _count_runs_left(job):
        notes.append(f"{format_count(runs_left, 'run')} left")
    if job.get("context_from"):
        notes.append("it read the results of other jobs, which it does not here")
    model, provider = text(job.get("model")), text(job.get("provider"))
    return FoundSchedule(
        source=source,
        name=plain_text(job.get("name")) or source.id,
        when=_read_time(table(job, "schedule")),
        zone=zone,
        prompt="" if shell else prompt,
        script=shell,
        skills=() if shell else tuple(filter(None, map(text, items(job.get("skills"))))),
        model=f"{provider}/{model}" if model and provider else model,
        workdir=text(job.get("workdir")),
        targets=(_read_target(job),),
        runs_left=runs_left,
        enabled=job.get("enabled") is not False and job.get("state") != "paused",
        notes=tuple(notes),
    )


def _count_runs_left(job: dict[str, Any]) -> int:
    """0: no limit. Raises ValueError if none is left."""
    times, done = table(job, "repeat").get("times"), table(job, "repeat").get("completed")
    if not isinstance(times, int) or times < 1 or table(job, "schedule").get("kind") == "once":
        return 0
    left = times - done if isinstance(done, int) else times
    if left < 1:
        raise ValueError("it has run as often as it was to run")
    return left


def _read_time(schedule: dict[str, Any]) -> str:
    match text(schedule.get("kind")):
        case "cron" if when := text(schedule.get("expr")):
            return when
        case "interval" if isinstance(minutes := schedule.get("minutes"), int | float) and minutes > 0:
            return f"every {minutes:g}m"
        case "once" if when := text(schedule.get("run_at")):
            return when
    raise ValueError("its time cannot be read")


def _read_target(job: dict[str, Any]) -> str:
    target = text(job.get("deliver")).lower()
    if target in ("", "local"):
        return "files"
    if target == "origin":
        platform, chat = text(table(job, "origin").get("platform")), text(table(job, "origin").get("chat_id"))
        return f"{platform}:{chat}" if platform and chat else "home"
    return target.split(",")[0].strip()


def _read_script(home: SourceHome, name: str) -> str:
    """The text of a shell script; another one is run from a copy of its text."""
    inner = name.removeprefix("scripts/").removeprefix("~/.hermes/scripts/")
    content = home.read_text(f"scripts/{inner}")
    if content is None:
        raise SourceError(f"its script {name} is not there")
    if inner.endswith(".py"):
        return f"python3 - <<'END_OF_SCRIPT'\n{content.rstrip()}\nEND_OF_SCRIPT\n"
    return content
