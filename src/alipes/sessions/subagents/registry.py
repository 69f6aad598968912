"""The subagents and background turns of this process: their parents, how they stop, and their reports."""

import time
from typing import Protocol

from alipes.kernel.formatting import ID, format_excerpt
from alipes.kernel.turns import (
    SCHEDULED_PREFIX,
    Address,
    AnswerApproval,
    BusyMode,
    Ending,
    Inbound,
    Op,
    Origin,
    Stop,
    Turn,
)
from alipes.sessions.subagents.text import describe_background_runs, report_of
from alipes.sessions.turn_state import RunningTurn
from alipes.store.sql.store import Store
from alipes.store.sql.subagents import KEY_PREFIX, PLATFORM

PARENT_ENDED = "parent_ended"
"""The reason to stop the subagents of a turn that has ended."""


class SessionPort(Protocol):
    """The part of `Sessions` that is needed here."""

    async def submit(self, inbound: Inbound, busy: BusyMode | None = None, *, ruled: bool = False) -> str | None: ...

    async def post(self, key: str, op: Op) -> None: ...

    async def deliver(self, key: str, op: Op) -> None: ...


class BackgroundWork(Protocol):
    """Processes that sessions run between their turns."""

    def describe_running(self, session: str) -> str:
        """Background work of the session, in a few words; empty if there is none."""


class SubagentRun:
    """One subagent, from its request to its end."""

    def __init__(self, inbound: Inbound, parent: Turn | None = None) -> None:
        self.inbound, self.parent = inbound, parent
        self.turn = ""
        """Known once it is accepted."""
        self.stop: Stop | None = None
        """Its parent was stopped."""
        self.stop_sent = False
        self.since = time.monotonic()

    def accept(self, turn: str | None) -> str:
        """Its request was accepted as this turn, if there is one."""
        self.turn = turn or ""
        return self.turn


