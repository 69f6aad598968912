"""What is watched in a process as it happens: that which never may be is blamed at once."""

import asyncio
from collections import Counter
from typing import Any

from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import Envelope, Said, ToolStarted, Turn, TurnEnded
from alipes.plugins.specs import Verdict
from alipes.store.database import codec
from alipes.store.store import Store
from tests.simulation.fake_network import Outside
from tests.simulation.loop import SeededTask
from tests.simulation.machine import Machine
from tests.simulation.plan import Plan


class Witness:
    """What was done, in all lives; what it sees that may never be is blamed at once."""

    def __init__(self, machine: Machine, outside: Outside, plan: Plan) -> None:
        self.machine, self.outside, self.plan = machine, outside, plan
        self.done: Counter[str] = Counter()
        """Writes by what they wrote."""
        self.acting: Counter[str] = Counter()
        """Tools that run, by turn."""
        self.turns: dict[str, list[tuple[SeededTask, Any]]] = {}
        """By session, the turns that this process lives."""
        self.ended: dict[str, str] = {}
        """Endings that were written."""
        self.received: Counter[str] = Counter()
        self.risked: Counter[int] = Counter()
        """By chat, what was done that a person had to allow."""
        self.retries = any(deed.kind == "retry" for deed in plan.deeds)
        """Then something may be done again, because the user asked for it."""
        self.hooked = 0
        self._steers = plan.busy == "steer" or any(
            deed.kind in ("steer", "background") or deed.text.startswith("apart") for deed in plan.deeds
        )

    # --- tasks

    def on_task(self, task: SeededTask, work: Any) -> None:
        if getattr(work, "__qualname__", "") != "TurnRunner.run":
            return
        living = work.cr_frame.f_locals["self"]._running
        beside = self.turns.setdefault(living.turn.key, [])
        beside[:] = [(each, other) for each, other in beside if not each.done()]
        if any(not other.abandoned for _, other in beside):
            self.machine.blame(f"two turns live in {living.turn.key}")
        beside.append((task, living))

    def living(self, turn: Turn) -> Any:
        for task, living in self.turns.get(turn.key, ()):
            if living.turn.id == turn.id and not task.done():
                return living
        return None

    def _waited_for(self, turn: str) -> list[str]:
        """Turns that go on, and work for one that is over, though they were not sent into the background."""
        living = (each for turns in self.turns.values() for task, each in turns if not task.done())
        return [
            each.turn.id
            for each in living
            if each.turn.inbound.parent == turn and each.stop is None and not _detached(each.turn.inbound)
        ]

    # --- the journal

    def said(self, turn: str) -> list[Message]:
        sql = (
            "SELECT message FROM messages JOIN turns ON turns.number = turn_number "
            "WHERE turns.id = ? ORDER BY messages.number"
        )
        return [codec.message_decoder.decode(row) for (row,) in self.machine.disk.rows(sql, turn)]

    def look(self, *, rest: bool) -> None:
        """Endings are written once and for all; memory is the journal. `rest`: nothing can be done at once."""
        for id, ending in self.machine.disk.rows("SELECT id, ending FROM turns WHERE ending IS NOT NULL"):
            if self.ended.setdefault(id, ending) != ending:
                self.machine.blame(f"turn {id} ended as {self.ended[id]} and then as {ending}")
        for beside in self.turns.values():
            for task, living in beside:
                if not task.done() and living.stop is None:
                    self._compare(living, rest)

    def _compare(self, living: Any, rest: bool) -> None:
        """Memory comes first, then the journal; while nothing is being written they are the same. What is
        steered into a turn its session keeps, before the turn hears it."""
        count = "SELECT count(*) FROM messages WHERE turn_number = (SELECT number FROM turns WHERE id = ?)"
        kept, known = self.machine.disk.rows(count, living.turn.id)[0][0], len(living.said)
        if kept > known and not self._steers:
            self.machine.blame(f"the journal is ahead of turn {living.turn.id}")
        if kept != known and rest and not self.machine.loop.working:
            self.machine.blame(f"turn {living.turn.id} knows of {known} messages, its journal of {kept}")

    def forget(self) -> None:
        """After a power cut, endings that were not synced are written and reported again."""
        kept = dict(self.machine.disk.rows("SELECT id, ending FROM turns WHERE ending IS NOT NULL"))
        self.ended = {id: ending for id, ending in self.ended.items() if id in kept}
        for id in [each for each in self.received if each not in kept]:
            del self.received[id]

    # --- what plugins see

    async def on_event(self, event: Any, turn: Turn) -> None:
        if isinstance(event, Said):
            living = self.living(turn)
            if living is not None and list(living.said) != self.said(turn.id):
                self.machine.blame(f"memory and journal of turn {turn.id} differ when {event} is published")
        await self._misbehave()

    async def before_tool(self, call: Any, turn: Turn) -> Verdict | None:
        await self._misbehave()
        return Verdict("ask", "is risky") if call.name == "risk" else None

    async def agent_loop_stopped(self, turn: Turn) -> None:
        await self._misbehave()

    async def turn_ended(self, turn: Turn, ending: str) -> None:
        if ending == "suspended":
            return
        self.received[turn.id] += 1
        if self.received[turn.id] > 1:
            self.machine.blame(f"the end of turn {turn.id} is told twice")
        if self.acting[turn.id]:
            self.machine.blame(f"a tool of turn {turn.id} runs after its end")
        if self._waited_for(turn.id):
            self.machine.blame(f"a subagent that turn {turn.id} waited for lives on after its end")
        if self.outside.asking[turn.session]:
            self.machine.blame(f"the model is still asked for turn {turn.id} after its end")

    async def _misbehave(self) -> None:
        self.hooked += 1
        for fault in self.plan.faults:
            if fault.kind == "hook" and fault.nth == self.hooked:
                self.machine.note("hook", fault.how)
                if fault.how == "raise":
                    raise RuntimeError("as planned")
                await asyncio.sleep(3.0 if fault.how == "slow" else 1e6)


