"""Where commands run: the port that every backend implements, and the host backend.

Backends: `sandbox` (bubblewrap or Landlock), `host`, `ssh`, `docker` and `podman`. `tests/contract` runs the
same breach suite on each.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from msgspec import Struct

from alipes.kernel.turns import Turn
from alipes.runtime.processes.child import Child, Link, open_child
from alipes.runtime.processes.process_tree import OrphanGuard


class CommandScope(Struct, frozen=True):
    """For whom a command runs; decides its files, scratch directory and network."""

    session: str = ""
    """The conversation."""
    workdir: str = ""
    """The project directory, which commands may change."""
    turn: Turn | None = None
    """The turn it runs for, whose person can be asked; None if there is none."""
    outside: bool = False
    """Run on the host: a person approved exactly this command."""
    write: tuple[str, ...] = ()
    """More paths that a sandboxed command may change: listed by the operator, or approved for this command."""
    read: tuple[str, ...] = ()
    """More paths that it may read: the program itself, if it is not installed for everybody."""
    protect: tuple[str, ...] = ()
    """Files and folders in what it may change that it can only read."""
    call: str = ""
    """The tool call that it runs for."""
    title: str = ""
    """Its name in questions to a person; empty: the command itself."""


class CommandBackend(Protocol):
    @property
    def name(self) -> str:
        """`sandbox`, `host`, `ssh`, `docker` or `podman`."""

    @property
    def contains(self) -> bool:
        """True if commands cannot affect the rest of this machine."""

    async def check(self) -> str:
        """Why it does not work here; empty if it works."""

    def open(
        self,
        command: str | Sequence[str],
        scope: CommandScope,
        *,
        cwd: str,
        env: Mapping[str, str],
        link: Link = "output",
    ) -> AbstractAsyncContextManager[Child]:
        """Run an argv or a bash command line. Leaving the scope ends it and all its descendants.

        Raises OSError if it cannot be started.
        """

    def host_path(self, path: str, scope: CommandScope) -> str:
        """Where an absolute path that commands see is on this machine."""

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        """A directory that commands share with us: its path here, and as they see it. Raises OSError."""


@runtime_checkable
class CanPrepareCommands(Protocol):
    """A backend whose first command takes longer, unless it is prepared."""

    async def prepare(self, scope: CommandScope) -> None:
        """Make what commands of `scope` run in. Raises OSError if it cannot be made."""


@runtime_checkable
class ExpectsCommands(Protocol):
    """A backend that prepares for a command while its call is still being written."""

    def expect(self, scope: CommandScope) -> None:
        """A command of `scope` may follow soon: prepare for it in the background."""


class HostBackend:
    """Runs commands directly on this machine, with all rights of the user."""

    name, contains = "host", False

    def __init__(self, guard: OrphanGuard | None = None) -> None:
        self._guard = guard

    async def check(self) -> str:
        return ""

    def open(
        self,
        command: str | Sequence[str],
        scope: CommandScope,
        *,
        cwd: str,
        env: Mapping[str, str],
        link: Link = "output",
    ) -> AbstractAsyncContextManager[Child]:
        return open_child(command, cwd=cwd, env=env, link=link, keeper=self._guard)

    def host_path(self, path: str, scope: CommandScope) -> str:
        return path

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        folder = str(self._guard.folder()) if self._guard is not None else tempfile.gettempdir()
        return folder, folder
