"""Figures of the terminal: what its start, its streaming, its idling and a stop cost."""

import asyncio
import os
import pty
import statistics
import tempfile
import time
from pathlib import Path

from tests.world.glass import CTRL_C, ENTER, Glass
from tests.world.killing import environment

from bench.figures import ALIPES, PYTHON, world
from bench.measure import Row, bounded, compare, p, run

RATE, SECONDS = 200, 60
TEXT = (
    "Streams of **text** come in small pieces, and `each` of them is shown at once. "
    "A paragraph is wrapped at the edge of the screen.\n\n- a list\n- of two\n\n"
    "```python\ndef add(one, other):\n    return one + other\n```\n\n"
)


async def start() -> list[Row]:
    """CPU from the start to the first bytes of the prompt."""
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(folder / "home") | {"TERM": "xterm-256color"}
        for lap in range(16):
            cpu = await asyncio.to_thread(_cpu_to_prompt, env, folder)
            one = await asyncio.to_thread(run, [PYTHON, "-c", "import asyncio, prompt_toolkit"], env, folder)
            if lap:
                ours.append(cpu)
                bare.append(one.cpu)
    limit = statistics.median(bare)
    return [compare("prompt usable / import asyncio, prompt_toolkit", statistics.median(ours), limit, 1.5)]


def _cpu_to_prompt(env: dict[str, str], folder: Path) -> float:
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve(ALIPES, [ALIPES], env)
    seen = b""
    while "›".encode() not in seen:
        seen += os.read(terminal, 65536)
    cpu = sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{child}/task").glob("*/schedstat"))
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(terminal)
    return cpu / 1e9


async def streaming(seconds: int = SECONDS) -> list[Row]:
    """A model that says so many tokens a second, for a minute."""
    text = TEXT * (RATE * seconds * 5 // len(TEXT))
    plan = [{"type": "say", "text": text, "pieces": RATE * seconds, "delay": 1 / RATE}]
    async with world(plan) as (folder, _, env):
        async with Glass.running((), env, folder, start=[ALIPES]) as glass:
            await glass.until("answers.")
            await _rest(glass)
            cpu, written, began = glass.cpu(), glass.written, time.monotonic()
            glass.type("go" + ENTER)
            await glass.until("answering")
            await glass.until(lambda: not any("answering" in row for row in glass.rows), seconds * 3)
            took = time.monotonic() - began
            cpu, written = glass.cpu() - cpu, glass.written - written
    return [
        bounded(f"streaming {RATE} tokens/s, {took:.0f} s: CPU", 100 * cpu / took, 10, "% of a core"),
        bounded("streaming: bytes written / bytes of text", written / len(text.encode()), 3, "x"),
    ]


async def idle_terminal(seconds: float = 60) -> list[Row]:
    async with world([{"type": "say", "text": "hello"}]) as (folder, _, env):
        async with Glass.running((), env, folder, start=[ALIPES]) as glass:
            await glass.until("answers.")
            glass.type("hi" + ENTER)
            await glass.until("hello")
            await _rest(glass)
            before, cpu = glass.written, glass.cpu()
            await asyncio.sleep(seconds)
            return [
                bounded(f"{seconds:.0f} s idle: bytes written", glass.written - before, 0, "bytes"),
                bounded(f"{seconds:.0f} s idle: CPU", 1000 * (glass.cpu() - cpu), 50, "ms"),
            ]


async def _rest(glass: Glass) -> None:
    """Return once nothing was written for a second."""
    before = -1
    while before != glass.written:
        before = glass.written
        await asyncio.sleep(1)
