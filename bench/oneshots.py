"""Cost of a one-shot question, and of one with many tool rounds, for each contestant.

They run in turn on one scripted model, so that other load affects all of them.
"""

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.world.model_server import ModelProcess, serve

from bench.measure import Run, peak, run
from bench.rival_agents import RAW, Contestant, Place

ROUNDS = 50
NAMES = {
    "cpu": "one-shot, CPU (s)",
    "first": "start to first request (s)",
    "peak": "one-shot, peak memory (MB)",
    "bytes": "system prompt + tool schemas (bytes)",
    "round": f"each of {ROUNDS} tool rounds (ms)",
    "lines": f"connections for {ROUNDS + 1} requests",
}


async def measure(contestants: tuple[Contestant, ...], laps: int) -> dict[str, dict[str, float | str]]:
    """Values by contestant and figure. A text instead of a number says why there is none."""
    asked = await _questions(contestants, laps)
    rounds = await _rounds(contestants, max(1, laps // 2))
    return {each.name: asked[each.name] | rounds[each.name] for each in contestants}


async def _questions(contestants: tuple[Contestant, ...], laps: int) -> dict[str, dict[str, float | str]]:
    plan = [{"type": "say", "text": "hello there", "pieces": 4}]
    seen: dict[str, list[dict[str, float]]] = {each.name: [] for each in contestants}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with serve(json.dumps(plan), folder) as model:
            for lap in range(laps + 1):  # the first one warms up
                for each in contestants:
                    one = await _question(each, _place(folder, each, model))
                    if lap:
                        seen[each.name].append(one)
            peaks = {each.name: await _peak(each, _place(folder, each, model)) for each in contestants}
    return {
        who: {figure: statistics.median(one[figure] for one in runs) for figure in runs[0]} | {"peak": peaks[who]}
        for who, runs in seen.items()
    }


async def _peak(contestant: Contestant, place: Place) -> float:
    start = contestant.ask(place, "hi")
    return await peak(start.argv, start.env, place.folder)


async def _question(contestant: Contestant, place: Place) -> dict[str, float]:
    start = contestant.ask(place, "hi")
    before, began = len(place.model.log_lines("request")), time.time()
    one = await asyncio.to_thread(run, start.argv, start.env, place.folder)
    assert one.status == 0 and "hello there" in one.stdout, _describe_failure(contestant, one)
    asked = next(line for line in place.model.log_lines("request")[before:] if _of_turn(contestant, line))
    return {"cpu": one.cpu, "first": asked["time"] - began, "bytes": _weight(asked["body"])}


def _weight(body: dict[str, Any]) -> int:
    """Bytes of system prompt, instructions and tool schemas."""
    said = body.get("messages") or body["input"]
    seen = [each for each in said if each.get("role") in ("system", "developer")]
    seen += [body[name] for name in ("instructions", "tools") if body.get(name)]
    return len(json.dumps(seen, separators=(",", ":"), ensure_ascii=False).encode()) if seen else 0


def _of_turn(contestant: Contestant, line: dict[str, object]) -> bool:
    body = line["body"]
    assert isinstance(body, dict)
    return contestant is RAW or bool(body.get("tools"))


async def _rounds(contestants: tuple[Contestant, ...], laps: int) -> dict[str, dict[str, float | str]]:
    found: dict[str, dict[str, float | str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plans = {each.shell: _plan(each.shell) for each in contestants}
        by = {f"with {shell}": plan for shell, plan in plans.items()}
        async with serve(json.dumps({"replies": _plan("terminal"), "by": by}), folder) as model:
            for each in contestants:
                found[each.name] = await _round(each, _place(folder, each, model), laps)
    return found


def _plan(shell: str) -> list[dict[str, object]]:
    word = "cmd" if shell == "exec_command" else "command"
    call = {"type": "calls", "calls": [{"name": shell, "args": {word: "true"}}]}
    return [call] * ROUNDS + [{"type": "say", "text": "done"}]


async def _round(contestant: Contestant, place: Place, laps: int) -> dict[str, float | str]:
    times, lines = [], 0
    for _ in range(laps):
        start = (contestant.rounds or contestant.ask)(place, f"go with {contestant.shell}")
        before, connected = len(place.model.log_lines("request")), len(place.model.log_lines("connected"))
        one = await asyncio.to_thread(run, start.argv, start.env, place.folder)
        asked = [line for line in place.model.log_lines("request")[before:] if _of_turn(contestant, line)]
        if one.status != 0 or len(asked) < ROUNDS + 1:
            why = f"stopped after {len(asked)} requests"
            return {"round": why, "lines": why}
        times.append((asked[ROUNDS]["time"] - asked[0]["time"]) / ROUNDS * 1000)
        lines = len(place.model.log_lines("connected")) - connected
    return {"round": statistics.median(times), "lines": lines}


def _place(folder: Path, contestant: Contestant, model: ModelProcess) -> Place:
    own = folder / contestant.name.replace(" ", "-")
    own.mkdir(exist_ok=True)
    return Place(own, model)


def _describe_failure(contestant: Contestant, one: Run) -> str:
    return f"{contestant.name} ended with {one.status}:\n{one.stdout[-500:]}\n{one.stderr[-2000:]}"
