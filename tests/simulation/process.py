"""One process: the production code on a simulated machine, and the observers in it."""

import asyncio
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from alipes.agent.auxiliary import AuxiliaryModels
from alipes.agent.budget import SpendingLimits
from alipes.agent.compaction.compaction import Compactor
from alipes.agent.loop import Agent
from alipes.agent.model_call import ModelCooldowns, RetryPolicy
from alipes.app import _serving
from alipes.config.settings import DelegationConfig
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.policy import GatewayPolicy, PlatformPolicy
from alipes.kernel.errors import ToolError
from alipes.kernel.models import Endpoint, ModelFacts, Secret
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.kernel.turns import Turn
from alipes.platforms.registry import open_telegram
from alipes.platforms.telegram.settings import TelegramSettings
from alipes.plugins.dispatch import Hooks
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import Contributions
from alipes.providers.openai_chat import OpenAIChatProvider
from alipes.providers.registry import Backend, ModelChoice
from alipes.runtime.watchdog import LoopActivity
from alipes.sessions.commands import BY_NAME
from alipes.sessions.commands.context import CommandContext
from alipes.sessions.sessions import SessionDefaults, Sessions
from alipes.sessions.subagents.delegation import Delegation
from alipes.store.store import Store, open_store
from alipes.store.summaries import SqliteCompactionStore
from alipes.store.usage import SqliteUsageLedger
from alipes.tools.clarify import Clarify
from alipes.tools.delegate import DelegateTask
from tests.simulation.fake_network import Outside
from tests.simulation.machine import Machine
from tests.simulation.observer import Ear, Witness
from tests.simulation.plan import Plan

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
        self._provider = OpenAIChatProvider(endpoint, outside)  # type: ignore[arg-type]

    def names(self) -> tuple[str, ...]:
        return ("sim/m",)

    async def open(self, name: str) -> Backend:
        return Backend(name=name, model="m", provider=self._provider, facts=self._facts)


class Hand:
    """A tool that takes its time; what it writes it writes once."""

    def __init__(self, name: str, effect: str, witness: Witness) -> None:
        self.spec = ToolSpec(name, f"{name} something", _SCHEMA, effect)  # type: ignore[arg-type]
        self._witness = witness

    async def run(self, args: Mapping[str, Any], act: ToolContext) -> str:
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
            sql = "SELECT 1 FROM tool_calls WHERE call_id = ? AND result IS NULL"
            if not machine.disk.rows(sql, act.call_id):
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
        ):  # always allowed, and requested again
            witness.machine.blame(f"more is done in chat {chat} than was allowed")


class House:
    """What the gateway needs of an app."""

    def __init__(
        self, store: Store, sessions: Sessions, hooks: Hooks, *, models: Models, compaction: Compactor | None
    ) -> None:
        self.store, self.sessions, self.hooks, self._models = store, sessions, hooks, models
        self._compaction = compaction
        self.contributions = Contributions(lambda: BY_NAME)

    def context(self, inbound: Any, *, local_files: bool = True) -> CommandContext:
        return CommandContext(
            inbound=inbound,
            sessions=self.sessions,
            store=self.store,
            models=self._models,  # type: ignore[arg-type]
            choice=self._choice,
            contributions=self.contributions,
            hooks=self.hooks,
            local_files=local_files,
            compactor=self._compaction,
        )

    async def _choice(self) -> ModelChoice:
        return ModelChoice(model="sim/m", why="There is one.")


def _compaction(store: Store, sessions: Sessions, models: Models, patience: RetryPolicy) -> Compactor:
    async def choice() -> str:
        return "sim/m"

    spending = SpendingLimits(SqliteUsageLedger(store.database), ask_approval=sessions.questions.ask_approval)
    auxiliary = AuxiliaryModels(models, spending, choice=choice, retry=patience)
    return Compactor(auxiliary, SqliteCompactionStore(store.database))


async def _clarify(sessions: Sessions, question: str, choices: tuple[str, ...]) -> str | None:
    turn = TURN.get()
    assert turn is not None
    reply = await sessions.questions.ask_question(turn, question, choices, CLARIFY)
    if reply is not None and reply.unasked:
        raise ToolError(reply.unasked)
    return None if reply is None else reply.text


async def live(machine: Machine, outside: Outside, witness: Witness, plan: Plan) -> None:
    """From start to end, as `alipes serve` does it; it ends by being cancelled, or by a store that fails."""
    hooks, owner = Hooks(watch=LoopActivity(clock=machine.monotonic)), PluginOwner("witness")
    for hook in (witness.on_event, witness.before_tool, witness.agent_loop_stopped, witness.turn_ended):
        hooks.add(owner, hook)
    models, outbound_policy = Models(outside, plan.window), OutboundPolicy([PLATFORM])
    kinds = (("see", "read"), ("do", "write"), ("trip", "read"), ("risk", "write"))
    hands: dict[str, Any] = {name: Hand(name, effect, witness) for name, effect in kinds}
    patience, chain = RetryPolicy(clock=machine.monotonic), ModelCooldowns()

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
            hooks=hooks.dispatcher,
            retry=patience,
            cooldowns=chain,
            ask_approval=sessions.questions.ask_approval,
            compactor=compaction,
        )

    settings = TelegramSettings(token=Secret("1:x"), folder=HOME, base_url="http://telegram")
    manners = PlatformPolicy(allow=("*",), busy=plan.busy, progress=plan.progress)  # type: ignore[arg-type]
    rules = GatewayPolicy(platforms={PLATFORM: manners}, poll_interval=5.0)
    async with open_store(HOME) as store:
        Ear(witness, store)
        habits = SessionDefaults(interactive=True, outbound=outbound_policy, idle_seconds=300.0)
        sessions = Sessions(store, hooks=hooks, agent=agent, defaults=habits)
        compaction = _compaction(store, sessions, models, patience) if plan.window else None
        delegation = Delegation(sessions, store, DelegationConfig(), models=models, tools=names)
        hands |= {"delegate_task": DelegateTask(delegation), "clarify": Clarify(partial(_clarify, sessions))}
        async with _serving(sessions):
            platform = open_telegram(settings, outside)  # type: ignore[arg-type]
            house = House(store, sessions, hooks, models=models, compaction=compaction)
            await Gateway(house, {PLATFORM: platform}, rules, outbound=outbound_policy).run()
