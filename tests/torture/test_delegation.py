"""Stop means stop, two subagents deep; and a killed tree of turns resumes at the next start."""

import asyncio
import json
import os
import random
import sys
import time
from contextlib import suppress

import pytest

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.kernel.turns import Address, Inbound, Stop, TurnEnded
from alipes.store.sqlite.store import open_store
from alipes.testing import call, every_stop, open_agent
from tests.torture.test_children import find_running, tree, unique_name
from tests.torture.trials import seeds
from tests.world.environment import environment
from tests.world.subagent_harness import RuleModel, delegate, message, open_subagents
from tests.world.wait import until

TRIALS = int(os.environ.get("ALIPES_TORTURE_TRIALS", "24")) // 4
HERE = Address("test", "me")


def call_line(name: str, **args: object) -> str:
    return f"!call {name} {json.dumps(args)}"


def nested(name: str) -> str:
    """A turn with two subagents, each with a subagent of its own that runs a stubborn process tree."""
    deepest = call_line("terminal", command=tree(name, chains=False))
    return call_line("delegate_task", tasks=[{"goal": call_line("delegate_task", goal=deepest)} for _ in range(2)])


def make_home(folder, *lines: str):
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text("\n".join(('model = "scripted"', *lines)))
    return folder


async def _wait_ended(app) -> bool:
    """True if all subagents end within two seconds, including those just being accepted."""
    deadline = time.monotonic() + 2
    while await app.store.subagents.unfinished() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return await app.store.subagents.unfinished() == ()


@pytest.mark.deadline(120)
async def test_nested_subagents_stopped_at_random_points_leave_nothing_alive(tmp_path, figures, seed=2027):
    rng, seconds_taken = random.Random(seed), []
    async with open_app(load_settings(make_home(tmp_path / "home"), {})) as app:
        for trial in range(TRIALS):
            name, moment = unique_name(rng), rng.choice((0.0, rng.uniform(0, 0.05), rng.uniform(0, 0.4)))
            inbound = Inbound(f"{trial}", HERE, "me", nested(name), workdir="/", trusted=True)
            where = f"trial {trial} of seed {seed}, stopped after {moment:.3f} s"
            async with app.sessions.ask(inbound) as following:
                await asyncio.sleep(moment)
                began = time.perf_counter()
                for _ in range(rng.choice((1, 1, 2))):
                    stop = Stop("user_stop", "session_interrupt", following.turn or "")
                    await app.sessions.post(HERE.key, stop)
                ends = [event.ending async for event in following if isinstance(event, TurnEnded)]
            seconds_taken.append(time.perf_counter() - began)
            assert ends == ["stopped"], where
            await until(lambda name=name: not find_running(name), 2)
            assert await _wait_ended(app), where
            async with app.sessions.ask(Inbound(f"{trial} next", HERE, "me", "hello")) as following:
                ends = [event.ending async for event in following if isinstance(event, TurnEnded)]
            assert ends == ["answered"], where
        assert app.sessions.subagents._runs == {}
        await until(lambda: list(app.sessions._sessions) == [HERE.key])
    figures.tried(TRIALS)
    figures.worst("stop of nested subagents", max(seconds_taken), "s")


@pytest.mark.deadline(120)
async def test_many_quick_subagents_stopped_at_any_moment_leave_no_unfinished_row(tmp_path, figures, seed=5):
    """Including those just being accepted: no turn may wait forever."""
    rng = random.Random(seed)

    def answer(seen, request):
        if seen.text.startswith("go"):
            background = rng.random() < 0.2
            return delegate(tasks=[{"goal": f"task {n}"} for n in range(4)], background=background)
        nests = seen.text == "task 1" and "delegate_task" in [tool.name for tool in request.tools]
        return delegate("d", goal="deeper") if nests else "done"

    async with open_subagents(tmp_path, RuleModel(answer)) as harness:
        for trial in range(TRIALS * 4):
            async with harness.sessions.ask(message(f"{trial}", f"go {trial}")) as following:
                await asyncio.sleep(rng.uniform(0, 0.012))
                await harness.sessions.post(HERE.key, Stop("user_stop", "stop_command", following.turn or ""))
                ends = [event.ending async for event in following if isinstance(event, TurnEnded)]
            assert ends[0] in ("stopped", "answered")
            await harness.sessions.wait_idle()
            assert await harness.store.subagents.unfinished() == (), f"trial {trial} of seed {seed}"
        figures.tried(TRIALS * 4)
        assert harness.sessions.subagents._runs == {} and harness.sessions.subagents._parents == {}


@pytest.mark.deadline(60)
async def test_a_turn_with_nested_subagents_can_be_stopped_at_every_point():
    def opens():
        script = [call("delegate_task", goal="look"), call("delegate_task", goal="deeper")]
        return open_agent(model=[*script, call("terminal", command="true"), "deep", "looked", "all done"])

    points = [attempt.point.where async for attempt in every_stop(opens, "go")]
    assert len(points) > 30 and {"in tool terminal", "in tool delegate_task", "in request"} <= {*points}


async def run_and_kill(home, text: str, after: float) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "alipes", "ask", "--yes", text),
        env=environment(home, ALIPES_HOME=str(home)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=home,
    )
    await until(lambda: (home / "alipes.db").exists())
    await asyncio.sleep(after)
    with suppress(ProcessLookupError):  # it ended first
        process.kill()
    await process.wait()


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(2, 20))
async def test_killed_subagents_resume_and_none_is_started_twice(tmp_path, seed):
    rng, home = random.Random(seed), make_home(tmp_path)
    text = call_line("delegate_task", tasks=[{"goal": f"!wait 0.6\n!say did {n}"} for n in range(3)])
    await run_and_kill(home, text, 0.2 + rng.uniform(0, 0.7))
    async with open_app(load_settings(home, {})) as app:
        await app.sessions.wait_idle()
        assert await app.store.subagents.unfinished() == ()
    async with open_store(home) as store:
        sql = "SELECT ending, count(*) FROM turns GROUP BY platform = 'subagent', ending"
        found = await store.database.read(lambda db: db.execute(sql).fetchall())
        if found:  # otherwise it was killed before the turn was accepted
            assert found[0] == ("answered", 1) and found[1:] in ([], [("answered", 3)])
