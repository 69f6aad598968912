"""One process: the house as it is in production, on a simulated machine; and what is watched in it."""

import asyncio
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from alipes.agent.auxiliary import Auxiliary
from alipes.agent.budget import Spending
from alipes.agent.compaction.compaction import Compaction
from alipes.agent.loop import Agent
from alipes.agent.model_call import Chain, Patience
from alipes.app import _serving
from alipes.config.settings_parts import DelegationSettings
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.owed import Owing
from alipes.gateway.policy import Manners, Rules
from alipes.kernel.errors import ToolError
from alipes.kernel.models import Endpoint, ModelFacts, Secret
from alipes.kernel.ports import Act, ToolSpec
from alipes.kernel.turns import Turn
from alipes.platforms.telegram.platform import TelegramSettings, open_telegram
from alipes.plugins.attribution import TURN
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import Owner
from alipes.plugins.registry import Offers
from alipes.providers.openai_chat import OpenAIChat
from alipes.providers.registry import Backend, Choice
from alipes.runtime.watchdog import Watch
from alipes.sessions.commands import BY_NAME
from alipes.sessions.commands.context import Context
from alipes.sessions.sessions import Habits, Lobby
from alipes.sessions.subagents.delegation import Delegation
from alipes.store.store import Store, open_store
from alipes.store.summaries import SqliteDigests
from alipes.store.usage import SqliteBill
from alipes.tools.clarify import Clarify
from alipes.tools.delegate import Delegate
from tests.simulation.machine import Machine
from tests.simulation.outside import Outside
from tests.simulation.plan import Plan
from tests.simulation.witnessing import Ear, Witness

HOME = Path("/nowhere")
PLATFORM = "telegram"
CLARIFY = 30.0
"""Seconds that the model waits for an answer to its question."""
_SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


class Models:
    """One model, asked over the simulated wire by the wire's own client."""

    def __init__(self, outside: Outside, window: int) -> None:
        self._facts = ModelFacts(window=window or None)
        endpoint = Endpoint(
            name="sim", api="openai_chat", base_url="https://api.openai.com/v1", key=Secret("k")
        )
        self._provider = OpenAIChat(endpoint, outside)  # type: ignore[arg-type]

    def names(self) -> tuple[str, ...]:
        return ("sim/m",)

    async def open(self, name: str) -> Backend:
        return Backend(name=name, model="m", provider=self._provider, facts=self._facts)


class Hand:
    """A tool that takes its time; what it writes it writes once."""

    def __init__(self, name: str, effect: str, witness: Witness) -> None:
        self.spec = ToolSpec(name, f"{name} something", _SCHEMA, effect)  # type: ignore[arg-type]
        self._witness = witness

    async def run(self, args: Mapping[str, Any], act: Act) -> str:
        witness, what = self._witness, str(args["what"])
        machine, writes = witness.machine, self.spec.effect == "write"
        living = TURN.get()
        turn = living.id if living is not None else ""
        witness.acting[turn] += 1
        machine.note("tool", self.spec.name, what)
        if self.spec.name == "risk":
            self._risk(what)
        if writes:
            witness.done[what] += 1
            if witness.done[what] > 1 and not witness.retries:
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

    def _risk(self, what: str) -> None:
        witness = self._witness
        chat = int(what[1 : re.search(r"[a-z]", what[1:]).end()])  # type: ignore[union-attr]
        witness.risked[chat] += 1
        outside = witness.outside
        if what not in outside.allowed and chat not in outside.worded:
            witness.machine.blame(f"{what} is done, and nobody allowed it")
        if (
            witness.risked[chat] > outside.yes[chat] and not witness.retries
        ):  # allowed for good, and asked again
            witness.machine.blame(f"more is done in chat {chat} than was allowed")


class House:
    """What the gateway needs of an app."""

    def __init__(
        self, store: Store, lobby: Lobby, hooks: Hooks, *, models: Models, compaction: Compaction | None
    ) -> None:
        self.store, self.lobby, self.hooks, self._models = store, lobby, hooks, models
        self._compaction = compaction
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
            compaction=self._compaction,
        )

    async def _choice(self) -> Choice:
        return Choice(model="sim/m", why="There is one.")


def _compaction(store: Store, lobby: Lobby, models: Models, patience: Patience) -> Compaction:
    async def choice() -> str:
        return "sim/m"

    spending = Spending(SqliteBill(store.database), consent=lobby.approvals.ask)
    auxiliary = Auxiliary(models, spending, choice=choice, patience=patience)
    return Compaction(auxiliary, SqliteDigests(store.database))


async def _clarify(lobby: Lobby, question: str, choices: tuple[str, ...]) -> str | None:
    turn = TURN.get()
    assert turn is not None
    reply = await lobby.questions.ask(turn, question, choices, CLARIFY)
    if reply is not None and reply.unasked:
        raise ToolError(reply.unasked)
    return None if reply is None else reply.text


async def live(machine: Machine, outside: Outside, witness: Witness, plan: Plan) -> None:
    """From start to end, as `alipes serve` does it; it ends by being cancelled, or by a store that fails."""
    hooks, owner = Hooks(watch=Watch(clock=machine.monotonic)), Owner("witness")
    for hook in (witness.on_event, witness.before_tool, witness.agent_loop_stopped, witness.turn_ended):
        hooks.add(owner, hook)
    models, owing = Models(outside, plan.window), Owing([PLATFORM])
    kinds = (("see", "read"), ("do", "write"), ("trip", "read"), ("risk", "write"))
    hands: dict[str, Any] = {name: Hand(name, effect, witness) for name, effect in kinds}
    patience, chain = Patience(clock=machine.monotonic), Chain()

    def allowed(turn: Turn) -> dict[str, Any]:
        only = turn.inbound.only
        return {name: hand for name, hand in hands.items() if only is None or name in only}

    async def names(turn: Turn) -> tuple[str, ...]:
        return tuple(allowed(turn))

    async def agent(turn: Turn) -> Agent:
        return Agent(
            models=models,
            model="sim/m",
            tools=allowed(turn),
            hooks=hooks.relay,
            patience=patience,
            chain=chain,
            consent=lobby.approvals.ask,
            compaction=compaction,
        )

    settings = TelegramSettings(token=Secret("1:x"), folder=HOME, base_url="http://telegram")
    manners = Manners(allow=("*",), busy=plan.busy, progress=plan.progress)  # type: ignore[arg-type]
    rules = Rules(manners={PLATFORM: manners}, poll=5.0)
    async with open_store(HOME) as store:
        Ear(witness, store)
        habits = Habits(interactive=True, owes=owing, linger=300.0)
        lobby = Lobby(store, hooks=hooks, agent=agent, habits=habits)
        compaction = _compaction(store, lobby, models, patience) if plan.window else None
        delegation = Delegation(lobby, store, DelegationSettings(), models=models, tools=names)
        hands |= {"delegate_task": Delegate(delegation), "clarify": Clarify(partial(_clarify, lobby))}
        async with _serving(lobby):
            platform = open_telegram(settings, outside)  # type: ignore[arg-type]
            house = House(store, lobby, hooks, models=models, compaction=compaction)
            await Gateway(house, {PLATFORM: platform}, rules, owing=owing).run()
