"""The real terminal, and beside it someone who leaves clients behind on dead loops. Run by `test_terminal_stale`.

argv: a JSON object with `kinds`, `urls`, `times` and `report`, a file that is made when all is done.
"""

import asyncio
import gc
import importlib
import json
import sys
from pathlib import Path

from alipes.cli import talk
from alipes.cli.arguments import TalkOptions
from alipes.cli.terminal.prompt import Terminal
from alipes.config.settings import Settings

PLAN = json.loads(sys.argv[1])


async def use(kind: str, url: str) -> object:
    """A client as careless code makes it, with a connection that is kept alive."""
    module = importlib.import_module(kind)
    if kind in ("httpx", "httpx2"):
        client = module.AsyncClient()
        await client.get(f"{url}/v1/models")
        return client
    name, base_url = {"openai": ("AsyncOpenAI", f"{url}/v1"), "anthropic": ("AsyncAnthropic", url)}[kind]
    client = getattr(module, name)(api_key="sk-test", base_url=base_url)
    await client.models.list()
    return client


def leak(kind: str, url: str) -> list[object]:
    """Runs in a thread: the client is born on a loop of its own, which is closed before the client."""
    loop = asyncio.new_event_loop()
    try:
        return [loop.run_until_complete(use(kind, url))]
    finally:
        loop.close()


async def misbehave() -> None:
    for _ in range(PLAN["times"]):
        for kind in PLAN["kinds"]:
            for url in PLAN["urls"]:
                kept = await asyncio.to_thread(leak, kind, url)
                kept.clear()
                gc.collect()
                await asyncio.sleep(0.002)
    Path(PLAN["report"]).touch()


def load() -> talk.Serve:
    serve = importlib.import_module("alipes.cli.terminal.talk").serve

    async def beside(
        terminal: Terminal, settings: Settings, options: TalkOptions, left: asyncio.Event
    ) -> None:
        async with asyncio.TaskGroup() as group:
            careless = group.create_task(misbehave())
            await serve(terminal, settings, options, left)
            careless.cancel()

    return beside


if __name__ == "__main__":
    sys.exit(talk.run(["-m", "scripted"], load, lambda _argv: 2))
