"""One process: the house as it is in production, on a simulated machine; and what is watched in it."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alipes.agent.asking import Patience
from alipes.agent.chain import Chain
from alipes.agent.loop import Agent
from alipes.app import _serving
from alipes.gateway.gateway import Gateway
from alipes.gateway.manners import Manners, Rules
from alipes.gateway.owing import Owing
from alipes.hooks.offers import Offers
from alipes.hooks.owners import Owner
from alipes.hooks.relay import Hooks
from alipes.hooks.specs import Verdict
from alipes.kernel.endpoints import Endpoint, ModelFacts, Secret
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.ports import Act, ToolSpec
from alipes.kernel.turns import Envelope, Said, ToolStarted, Turn, TurnEnded
from alipes.platforms.telegram import TelegramSettings, open_telegram
from alipes.providers.choice import Choice
from alipes.providers.openai_chat import OpenAIChat
from alipes.providers.opening import Backend
from alipes.runtime.watchdog import Watch
from alipes.sessions.commands import BY_NAME
from alipes.sessions.commands.context import Context
from alipes.sessions.lobby import Habits, Lobby
from alipes.store import rows
from alipes.store.opening import Store, open_store
from tests.simulation.loop import SeededTask
from tests.simulation.machine import Machine
from tests.simulation.outside import Outside
from tests.simulation.plan import Plan

HOME = Path("/nowhere")
PLATFORM = "telegram"
_SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


class Models:
    """One model, asked over the simulated wire by the wire's own client."""

    def __init__(self, outside: Outside) -> None:
        endpoint = Endpoint(
            name="sim", api="openai_chat", base_url="https://api.openai.com/v1", key=Secret("k")
        )
        self._provider = OpenAIChat(endpoint, outside)  # type: ignore[arg-type]

    def names(self) -> tuple[str, ...]:
        return ("sim/m",)

    async def open(self, name: str) -> Backend:
        return Backend(name=name, model="m", provider=self._provider, facts=ModelFacts())


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
        self.told: Counter[str] = Counter()
        self.hooked = 0
        self._steers = plan.busy == "steer" or any(deed.kind == "steer" for deed in plan.deeds)

    # --- tasks

    def on_task(self, task: SeededTask, work: Any) -> None:
        if getattr(work, "__qualname__", "") != "Course.run":
            return
        living = work.cr_frame.f_locals["self"]._living
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

    def turn_of(self, call: str) -> str:
        living = (each for turns in self.turns.values() for task, each in turns if not task.done())
        return next((each.turn.id for each in living if call in each.acts), "")

    # --- the journal

    def said(self, turn: str) -> list[Message]:
        sql = "SELECT message FROM said JOIN turns ON turns.number = said.turn WHERE turns.id = ? ORDER BY said.number"
        return [rows.messages.decode(row) for (row,) in self.machine.disk.rows(sql, turn)]

    def rest(self) -> None:
        """Endings are written once and for all."""
        for id, ending in self.machine.disk.rows("SELECT id, ending FROM turns WHERE ending IS NOT NULL"):
            if self.ended.setdefault(id, ending) != ending:
                self.machine.blame(f"turn {id} ended as {self.ended[id]} and then as {ending}")
        for beside in self.turns.values():
            for task, living in beside:
                if not task.done() and living.stop is None:
                    self._compare(living)

    def _compare(self, living: Any) -> None:
        """Memory comes first, then the journal; while nothing is being written they are the same. What is
        steered into a turn its session keeps, before the turn hears it."""
        count = "SELECT count(*) FROM said WHERE turn = (SELECT number FROM turns WHERE id = ?)"
        kept, known = self.machine.disk.rows(count, living.turn.id)[0][0], len(living.said)
        if kept > known and not self._steers:
            self.machine.blame(f"the journal is ahead of turn {living.turn.id}")
        if kept != known and not self.machine.loop.working:
            self.machine.blame(f"turn {living.turn.id} knows of {known} messages, its journal of {kept}")

    def forget(self) -> None:
        """The power was cut: endings that were not on disk for good are written, and told, again."""
        kept = dict(self.machine.disk.rows("SELECT id, ending FROM turns WHERE ending IS NOT NULL"))
        self.ended = {id: ending for id, ending in self.ended.items() if id in kept}
        for id in [each for each in self.told if each not in kept]:
            del self.told[id]

    # --- what plugins see

    async def on_event(self, event: Any, turn: Turn) -> None:
        if isinstance(event, Said):
            living = self.living(turn)
            if living is not None and list(living.said) != self.said(turn.id):
                self.machine.blame(f"memory and journal of turn {turn.id} differ as {event} is told")
        await self._misbehave()

    async def before_tool(self, call: Any, turn: Turn) -> Verdict | None:
        await self._misbehave()
        return Verdict("ask", "is risky") if call.name == "risk" else None

    async def agent_loop_stopped(self, turn: Turn) -> None:
        await self._misbehave()

    async def turn_ended(self, turn: Turn, ending: str) -> None:
        if ending == "suspended":
            return
        self.told[turn.id] += 1
        if self.told[turn.id] > 1:
            self.machine.blame(f"the end of turn {turn.id} is told twice")
        if self.acting[turn.id]:
            self.machine.blame(f"a tool of turn {turn.id} runs after its end")
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
                self._look("acts JOIN turns ON turns.number = acts.turn", "call_id", turn, call.id)
            case TurnEnded(_, ending):
                self._look("turns", "ending", turn, ending)

    def _look(self, table: str, column: str, turn: str, wanted: str) -> None:
        found = self._witness.machine.disk.rows(f"SELECT {column} FROM {table} WHERE turns.id = ?", turn)
        if (wanted,) not in found:
            self._witness.machine.blame(f"turn {turn} shows {column} {wanted}; the journal has {found}")


