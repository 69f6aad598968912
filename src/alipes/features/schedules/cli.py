"""`alipes schedule`: scheduled jobs."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from alipes.config.loader import load_settings
from alipes.config.paths import LOCK_NAME
from alipes.config.settings import Settings
from alipes.console.common import confirm, print_json, print_list, run_in_store
from alipes.console.inbound import read_schema
from alipes.console.options import Details, OptionParser
from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.schedules.help import SCHEDULE
from alipes.features.schedules.job import JobRun, zone_of
from alipes.features.schedules.schedules import Schedules, ScheduleView, describe_last
from alipes.features.schedules.timetable import format_moment
from alipes.features.skills.catalog import make_skill_catalog
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import format_duration, format_excerpt
from alipes.runtime.process_lock import find_holder
from alipes.store.sql.store import Store

POLL_S = 1.0
_OPTIONS = {"tools": "tools", "skill": "skills", "model": "model", "mode": "mode", "budget": "budget"}
_OPTIONS |= {"daily-budget": "daily_budget", "folder": "workdir", "timezone": "zone", "missed": "missed"}
_OPTIONS |= {"overlap": "overlap", "jitter": "jitter", "retries": "retries", "retry-after": "retry"}
_OPTIONS |= {"quiet-hours": "quiet_hours", "prompt": "prompt", "script": "script", "to": "targets", "when": "when"}
_OPTIONS |= {"schema": "output_schema"}
_CLEARED = ("skills", "model", "budget", "daily_budget", "quiet_hours", "output_schema")
"""Fields that `edit` empties with the value `none`."""
_ONE_NAME = ("show", "pause", "resume", "stop", "remove", "run", "edit")
_HINT = "Start `alipes serve` to run jobs at their time."


def run(argv: list[str]) -> int:
    details: Details = {"limit": {"type": int, "default": 20}, "to": {"action": "append", "default": []}}
    parser = OptionParser("alipes schedule", SCHEDULE, details)
    args, named = parser.parse_with_words(argv)
    action, *words = named or ["list"]
    if action == "add":
        return _add(load_settings(), args, words, parser)
    if action in _ONE_NAME:
        if len(words) != 1:
            parser.error(f"`{action}` takes one NAME")
        return _act(load_settings(), action, words[0], args)
    if action == "list" and not words:
        return _list(load_settings(), json=args.json)
    if action == "history" and len(words) <= 1:
        return _history(load_settings(), *words, limit=args.limit, json=args.json)
    return parser.error(
        f"unknown action: {' '.join(named)} (use add, list, show, pause, resume, run, stop, edit, remove or history)"
    )


def _in_schedules(settings: Settings, work: Callable[[Schedules, Store], Awaitable[Any]]) -> Any:
    return run_in_store(settings, lambda store: work(Schedules(settings, store), store))


def _request(args: argparse.Namespace) -> dict[str, Any]:
    given = {field: getattr(args, option.replace("-", "_")) for option, field in _OPTIONS.items()}
    request: dict[str, Any] = {name: value for name, value in given.items() if value not in ("", [], None)}
    if args.together:
        request["together"] = True
    for name in ("targets", "skills"):
        if name in request:
            request[name] = [each for value in request[name] for each in value.split(",")]
    for name in _CLEARED:
        if request.get(name) in ("none", ["none"]):
            request[name] = ""
    if schema := request.get("output_schema"):
        request["output_schema"] = read_schema(schema)
    if request.get("tools") == "all":
        request["tools"] = None
    if request.get("script") == "-":
        request["script"] = sys.stdin.read()
    return request


def _add(settings: Settings, args: argparse.Namespace, words: list[str], parser: OptionParser) -> int:
    request = _request(args)
    if words:
        request.setdefault("when", words[0])
    if len(words) > 1:
        request.setdefault("prompt", " ".join(words[1:]))
    if "when" not in request:
        parser.error("missing WHEN")
    if args.name:
        request["name"] = args.name
    request.setdefault("workdir", settings.workdir or os.getcwd())

    async def work(schedules: Schedules, _store: Store) -> ScheduleView:
        request.setdefault("targets", await schedules.default_targets())
        return await schedules.add(request, owner="cli", by_owner=True)

    try:
        view: ScheduleView = _in_schedules(settings, work)
    except ConfigError as error:
        if len(words) > 2:  # alipes schedule add every day at 9 "say hi"
            raise ConfigError(
                f'{error}\nPut the time in quotes: alipes schedule add "every day at 9" PROMPT'
            ) from error
        raise
    print(f"Added {view.name}: {view.schedule.job.when}")
    _print_times(view)
    print(f"Answers go to: {_describe_targets(settings, view)}")
    _print_notes(settings, view)
    return 0


def _print_times(view: ScheduleView) -> None:
    if view.schedule.state != "on":
        return
    if not view.next_times and view.when != view.schedule.job.when:
        print(f"  {view.when}")
    for moment in view.next_times:
        print(f"  {format_moment(moment, view.zone)}")


def _print_notes(settings: Settings, view: ScheduleView) -> None:
    """Skills that are not there, and that there is no server."""
    job = view.schedule.job
    if job.skills:
        listed = make_skill_catalog(settings).load(job.workdir)
        for name in job.skills:
            if not any(each.name == name for each in listed):
                print(f"Note: no skill {name} was found. Unless a plugin brings it, runs of this job fail.")
    if find_holder(settings.paths.run / LOCK_NAME) is None:
        print(_HINT)


def _describe_targets(settings: Settings, view: ScheduleView) -> str:
    job = view.schedule.job
    folder = f"files in {settings.paths.schedules / job.name}"
    return ", ".join(folder if each == "files" else each for each in job.targets)


def _list(settings: Settings, *, json: bool) -> int:
    views: tuple[ScheduleView, ...] = _in_schedules(settings, lambda schedules, _store: schedules.list())
    now = time.time()
    rows = [(each.name, each.schedule.job.when, each.when, describe_last(each.last, now)) for each in views]
    found = [{"schedule": each.schedule, "last": each.last} for each in views]
    head, empty = ("NAME", "WHEN", "NEXT", "LAST RUN"), "No jobs. `alipes schedule add` adds one."
    print_list(found, head, rows, json=json, empty=empty)
    if views and not json and find_holder(settings.paths.run / LOCK_NAME) is None:
        print(f"\n{_HINT}")
    return 0


def _act(settings: Settings, action: str, name: str, args: argparse.Namespace) -> int:
    match action:
        case "show":
            return _show(settings, name, json=args.json)
        case "run":
            return asyncio.run(_run(settings, name, wait=not args.no_wait))
        case "stop":
            return asyncio.run(_stop(settings, name))
        case "remove":
            if not args.yes and not confirm(f"Remove the job {name}?", "remove it"):
                return 1
            print(_in_schedules(settings, lambda schedules, _store: schedules.remove(name)))
            return 0
        case "edit":
            request = _request(args)
            if args.name:
                request["name"] = args.name
            if not request:
                raise ConfigError("nothing to change: name an option, such as --when")
            view = _in_schedules(settings, lambda schedules, _store: schedules.edit(name, request))
        case "pause":
            view = _in_schedules(settings, lambda schedules, _store: schedules.pause(name))
        case _:
            view = _in_schedules(settings, lambda schedules, _store: schedules.resume(name))
    print(f"{view.name}: {view.schedule.job.when} ({view.schedule.state})")
    _print_times(view)
    return 0


def _show(settings: Settings, name: str, *, json: bool) -> int:
    view: ScheduleView = _in_schedules(settings, lambda schedules, _store: schedules.view(name))
    if json:
        print_json({"schedule": view.schedule, "next": view.next_times, "last": view.last})
        return 0
    job = view.schedule.job
    print(f"{view.name} ({view.schedule.id}), {view.schedule.state}: {job.when}")
    _print_times(view)
    rows = {
        "time zone": job.zone,
        "prompt": job.prompt,
        "script": job.script,
        "answers": _describe_targets(settings, view),
        "folder": job.workdir,
        "model": job.model,
        "tools": ", ".join(job.tools or ()),
        "skills": ", ".join(job.skills),
        "mode": job.mode,
        "budget": ", ".join(filter(None, (job.budget, job.daily_budget and f"{job.daily_budget} a day"))),
        "missed runs": job.missed,
        "overlap": job.overlap,
        "runs left": str(job.runs_left or ""),
        "retries": f"{job.retries}, after {format_duration(job.retry_s)}" if job.retries else "",
        "jitter": format_duration(job.jitter_s) if job.jitter_s else "",
        "quiet hours": job.quiet_hours,
        "made after reading": job.untrusted,
        "last run": describe_last(view.last, time.time()),
    }
    for label, value in rows.items():
        if value:
            short = format_excerpt(value, 200)[1:-1] if "\n" in value else value
            print(f"  {label + ':':20}{short}")
    return 0


def _history(settings: Settings, name: str = "", *, limit: int, json: bool) -> int:
    async def work(schedules: Schedules, _store: Store) -> tuple[JobRun, ...]:
        return await schedules.runs.latest((await schedules.find(name)).id if name else "", max(1, limit))

    runs: tuple[JobRun, ...] = _in_schedules(settings, work)
    rows = [
        (
            str(run.number),
            run.job.name,
            format_moment(run.fire_at, zone_of(run.job)),
            f"{run.state}{f' (attempt {run.attempt})' if run.attempt > 1 else ''}",
            run.session[:12],
            ": ".join(filter(None, (run.cause, format_excerpt(run.detail, 80)[1:-1] if run.detail else ""))),
        )
        for run in runs
    ]
    head = ("RUN", "JOB", "DUE", "STATE", "CONVERSATION", "DETAIL")
    print_list(runs, head, rows, json=json, empty="No runs yet.")
    return 0


async def _stop(settings: Settings, name: str) -> int:
    from alipes.app import open_app  # noqa: PLC0415

    async with open_app(settings, workdir=os.devnull) as app:
        count = await app.features.get(SchedulesFeature).schedules.stop(name)
    print(f"Stopped {count} run{'' if count == 1 else 's'} of {name}." if count else f"No run of {name} is running.")
    return 0


async def _run(settings: Settings, name: str, *, wait: bool) -> int:
    """Run a job now: in the server if there is one, else here."""
    if find_holder(settings.paths.run / LOCK_NAME) is None:
        return await _run_here(settings, name)
    from alipes.store.open import open_home_store  # noqa: PLC0415

    async with open_home_store(settings) as store:
        schedules = Schedules(settings, store)
        number = await schedules.run_now(name)
        if not wait:
            print(f"Started run {number} of {name}.")
            return 0
        while (run := await schedules.runs.find(number)) is not None and run.state in ("waiting", "running"):
            await _wait_for_change(store)
        return _report(run, await _answer(store, run))


async def _wait_for_change(store: Store) -> None:
    """Until a run ends somewhere, or for a second."""
    changed = store.schedule_changes.changed
    with suppress(TimeoutError):
        async with asyncio.timeout(POLL_S):
            await changed.wait()
    changed.clear()


async def _run_here(settings: Settings, name: str) -> int:
    from alipes.app import open_app  # noqa: PLC0415
    from alipes.features.schedules.serve import make_lone_scheduler  # noqa: PLC0415

    async with open_app(settings, workdir=os.devnull) as app:
        schedules = app.features.get(SchedulesFeature).schedules
        number = await schedules.run_now(name)
        scheduler = make_lone_scheduler(app, schedules, settings.workdir or os.getcwd())
        await scheduler.start_runs(only=number)
        run = await schedules.runs.find(number)
        if run is not None and run.turn:
            async with app.sessions.follow(run.address.key, run.turn) as events:
                async for _ in events:
                    pass
        await scheduler.settle()
        run = await schedules.runs.find(number)
        return _report(run, await _answer(app.store, run))


async def _answer(store: Store, run: JobRun | None) -> str:
    if run is None or not run.turn:
        return ""
    facts = await store.archive.turn(run.turn)
    said = () if facts is None else facts.said
    return next((each.text for each in reversed(said) if each.role == "assistant"), "")


def _report(run: JobRun | None, answer: str) -> int:
    if run is None:
        raise ConfigError("the run was deleted meanwhile")
    if run.state == "ok":
        print(answer)
        return 0
    sys.stderr.write(f"alipes schedule: {run.job.name} {run.state}: {run.detail or 'no reason given'}\n")
    return 1
