"""What the sandbox adds to a command, measured in turn with the same command on the host."""

import os
import statistics
import tempfile
import time
from pathlib import Path

from alipes.config.settings import SandboxConfig
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope, HostBackend
from alipes.runtime.sandbox.bubblewrap import BubblewrapSandbox
from alipes.runtime.sandbox.landlock import LandlockSandbox
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.tools.sandbox import ProjectSandboxes
from bench.measure import Row

ROUNDS = 60
REACH_MS = 15.0


async def commands() -> list[Row]:
    """`true` in each sandbox against `true` on the host, in turn."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        home, project = Path(folder, "home"), Path(folder, "home", "project")
        project.mkdir(parents=True)
        environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
        projects = ProjectSandboxes(SandboxConfig(), home=str(home), alipes_home=home / ".alipes", environ=environ)
        namespaces, host = NetworkNamespaces(), HostBackend()
        scope = CommandScope("bench", str(project))
        try:
            for kind in (BubblewrapSandbox, LandlockSandbox):
                sandbox = kind(projects.make_policy, namespaces)
                if not await sandbox.check():
                    rows.append(await _compare(kind.__name__, sandbox, host, scope))
        finally:
            await namespaces.close_all()
    return rows


async def _compare(name: str, sandbox: CommandBackend, host: CommandBackend, scope: CommandScope) -> Row:
    await _run(sandbox, scope)
    times = [(await _run(sandbox, scope), await _run(host, scope)) for _ in range(ROUNDS)]
    ours, bare = (statistics.median(side) for side in zip(*times, strict=True))
    added = ours - bare
    what = f"a command in {name.removesuffix('Sandbox')}, added ms"
    return Row(what, f"{added:.1f} ms", f"{bare:.1f} ms", f"{ours / bare:.1f}", f"{REACH_MS:.0f} ms", added <= REACH_MS)


async def _run(backend: CommandBackend, scope: CommandScope) -> float:
    began = time.perf_counter()
    env = {"PATH": os.environ["PATH"]}
    async with backend.open("true", scope, cwd=scope.workdir, env=env) as child:
        while await child.read():
            pass
        await child.wait()
    return (time.perf_counter() - began) * 1000
