"""What the sandbox adds to a command, measured in turn with the same command without one."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

from alipes.config.settings import SandboxConfig
from alipes.runtime.processes.process_tree import open_orphan_guard
from alipes.runtime.sandbox.backend import CanPrepareCommands, CommandBackend, CommandScope, HostBackend
from alipes.runtime.sandbox.bubblewrap import BubblewrapSandbox
from alipes.runtime.sandbox.landlock import LandlockSandbox
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.tools.sandbox import ProjectSandboxes
from bench.measure import Row

ROUNDS = 80
CALL_S = 0.1
"""How long a model writes a short call: 20 tokens at 200 tokens a second."""
REACH_MS = {"host": 2.0, "bubblewrap": 3.0, "Landlock": 3.0, "Landlock alone": 6.0}
FIRST_REACH_MS, NEXT_REACH_MS = 40.0, 20.0


async def commands() -> list[Row]:
    """`true` as a plain child process, on the host and in each sandbox, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        home, project = Path(folder, "home"), Path(folder, "home", "project")
        project.mkdir(parents=True)
        environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
        projects = ProjectSandboxes(SandboxConfig(), home=str(home), alipes_home=home / ".alipes", environ=environ)
        async with open_orphan_guard(Path(folder, "run")) as guard:
            namespaces = {name: NetworkNamespaces() for name in ("bubblewrap", "Landlock", "Landlock alone")}
            make = partial(LandlockSandbox, projects.make_policy, guard=guard)
            backends: dict[str, CommandBackend] = {
                "host": HostBackend(guard),
                "bubblewrap": BubblewrapSandbox(projects.make_policy, namespaces["bubblewrap"], guard=guard),
                "Landlock": make(namespaces["Landlock"]),
                "Landlock alone": make(namespaces["Landlock alone"], isolate=False),
            }
            try:
                return [row async for row in _measure(backends, namespaces, str(project))]
            finally:
                for each in namespaces.values():
                    await each.close_all()


async def _measure(
    backends: dict[str, CommandBackend], namespaces: dict[str, NetworkNamespaces], project: str
) -> AsyncIterator[Row]:
    for name in [*namespaces]:
        if problem := await backends[name].check():
            print(f"{name}: {problem}")
            del backends[name]
            continue
        for prepared in (False, True):
            await namespaces[name].close_all()
            first, other = [
                await _time_first(backends[name], CommandScope(session, project), prepared=prepared)
                for session in ("first", "other")
            ]
            while_writing = " prepared while its call is written" if prepared else ""
            yield _row(f"first command{while_writing} in {name}, ms", first, 0.0, FIRST_REACH_MS)
            yield _row(f"first of another conversation{while_writing} in {name}, ms", other, 0.0, NEXT_REACH_MS)
    scope = CommandScope("bench", project)
    runs = {"raw": _run_raw} | {name: partial(_run, backend, scope) for name, backend in backends.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(await _time(run))
    raw = statistics.median(times["raw"])
    for name in backends:
        yield _row(f"a command in {name}, added ms", statistics.median(times[name]) - raw, raw, REACH_MS[name])


def _row(what: str, found: float, raw: float, reach: float) -> Row:
    ratio = (found + raw) / raw if raw else found / reach
    return Row(what, f"{found:.1f} ms", f"{raw:.1f} ms", f"{ratio:.1f}", f"{reach:.0f} ms", found <= reach)


async def _time_first(backend: CommandBackend, scope: CommandScope, *, prepared: bool) -> float:
    if prepared:
        assert isinstance(backend, CanPrepareCommands)
        async with asyncio.TaskGroup() as group:
            group.create_task(backend.prepare(scope))
            await asyncio.sleep(CALL_S)
    return await _time(partial(_run, backend, scope))


async def _time(run: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await run()
    return (time.perf_counter() - began) * 1000


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
