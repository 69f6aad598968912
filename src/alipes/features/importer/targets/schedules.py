"""Imported schedules. They arrive paused, so that a job does not run in two places."""

import re
from pathlib import Path

from msgspec import structs

from alipes.features.importer.formats import content_hash
from alipes.features.importer.plan import PlannedItem, State
from alipes.features.importer.records import FoundSchedule
from alipes.features.importer.store.ledger import LedgerEntry
from alipes.features.importer.targets.target import ImportContext, describe_item
from alipes.features.importer.transcript import make_id
from alipes.features.schedules.job import Job, Schedule, next_fire, zone_of
from alipes.features.schedules.schedules import Schedules
from alipes.kernel.errors import ConfigError
from alipes.runtime.json_text import to_json

ARRIVES_PAUSED = "arrives paused"


class ScheduledJobs:
    def __init__(self, context: ImportContext) -> None:
        self._context = context
        self._jobs = Schedules(context.settings, context.store)
        self._taken: set[str] = set()

    async def plan(self, record: FoundSchedule, known: LedgerEntry | None) -> PlannedItem:
        if known is not None and known.source_hash == record.source.hash:
            return describe_item(record.source, "schedules", record.name, known.target, "same")
        try:
            job = await self._build(record)
        except ConfigError as error:
            return describe_item(record.source, "schedules", record.name, "", "left out", str(error))
        if known is None:
            state: State = "new"
        else:
            present = await self._jobs.jobs.find(known.target)
            if present is None:
                why = "it was removed here"
                return describe_item(record.source, "schedules", record.name, "", "left out", why)
            state = "newer" if _hash(present.job) == known.target_hash else "conflict"
        notes = ["it was changed here"] if state == "conflict" else list(record.notes)
        if record.workdir and not _find_workdir(record):
            notes.append(f"there is no folder {record.workdir} here")
        if not self._starts(record):
            notes.append(ARRIVES_PAUSED)
        what = f"{record.name}: {record.when}"
        risky = bool(record.script)
        return describe_item(record.source, "schedules", what, job.name, state, "; ".join(notes), sensitive=risky)

    async def _build(self, record: FoundSchedule, name: str = "") -> Job:
        """Raises ConfigError, for a time that is past too."""
        request = {
            "when": record.when,
            "name": name or await self._free_name(record.name),
            "targets": list(record.targets),
            "skills": list(record.skills),
            **({"zone": record.zone} if record.zone else {}),
            **({"script": record.script} if record.script else {"prompt": record.prompt}),
            **({"model": record.model} if record.model else {}),
            **({"tools": list(record.tools)} if record.tools else {}),
        }
        job = self._jobs.build(request)
        if job.timetable.kind == "at" and next_fire(job, self._jobs.now(), zone_of(job)) is None:
            raise ConfigError("its time is past")
        return structs.replace(
            job, workdir=_find_workdir(record), owner="owner", by_owner=True, runs_left=record.runs_left
        )

    async def _free_name(self, text: str) -> str:
        base = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "job"
        taken = {each.job.name for each in await self._jobs.jobs.all()} | self._taken
        name = next(name for n in range(1, 10_000) if (name := base if n == 1 else f"{base}-{n}") not in taken)
        if not self._context.import_id:
            self._taken.add(name)
        return name

    def _starts(self, record: FoundSchedule) -> bool:
        return self._context.options.start and record.enabled

    async def apply(self, record: FoundSchedule, item: PlannedItem, known: LedgerEntry | None) -> str:
        context, jobs = self._context, self._jobs.jobs
        try:
            if known is not None and (present := await jobs.find(known.target)) is not None:
                job = await self._build(record, present.job.name)
                await jobs.update(present.id, job, self._due(job), present.state)
                entry = context.entry(item, "replaced", present.id, _hash(job), before=to_json(present.job))
                await context.ledger.add(entry)
                return ""
            id = make_id(context.scope, "schedule", record.source.id, chars=8)
            if (present := await jobs.find(id)) is not None:  # added before the import was broken off
                job = present.job
            else:
                job = await self._build(record)
                await jobs.add(job, self._due(job), state="on" if self._starts(record) else "paused", id=id)
        except ConfigError as error:
            return str(error)
        await context.ledger.add(context.entry(item, "made", id, _hash(job)))
        return ""

    def _due(self, job: Job) -> float | None:
        return next_fire(job, self._jobs.now(), zone_of(job)) if job.timetable.is_timed else None

    async def check(self, entry: LedgerEntry) -> str:
        found = await self._jobs.jobs.find(entry.target)
        if found is None:
            return "it was removed here"
        return "" if _hash(found.job) == entry.target_hash else "it was changed here"

    async def undo(self, entry: LedgerEntry) -> str:
        if why := await self.check(entry):
            return why
        found = await self._jobs.jobs.find(entry.target)
        assert found is not None
        if await self._has_run(found):
            return "it has run here"
        if entry.action == "replaced":
            return "it was replaced by a later version from there"
        await self._jobs.jobs.remove(found.id)
        await self._context.ledger.remove(entry)
        return ""

    async def _has_run(self, schedule: Schedule) -> bool:
        return bool(await self._jobs.runs.latest(schedule.id, 1))


def _find_workdir(record: FoundSchedule) -> str:
    """Its folder, if that is on this machine."""
    return record.workdir if record.workdir and Path(record.workdir).is_dir() else ""


def _hash(job: Job) -> str:
    return content_hash(to_json(job))
