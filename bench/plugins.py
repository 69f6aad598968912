"""A stop as plugins see it: time until the hook is called, the tool cancelled, the next message answered."""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from alipes.testing import call, open_agent
from bench.measure import Row, bounded, p

STOPS = 200
NATIVE = """
import asyncio, time
from alipes.plugin import tool
SEEN = {}

@tool()
async def remote() -> str:
    "Ask far away."
    SEEN["running"].set()
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().create_future(), 30)
    finally:
        SEEN["tool"] = time.perf_counter()

async def agent_loop_stopped(reason):
    SEEN["hook"] = time.perf_counter()
"""
HERMES = """
import asyncio, time
SEEN = {}

async def remote(args, **kwargs):
    SEEN["running"].set()
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().create_future(), 30)
    finally:
        SEEN["tool"] = time.perf_counter()

def stopped(reason, **kwargs):
    SEEN["hook"] = time.perf_counter()

def register(ctx):
    nothing = {"type": "object", "properties": {}}
    schema = {"name": "remote", "description": "Ask far away.", "parameters": nothing}
    ctx.register_tool("remote", "remote", schema, remote, is_async=True)
    ctx.register_hook("agent_loop_stopped", stopped)
"""
SLOW_HOOKS = """
async def take_long(reason):
    await asyncio.sleep(4)

async def setup(ctx):
    for _ in range(10):
        ctx.hook(take_long, name="agent_loop_stopped")
"""
"""Appended to a native plugin: ten hooks that are still running long after the stop."""
MODULES = "import sys, alipes.app; print(*(m for m in sys.modules if m.startswith(('alipes.compat', 'yaml'))))"


async def plugins() -> list[Row]:
    rows: list[Row] = []
    for kind, source, manifest in (
        ("native plugin", NATIVE, "plugin.toml"),
        ("native plugin with ten slow hooks", NATIVE + SLOW_HOOKS, "plugin.toml"),
        ("Hermes plugin", HERMES, "plugin.yaml"),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "far"
            folder.mkdir()
            (folder / "__init__.py").write_text(source)
            (folder / manifest).write_text('name = "far"\n' if manifest.endswith("toml") else "name: far\n")
            rows += await _stops(kind, folder)
    out = subprocess.run([sys.executable, "-c", MODULES], capture_output=True, text=True, check=True)
    loaded = out.stdout.split()
    return [*rows, bounded("modules of compat loaded with no plugin", len(loaded), 0, "modules")]


async def _stops(kind: str, folder: Path) -> list[Row]:
    """Stop at random points: before the tool runs, while it starts, and while it waits."""
    rng, hook, tool, answered = random.Random(4), [], [], []
    async with open_agent(plugins=[folder]) as agent:
        seen = _seen()
        for _ in range(STOPS):
            seen.clear()
            seen["running"] = asyncio.Event()
            agent.model.set_script(call("remote"), "next")
            running = await agent.start("ask far away")
            if rng.random() < 0.8:
                await seen["running"].wait()
            await asyncio.sleep(rng.uniform(0, 0.005))
            began = time.perf_counter()
            await agent.command("/stop")
            await running.reply()
            if "hook" in seen:
                hook.append((seen["hook"] - began) * 1e3)
            if "tool" in seen:
                tool.append((seen["tool"] - began) * 1e3)
            agent.model.set_script("next")
            reply = await agent.say("and now?")
            assert reply.text == "next", reply
            answered.append((time.perf_counter() - began) * 1e3)
    assert len(hook) > STOPS * 0.8 and len(tool) > STOPS * 0.7
    return [
        bounded(f"{kind}: /stop to hook called, p99 of {len(hook)}", p(hook, 99), 10, "ms"),
        bounded(f"{kind}: /stop to tool cancelled, p99 of {len(tool)}", p(tool, 99), 20, "ms"),
        bounded(f"{kind}: /stop to next message answered, p99", p(answered, 99), 100, "ms"),
    ]


def _seen() -> dict[str, object]:
    """The records of the plugin, found by the module name that the loader gave it."""
    found = [m for n, m in sys.modules.items() if n.startswith(("alipes_plugins.far", "hermes_plugins.far"))]
    return found[-1].SEEN
