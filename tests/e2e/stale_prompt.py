"""The program that `test_stale_clients` runs in a pty: a prompt, with misbehaving code beside it.

argv: a JSON object with `mode`, `kinds`, `urls`, `log` and `report`. Events beside the
screen are written to `report`, one JSON line each: "ready" once the prompt is drawn, "done" when the
misbehaving code has finished, and finally the line that was typed.
"""

import asyncio
import gc
import json
import sys
from contextlib import nullcontext
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.patch_stdout import patch_stdout

from alipes.runtime.log_file import open_log
from alipes.runtime.tasks import handle_uncaught_errors
from tests.e2e.leaky_clients import leave_behind

PLAN = json.loads(sys.argv[1])


def report(word: object) -> None:
    with Path(PLAN["report"]).open("a") as file:
        file.write(json.dumps(word) + "\n")


async def leave_clients() -> None:
    for kind in PLAN["kinds"]:
        for url in PLAN["urls"]:
            await leave_behind(kind, url, pauses=3, pause=0.02)


async def fail_otherwise() -> None:
    async def unlucky() -> None:
        raise ValueError("the task of a plugin")

    def worse() -> None:
        raise LookupError("the callback of a plugin")

    loop = asyncio.get_running_loop()
    task = loop.create_task(unlucky())
    await asyncio.sleep(0.05)
    del task
    gc.collect()
    loop.call_soon(worse)
    await asyncio.sleep(0.05)


async def main() -> None:
    session: PromptSession[str] = PromptSession("you> ")
    misbehave = fail_otherwise if PLAN["mode"] == "other" else leave_clients

    async def beside() -> None:
        while not session.app.renderer.height_is_known and not session.app.is_running:
            await asyncio.sleep(0.01)
        report("ready")
        await misbehave()
        report("done")

    guarded = PLAN["mode"] != "unguarded"
    with patch_stdout(), handle_uncaught_errors(print) if guarded else nullcontext():
        async with asyncio.TaskGroup() as group:
            group.create_task(beside())
            report([await session.prompt_async(set_exception_handler=not guarded)])


with open_log(Path(PLAN["log"]), "debug"):
    asyncio.run(main())
