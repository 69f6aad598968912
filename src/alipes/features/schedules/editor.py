"""What the `cronjob` tool does: makes, lists and changes jobs on behalf of a turn."""

import time
from collections.abc import Mapping

from alipes.features.schedules.job import BY_MODEL, Schedule
from alipes.features.schedules.schedules import Schedules, ScheduleView, describe_last, describe_maker
from alipes.features.schedules.timetable import parse_event
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext
from alipes.kernel.turns import SCHEDULED, Turn
from alipes.store.sql.approvals import UntrustedSourceStore

_OWNER_FIELDS = ("script", "mode")
_EMPTY = "No jobs."


class ScheduleEditor:
    def __init__(self, sources: UntrustedSourceStore, schedules: Schedules) -> None:
        self._sources, self._schedules = sources, schedules

    async def act(self, action: str, name: str, fields: Mapping[str, Json], act: ToolContext) -> str:
        turn = act.turn
        if turn.inbound.address.platform == SCHEDULED and action not in ("list", "show", "history"):
            raise ToolError("a job cannot change jobs; tell the user what should be changed")
        try:
            if action == "list":
                return await self._list(turn)
            if action == "add":
                await self._check_event(fields, turn)
                return await self._add(name, fields, turn)
            if not name:
                raise ToolError(f"{action} needs the name of a job")
            await self._require_visible(name, turn)
            await self._check_event(fields, turn)
            return await self._change(action, name, fields, turn)
        except ConfigError as error:
            raise ToolError(str(error)) from error

    async def _add(self, name: str, fields: Mapping[str, Json], turn: Turn) -> str:
        _require_owner(fields, turn)
        request = {"workdir": turn.inbound.workdir, **fields, **({"name": name} if name else {})}
        origin = turn.inbound.origin.address if turn.inbound.origin is not None else turn.inbound.address
        schedules = self._schedules
        view = await schedules.add(request, origin=origin, **await describe_maker(schedules, turn))
        return f"Added {view.describe()}"

    async def _change(self, action: str, name: str, fields: Mapping[str, Json], turn: Turn) -> str:
        schedules = self._schedules
        match action:
            case "edit":
                _require_owner(fields, turn)
                taint = await self._taint(turn)
                view = await schedules.edit(name, fields, **({"untrusted": taint} if taint else {}))
                return f"Changed {view.describe()}"
            case "pause" | "resume":
                view = await (schedules.pause(name) if action == "pause" else schedules.resume(name))
                return view.describe()
            case "run":
                await schedules.run_now(name, cause=BY_MODEL)
                return f"{name} runs now, if `alipes serve` is running; its answer is delivered as usual."
            case "stop":
                return f"Stopped {format_count(await schedules.stop(name), 'run')} of {name}."
            case "remove":
                return await schedules.remove(name)
        view = await schedules.view(name)
        job = view.schedule.job
        lines = [view.describe(), f"Does: {job.prompt or job.script}", f"Answers go to: {', '.join(job.targets)}"]
        runs = await schedules.runs.latest(view.schedule.id, 10 if action == "history" else 1)
        return "\n".join([*lines, *(f"Run: {describe_last(run, time.time())}" for run in runs)])

    async def _list(self, turn: Turn) -> str:
        views = [each for each in await self._schedules.list() if _is_visible(each.schedule, turn)]
        lines = [_line(each, describe_last(each.last, time.time())) for each in views]
        return "\n".join(lines) or _EMPTY

    async def _taint(self, turn: Turn) -> str:
        """What the conversation has read of strangers; empty if nothing."""
        return next(iter((await self._sources.list_read(turn)).values()), "")

    async def _check_event(self, fields: Mapping[str, Json], turn: Turn) -> None:
        """Events bring text, so people who are not owners may use only those of their own jobs."""
        event = parse_event(str(fields.get("when", "")))
        if event is None or not turn.inbound.untrusted:
            return
        if event.kind in ("file", "mail", "webhook"):
            raise ToolError(f"only an owner may schedule a job that a {event.kind} starts")
        if event.job:
            await self._require_visible(event.job, turn)

    async def _require_visible(self, name: str, turn: Turn) -> None:
        """Raises ToolError; to people who are not owners it names no other jobs."""
        if not turn.inbound.untrusted:
            await self._schedules.find(name)
            return
        schedule = await self._schedules.jobs.find(name)
        if schedule is None or not _is_visible(schedule, turn):
            raise ToolError(f"there is no job {name!r} in this chat")


def _line(view: ScheduleView, last: str) -> str:
    return f"{view.name}: {view.schedule.job.when}; next: {view.when}; last: {last}"


def _is_visible(schedule: Schedule, turn: Turn) -> bool:
    """An owner sees all jobs, others those of their chat."""
    origin = schedule.job.origin
    return not turn.inbound.untrusted or (origin is not None and origin.key == turn.inbound.address.key)


def _require_owner(fields: Mapping[str, Json], turn: Turn) -> None:
    refused = [name for name in _OWNER_FIELDS if fields.get(name) not in (None, "", "ask", "plan")]
    if turn.inbound.untrusted and refused:
        raise ToolError(f"only an owner may schedule a job with {refused[0]}")
