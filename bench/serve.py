"""What `alipes serve` costs before anybody says a word: from the start to ready, memory and CPU at rest."""

import asyncio
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.world.model_server import serve as model_server
from tests.world.telegram_control import Served
from tests.world.telegram_control import serve as bot_api

from bench.measure import Row, bounded, p

ROOT = Path(__file__).parents[1]
STARTS = 5
SETTLE = 2.0
REST = 20.0
CHATS = 64
ROUNDS = 6
PLAN = '{"replies": [{"type": "say", "text": "Good morning to you, too.", "pieces": 4}]}'


async def idle_service() -> list[Row]:
    """No platform, no plugin. Ready is when systemd would be told so, which is when `/ready` says yes."""
    waits, megabytes, percent = [], 0.0, 0.0
    for number in range(STARTS + 1):  # the first one warms up
        async with _serving() as (pid, wait):
            if number:
                waits.append(wait)
            if number == STARTS:
                await asyncio.sleep(SETTLE)
                before, began = _cpu(pid), time.monotonic()
                await asyncio.sleep(REST)
                percent = 100 * (_cpu(pid) - before) / (time.monotonic() - began)
                megabytes = _resident(pid)
    spread = f"{min(waits):.2f} to {max(waits):.2f} s"
    return [
        bounded(f"serve: start to ready, median of {STARTS} ({spread})", statistics.median(waits), 1, "s"),
        bounded(f"serve: resident after {REST:.0f} s at rest, no platform", megabytes, 90, "MB"),
        bounded("serve: CPU at rest, no platform", percent, 0.5, "%"),
    ]


@asynccontextmanager
async def _serving(given: Path | None = None) -> AsyncIterator[tuple[int, float]]:
    """The program on a home, else a fresh one, once it is ready; its pid, and the seconds that took."""
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        home = given or Path(name)
        if given is None:
            (home / "config.toml").write_text('model = "scripted"\n')
        told.bind(str(Path(name) / "notify"))
        told.setblocking(False)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": name,
            "ALIPES_HOME": str(home),
            "PYTHONPATH": str(ROOT / "src"),
        }
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "alipes", "serve", "--port", "0"),
            env={**env, "NOTIFY_SOCKET": told.getsockname()},
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(30):
                while not (await asyncio.get_running_loop().sock_recv(told, 4096)).startswith(b"READY=1"):
                    pass
            yield process.pid, time.monotonic() - began
        finally:
            process.terminate()
            await process.wait()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def telegram_turns() -> list[Row]:
    """64 people write at once, again and again; each is answered before they write the next."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        home.mkdir(0o700)
        async with bot_api() as telegram, model_server(PLAN, Path(name)) as model:
            _settle(home, telegram.url, telegram.token, f"http://127.0.0.1:{model.port}/v1")
            async with _serving(home) as (pid, _):
                await _round(telegram, 1, CHATS)  # everyone once, to warm up
                before, began = _cpu(pid), time.monotonic()
                for number in range(2, ROUNDS + 2):
                    await _round(telegram, number, CHATS)
                seconds, cpu = time.monotonic() - began, _cpu(pid) - before
                singles = []
                for number in range(50):
                    start = time.monotonic()
                    await telegram.call("say", text="hello", chat=1000)
                    await telegram.call("heard", chat=1000, count=number + 1)
                    singles.append(time.monotonic() - start)
    turns = CHATS * ROUNDS
    speed = turns / seconds
    return [
        Row(f"serve: turns per second, {CHATS} chats", f"{speed:.0f}", "", "", ">= 150", speed >= 150),
        bounded(f"serve: CPU per turn, {CHATS} chats at once", 1000 * cpu / turns, 8, "ms"),
        bounded("serve: one chat, message to answer, all of it: p50", 1000 * p(singles, 50), 25, "ms"),
    ]


async def _round(telegram: Served, number: int, chats: int) -> None:
    await telegram.call(
        "say_many", messages=[{"text": "hello", "chat": chat} for chat in range(1, chats + 1)]
    )
    await telegram.call("total", count=number * chats)


def _settle(home: Path, telegram: str, token: str, model: str) -> None:
    (home / "config.toml").write_text(
        f'model = "test/scripted"\n[providers.test]\napi = "openai-chat"\nbase_url = "{model}"\n'
        f'[telegram]\nbase_url = "{telegram}"\nallow = ["*"]\n'
    )
    (home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={token}\n")
    (home / ".env").chmod(0o600)
