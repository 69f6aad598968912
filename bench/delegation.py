"""Overhead of subagents and mixtures, and what is left of them after a stop."""

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.world.subagent_harness import RuleModel, delegate

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.core.app import App
from alipes.kernel.messages import Message, ToolCall
from alipes.kernel.ports import Request
from alipes.kernel.turns import Address, Inbound, Stop, ToolFinished, TurnEnded
from alipes.testing import take_snapshot
from bench.measure import Row, bounded

CHILDREN, REFERENCES = 8, 5
LAPS, STOPS = 15, 50
SLOWEST = 0.05
HERE = Address("bench", "me")
CONFIG = f"""
model = "scripted"
[delegation]
parallel = {CHILDREN}
[moa.default]
models = {json.dumps([f"scripted/{n}" for n in range(REFERENCES)])}
aggregator = "scripted/last"
"""
TASKS = ToolCall("c1", "delegate_task", {"tasks": [{"goal": f"task {n}"} for n in range(CHILDREN)]})
MIX = ToolCall("c1", "mixture_of_agents", {"prompt": "what is it?"})
NESTED = delegate(tasks=[{"goal": "deeper"}, {"goal": "deeper"}])
SLEEP = ToolCall("c1", "terminal", {"command": "sleep 60 & sleep 60"})


async def delegation() -> list[Row]:
    return [*await _costs(), *await _stops()]


async def _costs() -> list[Row]:
    async with _open_app(RuleModel(_at_once)) as app:
        children = [await _seconds(app, f"delegate {lap}") for lap in range(LAPS + 1)][1:]
        mixed = [await _seconds(app, f"mix {lap}") for lap in range(LAPS + 1)][1:]
    per_child = statistics.median(children) / CHILDREN * 1000
    over = (statistics.median(mixed) - SLOWEST) * 1000
    return [
        bounded(f"{CHILDREN} subagents, a model without latency: overhead of each", per_child, 30, "ms"),
        bounded(f"mixture of {REFERENCES}: overhead over the slowest", over, 10, "ms"),
    ]


def _at_once(seen: Message, request: Request) -> object:
    """Answer without delay, except for the models of a mixture."""
    if seen.text.startswith("delegate"):
        return TASKS
    if seen.text.startswith("mix"):
        return MIX
    if seen.text == "what is it?":
        return _later(int(request.model) / (REFERENCES - 1) * SLOWEST)
    return "done"


async def _later(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "a guess"


async def _seconds(app: App, text: str) -> float:
    """How long the requested tool ran."""
    took = 0.0
    async with app.sessions.ask(Inbound(text, HERE, "me", text)) as following:
        async for event in following:
            if isinstance(event, ToolFinished):
                took = event.seconds
                assert event.result.outcome == "ok", event.result.text
            if isinstance(event, TurnEnded):
                assert event.ending == "answered", event.detail
    return took


async def _stops() -> list[Row]:
    rng, rows = random.Random(7), []
    for what, call in (("nested subagents", NESTED), ("a mixture", MIX)):
        model = RuleModel(_never_finishing(call))
        async with _open_app(model) as app:
            await _stopped(app, f"{what} first", 1.0)  # warm up
            await app.sessions.wait_idle()
            before, left, took = take_snapshot(), 0, []
            for lap in range(STOPS):
                took.append(await _stopped(app, f"{what} {lap}", rng.uniform(0, 0.25)))
                left += model.living + len(await app.store.subagents.unfinished())
            await asyncio.sleep(0.6)  # time for things that end with a session
            left += sum(len(seen) for seen in take_snapshot().new_since(before).values())
        slowest = f"stopped within {max(took) * 1000:.0f} ms at most"
        rows.append(bounded(f"{what} stopped at {STOPS} random points: left alive ({slowest})", left, 0, "things"))
    return rows


def _never_finishing(call: ToolCall) -> Callable[[Message, Request], object]:
    """The person's message leads to `call`; models of a mixture never answer, subagents run `sleep`."""

    def answer(seen: Message, request: Request) -> object:
        if seen.text == "what is it?":
            return asyncio.Event().wait()
        if not seen.text.startswith("deeper"):
            return call
        last = "delegate_task" not in [tool.name for tool in request.tools]
        return SLEEP if last else delegate(goal="deeper")

    return answer


async def _stopped(app: App, text: str, after: float) -> float:
    async with app.sessions.ask(Inbound(text, HERE, "me", text, workdir="/", trusted=True)) as following:
        await asyncio.sleep(after)
        began = time.perf_counter()
        await app.sessions.post(HERE.key, Stop("user_stop", "session_interrupt", following.turn or ""))
        ends = [event.ending async for event in following if isinstance(event, TurnEnded)]
    assert ends == ["stopped"], ends
    return time.perf_counter() - began


@asynccontextmanager
async def _open_app(model: RuleModel) -> AsyncIterator[App]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "config.toml").write_text(CONFIG)
        async with open_app(
            load_settings(home, {"ALIPES_TEST_PROVIDER": "scripted_provider"}), lent={"scripted": model}
        ) as app:
            yield app
