"""Events that start jobs: files that change, and mails that match."""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable

from alipes.features.schedules.job import Schedule
from alipes.features.schedules.run import NewRun
from alipes.features.schedules.store.jobs import ScheduleStore
from alipes.kernel.turns import Inbound
from alipes.plugins.specs import Admission

log = logging.getLogger(__name__)
MAIL = "email"
MAX_ENTRIES = 10_000
"""Files of a watched folder that are looked at."""
MAX_CHARS = 50_000
"""Of a mail that is passed to a job."""


class FileWatch:
    """Compares the watched files with what was seen last; that is stored, so changes during a pause count too."""

    def __init__(self, jobs: ScheduleStore, clock: Callable[[], float] = time.time) -> None:
        self._jobs, self._clock = jobs, clock

    async def look(self) -> bool:
        """Start the jobs whose file has changed; False if no file is watched."""
        watched = await self._jobs.list_events("file")
        for schedule in watched:
            seen = await asyncio.to_thread(fingerprint, schedule.job.timetable.path)
            if not schedule.seen:
                await self._jobs.set_seen(schedule.id, seen)
            elif seen != schedule.seen:
                await self._fire(schedule, seen)
        return bool(watched)

    async def _fire(self, schedule: Schedule, seen: str) -> None:
        now = round(self._clock(), 3)
        path = schedule.job.timetable.path
        what = "was removed" if seen == "missing" else "has changed"
        cause = f"{path} {what} ({seen[:12]})"
        run = NewRun(schedule.id, schedule.job, now, now, cause=cause, given=f"{path} {what}.")
        await self._jobs.fire_event(schedule, run, seen)


def fingerprint(path: str) -> str:
    """A text that changes when the file, or a file directly in the folder, changes."""
    try:
        os.stat(path)
        facts = [_facts(path, "")]
        if os.path.isdir(path):
            names = sorted(os.listdir(path))[:MAX_ENTRIES]
            facts += [_facts(os.path.join(path, name), name) for name in names]
    except OSError:
        return "missing"
    return hashlib.sha256("\n".join(facts).encode(errors="replace")).hexdigest()


def _facts(path: str, name: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return name
    changed = 0 if os.path.isdir(path) else found.st_mtime_ns
    return f"{name} {changed} {found.st_size if changed else 0} {found.st_ino}"


class MailTrigger:
    """A `before_message` hook: a mail that matches starts a job, and is not answered otherwise."""

    def __init__(self, jobs: ScheduleStore, clock: Callable[[], float] = time.time) -> None:
        self._jobs, self._clock = jobs, clock

    async def before_message(self, inbound: Inbound) -> Admission | None:
        if inbound.address.platform != MAIL:
            return None
        matched = [each for each in await self._jobs.list_events("mail") if matches(each.job.timetable.filter, inbound)]
        for schedule in matched:
            now = round(self._clock(), 3)
            given = f"From: {inbound.sender}\n{inbound.text[:MAX_CHARS]}"
            id = hashlib.sha256(inbound.id.encode(errors="replace")).hexdigest()[:12]  # the sender chooses it
            cause, untrusted = f"mail {id}", f"mail from {inbound.sender}"
            run = NewRun(schedule.id, schedule.job, now, now, cause=cause, given=given, untrusted=untrusted)
            await self._jobs.fire_event(schedule, run)
        return Admission("drop") if matched else None


def matches(filter: str, mail: Inbound) -> bool:
    """True if the mail has all words of a filter such as `from:shop@example.org subject:invoice urgent`."""
    text = mail.text.lower()
    subject = text.partition("\n")[0] if text.startswith("subject:") else ""
    for word in filter.lower().split():
        kind, colon, value = word.partition(":")
        place = {"from": mail.sender.lower(), "subject": subject}.get(kind) if colon else None
        if (value if place is not None else word) not in (text if place is None else place):
            return False
    return True
