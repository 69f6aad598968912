"""Remote tools: time from the stop of a turn to the client in another process that runs its tools.

`python -m bench.remote URL TOKEN` is that client: it tells when it hears what, by the machine's one clock.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

from tests.world.remote_tools import RemoteTools, open_remote
from websockets.asyncio.client import connect

from bench.measure import Row, bounded, p

ROOT = Path(__file__).parents[1]
ASK = "!say well\n" + "!call work\n" * 3
"""Three reads run in parallel, so each stop cancels three calls."""


async def stop_notified(trials: int = 200) -> list[Row]:
    """Stops at random points; the client must be notified of each of its calls exactly once."""
    rng, times, wrong = random.Random(4), [], 0
    with tempfile.TemporaryDirectory() as name:
        async with open_remote(Path(name)) as remote, _working(remote) as heard:
            for _ in range(trials):
                asking = asyncio.create_task(remote.ask(ASK))
                calls = {(await heard("call"))[0] for _ in range(3)}
                await asyncio.sleep(rng.uniform(0, 0.03))
                began = time.monotonic()
                await remote.stop()
                seen = [await heard("cancelled") for _ in calls]
                times.append(max(when for _, when in seen) - began)
                wrong += {call for call, _ in seen} != calls
                await asking
    figures = [f"median {p(times, 50) * 1000:.1f} ms", f"most {max(times) * 1000:.1f} ms"]
    what = f"stop to remote client notified, {trials} trials ({', '.join(figures)}): p99"
    return [
        bounded(what, p(times, 99) * 1000, 10, "ms"),
        bounded("stops of which a client heard other than once", wrong, 0, "stops"),
    ]


@asynccontextmanager
async def _working(remote: RemoteTools):
    """The client as a process. Returns its next message, which must be of that kind, and when it arrived."""
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.remote", remote.socket, remote.token), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None

    async def heard(type: str) -> tuple[str, float]:
        kind, call, when = (await client.stdout.readline()).decode().split()
        if kind != type:
            raise AssertionError(f"heard {kind} instead of {type}")
        return call, float(when)

    await heard("registered")
    try:
        yield heard
    finally:
        client.kill()
        await client.wait()


async def _work(url: str, token: str) -> None:
    """A busy client that reports progress every few milliseconds and never ends."""
    rng = random.Random(5)
    open_calls: set[str] = set()
    async with connect(url, compression=None, proxy=None) as connection, asyncio.TaskGroup() as group:

        async def toil() -> None:
            while True:
                await asyncio.sleep(rng.uniform(0, 0.004))
                for call in tuple(open_calls):
                    await connection.send(json.dumps({"type": "progress", "call": call, "text": "at it"}))

        await connection.send(json.dumps({"type": "hello", "protocol": 1, "token": token, "name": "busy"}))
        await connection.recv()
        tool = {"name": "work", "description": "Work.", "effect": "read"}
        await connection.send(json.dumps({"type": "register", "id": "work", "tool": tool}))
        group.create_task(toil())
        while True:
            words = json.loads(await connection.recv())
            print(words["type"], words.get("call", "-"), time.monotonic(), flush=True)
            if words["type"] == "call":
                open_calls.add(words["call"])
            open_calls -= {words["call"]} if words["type"] == "cancelled" else set()


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
