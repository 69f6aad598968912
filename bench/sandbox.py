"""What the sandbox adds to a command, measured in turn with the same command without one: medians of five runs.

`python -m bench.sandbox KIND FOLDER` runs a command with daemons there, to be killed.
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.e2e.program import children

from alipes.config.settings import SandboxConfig
from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.sandbox.backend import CanPrepareCommands, CommandBackend, CommandScope, HostBackend
from alipes.runtime.sandbox.bubblewrap import BubblewrapSandbox
from alipes.runtime.sandbox.landlock import LandlockSandbox
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.tools.sandbox import ProjectSandboxes
from bench.figures import ALIPES, HERE, PYTHON, world
from bench.measure import Row, run

RUNS, TIMES, ROUNDS = 5, 40, 30
CALL_S = 0.1
"""How long a model writes a short call: 20 tokens at 200 tokens a second."""
IDLE_S = 3.0
SANDBOXES = ("bubblewrap", "Landlock", "Landlock alone")
REACH_MS = {"host": 2.0, "bubblewrap": 3.0, "Landlock": 3.0, "Landlock alone": 6.0}
FIRST_REACH_MS, NEXT_REACH_MS, ROUND_REACH_MS = 40.0, 20.0, 5.0
DAEMONS_REACH_MS, STUBBORN_REACH_MS, KILLED_REACH_MS = 5.0, 40.0, 100.0
PRIVATE_REACH_MB = 2.0
SLEEP = "sleep 86399.25"
"""What daemons of a measured command run."""
DAEMONS = f"setsid {SLEEP} & (setsid {SLEEP} &); echo up; {SLEEP}"
STUBBORN = (
    f"trap '' TERM; env -i setsid {SLEEP} & (trap '' TERM; setsid env -i {SLEEP} &); echo up; while :; do {SLEEP}; done"
)


class Sandbox(NamedTuple):
    backend: CommandBackend
    namespaces: NetworkNamespaces


@asynccontextmanager
async def open_sandboxes(folder: Path) -> AsyncIterator[tuple[dict[str, Sandbox], str]]:
    """All that work here, and a project."""
    home, project = folder / "home", folder / "home" / "project"
    project.mkdir(parents=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    projects = ProjectSandboxes(SandboxConfig(), home=str(home), alipes_home=home / ".alipes", environ=environ)
    async with open_orphan_guard(folder / "run") as guard:
        found = {"host": Sandbox(HostBackend(guard), NetworkNamespaces())}
        kinds: tuple[Callable[..., CommandBackend], ...] = (
            BubblewrapSandbox,
            LandlockSandbox,
            partial(LandlockSandbox, isolate=False),
        )
        for name, kind in zip(SANDBOXES, kinds, strict=True):
            namespaces = NetworkNamespaces()
            found[name] = Sandbox(kind(projects.make_policy, namespaces, guard=guard), namespaces)
        try:
            for name in SANDBOXES:
                if problem := await found[name].backend.check():
                    print(f"{name}: {problem}")
                    del found[name]
            yield found, str(project)
        finally:
            for each in found.values():
                await each.namespaces.close_all()


async def commands() -> list[Row]:
    """`true` as a plain child process, on the host and in each sandbox, in turn; then their ends, and whole rounds."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_sandboxes(Path(folder)) as (sandboxes, project):
            times = defaultdict[str, list[float]](list)
            for _ in range(RUNS):
                await _time_run(sandboxes, project, times)
            rows = [*_list_rows(sandboxes, times)]
            rows += [
                row for name in SANDBOXES if name in sandboxes for row in await _measure_idle(sandboxes, name, project)
            ]
        rows += [_measure_killed(name) for name in sandboxes if name != "host"]
    return [*rows, *await _measure_rounds()]


