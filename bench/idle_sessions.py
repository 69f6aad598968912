"""Open N sessions, let each answer once and rest; print the process's resident megabytes."""

import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.world.house import inbound, open_house

from alipes.providers.scripted import Scripted


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        async with open_house(Path(home), Scripted(["hello"] * count)) as house:
            for n in range(count):
                await house.lobby.submit(inbound(str(n), "hi", chat=str(n)))
            await house.lobby.settled()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            print(pages * 4096 / 2**20)


asyncio.run(main(int(sys.argv[1])))
