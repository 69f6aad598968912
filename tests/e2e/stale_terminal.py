"""The real terminal, with code beside it that leaves clients on closed loops. Run by `test_terminal_stale`.

argv: a JSON object with `kinds`, `urls`, `times` and `report`, a file that is created at the end.
"""

import asyncio
import importlib
import json
import sys
from pathlib import Path

from alipes.cli.terminal import start
from alipes.cli.terminal.terminal import TerminalApp
from alipes.config.settings import Settings
from alipes.console.options import TalkOptions
from tests.e2e.leaky_clients import leave_behind

PLAN = json.loads(sys.argv[1])


async def misbehave() -> None:
    for _ in range(PLAN["times"]):
        for kind in PLAN["kinds"]:
            for url in PLAN["urls"]:
                await leave_behind(kind, url, pauses=1, pause=0.002)
    Path(PLAN["report"]).touch()


def load() -> start.RunSession:
    serve = importlib.import_module("alipes.cli.terminal.session").run_session

    async def beside(terminal: TerminalApp, settings: Settings, options: TalkOptions, left: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            careless = group.create_task(misbehave())
            await serve(terminal, settings, options, left)
            careless.cancel()

    return beside


if __name__ == "__main__":
    sys.exit(start.run(["-m", "scripted"], load, lambda _argv: 2))
