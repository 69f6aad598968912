"""A process with an open browser, for tests that kill it: prints a line when the page is loaded, then waits."""

import asyncio
import sys
from pathlib import Path

from alipes.runtime.processes.process_tree import open_orphan_guard
from tests.world.web_pages import open_browser_world


async def main(home: str) -> None:
    async with open_orphan_guard(Path(home, "run")) as guard, open_browser_world(home, keeper=guard) as world:
        await world.show("<h1>here</h1>")
        print(guard.owner, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