class SubagentRegistry:
    """What sessions need to know about the turns that work for other turns."""

    def __init__(
        self, store: Store, sessions: SessionPort, *, background: BackgroundWork | None = None, max_seconds: float = 0.0
    ) -> None:
        """`max_seconds`: how long a subagent may run; zero: no limit."""
        self._store, self._sessions = store, sessions
        self._background, self._max_seconds = background, max_seconds
        self._runs: dict[str, SubagentRun] = {}
        self._parents: dict[str, Stop | None] = {}
        """Turns running here that asked for subagents, with the stop of a stopped one."""

    def expect(self, inbound: Inbound, parent: Turn) -> SubagentRun:
        run = self._runs.setdefault(inbound.id, SubagentRun(inbound, parent))
        run.stop = self._parents.setdefault(parent.id, None)
        return run

    def turn_started(self, turn: Turn) -> None:
        """A turn starts here; only those that work for others are registered."""
        if turn.inbound.origin is not None:
            self._runs.setdefault(turn.inbound.id, SubagentRun(turn.inbound)).turn = turn.id

    def forget(self, inbound: Inbound) -> None:
        self._runs.pop(inbound.id, None)

    def max_seconds(self, turn: Turn) -> float:
        """How long the turn may run; zero: no limit."""
        return self._max_seconds if turn.inbound.parent else 0.0

    def background_runs(self, session: str) -> tuple[tuple[str, str], ...]:
        """Id and goal of each background turn of a conversation."""
        origins = ((run.turn, run.inbound.origin) for run in self._runs.values())
        return tuple(
            (turn, origin.goal)
            for turn, origin in origins
            if turn and origin is not None and origin.reports and origin.session == session
        )

    def list_background(self, session: str) -> tuple[str, ...]:
        """The background turns of a conversation, with short ids."""
        return tuple(f"{turn[:ID]} {format_excerpt(goal)}" for turn, goal in self.background_runs(session))

    def describe_background(self, session: str) -> str:
        """Background work of a conversation between its turns, in a few words; empty if there is none."""
        processes = self._background.describe_running(session) if self._background is not None else ""
        return " and ".join(filter(None, (processes, describe_background_runs(self.background_runs(session)))))

    async def stop(self, parent: Turn, stop: Stop) -> None:
        """The turn was stopped: stop its subagents, except background ones. All are marked first."""
        self._parents[parent.id] = stop  # some may be requested right now
        stopped = [run for run in self._runs.values() if run.stop is None and _ends_with(run.inbound, parent)]
        for run in stopped:
            run.stop = stop
        for run in stopped:
            await self.send_stop(run)

    async def send_stop(self, run: SubagentRun) -> None:
        """Pass the stop on, if the turn is known."""
        if run.turn and run.stop is not None:
            run.stop_sent = True
            stop = Stop(run.stop.reason, run.stop.invalidation_reason, run.turn)
            await self._sessions.post(run.inbound.address.key, stop)

    async def answer(self, key: str, answer: AnswerApproval) -> None:
        """An answer given where no session runs: pass it to background turns in other processes."""
        for subagent in await self._store.subagents.unfinished(place=key):
            if subagent.inbound.id not in self._runs:
                await self._sessions.deliver(subagent.key, answer)

    async def stop_unfinished(self, parent: Turn) -> None:
        """The turn has ended: stop its remaining subagents, including those of an earlier process and
        those that were accepted after nobody waited for them."""
        if parent.attempt == 1 and parent.id not in self._parents:
            return
        stop = self._parents.get(parent.id) or Stop(PARENT_ENDED, PARENT_ENDED)
        for subagent in await self._store.subagents.unfinished(parent=parent.id):
            run = self._runs.get(subagent.inbound.id)
            never_started = run is not None and not run.turn
            ends_now = _ends_with(subagent.inbound, parent) and (run is None or not run.stop_sent)
            if never_started or ends_now:
                await self._sessions.post(subagent.key, Stop(stop.reason, stop.invalidation_reason, subagent.id))
        self._parents.pop(parent.id, None)
        for run in [each for each in self._runs.values() if each.parent is parent and not each.turn]:
            self.forget(run.inbound)

    async def stop_reason(self, turn: Turn) -> str:
        """Why a subagent must not start: its parent was stopped or has ended; else empty."""
        inbound = turn.inbound
        if not inbound.parent or inbound.origin is None or inbound.origin.reports:
            return ""
        run = self._runs.get(inbound.id)
        if run is not None and run.stop is not None:
            return run.stop.reason
        return PARENT_ENDED if await self._store.subagents.is_over(inbound.parent) else ""

    async def report(self, running: RunningTurn, ending: Ending, detail: str) -> str:
        """Report a background turn to its conversation, as a new turn there or steered into the running
        one. Returns what to show the person in addition; usually empty."""
        origin, inbound = running.turn.inbound.origin, running.turn.inbound
        if origin is None or not origin.reports:
            return ""
        notice, shown = report_of(running.turn.id, origin, running.said, ending=ending, detail=detail)
        message = Inbound(
            f"report:{running.turn.id}",
            origin.address,
            inbound.sender,
            notice,
            model=origin.model,
            workdir=inbound.workdir,
            trusted=inbound.trusted,
            only=origin.only,
            notice=origin.reports,
            owner=inbound.owner,
        )
        if origin.reports == "kept":  # recorded, but not answered
            await self._sessions.submit(message, "queue", ruled=True)
            return shown
        await self._sessions.submit(message, "steer", ruled=True)
        return ""

    async def parent_of(self, turn: Turn) -> Turn | None:
        """The turn it works for; None for a person's turn, or if that turn was deleted."""
        run = self._runs.get(turn.inbound.id)
        if run is not None and run.parent is not None:
            return run.parent
        facts = await self._store.archive.turn(turn.inbound.parent) if turn.inbound.parent else None
        return None if facts is None else Turn(facts.id, facts.session, facts.inbound)


def ends_with_its_turn(key: str) -> bool:
    """True for the key of a session that ends with its only turn: of a subagent, or of a job."""
    return key.startswith((KEY_PREFIX, SCHEDULED_PREFIX))


def _ends_with(inbound: Inbound, parent: Turn) -> bool:
    return inbound.parent == parent.id and inbound.origin is not None and not inbound.origin.reports


def background_task(inbound: Inbound, session: str) -> Inbound:
    """The turn for `/background`: it reports to the conversation when it ends."""
    id = f"background:{inbound.address.platform}:{inbound.id}"
    origin = Origin(inbound.address, session, "", inbound.text, "kept", inbound.model, inbound.only)
    return Inbound(
        id,
        Address(PLATFORM, id),
        inbound.sender,
        inbound.text,
        attachments=inbound.attachments,
        model=inbound.model,
        workdir=inbound.workdir,
        trusted=inbound.trusted,
        only=inbound.only,
        origin=origin,
        owner=inbound.owner,
    )
