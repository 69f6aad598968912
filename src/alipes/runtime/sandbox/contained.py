"""Runs commands in a root of their own, which is made once for each conversation.

Two ways of making the root use it: bubblewrap, and the starter itself where bubblewrap is not installed.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

from alipes.runtime.processes.child import Child, Link
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.git_config import GitGuard
from alipes.runtime.sandbox.limits import resource_limits
from alipes.runtime.sandbox.mounts import (
    Place,
    SystemMount,
    find_identities,
    list_kept,
    list_kernel_settings,
    list_places,
    list_system,
)
from alipes.runtime.sandbox.namespaces import NetworkNamespace, NetworkNamespaces
from alipes.runtime.sandbox.policy import SandboxPolicy, is_inside, real_directory
from alipes.runtime.sandbox.starters import Launch, SparePlan, Starter, View

UNSET = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables that name sockets, which do not exist in the sandbox."""
ATTEMPTS = 5
"""How often a root is made before giving up: files of the project may change meanwhile."""
CHECK = CommandScope(session="check", workdir="/usr")


class RootPlan(NamedTuple):
    """Of what a root is made."""

    system: tuple[SystemMount, ...]
    places: tuple[Place, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place.source for place in self.places if place.source))

    def to_wire(self) -> dict[str, Any]:
        """What the starter needs to put the places into the root."""
        numbers = {source: number for number, source in enumerate(self.sources)}
        places = [(place.kind, numbers.get(place.source, -1), place.target) for place in self.places]
        return {"places": places, "count": len(numbers)}


class RootMaker(Protocol):
    kind: str

    async def make_root(self, plan: RootPlan, starter: Starter, user: int) -> Sequence[int]:
        """Make the root with everything in its place; returns its mount and host name namespace. Raises OSError.

        `user`: the user namespace of the conversation.
        """

    def restrict(self, policy: SandboxPolicy, plan: RootPlan) -> Mapping[str, Any]:
        """What else restricts a command: the system call filter and rules of Landlock (see starter.py)."""


class ContainedCommands:
    """Runs each command in the root of its conversation, with processes and temporary folders of its own."""

    def __init__(
        self,
        maker: RootMaker,
        make_policy: Callable[[CommandScope], SandboxPolicy],
        namespaces: NetworkNamespaces,
        guard: OrphanGuard | None,
    ) -> None:
        self._maker, self._make_policy, self._namespaces, self._guard = maker, make_policy, namespaces, guard
        self._git = GitGuard()

    @asynccontextmanager
    async def open(
        self, command: str | Sequence[str], scope: CommandScope, *, cwd: str, env: Mapping[str, str], link: Link
    ) -> AsyncIterator[Child]:
        policy = self._make_policy(scope)
        async with (
            self._namespaces.starters.enter(policy.limits, self._guard) as starter,
            self._namespaces.enter(scope, starter, connected=policy.network != "none") as namespace,
        ):
            policy, plan, view = await self._find_view(policy, scope, starter, namespace)
            launch = Launch(
                ("/bin/bash", "-c", command) if isinstance(command, str) else tuple(command),
                {name: value for name, value in env.items() if name not in UNSET} | dict(policy.environment),
                real_directory(cwd),
                link,
                resource_limits(policy.limits),
            )
            search = env.get("PATH", os.defpath)
            with view.hold():
                child_scope = starter.run(self._plan_spare(policy, plan, view), launch, ends_together=True)
                guard = self._git.open(policy.writable, search, (policy.scratch, policy.private_home))
                async with guard as restored, child_scope as child:
                    child.notes = restored
                    child.is_waiting = partial(self._namespaces.is_asking, scope.session)
                    yield child
                    restored += self._namespaces.take_refusals(scope.session)

    async def prepare(self, scope: CommandScope) -> None:
        """Make the root, and a process that waits in it for the command. Raises OSError."""
        policy = self._make_policy(scope)
        async with (
            self._namespaces.starters.enter(policy.limits, self._guard) as starter,
            self._namespaces.enter(scope, starter, connected=policy.network != "none") as namespace,
        ):
            policy, plan, view = await self._find_view(policy, scope, starter, namespace)
            starter.expect(self._plan_spare(policy, plan, view))

    def _plan_spare(self, policy: SandboxPolicy, plan: RootPlan, view: View) -> SparePlan:
        wanted = {
            "namespaces": len(view.handles),
            "kernel": list_kernel_settings(),
            "again": list_kept(plan.places, plan.system),
            **self._maker.restrict(policy, plan),
        }
        return SparePlan(view, wanted)

    async def _find_view(
        self, policy: SandboxPolicy, scope: CommandScope, starter: Starter, namespace: NetworkNamespace
    ) -> tuple[SandboxPolicy, RootPlan, View]:
        """The view of the conversation; another one if what it was made of has changed. Raises OSError."""
        for attempt in range(ATTEMPTS):
            plan = RootPlan(list_system(), tuple(list_places(policy)))
            identities = find_identities(path for place in plan.places for path in {place.source, place.target} if path)
            made_of = plan, policy.network, identities
            found = self._namespaces.find_view(scope.session, self._maker.kind, (made_of, _find_beneath(plan, policy)))
            if found is not None:
                return policy, plan, found
            try:
                root = await self._maker.make_root(plan, starter, namespace.user)
            except OSError as error:
                if attempt == ATTEMPTS - 1:
                    hidden = policy.private_home and policy.home in str(error)
                    hint = f"Paths in {policy.home} are those of {policy.private_home}." if hidden else ""
                    raise OSError(f"{error}. {hint}".rstrip()) from error
                policy = self._make_policy(scope)
                continue
            network = () if policy.network == "open" else (os.dup(namespace.net),)
            handles = (os.dup(namespace.user), *network, *root)
            made = View(handles, (made_of, _find_beneath(plan, policy)))
            return policy, plan, self._namespaces.add_view(scope.session, self._maker.kind, made)
        raise AssertionError

    async def check(self) -> str:
        """Run a command; the error if it fails."""
        return await try_command(self.open, self._namespaces)


async def try_command(
    open_command: Callable[..., AbstractAsyncContextManager[Child]], namespaces: NetworkNamespaces
) -> str:
    """Run a command that does nothing in a sandbox; the error if it fails."""
    try:
        async with open_command(("true",), CHECK, cwd="/", env={"PATH": os.defpath}, link="output") as child:
            output = b""
            while piece := await child.read():
                output += piece
            await child.wait()
    except OSError as error:
        return str(error)
    finally:
        await namespaces.close(CHECK.session)
    return output.decode(errors="replace").strip() if child.returncode else ""


def _find_beneath(plan: RootPlan, policy: SandboxPolicy) -> tuple[tuple[int, int], ...]:
    """What the places in the home and in /tmp are mounted on: a command may have renamed it."""
    folders = ((policy.home, policy.private_home), ("/tmp", policy.scratch))
    return find_identities(
        source + place.target[len(folder) :]
        for place in plan.places
        for folder, source in folders
        if source and place.target != folder and is_inside(place.target, folder)
    )
