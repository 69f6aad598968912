"""`kill -9` around a person's stop: queued messages are all kept or all still queued, and none is lost or doubled."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from alipes.testing.scripted_provider import ScriptedProvider
from tests.torture.trials import seeds
from tests.world.environment import LIMIT_S
from tests.world.session_harness import inbound, open_sessions

ROOT = Path(__file__).parents[2]
QUEUED = ["second", "third", "fourth"]
KEY = inbound("", "").address.key
CHILD = """
import asyncio, sys
from pathlib import Path
from alipes.kernel.turns import Stop
from alipes.testing.scripted_provider import ScriptedProvider
from tests.torture.test_held_queue import KEY, QUEUED
from tests.world.session_harness import inbound, open_sessions

async def main():
    provider = ScriptedProvider([("I am", asyncio.Event())])
    async with open_sessions(Path(sys.argv[1]), provider) as house:
        await house.sessions.submit(inbound("first", "first"))
        while not provider.asked:
            await asyncio.sleep(0.001)
        for text in QUEUED:
            await house.sessions.submit(inbound(text, text), busy="queue")
        print("queued", flush=True)
        await house.sessions.stop(KEY, Stop("user_stop", "session_interrupt"))
        print("stopped", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


async def killed(home: Path, after: float) -> bool:
    """Run the child and kill it; True if its stop had returned."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(home), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    async with asyncio.timeout(LIMIT_S):
        assert await child.stdout.readline() == b"queued\n"
    await asyncio.sleep(after)
    child.kill()
    rest = await child.stdout.read()
    await child.wait()
    return b"stopped" in rest


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(3, 20))
async def test_a_kill_keeps_held_messages_held_and_loses_none(seed, tmp_path, figures):
    rng = random.Random(seed)
    for n in range(3):
        home = tmp_path / str(n)
        home.mkdir()
        stopped = await killed(home, rng.random() * 0.01)
        provider = ScriptedProvider([f"answer {n}" for n in range(4)])
        async with open_sessions(home, provider) as house:
            await house.sessions.wait_idle()
            held = [each.text for each in await house.store.sessions.unfinished(KEY) if each.held]
            assert held in ([], QUEUED) and (held or not stopped)
            heard = [request.messages[-1].text for request in provider.asked]
            assert [each for each in heard if each in QUEUED] == ([] if held else QUEUED)
            await house.sessions.release(KEY)
            await house.sessions.wait_idle()
            heard = [request.messages[-1].text for request in provider.asked]
            assert [each for each in heard if each in QUEUED] == QUEUED, "each once, in order"
            assert await house.store.sessions.unfinished(KEY) == ()
    figures.tried(3)
