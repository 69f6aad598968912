"""Runs the attempts of the breach suite on one backend, and returns what they did.

As a program, for another user than that of the tests: `python -m tests.contract.breach_runner BACKEND FOLDER`.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import msgspec

from alipes.config.settings import SandboxConfig
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope
from tests.contract.breaches import BREACHES, FILE_MB, MEMORY_MB, OUTWARD_BREACHES, PROCESSES, Breach, is_control
from tests.world.breach_world import BreachWorld, open_breach_world
from tests.world.sandboxes import open_backend, open_machine

CONFIG = SandboxConfig(memory=MEMORY_MB, processes=PROCESSES, file_size=FILE_MB, grants=())
TIMEOUT_S = 30.0
TOGETHER = 12
SEPARATOR = "====next===="


class Outcome(NamedTuple):
    happened: bool
    output: str


def run(name: str, folder: Path) -> Mapping[str, Outcome]:
    with open_machine(name, folder) as machine, open_breach_world(folder / "w") as world:
        return asyncio.run(try_all(name, world, machine))


def chosen(name: str) -> list[Breach]:
    """The attempts that say something about a backend."""
    if name == "host":
        return [breach for breach in BREACHES if is_control(breach)]
    return [*(OUTWARD_BREACHES if name == "ssh" else BREACHES)]


async def try_all(name: str, world: BreachWorld, machine: Mapping[str, Any]) -> dict[str, Outcome]:
    breaches = chosen(name)
    together = [breach for breach in breaches if not breach.is_alone]
    groups = [*batched(together, TOGETHER), *((breach,) for breach in breaches if breach.is_alone)]
    outcomes = dict[str, Outcome]()
    async with open_backend(name, home=world.home, config=CONFIG, machine=machine) as backend:
        problem = await backend.check()
        assert problem == "", problem
        for group in groups:
            outcomes |= await attempt(backend, group, world)
    return outcomes


async def attempt(backend: CommandBackend, breaches: Sequence[Breach], world: BreachWorld) -> dict[str, Outcome]:
    """Run the attempts in one command, each in its own shell."""
    values, workdir = world.values(), str(world.workdir)
    scripts = [breach.script for breach in breaches]
    for name, value in values.items():
        scripts = [script.replace(f"{{{name}}}", str(value)) for script in scripts]
    command = "\n".join(f"echo {SEPARATOR}; bash -c {quote(script)} </dev/null 2>&1" for script in scripts)
    if len(breaches) == 1:
        command = f"echo {SEPARATOR}; {scripts[0]}"
    world.reached()
    output = b""
    async with backend.open(command, CommandScope("s1", workdir), cwd=workdir, env=world.environment()) as child:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while piece := await child.read():
                    output += piece
                await child.wait()
        except TimeoutError:
            output += b"\n(timed out)"
    outputs = output.decode(errors="replace").split(f"{SEPARATOR}\n")[1:]
    if len(breaches) == 1:
        outputs = outputs or [""]  # it may have killed what carries its output
    assert len(outputs) == len(breaches), output.decode(errors="replace")
    return {
        breach.name: Outcome(breach.happened(world, text), f"{script}\n{text}")
        for breach, script, text in zip(breaches, scripts, outputs, strict=True)
    }


def batched(items: Sequence[Breach], size: int) -> Iterator[Sequence[Breach]]:
    yield from (items[at : at + size] for at in range(0, len(items), size))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(run(sys.argv[1], Path(sys.argv[2]))))