async def _time_run(sandboxes: Mapping[str, Sandbox], project: str, times: dict[str, list[float]]) -> None:
    for name in [name for name in SANDBOXES if name in sandboxes]:
        backend, namespaces = sandboxes[name]
        for prepared in (False, True):
            await namespaces.close_all()
            for session in ("first", "other"):
                found = await _time_first(backend, CommandScope(session, project), prepared=prepared)
                times[f"{session} {prepared} {name}"].append(found)
    scope, some = CommandScope("bench", project), defaultdict[str, list[float]](list)
    runs = {"raw": _run_raw} | {name: partial(_run, each.backend, scope) for name, each in sandboxes.items()}
    for _ in range(TIMES):
        for name, act in runs.items():
            some[name].append(await _time(act))
    for name, found in some.items():
        times[f"command {name}"].append(statistics.median(found))
    for name, (backend, _) in sandboxes.items():
        times[f"daemons {name}"].append(await _time_stop(backend, scope, DAEMONS))
        times[f"stubborn {name}"].append(await _time_stop(backend, scope, STUBBORN))


def _list_rows(sandboxes: Mapping[str, Sandbox], times: Mapping[str, list[float]]) -> Iterator[Row]:
    raw = statistics.median(times["command raw"])
    for name in sandboxes:
        added = statistics.median(times[f"command {name}"]) - raw
        yield _row(f"a command in {name}, added ms", added, raw, REACH_MS[name])
    for name in [name for name in SANDBOXES if name in sandboxes]:
        for session, reach in (("first", FIRST_REACH_MS), ("other", NEXT_REACH_MS)):
            what = "the very first command" if session == "first" else "first command of a conversation"
            for prepared in (True, False):
                suffix = ", ms" if prepared else ", call at once, ms"
                found = statistics.median(times[f"{session} {prepared} {name}"])
                yield _row(f"{what} in {name}{suffix}", found, 0.0, reach, asked=prepared)
    for name in sandboxes:
        yield _row(
            f"stop with daemons in {name}, ms", statistics.median(times[f"daemons {name}"]), 0.0, DAEMONS_REACH_MS
        )
        found = statistics.median(times[f"stubborn {name}"])
        yield _row(f"stop of a stubborn command in {name}, ms", found, 0.0, STUBBORN_REACH_MS)


def _row(what: str, found: float, raw: float, reach: float, *, asked: bool = True) -> Row:
    """`asked`: whether a goal is set for it; other figures are for information."""
    ratio = (found + raw) / raw if raw else found / reach
    goal = f"{reach:.0f} ms" if asked else ""
    return Row(what, f"{found:.1f} ms", f"{raw:.1f} ms", f"{ratio:.1f}", goal, found <= reach or not asked)


async def _time_first(backend: CommandBackend, scope: CommandScope, *, prepared: bool) -> float:
    """`prepared`: while the model writes the call, as in a turn."""
    if prepared:
        assert isinstance(backend, CanPrepareCommands)
        async with asyncio.TaskGroup() as group:
            group.create_task(backend.prepare(scope))
            await asyncio.sleep(CALL_S)
    return await _time(partial(_run, backend, scope))


