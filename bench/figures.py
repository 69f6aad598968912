"""The basic figures: each with its raw limit and the allowed ratio."""

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.world.kill_trial import PLAN, configure, environment, run_trial
from tests.world.model_server import ModelProcess, serve

from bench.measure import Row, bounded, compare, in_turn, median_cpu, p, peak, run

PYTHON = sys.executable
ALIPES = str(Path(PYTHON).parent / "alipes")
HERE = Path(__file__).parent
CORE = ("terminal", "process", "read_file", "write_file", "patch", "search_files")
ROUNDS = 50
TOKENS = 20_000


@asynccontextmanager
async def world(plan: object) -> AsyncIterator[tuple[Path, ModelProcess, dict[str, str]]]:
    """A scratch home configured for a model server in another process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with serve(json.dumps(plan), folder) as server:
            configure(folder / "home", server.url("openai-chat"))
            yield folder, server, environment(folder / "home")


async def version() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        env = environment(Path(name) / "home")
        ours, bare = in_turn(15, [ALIPES, "--version"], [PYTHON, "-c", "import asyncio"], env=env, cwd=Path(name))
    return [compare("alipes --version / import asyncio", median_cpu(ours), median_cpu(bare), 1.5)]


async def oneshot() -> list[Row]:
    async with world([{"type": "say", "text": "hello there", "pieces": 4}]) as (folder, server, env):
        url = server.url("openai-chat")
        raw = [PYTHON, str(HERE / "raw_ask.py"), url, "hi"]
        ours, limit = await asyncio.to_thread(in_turn, 15, [ALIPES, "ask", "hi"], raw, env=env, cwd=folder)
        most = [await peak([ALIPES, "ask", "hi"], env, folder) for _ in range(5)]
        body = server.log_lines("request")[0]["body"]
    core = [tool for tool in body["tools"] if tool["function"]["name"] in CORE]
    overhead, schemas = _size([body["messages"][0], core]), _size(body["tools"])
    return [
        compare("one-shot / raw httpx2", median_cpu(ours), median_cpu(limit), 1.5),
        bounded("one-shot, peak memory", statistics.median(most), 60, "MB"),
        bounded("system prompt + core tool schemas", overhead, 6000, "bytes"),
        bounded("schemas of the default tools, at four bytes a token", schemas / 4, 3000, "tokens"),
    ]


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))


async def tokens() -> list[Row]:
    text = "token " * TOKENS
    async with world([{"type": "say", "text": text, "pieces": TOKENS}]) as (folder, server, env):
        raw = [PYTHON, str(HERE / "raw_ask.py"), server.url("openai-chat"), "hi"]
        ours, limit = await asyncio.to_thread(in_turn, 5, [ALIPES, "ask", "hi"], raw, env=env, cwd=folder)
        assert ours[0].stdout.strip() == text.strip()
    return [compare(f"{TOKENS} streamed tokens / raw loop", median_cpu(ours), median_cpu(limit), 1.5)]


async def rounds() -> list[Row]:
    call = {"type": "calls", "calls": [{"name": "terminal", "args": {"command": "true"}}]}
    async with world([call] * ROUNDS + [{"type": "say", "text": "done"}]) as (folder, server, env):
        raw = [PYTHON, str(HERE / "raw_rounds.py"), server.url("openai-chat")]
        sides: tuple[list[float], list[float]] = ([], [])
        for lap in range(4):
            for argv, times in zip(([ALIPES, "ask", "go"], raw), sides, strict=True):
                before = len(server.log_lines("request"))
                connected = len(server.log_lines("connected"))
                one = await asyncio.to_thread(run, argv, env, folder)
                assert one.status == 0, one.stderr
                asked = [line["time"] for line in server.log_lines("request")][before:]
                if argv is not raw:
                    connections = len(server.log_lines("connected")) - connected
                if lap:
                    times.append((asked[-1] - asked[0]) / ROUNDS)
    ours, limit = (statistics.median(times) for times in sides)
    return [
        compare(f"{ROUNDS} terminal rounds, each / raw", ours, limit, 2, "ms"),
        bounded(f"TCP connections for {ROUNDS + 1} calls", connections, 1, ""),
    ]


async def kills(trials: int = 200) -> list[Row]:
    rng = random.Random(20)
    lost = repeated = rejected = shown = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with serve(json.dumps(PLAN), folder) as server:
            for n in range(trials):
                seen = await run_trial(folder / str(n), server, rng.random() * 0.25)
                shown += not seen.finished_first
                lost += seen.ending != "answered"
                repeated += bool(seen.repeated)
                rejected += seen.rejected
                if lost + repeated + rejected:
                    print(n, seen, file=sys.stderr)
    bad = lost + repeated + rejected
    figures = f"{lost} lost, {repeated} repeated, {rejected} invalid"
    return [Row(f"kill -9 at {trials} moments ({shown} mid-turn)", figures, "", "", "0", bad == 0)]


async def journal() -> list[Row]:
    from alipes.kernel.messages import Message, Text
    from alipes.kernel.turns import Address, Inbound, Said
    from alipes.store.sqlite.store import open_store

    with tempfile.TemporaryDirectory() as name:
        async with open_store(Path(name)) as store:
            message = Inbound("1", Address("bench", "x"), "me", "hi")
            await store.turns.accept(message)
            turn = await store.turns.claim_next(message.address.key)
            assert turn is not None
            event = Said(Message("assistant", (Text("x" * 500),)))
            times = []
            for _ in range(500):
                began = time.perf_counter()
                await store.turns.record(turn, event)
                times.append((time.perf_counter() - began) * 1000)
    return [bounded("journal, one step at FULL (median)", p(times, 50), 1, "ms")]


async def idle() -> list[Row]:
    small, large = [
        float(run([PYTHON, str(HERE / "idle_sessions.py"), str(n)], environment(Path("/nonexistent"))).stdout)
        for n in (1, 1000)
    ]
    return [bounded("1,000 idle sessions above one", large - small, 200, "MB")]


async def reads() -> list[Row]:
    from tests.world.session_harness import inbound, open_sessions

    from alipes.kernel.messages import ToolCall
    from alipes.kernel.ports import ToolSpec
    from alipes.kernel.turns import ToolFinished, ToolStarted
    from alipes.testing.scripted_provider import ScriptedProvider

    class SleepTool:
        spec = ToolSpec("nap", "", {"type": "object", "properties": {}}, "read")

        async def run(self, args: object, act: object) -> str:
            await asyncio.sleep(0.1)
            return "rested"

    took = []
    for _ in range(10):
        stamps = []
        calls = tuple(ToolCall(f"c{n}", "nap", {}) for n in range(8))
        with tempfile.TemporaryDirectory() as name:
            async with open_sessions(Path(name), ScriptedProvider([calls, "done"]), SleepTool()) as harness:
                async with harness.sessions.ask(inbound("1", "go")) as following:
                    async for event in following:
                        if isinstance(event, ToolStarted | ToolFinished):
                            stamps.append(time.perf_counter())
        took.append((stamps[-1] - stamps[0]) * 1000)
    return [bounded("8 parallel 100 ms reads (median)", statistics.median(took), 130, "ms")]


ALL: dict[str, Callable[[], Awaitable[list[Row]]]] = {
    "version": version,
    "oneshot": oneshot,
    "tokens": tokens,
    "rounds": rounds,
    "journal": journal,
    "idle": idle,
    "reads": reads,
    "kills": kills,
}
