"""A model server process that does what the last user message says.

The first word is the verb: `echo X` says X; `act X` writes X down with a command and then says X; `slow X`
says X at the end of an answer that takes a while; `drip N X` says N words, twenty a second, and then X;
`run COMMAND` and `use TOOL` call tools; `stall X` says half of X and then hangs; `fail X` fails with X.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tests.world import model_validation as rules
from tests.world import model_wires as wires
from tests.world.model_http import Connection, HttpRequest
from tests.world.model_replies import Call, Calls, Fail, Reply, Say, Stall
from tests.world.model_server import ModelProcess, ModelServer

API = "openai-chat"
STEPS = "steps"
"""The file that `act` writes to, in the working folder."""
RATE = 20
"""Words a second of `drip`."""
SLOTS = 10


def reply_to(body: dict[str, Any]) -> Reply:
    """The answer to a request."""
    said, words = rules.since_user(API, body)
    verb, _, rest = words.partition(" ")
    match verb:
        case "act" if not said:
            return _command(f"echo {rest} >> {STEPS}; sleep 0.02")
        case "run" if not said:
            return _command(rest)
        case "use" if not said:
            return Calls((Call(rest.partition(" ")[0], {}),))
        case "fail":
            return Fail(400, rest)
        case "stall":
            return Stall(f"half of {rest}")
        case "slow":
            return Say(f"{'word ' * 24}{rest}", pieces=25, delay=0.05)
        case "drip":
            count, _, last = rest.partition(" ")
            return Say(f"{'word ' * int(count)}{last}", pieces=int(count))
    return Say(rest, pieces=4)


def _command(command: str) -> Calls:
    return Calls((Call("terminal", {"command": command}),))


class EchoModel(ModelServer):
    """Logs when requests arrive and are answered, without their content."""

    def __init__(self, log: BinaryIO | None = None) -> None:
        super().__init__(reply_to, log=log)
        self._metronome = Pacer()
        self._came = 0.0

    def record(self, kind: str, **fields: object) -> None:
        kept = {name: value for name, value in fields.items() if name in ("connection", "why")}
        if kind == "request":
            kept["came"] = self._came
        super().record(kind, **kept)

    async def __aenter__(self) -> "EchoModel":
        await super().__aenter__()
        self._ticking = self._tasks.create_task(self._metronome.run())
        return self

    async def __aexit__(self, *why: Any) -> None:
        self._ticking.cancel()
        await super().__aexit__(*why)

    async def serve(self, connection: Connection, request: HttpRequest) -> None:
        self._came = request.at
        if b'"content":"drip ' not in request.raw[-20_000:]:
            await super().serve(connection, request)
            self.requests.clear()  # long-lived
            return
        body = msgspec.json.decode(request.raw)
        if rules.since_user(API, body)[1].startswith("drip "):
            self.record("request", connection=connection.number)
            reply = reply_to(body)
            assert isinstance(reply, Say)
            connection.head(200, "text/event-stream; charset=utf-8", {"transfer-encoding": "chunked"})
            await self._metronome.play(connection, _frames(reply, body["model"]))
            self.record("answered", connection=connection.number)
        else:
            await super().serve(connection, request)


@lru_cache(maxsize=4096)
def _frames(reply: Say, model: str) -> list[bytes]:
    """Each as a chunk of HTTP."""
    frames = wires.frames(API, reply, model=model, serial=0)
    return [b"%x\r\n%s\r\n" % (len(frame), frame) for frame in frames] + [b"0\r\n\r\n"]


class Pacer:
    """Sends many streams at `RATE` with one timer."""

    def __init__(self) -> None:
        self._slots: list[dict[Connection, tuple[list[bytes], asyncio.Future[None]]]] = [{} for _ in range(SLOTS)]
        self._places: dict[Connection, int] = {}
        self._count = 0

    async def play(self, connection: Connection, frames: list[bytes]) -> None:
        self._count += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        slot = self._slots[self._count % SLOTS]
        slot[connection] = (frames, done)
        self._places[connection] = 0
        try:
            await done
        finally:
            slot.pop(connection, None)
            del self._places[connection]

    async def run(self) -> None:
        due = time.monotonic()
        while True:
            for slot in self._slots:
                for connection, (frames, done) in list(slot.items()):
                    place = self._places[connection]
                    connection.transport.write(frames[place])
                    self._places[connection] = place + 1
                    if place + 1 == len(frames):
                        done.set_result(None)
                        del slot[connection]
                due += 1 / (RATE * SLOTS)
                await asyncio.sleep(max(0.0, due - time.monotonic()))


@asynccontextmanager
async def serve(folder: Path) -> AsyncIterator[ModelProcess]:
    """Run it as its own process, with its log in `folder`."""
    log = folder / "parrot.log"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.world.echo_model", "--log", str(log)),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert child.stdout
        yield ModelProcess(int(await child.stdout.readline()), log, None)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def main(options: argparse.Namespace) -> None:
    with open(options.log, "ab", buffering=0) as log:
        async with EchoModel(log) as parrot:
            print(parrot.port, flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True)
    asyncio.run(main(parser.parse_args()))
