"""One process: production code on a simulated machine, with observers."""

import asyncio
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from alipes.agent.attachments import FileAttacher
from alipes.agent.auxiliary import AuxiliaryModels
from alipes.agent.budget import SpendingLimits
from alipes.agent.compaction.compaction import Compactor
from alipes.agent.loop import Agent
from alipes.agent.model_call import ModelCooldowns, RetryPolicy
from alipes.config.settings import DelegationConfig, Settings
from alipes.features.schedules.hooks import ScheduledTurns
from alipes.features.schedules.job import Job
from alipes.features.schedules.scheduler import Scheduler, SchedulerLimits
from alipes.features.schedules.schedules import Schedules
from alipes.features.schedules.settlement import AnswerPlaces, RunSettler
from alipes.features.schedules.timetable import Timetable
from alipes.features.skills.catalog import SkillCatalog
from alipes.features.skills.settings import SkillsConfig
from alipes.features.skills.skills import Skills
from alipes.features.skills.versions import SkillStore
from alipes.features.subagents.delegation import Delegation
from alipes.features.subagents.tool import DelegateTask
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.policy import GatewayPolicy, PlatformPolicy
from alipes.kernel.errors import ToolError
from alipes.kernel.models import Endpoint, ModelFacts, Secret
from alipes.kernel.outbox import Outbound
from alipes.kernel.ports import Tool, ToolContext, ToolSpec
from alipes.kernel.turns import Address, Turn
from alipes.platforms.telegram.platform import TelegramPlatform
from alipes.platforms.telegram.settings import TelegramConfig
from alipes.plugins.dispatch import Hooks
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.owner import PluginOwner
from alipes.providers.openai_chat import OpenAIChatProvider
from alipes.providers.registry import Backend, ModelChoice
from alipes.runtime.blobs.chat_files import ChatFiles
from alipes.runtime.watchdog import LoopActivity
from alipes.sessions.commands.context import CommandContext
from alipes.sessions.sessions import SessionDefaults, Sessions
from alipes.store.sql.history import CompactionStore
from alipes.store.sql.store import Store
from alipes.store.sql.usage import UsageLedger
from alipes.store.sqlite.store import open_store
from alipes.tools.clarify import Clarify
from tests.simulation.fake_network import FakeNetwork
from tests.simulation.machine import EPOCH, Machine
from tests.simulation.observer import BusObserver, Observer
from tests.simulation.plan import Plan
from tests.world.commands import core_commands, make_services

HOME = Path("/nowhere")
PLATFORM = "telegram"
JOB_CHAT = "9"
"""The chat that gets the answers of jobs."""
CLARIFY_TIMEOUT = 30.0
"""Seconds."""
_SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


class Models:
    """One model, called through the real OpenAI client over the fake network."""

    def __init__(self, network: FakeNetwork, window: int) -> None:
        self._facts = ModelFacts(window=window or None)
        endpoint = Endpoint(name="sim", api="openai-chat", base_url="https://api.openai.com/v1", key=Secret("k"))
        self._provider = OpenAIChatProvider(endpoint, network)  # type: ignore[arg-type]

    def names(self) -> tuple[str, ...]:
        return ("sim/m",)

    async def default(self) -> ModelChoice:
        return ModelChoice(model="sim/m", why="only model")

    def own_tools(self, _name: str) -> Mapping[str, Tool]:
        return {}

    async def open(self, name: str) -> Backend:
        return Backend(name=name, model="m", provider=self._provider, facts=self._facts)


class SimulatedTool:
    """A slow tool that checks that each write happens once, after its intent was stored."""

    def __init__(self, name: str, effect: str, observer: Observer) -> None:
        self.spec = ToolSpec(name, f"{name} something", _SCHEMA, effect)  # type: ignore[arg-type]
        self._observer = observer

    async def run(self, args: Mapping[str, Any], act: ToolContext) -> str:
        observer, what = self._observer, str(args["what"])
        machine, writes = observer.machine, self.spec.effect == "write"
        current = TURN.get()
        turn = current.id if current is not None else ""
        observer.running_tools[turn] += 1
        machine.record("tool", self.spec.name, what)
        if self.spec.name == "risk":
            self._risk(what)
        if writes:
            observer.writes[what] += 1
            if observer.writes[what] > 1 and not observer.retries:
                machine.report(f"{what} was written twice")
            sql = "SELECT 1 FROM tool_calls WHERE call_id = ? AND result IS NULL"
            if not machine.disk.rows(sql, act.call_id):
                machine.report(f"{what} was written before its intent")
        try:
            await asyncio.sleep(machine.rng.random() * machine.rng.choice((0.01, 0.5, 3.0)))
            if self.spec.name == "trip":
                raise RuntimeError("as planned")
            await act.progress(f"half of {what}")
            await asyncio.sleep(machine.rng.random() * 0.5)
        finally:
            if not machine.loop.dead:
                observer.running_tools[turn] -= 1
        return f"did {what}"

    def _risk(self, what: str) -> None:
        observer = self._observer
        chat = int(what[1 : re.search(r"[a-z]", what[1:]).end()])  # type: ignore[union-attr]
        observer.risky_writes[chat] += 1
        network = observer.network
        if what not in network.allowed and chat not in network.worded:
            observer.machine.report(f"{what} was done without approval")
        if (
            observer.risky_writes[chat] > network.approvals[chat] and not observer.retries
        ):  # always allowed and requested again
            observer.machine.report(f"more was done in chat {chat} than was approved")