class Hand:
    """A tool that takes its time; what it writes it writes once."""

    def __init__(self, name: str, effect: str, witness: Witness) -> None:
        self.spec = ToolSpec(name, f"{name} something", _SCHEMA, effect)  # type: ignore[arg-type]
        self._witness = witness

    async def run(self, args: Mapping[str, Any], act: Act) -> str:
        witness, what = self._witness, str(args["what"])
        machine, writes = witness.machine, self.spec.effect == "write"
        turn = witness.turn_of(act.call_id)
        witness.acting[turn] += 1
        machine.note("tool", self.spec.name, what)
        if self.spec.name == "risk" and what not in witness.outside.allowed:
            machine.blame(f"{what} is done, and nobody allowed it")
        if writes:
            witness.done[what] += 1
            if witness.done[what] > 1:
                machine.blame(f"{what} is written twice")
            if not machine.disk.rows("SELECT 1 FROM acts WHERE call_id = ? AND result IS NULL", act.call_id):
                machine.blame(f"{what} is written before the intent is")
        try:
            await asyncio.sleep(machine.dice.random() * machine.dice.choice((0.01, 0.5, 3.0)))
            if self.spec.name == "trip":
                raise RuntimeError("as planned")
            await act.progress(f"half of {what}")
            await asyncio.sleep(machine.dice.random() * 0.5)
        finally:
            if not machine.loop.dead:
                witness.acting[turn] -= 1
        return f"did {what}"


class House:
    """What the gateway needs of an app."""

    def __init__(self, store: Store, lobby: Lobby, hooks: Hooks, models: Models) -> None:
        self.store, self.lobby, self.hooks, self._models = store, lobby, hooks, models
        self.offers = Offers(lambda: BY_NAME)

    def context(self, inbound: Any, *, files: bool = True) -> Context:
        return Context(
            inbound=inbound,
            lobby=self.lobby,
            store=self.store,
            models=self._models,  # type: ignore[arg-type]
            choice=self._choice,
            offers=self.offers,
            hooks=self.hooks,
            files=files,
        )

    async def _choice(self) -> Choice:
        return Choice(model="sim/m", why="There is one.")


async def live(machine: Machine, outside: Outside, witness: Witness, plan: Plan) -> None:
    """From start to end, as `alipes serve` does it; it ends by being cancelled, or by a store that fails."""
    hooks, owner = Hooks(watch=Watch(clock=machine.monotonic)), Owner("witness")
    for hook in (witness.on_event, witness.before_tool, witness.agent_loop_stopped, witness.turn_ended):
        hooks.add(owner, hook)
    models, owing = Models(outside), Owing([PLATFORM])
    kinds = (("see", "read"), ("do", "write"), ("trip", "read"), ("risk", "write"))
    hands = {name: Hand(name, effect, witness) for name, effect in kinds}
    patience, chain = Patience(clock=machine.monotonic), Chain()

    async def agent(_turn: Turn) -> Agent:
        return Agent(
            models=models,
            model="sim/m",
            tools=hands,
            hooks=hooks.relay,
            patience=patience,
            chain=chain,
            consent=lobby.approvals.ask,
        )

    settings = TelegramSettings(token=Secret("1:x"), folder=HOME, base_url="http://telegram")
    manners = Manners(allow=("*",), busy=plan.busy, progress=plan.progress)  # type: ignore[arg-type]
    rules = Rules(manners={PLATFORM: manners}, poll=5.0)
    async with open_store(HOME) as store:
        Ear(witness, store)
        habits = Habits(interactive=True, owes=owing, linger=300.0)
        lobby = Lobby(store, hooks=hooks, agent=agent, habits=habits)
        async with _serving(lobby):
            platform = open_telegram(settings, outside)  # type: ignore[arg-type]
            house = House(store, lobby, hooks, models)
            await Gateway(house, {PLATFORM: platform}, rules, owing=owing).run()


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