class Ear:
    """Hears all that is shown: it must be in the journal by then. It is nobody who could be asked."""

    def __init__(self, witness: Witness, store: Store) -> None:
        self._witness, self._loop = witness, witness.machine.loop
        self._publish = store.bus.publish
        store.bus.publish = self.publish  # type: ignore[method-assign]

    def publish(self, envelope: Envelope) -> None:
        if not self._loop.dead:
            self._check(envelope.turn, envelope.event)
        self._publish(envelope)

    def _check(self, turn: str, event: Any) -> None:
        witness = self._witness
        match event:
            case Said(message):
                if message not in witness.said(turn):
                    witness.machine.blame(f"turn {turn} shows what is not in the journal: {message.role}")
            case ToolStarted(call):
                self._look("tool_calls JOIN turns ON turns.number = turn_number", "call_id", turn, call.id)
            case TurnEnded(_, ending):
                self._look("turns", "ending", turn, ending)

    def _look(self, table: str, column: str, turn: str, wanted: str) -> None:
        found = self._witness.machine.disk.rows(f"SELECT {column} FROM {table} WHERE turns.id = ?", turn)
        if (wanted,) not in found:
            self._witness.machine.blame(f"turn {turn} shows {column} {wanted}; the journal has {found}")


def _detached(inbound: Any) -> bool:
    return inbound.origin is not None and inbound.origin.reports


def unanswered(messages: list[Message]) -> str:
    """The first call in the transcript that something else was said before it was answered; or none."""
    open_calls: set[str] = set()
    for message in messages:
        answered = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if answered - open_calls:
            return f"an answer to no call: {answered - open_calls}"
        open_calls -= answered
        if open_calls and not answered:
            return f"{message.role} speaks before {open_calls} are answered"
        open_calls |= {call.id for call in message.calls}
    return f"{open_calls} are never answered" if open_calls else ""
