"""The model for all contestants: it repeats the words of a message and ignores notes around them.

A rival may put notes before and after a message, and name its shell tool as it likes.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.world import model_validation as rules
from tests.world.model_replies import Call, Calls, Reply, Say
from tests.world.model_server import ModelProcess, ModelServer

API = "openai-chat"
WORDS = re.compile(r"^(echo|run|slow) ([^\n]+)", re.MULTILINE)
SHELLS = ("terminal", "exec")
"""Names of the shell tool of the contestants."""


def answer(body: dict[str, Any]) -> Reply:
    offered = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if not offered:
        return Say("a title")  # an auxiliary request
    verb, rest, said = "", "nothing", 0
    for kind, text in rules.steps(API, body):
        if kind == "user" and (found := WORDS.findall(text)):
            (verb, rest), said = found[-1], 0
        elif kind == "assistant":
            said += 1
    if verb == "run" and not said:
        shell = next(name for name in SHELLS if name in offered)
        return Calls((Call(shell, {"command": rest}),))
    if verb == "run":
        return Say(f"done with {rest.split()[-1]}")  # a front end may show the command itself
    if verb == "slow":
        return Say(f"{'word ' * 24}{rest}", pieces=25, delay=0.1)
    return Say(rest, pieces=4)


class EchoModel(ModelServer):
    def record(self, kind: str, **fields: object) -> None:
        fields.pop("body", None)
        super().record(kind, **fields)
        self.requests[:] = []  # it lives long


@asynccontextmanager
async def serve(folder: Path) -> AsyncIterator[ModelProcess]:
    log = folder / "echo_model.log"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.echo_model", "--log", str(log)),
        cwd=Path(__file__).parents[1],
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert child.stdout
        yield ModelProcess(int(await child.stdout.readline()), log, None)
    finally:
        child.kill()
        await child.wait()


async def main(options: argparse.Namespace) -> None:
    with open(options.log, "ab", buffering=0) as log:
        async with EchoModel(answer, log=log, models=("parrot",)) as server:
            print(server.port, flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True)
    asyncio.run(main(parser.parse_args()))
