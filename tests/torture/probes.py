"""Measures loop lag from outside, next to the lag of an idle process."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from tests.e2e.service import ServeProcess
from tests.torture.trials import LONG

LAG = 0.25
"""Seconds that the loop may be blocked, for all but one of a thousand health checks."""
PAUSE = 0.02
QUANTILE = 0.999
IDLE = """
import asyncio

async def answer(reader, writer):
    while await reader.readuntil(b"\\r\\n\\r\\n"):
        writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok")

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


class LoopLag:
    """Latency of each health check."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.idle_latencies: list[float] = []
        """Latency of an idle process: what the machine and this test cost."""

    @property
    def worst(self) -> float:
        """The worst, without one of a thousand."""
        return sorted(self.latencies)[int(len(self.latencies) * QUANTILE)]

    @property
    def machine(self) -> float:
        return max(self.idle_latencies)

    def check(self, allowed: float = LAG) -> None:
        """The latency of the machine is subtracted; it varies a lot while many tests run in parallel."""
        slack = 2 * self.machine if LONG else max(5 * self.machine, LAG)
        assert self.worst < allowed + slack, (self.worst, self.machine, len(self.latencies))


@asynccontextmanager
async def watch_lag(served: ServeProcess) -> AsyncIterator[LoopLag]:
    lag, both = LoopLag(), asyncio.Barrier(3)

    async def ask(address: str, path: str, latencies: list[float]) -> None:
        async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=90) as client:
            await client.get(path)
            await both.wait()  # creating a client blocks this loop, which would be measured as lag
            while True:
                began = time.monotonic()
                await client.get(path)
                latencies.append(time.monotonic() - began)
                await asyncio.sleep(PAUSE)

    async with _open_idle_server() as address, asyncio.TaskGroup() as group:
        looking = [
            group.create_task(ask(served.address, "/health", lag.latencies)),
            group.create_task(ask(address, "/", lag.idle_latencies)),
        ]
        await both.wait()
        yield lag
        for each in looking:
            each.cancel()


@asynccontextmanager
async def _open_idle_server() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IDLE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.communicate()
