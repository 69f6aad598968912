"""One crash trial: kill the process with -9 at some moment of a turn, start another, check the result.

The turn has ten steps, each a write that appends its number to a file. A finished step must not be
repeated, the turn must reach its end, and the model server (which rejects a transcript with an
unanswered call) must never have received an invalid one.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from alipes.store.sqlite.store import open_store
from tests.world.environment import environment as decided
from tests.world.model_server import ModelProcess
from tests.world.random_delays import check_transcript

STEPS = 10
PLAN = {
    "replies": [
        {"type": "calls", "calls": [{"name": "terminal", "args": {"command": f"echo {n} >> steps"}}], "delay": 0.002}
        for n in range(STEPS)
    ]
    + [{"type": "say", "text": "All ten steps are done.", "pieces": 6, "delay": 0.002}],
    "by": {"hello": [{"type": "say", "text": "hi"}]},
}


class Trial(NamedTuple):
    """The result of one killed process and its successor."""

    finished_first: bool
    """The first process finished before it was killed; such a trial proves nothing."""
    ending: str
    repeated: tuple[str, ...]
    unknown: int
    """Calls reported to the model as unknown: at most the one that was in flight."""
    rejected: int
    """Requests the model server found invalid."""
    detail: str


def environment(home: Path) -> dict[str, str]:
    """Without the scripted provider of the suites, because benchmarks measure the start of the program."""
    return decided(home.parent, ALIPES_HOME=str(home), ALIPES_TEST_PROVIDER="")


def configure(home: Path, url: str) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(
        f'model = "loop/m"\nmax_steps = 100\n[providers.loop]\napi = "openai-chat"\nbase_url = "{url}"\n'
    )


async def alipes(home: Path, *argv: str, cwd: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "alipes",
        *argv,
        env=environment(home),
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run_trial(folder: Path, server: ModelProcess, after: float) -> Trial:
    """Kill the first process `after` seconds from its first request to the model."""
    home, work = folder / "home", folder / "work"
    work.mkdir(parents=True)
    configure(home, server.url("openai-chat"))
    before = server.log.stat().st_size
    first = await alipes(home, "ask", "--session", "long", "--yes", "go", cwd=work)
    while server.log.stat().st_size == before and first.returncode is None:
        await asyncio.sleep(0.005)
    try:
        await asyncio.wait_for(first.wait(), after)
    except TimeoutError:
        with suppress(ProcessLookupError):  # it ended at the same moment
            first.kill()
    await first.communicate()
    second = await alipes(home, "ask", "--session", "other", "hello", cwd=work)
    _, errors = await second.communicate()
    rejected = server.log.read_bytes()[before:].count(b'"kind":"rejected"')
    report = await _inspect(home, work, first.returncode == 0, second.returncode, errors.decode())
    return report._replace(rejected=rejected)


async def _inspect(home: Path, work: Path, finished_first: bool, status: int | None, errors: str) -> Trial:
    lines = (work / "steps").read_text().split() if (work / "steps").exists() else []
    repeated = tuple(sorted({line for line in lines if lines.count(line) > 1}))
    async with open_store(home) as store:
        (session,) = [facts for facts in await store.archive.sessions() if facts.key.endswith(":long")]
        messages = await store.archive.messages(session.id)
        check_transcript(messages)
        results = [part for message in messages if message.role == "tool" for part in message.parts]
        unknown = sum(result.outcome == "unknown" for result in results)
        done = messages[-1].text == "All ten steps are done."
    return Trial(finished_first, "answered" if done and status == 0 else "lost", repeated, unknown, 0, errors)
