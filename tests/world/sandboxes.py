"""Opens each command backend for tests; the only place that knows how they are constructed."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from alipes.config.settings import SandboxConfig
from alipes.runtime.processes.process_tree import OrphanGuard, open_orphan_guard
from alipes.runtime.sandbox.backend import CommandBackend, HostBackend
from alipes.runtime.sandbox.bubblewrap import BubblewrapSandbox
from alipes.runtime.sandbox.container import ContainerBackend, ContainerSettings
from alipes.runtime.sandbox.landlock import LandlockSandbox
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.sandbox.policy import make_private_directory, short_hash
from alipes.runtime.sandbox.ssh import SshBackend, SshSettings
from alipes.tools.sandbox import ProjectSandboxes, SandboxExtras
from tests.world.container_image import ARGUMENTS, IMAGE, open_container_engine
from tests.world.environment import require
from tests.world.ssh_server import DESTINATION, open_other_machine

SANDBOXES = {
    "bubblewrap": BubblewrapSandbox,
    "landlock": LandlockSandbox,
    "landlock alone": partial(LandlockSandbox, isolate=False),
}
BACKENDS = ("host", "bubblewrap", "landlock", "podman", "ssh")


@asynccontextmanager
async def open_backend(
    name: str,
    *,
    home: Path,
    alipes_home: Path | None = None,
    config: SandboxConfig | None = None,
    machine: Mapping[str, Any] | None = None,
    extras: SandboxExtras | None = None,
) -> AsyncIterator[CommandBackend]:
    """The backend `name` for a user whose home is `home`, with the state directory `alipes_home` or `home/.alipes`.

    `machine`: what `open_machine` returned. Skips the test if something is not installed.
    """
    alipes_home = alipes_home or home / ".alipes"
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    projects = ProjectSandboxes(
        config or SandboxConfig(), home=str(home), alipes_home=alipes_home, environ=environ, extras=extras
    )
    async with scratch_removed(alipes_home), open_orphan_guard(alipes_home / "run") as guard:
        if name == "bubblewrap":
            require("bwrap")
        match name:
            case "host":
                yield HostBackend(guard)
            case "bubblewrap" | "landlock" | "landlock alone":
                async with _open_sandbox(SANDBOXES[name], projects, guard) as sandbox:
                    yield sandbox
            case "podman":
                assert machine is not None
                async with ContainerBackend(machine["settings"], projects.make_policy, guard) as containers:
                    yield containers
            case "ssh":
                assert machine is not None
                folders = (extras or SandboxExtras()).list_folders
                async with SshBackend(machine["settings"], guard, folders) as ssh:
                    yield ssh


@asynccontextmanager
async def scratch_removed(alipes_home: Path) -> AsyncIterator[None]:
    """Remove the scratch directories of a home afterwards; they are outside of it."""
    try:
        yield
    finally:
        shutil.rmtree(make_private_directory(short_hash(os.path.realpath(alipes_home))))


@contextmanager
def open_machine(name: str, folder: Path) -> Iterator[Mapping[str, Any]]:
    """What a backend needs besides the program: an image, another machine."""
    if name == "podman":
        with open_container_engine() as engine:
            yield {"settings": ContainerSettings("podman", IMAGE, engine.environment, arguments=ARGUMENTS)}
    elif name == "ssh":
        with open_other_machine(folder / "machine") as server:
            there = str(server.folder / "there")
            options = ("-F", server.client_config)
            yield {"settings": SshSettings(DESTINATION, there, server.environment, options=options)}
    else:
        if name == "bubblewrap":
            require("bwrap")
        yield {}


@asynccontextmanager
async def _open_sandbox(
    kind: Callable[..., CommandBackend], projects: ProjectSandboxes, guard: OrphanGuard
) -> AsyncIterator[CommandBackend]:
    """Without a proxy: nothing leads out of its network."""
    namespaces = NetworkNamespaces()
    try:
        yield kind(projects.make_policy, namespaces, guard=guard)
    finally:
        await namespaces.close_all()
