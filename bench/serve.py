"""Cost of an idle `alipes serve`: time from start to ready, memory and CPU."""

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

from bench.measure import Row, bounded

ROOT = Path(__file__).parents[1]
STARTS = 5
SETTLE = 2.0
REST = 20.0


async def idle_service() -> list[Row]:
    """No platform, no plugin. Ready is when systemd would be notified, which is when `/ready` succeeds."""
    waits, megabytes, percent = [], 0.0, 0.0
    for number in range(STARTS + 1):  # the first one warms up
        async with open_service() as (pid, wait):
            if number:
                waits.append(wait)
            if number == STARTS:
                await asyncio.sleep(SETTLE)
                before, began = _cpu(pid), time.monotonic()
                await asyncio.sleep(REST)
                percent = 100 * (_cpu(pid) - before) / (time.monotonic() - began)
                megabytes = resident(pid)
    spread = f"{min(waits):.2f} to {max(waits):.2f} s"
    return [
        bounded(f"serve: start to ready, median of {STARTS} ({spread})", statistics.median(waits), 1, "s"),
        bounded(f"serve: resident after {REST:.0f} s at rest, no platform", megabytes, 90, "MB"),
        bounded("serve: CPU at rest, no platform", percent, 0.5, "%"),
    ]


@asynccontextmanager
async def open_service(home: Path | None = None, settings: str = "") -> AsyncIterator[tuple[int, float]]:
    """The program on a home, or on a new one, once it is ready: its pid and the seconds that it took.

    `settings`: more lines of config.toml.
    """
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as seen:
        home = home or Path(name)
        (home / "config.toml").write_text(f'model = "ollama/none"\n{settings}')
        seen.bind(str(Path(name) / "notify"))
        seen.setblocking(False)
        env = {"PATH": os.environ["PATH"], "HOME": name, "ALIPES_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "alipes", "serve", "--port", "0"),
            env={**env, "NOTIFY_SOCKET": seen.getsockname()},
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(30):
                while not (await asyncio.get_running_loop().sock_recv(seen, 4096)).startswith(b"READY=1"):
                    pass
            yield process.pid, time.monotonic() - began
        finally:
            process.terminate()
            await process.wait()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Megabytes of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
