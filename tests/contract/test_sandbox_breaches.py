"""Every attempt to leave a sandbox fails on every backend, and succeeds on the host, which shows that it is one.

All attempts of a backend run in one event loop, before its first test: opening a container for each takes long.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from alipes.config.settings import SandboxConfig
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope
from tests.contract.breaches import BREACHES, FILE_MB, MEMORY_MB, PROCESSES, Breach, is_control
from tests.world.breach_world import BreachWorld, open_breach_world
from tests.world.sandboxes import BACKENDS, open_backend, open_machine

CONFIG = SandboxConfig(memory=MEMORY_MB, processes=PROCESSES, file_size=FILE_MB, grants=())
TIMEOUT_S = 30.0
NAMES = {breach.name: breach for breach in BREACHES}


class Outcome(NamedTuple):
    happened: bool
    output: str


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[dict[str, Outcome]]:
    folder = tmp_path_factory.mktemp("b")
    with open_machine(request.param, folder) as machine, open_breach_world(folder / "w") as world:
        yield asyncio.run(try_all(request.param, world, machine))


async def try_all(name: str, world: BreachWorld, machine) -> dict[str, Outcome]:
    chosen = [breach for breach in BREACHES if name != "host" or is_control(breach)]
    async with open_backend(name, home=world.home, workdir=world.workdir, config=CONFIG, machine=machine) as backend:
        works = await backend.check()
        assert works == "", works
        return {breach.name: await attempt(backend, breach, world) for breach in chosen}


async def attempt(backend: CommandBackend, breach: Breach, world: BreachWorld) -> Outcome:
    script, workdir = breach.script, str(world.workdir)
    for name, value in world.values().items():
        script = script.replace(f"{{{name}}}", str(value))
    world.reached()
    output = b""
    scope = CommandScope("s1", workdir)
    async with backend.open(script, scope, cwd=workdir, env=world.environment(), link=breach.link) as child:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while piece := await child.read():
                    output += piece
                await child.wait()
        except TimeoutError:
            output += b"\n(timed out)"
    text = output.decode(errors="replace")
    return Outcome(breach.happened(world, text), f"{script}\n{text}")


@pytest.mark.parametrize("outcomes", ["host"], indirect=True, ids=str)
@pytest.mark.parametrize("breach", [breach.name for breach in BREACHES if is_control(breach)])
def test_the_attempt_succeeds_on_the_host(outcomes, breach):
    assert outcomes[breach].happened, outcomes[breach].output


@pytest.mark.parametrize("outcomes", [name for name in BACKENDS if name != "host"], indirect=True, ids=str)
@pytest.mark.parametrize("breach", NAMES)
def test_the_attempt_fails_in_the_sandbox(outcomes, breach):
    assert not outcomes[breach].happened, outcomes[breach].output
