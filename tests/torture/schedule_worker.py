"""A process with sessions and a scheduler, of which several may run on one home: `python -m ... HOME`."""

import asyncio
import sys
from pathlib import Path

from alipes.app import open_app
from alipes.cli.serve.scheduler import make_lone_scheduler
from alipes.config.loader import load_settings


async def work(home: Path) -> None:
    settings = load_settings(home)
    async with open_app(settings) as app:
        print("ready", flush=True)
        await make_lone_scheduler(app, settings.workdir).run()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
