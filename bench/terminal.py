"""Cost of the terminal: start, streaming, idling and a stop."""

import asyncio
import json
import os
import pty
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.world.kill_trial import configure, environment
from tests.world.model_server import Call, ModelServer, Reply, Stall
from tests.world.terminal_process import CTRL_C, ENTER, TerminalProcess
from tests.world.tls import ca_file, open_loopback

from alipes.store.sqlite.store import open_store
from bench.figures import ALIPES, PYTHON, world
from bench.measure import Row, bounded, compare, p, run

ROOT = Path(__file__).parents[1]
RATE, SECONDS = 200, 60
KINDS = ("openai", "anthropic", "httpx2", "httpx")
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
    """A model that streams `RATE` tokens per second for a minute."""
    text = TEXT * (RATE * seconds * 5 // len(TEXT))
    plan = [{"type": "say", "text": text, "pieces": RATE * seconds, "delay": 1 / RATE}]
    async with world(plan) as (folder, _, env):
        async with TerminalProcess.running((), env, folder, start=[ALIPES]) as process:
            await process.until("(from ")
            await _wait_quiet(process)
            cpu, written, began = process.cpu(), process.written, time.monotonic()
            process.type("go" + ENTER)
            await process.until(lambda: any("120 tokens" in row for row in process.rows), seconds * 3)
            took = time.monotonic() - began
            cpu, written = process.cpu() - cpu, process.written - written
    return [
        bounded(f"streaming {RATE} tokens/s, {took:.0f} s: CPU", 100 * cpu / took, 10, "% of a core"),
        bounded("streaming: bytes written / bytes of text", written / len(text.encode()), 3, "x"),
    ]


async def idle_terminal(seconds: float = 60) -> list[Row]:
    async with world([{"type": "say", "text": "hello"}]) as (folder, _, env):
        async with TerminalProcess.running((), env, folder, start=[ALIPES]) as process:
            await process.until("(from ")
            process.type("hi" + ENTER)
            await process.until("hello")
            await _wait_quiet(process)
            before, cpu = process.written, process.cpu()
            await asyncio.sleep(seconds)
            return [
                bounded(f"{seconds:.0f} s idle: bytes written", process.written - before, 0, "bytes"),
                bounded(f"{seconds:.0f} s idle: CPU", 1000 * (process.cpu() - cpu), 50, "ms"),
            ]


async def keys(count: int = 70) -> list[Row]:
    """Bytes written for a key in a line that is being typed."""
    text = ("some words that somebody types " * 20)[:count]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(folder / "home")
        async with TerminalProcess.running((), env, folder, start=[ALIPES]) as process:
            await process.until("1 minute")
            await _wait_quiet(process)
            each = []
            for number, key in enumerate(text):
                before = process.written
                process.type(key)
                wanted = f"› {text[: number + 1]}".rstrip()
                await process.until(lambda wanted=wanted: wanted in process.rows)
                await asyncio.sleep(0.02)
                each.append(process.written - before)
    return [bounded("bytes written for a key, median", statistics.median(each), 8, "bytes")]


SIZES = ((50, 20), (100, 30), (33, 10), (120, 40), (58, 24), (40, 20), (80, 24))


async def resizing() -> list[Row]:
    """Seven sizes while an answer streams in and a draft is in the input: rows that are there twice."""
    words = " ".join(f"word{number}" for number in range(2000))
    doubled = 0
    async with world([{"type": "say", "text": words, "pieces": 2000, "delay": 0.005}]) as (folder, _, env):
        async with TerminalProcess.running((), env, folder, start=[ALIPES]) as process:
            await process.until("(from ")
            process.type("go" + ENTER)
            await process.until("word20")
            process.type("a draft")
            await process.until("› a draft")
            for size in SIZES:
                seen = process.written
                process.resize(*size)
                await process.until(lambda seen=seen: process.written > seen + 500)
                await process.until(lambda: "› a draft" in process.rows)
                rows = process.text.split("\n")
                doubled += rows.count("› a draft") - 1 + max(0, sum("esc to stop" in row for row in rows) - 1)
            await process.until("word1999", 120)
    return [bounded(f"{len(SIZES)} resizes while it streams: rows doubled", doubled, 0, "rows")]


async def _wait_quiet(process: TerminalProcess) -> None:
    """Return once nothing was written for a second."""
    before = -1
    while before != process.written:
        before = process.written
        await asyncio.sleep(1)


async def stopping(trials: int = 200) -> list[Row]:
    """Time from the key until the end of the turn is shown, the connection closed and its processes gone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with ModelServer(lambda body: _stoppable(body, folder)) as server:
            configure(folder / "home", server.url("openai-chat"))
            env = environment(folder / "home")
            async with TerminalProcess.running((), env, folder, start=[ALIPES]) as process:
                await process.until("(from ")
                await _wait_quiet(process)
                times, pressed = [], 0.0
                for number in range(trials):
                    by_key = time.monotonic() - pressed > 2.1  # a second Ctrl-C within two seconds would quit
                    word = CTRL_C if by_key else "/stop" + ENTER
                    times.append(await _stop(number, process, server, folder=folder, word=word))
                    pressed = time.monotonic() if by_key else pressed
    what = f"stop, {trials} trials (median {p(times, 50):.0f} ms): p99"
    return [bounded(what, p(times, 99), 100, "ms")]


def _stoppable(body: dict[str, Any], folder: Path) -> Reply:
    """A stream that stalls, or a command whose grandchild leaves the session and ignores SIGTERM."""
    number = body["messages"][-1]["content"].removeprefix("go ")
    if int(number) % 2:
        return Stall(f"Trial {number} begins")
    seen = folder / number
    stubborn = f'trap "" TERM; echo $$ > {seen}.tmp; mv {seen}.tmp {seen}; sleep 999'
    return Call("terminal", {"command": f"setsid sh -c '{stubborn}' & sleep 999"})


async def _stop(number: int, process: TerminalProcess, server: ModelServer, *, folder: Path, word: str) -> float:
    """Milliseconds."""
    pid, left = 0, server.left
    process.type(f"go {number}" + ENTER)
    if number % 2:
        words = f"Trial {number} begins".encode()
        await process.until(lambda: words in process.raw)
    else:
        while not (folder / str(number)).exists():
            await asyncio.sleep(0.005)
        pid = int((folder / str(number)).read_text())
    await asyncio.sleep(0.1)
    seen, began = len(process.raw), time.perf_counter()
    process.type(word)
    wait_gone = (lambda: not Path(f"/proc/{pid}").exists()) if pid else (lambda: server.left > left)
    while not wait_gone() or b"stopped" not in process.raw[seen:]:
        await asyncio.sleep(0.001)
    return (time.perf_counter() - began) * 1000


async def stale(times: int = 25) -> list[Row]:
    """Clients of four libraries, plain and TLS, left over from closed event loops while someone types."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_loopback() as plain, open_loopback(tls=True) as secure:
            plan = {"kinds": KINDS, "urls": [plain.url, secure.url], "times": times, "report": str(folder / "done")}
            env = environment(folder / "home") | {"SSL_CERT_FILE": str(ca_file(folder))}
            start = [PYTHON, "-m", "tests.e2e.stale_terminal"]
            async with TerminalProcess.running([json.dumps(plan)], env, ROOT, start=start) as process:
                await process.until("(from ")
                typed = ""
                while not (folder / "done").exists():
                    typed += "abcdefghij"[len(typed) % 10]
                    process.type(typed[-1])
                    await asyncio.sleep(0.1)
                await asyncio.sleep(1)
                input = "".join(row[2:] for row in process.rows[process.rows.index("") + 1 :])
                process.type(ENTER)
                await process.until("You said")
        clients = len(plain.connections) + len(secure.connections)
        async with open_store(folder / "home") as store:
            (facts,) = await store.archive.sessions()
            sent = (await store.archive.messages(facts.id))[0].text
    shown = input.removesuffix("scripted/echo")  # a long input shows its last rows only
    intact = bool(shown) and typed.endswith(shown) and sent == typed
    figures = "all keys there, nothing else shown" if intact else f"shown: {input!r}"
    return [Row(f"{clients} stale clients, {len(typed)} keys typed", figures, "", "", "intact", intact)]
