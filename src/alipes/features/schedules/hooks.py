"""Hooks: jobs that could do harm later are asked about now; the end of a run wakes the scheduler."""

from contextlib import AsyncExitStack

from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.schedules.tool import CHANGES, CronjobTool, read_fields
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.turns import SCHEDULED, Turn
from alipes.plugins.specs import Verdict
from alipes.store.sql.approvals import UntrustedSourceStore
from alipes.store.sql.store import Store

HARMLESS_TARGETS = frozenset(("origin", "home", "files", "none"))


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


def _names(given: Json) -> list[str]:
    if isinstance(given, str):
        given = [each.strip() for each in given.split(",")]
    return [str(each) for each in given] if isinstance(given, list) else []


async def add_hooks(feature: SchedulesFeature, _stack: AsyncExitStack) -> None:
    feature.app.add_hooks(ScheduleApproval(feature.app.store.sources).before_tool)
    feature.app.add_hooks(ScheduledTurns(feature.app.store).turn_ended)
