"""Connects the `cronjob` tool to the stored jobs, asks about risky ones, and wakes the scheduler when a run ends."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from alipes.features.schedules.job import BY_MODEL
from alipes.features.schedules.timetable import parse_event
from alipes.features.schedules.tool import CHANGES, CronjobTool, read_fields
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.ports import ToolContext
from alipes.kernel.turns import SCHEDULED, Turn
from alipes.plugins.specs import Verdict
from alipes.store.ports.approvals import UntrustedSourceStore
from alipes.store.ports.store import Store

if TYPE_CHECKING:
    from alipes.features.schedules.job import Schedule
    from alipes.features.schedules.schedules import Schedules, ScheduleView

HARMLESS_TARGETS = frozenset(("origin", "home", "files", "none"))
_OWNER_FIELDS = ("script", "mode")
_EMPTY = "No jobs."


class ScheduledTurns:
    """A hook: the end of a run wakes the scheduler, in whichever process it runs."""

    def __init__(self, store: Store) -> None:
        self._changes = store.schedule_changes

    async def turn_ended(self, turn: Turn, ending: str) -> None:
        if turn.inbound.address.platform == SCHEDULED and ending != "suspended":
            await self._changes.announce()


class ScheduleApproval:
    """A hook: jobs that could do harm later are asked about now."""

    def __init__(self, sources: UntrustedSourceStore) -> None:
        self._sources = sources

    async def before_tool(self, call: ToolCall, turn: Turn) -> Verdict | None:
        if call.name != CronjobTool.spec.name or call.args.get("action") not in CHANGES:
            return None
        fields, reasons = read_fields(call.args), []
        read = list((await self._sources.list_read(turn)).values())
        if read:
            reasons.append(f"it schedules a job after {read[0]} was read")
        if fields.get("script"):
            reasons.append("it schedules a script")
        if fields.get("mode", "ask") not in ("ask", "plan"):
            reasons.append(f"it schedules a job that asks nothing (mode {fields['mode']})")
        elsewhere = [each for each in _names(fields.get("targets")) if each not in HARMLESS_TARGETS]
        if elsewhere:
            reasons.append(f"it schedules messages to {', '.join(elsewhere)}")
        return Verdict("ask", "; ".join(reasons)) if reasons else None


class ScheduleEditor:
    """Implements `tools.cronjob.JobEditor`."""

    def __init__(self, sources: UntrustedSourceStore, schedules: "Callable[[], Schedules]") -> None:
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
        from alipes.features.schedules.schedules import describe_maker  # noqa: PLC0415

        _require_owner(fields, turn)
        request = {"workdir": turn.inbound.workdir, **fields, **({"name": name} if name else {})}
        origin = turn.inbound.origin.address if turn.inbound.origin is not None else turn.inbound.address
        schedules = self._schedules()
        view = await schedules.add(request, origin=origin, **await describe_maker(schedules, turn))
        return f"Added {view.describe()}"

    async def _change(self, action: str, name: str, fields: Mapping[str, Json], turn: Turn) -> str:
        from alipes.features.schedules.schedules import describe_last  # noqa: PLC0415

        schedules = self._schedules()
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
        from alipes.features.schedules.schedules import describe_last  # noqa: PLC0415

        views = [each for each in await self._schedules().list() if _is_visible(each.schedule, turn)]
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
            await self._schedules().find(name)
            return
        schedule = await self._schedules().jobs.find(name)
        if schedule is None or not _is_visible(schedule, turn):
            raise ToolError(f"there is no job {name!r} in this chat")


def _line(view: "ScheduleView", last: str) -> str:
    return f"{view.name}: {view.schedule.job.when}; next: {view.when}; last: {last}"


def _is_visible(schedule: "Schedule", turn: Turn) -> bool:
    """An owner sees all jobs, others those of their chat."""
    origin = schedule.job.origin
    return not turn.inbound.untrusted or (origin is not None and origin.key == turn.inbound.address.key)


def _require_owner(fields: Mapping[str, Json], turn: Turn) -> None:
    refused = [name for name in _OWNER_FIELDS if fields.get(name) not in (None, "", "ask", "plan")]
    if turn.inbound.untrusted and refused:
        raise ToolError(f"only an owner may schedule a job with {refused[0]}")


def _names(given: Json) -> list[str]:
    if isinstance(given, str):
        given = [each.strip() for each in given.split(",")]
    return [str(each) for each in given] if isinstance(given, list) else []