async def _time(act: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await act()
    return (time.perf_counter() - began) * 1000


async def _time_stop(backend: CommandBackend, scope: CommandScope, script: str) -> float:
    env = {"PATH": os.environ["PATH"]}
    async with backend.open(script, scope, cwd=scope.workdir, env=env) as child:
        await child.read()
        await asyncio.sleep(0.05)  # until its daemons run
        began = time.perf_counter()
    took = (time.perf_counter() - began) * 1000
    assert not find_sleepers(), "a daemon is left"
    return took


async def _measure_idle(sandboxes: Mapping[str, Sandbox], name: str, project: str) -> list[Row]:
    """The processes that are kept for the next command: their memory, and how often they wake up."""
    for each in sandboxes.values():
        await each.namespaces.close_all()
    before = {*children(os.getpid())}
    await _run(sandboxes[name].backend, CommandScope("idle", project))
    await asyncio.sleep(1)  # until what made the sandbox has ended
    kept = [pid for pid in children(os.getpid()) if pid not in before]
    private, woken = sum(map(_private_mb, kept)), sum(map(_count_switches, kept))
    await asyncio.sleep(IDLE_S)
    woken = sum(map(_count_switches, kept)) - woken
    return [
        Row(
            f"idle in {name}, private",
            f"{private:.2f} MB",
            "",
            "",
            f"{PRIVATE_REACH_MB:g} MB",
            private <= PRIVATE_REACH_MB,
        ),
        Row(f"idle in {name}, wake-ups in {IDLE_S:g} s", str(woken), "", "", "0", woken == 0),
    ]


def _private_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except ProcessLookupError:  # it has ended, and is reaped with the next command
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def _count_switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def find_sleepers() -> list[int]:
    wanted = "\0".join(SLEEP.split()).encode()
    found = list[int]()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and wanted in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def _measure_killed(name: str) -> Row:
    """How long after `kill -9` of alipes something of a command is left."""
    took = list[float]()
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            argv = [PYTHON, "-m", "bench.sandbox", name, folder]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=HERE.parent) as process:
                assert process.stdout is not None
                process.stdout.readline()
                assert find_sleepers()
                began = time.perf_counter()
                process.send_signal(signal.SIGKILL)
                while find_sleepers():
                    time.sleep(0.002)
                took.append((time.perf_counter() - began) * 1000)
    asked = name in ("bubblewrap", "Landlock")
    return _row(f"left after kill -9 in {name}, until ms", statistics.median(took), 0.0, KILLED_REACH_MS, asked=asked)


async def _measure_rounds() -> list[Row]:
    """A whole round of `alipes ask`: the model calls `terminal`, its result goes back."""
    call = {"type": "calls", "calls": [{"name": "terminal", "args": {"command": "true"}}]}
    times = defaultdict[str, list[float]](list)
    async with world([call] * ROUNDS + [{"type": "say", "text": "done"}]) as (folder, server, env):
        config = folder / "home" / "config.toml"
        text = config.read_text()
        raw = [PYTHON, str(HERE / "raw_rounds.py"), server.url("openai-chat")]
        for lap in range(RUNS + 1):
            for name in ("raw", "host", "sandbox"):
                backend = "auto" if name == "sandbox" else "host"
                config.write_text(f'{text}\n[sandbox]\nbackend = "{backend}"\n')
                before = len(server.log_lines("request"))
                argv = raw if name == "raw" else [ALIPES, "ask", "go"]
                done = await asyncio.to_thread(run, argv, env, folder)
                assert done.status == 0, done.stderr
                asked = [line["time"] for line in server.log_lines("request")][before:]
                if lap:
                    times[name].append((asked[-1] - asked[0]) / ROUNDS * 1000)
    limit = statistics.median(times["raw"])
    return [
        _row(f"a round of alipes ask, {name}, added ms", statistics.median(times[name]) - limit, limit, ROUND_REACH_MS)
        for name in ("host", "sandbox")
    ]


async def _run_raw() -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_shell("true", stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    await process.communicate()


async def _run(backend: CommandBackend, scope: CommandScope) -> None:
    env = {"PATH": os.environ["PATH"]}
    async with backend.open("true", scope, cwd=scope.workdir, env=env) as child:
        while await child.read():
            pass
        await child.wait()


async def _run_until_killed(name: str, folder: Path) -> None:
    async with open_sandboxes(folder) as (sandboxes, project):
        env, scope = {"PATH": os.environ["PATH"]}, CommandScope("killed", project)
        async with sandboxes[name].backend.open(DAEMONS, scope, cwd=project, env=env) as child:
            await child.read()
            await asyncio.sleep(0.3)
            print("up", flush=True)
            await child.wait()


if __name__ == "__main__":
    asyncio.run(_run_until_killed(sys.argv[1], Path(sys.argv[2])))
