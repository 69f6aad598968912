"""Is the loop free? Asked from outside, again and again; and the same of a process that does nothing else."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from tests.e2e.service import ServeProcess
from tests.torture.trials import LONG

LAG = 0.25
"""Seconds for which the loop may stand still, for all but one of a thousand looks at it."""
PAUSE = 0.02
SHARE = 0.999
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


class Lag:
    """Latency of each health check."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.idle: list[float] = []
        """The same of the one that does nothing: that is this machine's doing, and ours."""

    @property
    def worst(self) -> float:
        """Of all but one of a thousand looks."""
        return sorted(self.took)[int(len(self.took) * SHARE)]

    @property
    def machine(self) -> float:
        return max(self.idle)

    def check(self, allowed: float = LAG) -> None:
        """What the machine itself needs is not ours; where many tests run side by side it varies much."""
        slack = 2 * self.machine if LONG else max(5 * self.machine, LAG)
        assert self.worst < allowed + slack, (self.worst, self.machine, len(self.took))


@asynccontextmanager
async def watching(served: ServeProcess) -> AsyncIterator[Lag]:
    lag, both = Lag(), asyncio.Barrier(3)

    async def ask(address: str, path: str, took: list[float]) -> None:
        async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=90) as client:
            await client.get(path)
            await both.wait()  # to make a client is work for this loop, which would be taken for theirs
            while True:
                began = time.monotonic()
                await client.get(path)
                took.append(time.monotonic() - began)
                await asyncio.sleep(PAUSE)

    async with _idle() as address, asyncio.TaskGroup() as group:
        looking = [
            group.create_task(ask(served.address, "/health", lag.took)),
            group.create_task(ask(address, "/", lag.idle)),
        ]
        await both.wait()
        yield lag
        for each in looking:
            each.cancel()


@asynccontextmanager
async def _idle() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IDLE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.communicate()
