"""Network namespaces of conversations: commands of one conversation share loopback and nothing else."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from alipes.runtime.processes.child import open_child
from alipes.runtime.sandbox import namespace_child
from alipes.runtime.sandbox.backend import CommandScope

PROXY_PORT = 3128
"""Where the egress proxy listens inside each namespace."""
MAX_IDLE = 64
"""Namespaces that are kept although no command uses them."""
START_TIMEOUT_S = 20.0


class NetworkNamespace:
    """The namespace of one conversation. It exists as long as its descriptors are open."""

    def __init__(self, user: int, net: int) -> None:
        self.user, self.net = user, net
        self.commands = 0
        """How many commands run in it."""

    def close(self) -> None:
        os.close(self.user)
        os.close(self.net)


class NetworkNamespaces:
    """Makes a namespace with the first command of a conversation and closes it with the conversation."""

    def __init__(
        self,
        serve: Callable[[socket.socket, CommandScope], None],
        stop: Callable[[str], None],
        *,
        max_idle: int = MAX_IDLE,
    ) -> None:
        """`serve` starts the proxy on a listening socket and owns it; `stop` ends it for a conversation."""
        self._serve, self._stop, self._max_idle = serve, stop, max_idle
        self._open: dict[str, NetworkNamespace] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def enter(self, scope: CommandScope) -> AsyncIterator[NetworkNamespace]:
        """The namespace for a command of `scope`, kept open meanwhile. Raises OSError if none can be made."""
        namespace = await self._find(scope)
        namespace.commands += 1
        try:
            yield namespace
        finally:
            namespace.commands -= 1

    async def _find(self, scope: CommandScope) -> NetworkNamespace:
        async with self._opening.setdefault(scope.session, asyncio.Lock()):
            found = self._open.pop(scope.session, None)
            if found is None:
                *namespaces, listener = await make_namespace()
                found = NetworkNamespace(*namespaces)
                self._serve(socket.socket(fileno=listener), scope)
            self._open[scope.session] = found  # the most recently used is last
        self._close_idle()
        return found

    def _close_idle(self) -> None:
        idle = [session for session, each in self._open.items() if not each.commands]
        for session in idle[: max(0, len(idle) - self._max_idle)]:
            self.close(session)

    def close(self, session: str) -> None:
        """Close the namespace of a conversation that has ended."""
        namespace = self._open.pop(session, None)
        self._opening.pop(session, None)
        if namespace is not None:
            self._stop(session)
            namespace.close()

    def close_all(self) -> None:
        for session in [*self._open]:
            self.close(session)


async def make_namespace() -> tuple[int, int, int]:
    """A new user and network namespace, and a socket that listens on the proxy port in it.

    Raises OSError if the system does not allow it.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            argv = (sys.executable, "-I", "-S", namespace_child.__file__, str(theirs.fileno()), str(PROXY_PORT))
            scope = open_child(argv, cwd="/", env={"PATH": os.defpath}, fds=(theirs.fileno(),))
            async with asyncio.timeout(START_TIMEOUT_S), scope as child:
                theirs.close()
                output = b""
                while piece := await child.read():
                    output += piece
                await child.wait()
        if child.returncode:
            reason = output.decode(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"no network namespace could be made: {reason}")
        _, fds, _, _ = socket.recv_fds(ours, 16, 3)
    if len(fds) != 3:
        raise OSError("no network namespace could be made")
    user, net, listener = fds
    return user, net, listener
