"""Open N sessions, let each answer once and rest; print the process's resident megabytes."""

import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.world.session_harness import inbound, open_sessions

from alipes.testing.scripted_provider import ScriptedProvider


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        async with open_sessions(Path(home), ScriptedProvider(["hello"] * count)) as harness:
            for n in range(count):
                await harness.sessions.submit(inbound(str(n), "hi", chat=str(n)))
            await harness.sessions.wait_idle()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            print(pages * 4096 / 2**20)


asyncio.run(main(int(sys.argv[1])))
