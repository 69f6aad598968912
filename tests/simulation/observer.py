"""Observes a process while it runs and reports violations at once."""

import asyncio
from collections import Counter
from typing import Any

from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import Envelope, Said, ToolStarted, Turn, TurnEnded
from alipes.plugins.specs import Verdict
from alipes.sessions.turn_runner import TurnRunner
from alipes.store.sql.rows import Decoders
from alipes.store.sql.store import Store
from tests.simulation.fake_network import FakeNetwork
from tests.simulation.loop import SeededTask
from tests.simulation.machine import Machine
from tests.simulation.plan import Plan


class Observer:
    """Everything that was done, in all processes."""

    def __init__(self, machine: Machine, network: FakeNetwork, plan: Plan) -> None:
        self.machine, self.network, self.plan = machine, network, plan
        self.writes: Counter[str] = Counter()
        """Number of writes by what they wrote."""
        self.running_tools: Counter[str] = Counter()
        """Number of running tools by turn."""
        self.turns: dict[str, list[tuple[SeededTask, Any]]] = {}
        """By session, the running turns of this process."""
        self.ended: dict[str, str] = {}
        """The endings that were written, by turn."""
        self.received: Counter[str] = Counter()
        self.risky_writes: Counter[int] = Counter()
        """By chat, the number of writes that needed approval."""
        self.retries = any(action.kind == "retry" for action in plan.actions)
        """True if writes may be repeated, because the user asked for it."""
        self.hook_calls = 0
        self._steers = plan.busy == "steer" or any(
            action.kind in ("steer", "background") or action.text.startswith("apart") for action in plan.actions
        )

    # --- tasks

    def on_task(self, task: SeededTask, work: Any) -> None:
        if getattr(work, "__qualname__", "") != TurnRunner.run.__qualname__:
            return
        running = work.cr_frame.f_locals["self"]._running
        others = self.turns.setdefault(running.turn.key, [])
        others[:] = [(each, other) for each, other in others if not each.done()]
        if any(not other.abandoned for _, other in others):
            self.machine.report(f"two turns run in {running.turn.key}")
        others.append((task, running))

    def running_turn(self, turn: Turn) -> Any:
        for task, running in self.turns.get(turn.key, ()):
            if running.turn.id == turn.id and not task.done():
                return running
        return None

    def _waiting_subagents(self, turn: str) -> list[str]:
        """Running subagents, except background ones, of a turn that has ended."""
        running = (each for turns in self.turns.values() for task, each in turns if not task.done())
        return [
            each.turn.id
            for each in running
            if each.turn.inbound.parent == turn and each.stop is None and not _detached(each.turn.inbound)
        ]

    # --- the journal

    def said(self, turn: str) -> list[Message]:
        sql = (
            "SELECT message FROM messages JOIN turns ON turns.number = turn_number "
            "WHERE turns.id = ? ORDER BY messages.number"
        )
        return [Decoders.message.decode(row) for (row,) in self.machine.disk.rows(sql, turn)]

    def check(self, *, rest: bool) -> None:
        """Endings never change; memory equals the journal. `rest`: nothing is ready to run."""
        for id, ending in self.machine.disk.rows("SELECT id, ending FROM turns WHERE ending IS NOT NULL"):
            if self.ended.setdefault(id, ending) != ending:
                self.machine.report(f"turn {id} ended as {self.ended[id]} and then as {ending}")
        for others in self.turns.values():
            for task, running in others:
                if not task.done() and running.stop is None:
                    self._compare(running, rest)

    def _compare(self, running: Any, rest: bool) -> None:
        """Memory comes first, then the journal; while nothing is being written they are equal. A steered message
        is stored by the session before the turn has it."""
        count = "SELECT count(*) FROM messages WHERE turn_number = (SELECT number FROM turns WHERE id = ?)"
        kept, known = self.machine.disk.rows(count, running.turn.id)[0][0], len(running.said)
        if kept > known and not self._steers:
            self.machine.report(f"the journal is ahead of turn {running.turn.id}")
        if kept != known and rest and not self.machine.loop.busy_threads:
            self.machine.report(f"turn {running.turn.id} has {known} messages, its journal {kept}")

    def forget(self) -> None:
        """After a power cut, endings that were not synced are written and reported again."""
        kept = dict(self.machine.disk.rows("SELECT id, ending FROM turns WHERE ending IS NOT NULL"))
        self.ended = {id: ending for id, ending in self.ended.items() if id in kept}
        for id in [each for each in self.received if each not in kept]:
            del self.received[id]

    # --- what plugins see

    async def on_event(self, event: Any, turn: Turn) -> None:
        if isinstance(event, Said):
            running = self.running_turn(turn)
            if running is not None and list(running.said) != self.said(turn.id):
                self.machine.report(f"memory and journal of turn {turn.id} differ when {event} is published")
        await self._inject_fault()

    async def before_tool(self, call: Any, turn: Turn) -> Verdict | None:
        await self._inject_fault()
        return Verdict("ask", "is risky") if call.name == "risk" else None

    async def agent_loop_stopped(self, turn: Turn) -> None:
        await self._inject_fault()

    async def turn_ended(self, turn: Turn, ending: str) -> None:
        if ending == "suspended":
            return
        self.received[turn.id] += 1
        if self.received[turn.id] > 1:
            self.machine.report(f"the end of turn {turn.id} was reported twice")
        if self.running_tools[turn.id]:
            self.machine.report(f"a tool of turn {turn.id} runs after its end")
        if self._waiting_subagents(turn.id):
            self.machine.report(f"a subagent that turn {turn.id} waited for runs after its end")
        if self.network.asking[turn.session]:
            self.machine.report(f"a model request is open for turn {turn.id} after its end")

    async def _inject_fault(self) -> None:
        self.hook_calls += 1
        for fault in self.plan.faults:
            if fault.kind == "hook" and fault.nth == self.hook_calls:
                self.machine.record("hook", fault.how)
                if fault.how == "raise":
                    raise RuntimeError("as planned")
                await asyncio.sleep(3.0 if fault.how == "slow" else 1e6)