class SimulatedApp:
    """The parts of the app that the gateway uses."""

    def __init__(
        self, store: Store, sessions: Sessions, hooks: Hooks, *, models: Models, compaction: Compactor | None
    ) -> None:
        self.store, self.sessions, self.hooks = store, sessions, hooks
        self.contributions = core_commands()
        compactor = {} if compaction is None else {"compactor": compaction}
        self._services = make_services(self, models, self.contributions, **compactor)
        self.files = FileAttacher(Settings(home=Path("/nonexistent")))
        self.chat_files = ChatFiles(Path("/nonexistent"), max_bytes=1, cache_bytes=1)

    def context(self, inbound: Any, *, local_files: bool = True) -> CommandContext:
        return CommandContext(inbound, self._services, local_files=local_files)


def _compaction(store: Store, sessions: Sessions, models: Models, retry: RetryPolicy) -> Compactor:
    async def choice() -> str:
        return "sim/m"

    spending = SpendingLimits(UsageLedger(store.database), ask_approval=sessions.questions.ask_approval)
    auxiliary = AuxiliaryModels(models, spending, choice=choice, retry=retry)
    return Compactor(auxiliary, CompactionStore(store.database))


async def _clarify(sessions: Sessions, question: str, choices: tuple[str, ...]) -> str | None:
    turn = TURN.get()
    assert turn is not None
    reply = await sessions.questions.ask_question(turn, question, choices, CLARIFY_TIMEOUT)
    if reply is not None and reply.unasked:
        raise ToolError(reply.unasked)
    return None if reply is None else reply.text


async def run_process(machine: Machine, network: FakeNetwork, observer: Observer, plan: Plan) -> None:
    """Run as `alipes serve` does, until cancelled or until the store fails."""
    hooks, owner = Hooks(watch=LoopActivity(clock=machine.monotonic)), PluginOwner("witness")
    for hook in (observer.on_event, observer.before_tool, observer.agent_loop_stopped, observer.turn_ended):
        hooks.add(owner, hook)
    models, outbound_policy = Models(network, plan.window), OutboundPolicy([PLATFORM])
    kinds = (("see", "read"), ("do", "write"), ("trip", "read"), ("risk", "write"))
    tools: dict[str, Any] = {name: SimulatedTool(name, effect, observer) for name, effect in kinds}
    retry, cooldowns = RetryPolicy(clock=machine.monotonic), ModelCooldowns()

    def allowed(turn: Turn) -> dict[str, Any]:
        only = turn.inbound.only
        return {name: tool for name, tool in tools.items() if only is None or name in only}

    async def names(turn: Turn) -> tuple[str, ...]:
        return tuple(allowed(turn))

    async def agent(turn: Turn) -> Agent:
        return Agent(
            models=models,
            model="sim/m",
            tools=allowed(turn),
            hooks=hooks.dispatcher,
            retry=retry,
            cooldowns=cooldowns,
            ask_approval=sessions.questions.ask_approval,
            compactor=compaction,
        )

    settings = TelegramConfig(token=Secret("1:x"), data_folder=HOME, base_url="http://telegram")
    policy = PlatformPolicy(allow=("*",), busy=plan.busy, progress=plan.progress)  # type: ignore[arg-type]
    rules = GatewayPolicy(platforms={PLATFORM: policy}, poll_interval=5.0)
    async with open_store(HOME) as store:
        BusObserver(observer, store)
        if plan.jobs:
            hooks.add(owner, ScheduledTurns(store).turn_ended)
        defaults = SessionDefaults(interactive=True, outbound=outbound_policy, idle_seconds=300.0)
        sessions = Sessions(store, hooks=hooks, agent=agent, defaults=defaults)
        compaction = _compaction(store, sessions, models, retry) if plan.window else None
        delegation = Delegation(sessions, store, DelegationConfig(), models=models, tools=names)
        tools |= {"delegate_task": DelegateTask(delegation), "clarify": Clarify(partial(_clarify, sessions))}
        async with sessions.serve():
            platform = TelegramPlatform(settings, network)  # type: ignore[arg-type]
            app = SimulatedApp(store, sessions, hooks, models=models, compaction=compaction)
            gateway = Gateway(app, {PLATFORM: platform}, rules, outbound=outbound_policy)
            if not plan.jobs:
                await gateway.run()
                return
            async with asyncio.TaskGroup() as group:
                group.create_task(_run_jobs(machine, plan, app, gateway), name="scheduler")
                await gateway.run()


async def _run_jobs(machine: Machine, plan: Plan, app: SimulatedApp, gateway: Gateway) -> None:
    """The scheduler; the jobs of the plan are added unless they are there."""
    schedules = Schedules(Settings(home=HOME, timezone="UTC"), app.store, sessions=app.sessions)
    for job in plan.jobs:
        due = EPOCH + 100.0 + job.at
        timetable, origin = Timetable("at", at=due), Address(PLATFORM, JOB_CHAT)
        made = Job(job.name, "", timetable, "UTC", prompt=job.prompt, origin=origin, retries=job.retries, retry_s=2.0)
        await schedules.jobs.add(made, due, id=job.name)

    def notify(outbound: Outbound) -> None:
        gateway.delivery.notify(PLATFORM, outbound.lane)

    places = AnswerPlaces(app.store.people, OutboundPolicy([PLATFORM]), lambda: (PLATFORM,), HOME, notify=notify)
    settler = RunSettler(schedules.runs, app.sessions, places)
    catalog = SkillCatalog(SkillsConfig(), SkillStore(HOME / "skills"), user_home=HOME)
    skills = Skills(SkillsConfig(), catalog, app.store)
    await Scheduler(schedules, app.sessions, settler, SchedulerLimits(parallel=2), skills=skills).run()
