"""How long the event loop waits while long commands and code are judged."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable

from alipes.agent.approval.approval import build_approval_hook
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from bench.measure import Row, bounded

CALLS = {
    "a command of 1 MB": ToolCall("c", "terminal", {"command": "echo " + "a" * 1_000_000}),
    "a here-document of 90 KB": ToolCall("c", "terminal", {"command": "cat > x <<'E'\n" + "a b c\n" * 15_000 + "E\n"}),
    "a literal of 90 KB in code": ToolCall("c", "execute_code", {"code": "x = '" + "a" * 90_000 + "'"}),
    "code of 250 KB": ToolCall("c", "execute_code", {"code": "print('a/b', open)\n" * 13_000}),
}


async def judging() -> list[Row]:
    with tempfile.TemporaryDirectory() as home:
        hook = build_approval_hook(FileBoundary(Places(home=home, alipes_home=f"{home}/.alipes")))
        turn = Turn("t", "s", Inbound("i", Address("cli", "c"), "me", "hi", workdir=home))
        return [
            bounded(f"loop lag, judging {what}", await _lag(hook(call, turn)) * 1000, 20, "ms")
            for what, call in CALLS.items()
        ]


async def _lag(judged: Awaitable[object]) -> float:
    """The longest time that a ready task waited."""
    longest, done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not done.is_set():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began - 0.001)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        await asyncio.sleep(0.01)
        await judged
        done.set()
    return longest