class BusObserver:
    """Checks that everything published is in the journal. It is not a client that could answer questions."""

    def __init__(self, observer: Observer, store: Store) -> None:
        self._observer, self._loop = observer, observer.machine.loop
        self._publish = store.bus.publish
        store.bus.publish = self.publish  # type: ignore[method-assign]

    def publish(self, envelope: Envelope) -> None:
        if not self._loop.dead:
            self._check(envelope.turn, envelope.event)
        self._publish(envelope)

    def _check(self, turn: str, event: Any) -> None:
        observer = self._observer
        match event:
            case Said(message):
                if message not in observer.said(turn):
                    observer.machine.report(f"turn {turn} published what is not in the journal: {message.role}")
            case ToolStarted(call):
                self._check_column("tool_calls JOIN turns ON turns.number = turn_number", "call_id", turn, call.id)
            case TurnEnded(_, ending):
                self._check_column("turns", "ending", turn, ending)

    def _check_column(self, table: str, column: str, turn: str, wanted: str) -> None:
        found = self._observer.machine.disk.rows(f"SELECT {column} FROM {table} WHERE turns.id = ?", turn)
        if (wanted,) not in found:
            self._observer.machine.report(f"turn {turn} published {column} {wanted}; the journal has {found}")


def _detached(inbound: Any) -> bool:
    return inbound.origin is not None and inbound.origin.reports


def unanswered(messages: list[Message]) -> str:
    """The first call that was not answered before the next message; empty if there is none."""
    open_calls: set[str] = set()
    for message in messages:
        answered = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if answered - open_calls:
            return f"a result without a call: {answered - open_calls}"
        open_calls -= answered
        if open_calls and not answered:
            return f"a message of {message.role} comes before {open_calls} are answered"
        open_calls |= {call.id for call in message.calls}
    return f"{open_calls} are never answered" if open_calls else ""
