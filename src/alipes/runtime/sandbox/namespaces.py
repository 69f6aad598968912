"""Network namespaces of conversations: commands of one conversation share loopback and nothing else."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from alipes.kernel.turns import Turn
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


class ConnectionServer(Protocol):
    """Serves the connections that commands make out of their namespace: the egress proxy."""

    def serve(self, listener: socket.socket, scope: CommandScope) -> None:
        """Serve the connections of a conversation on `listener`, and own it."""

    def set_turn(self, session: str, turn: Turn | None) -> None:
        """The turn whose person is asked from now on."""

    def take_refusals(self, session: str) -> tuple[str, ...]:
        """Sentences about connections that were refused since the last time."""

    def is_asking(self, session: str) -> bool:
        """True if a connection of the conversation waits for a person's answer."""

    async def close_scope(self, session: str) -> None:
        """Close the listener and the connections of a conversation."""


class NoConnections:
    """Refuses all connections."""

    def serve(self, listener: socket.socket, scope: CommandScope) -> None:
        listener.close()

    def set_turn(self, session: str, turn: Turn | None) -> None: ...

    def take_refusals(self, session: str) -> tuple[str, ...]:
        return ()

    def is_asking(self, session: str) -> bool:
        return False

    async def close_scope(self, session: str) -> None: ...


class NetworkNamespaces:
    """Makes a namespace with the first command of a conversation and closes it with the conversation."""

    def __init__(self, server: ConnectionServer | None = None, *, max_idle: int = MAX_IDLE) -> None:
        self._server, self._max_idle = server or NoConnections(), max_idle
        self._open: dict[tuple[str, bool], NetworkNamespace] = {}
        """By conversation, and whether connections may be made out of it."""
        self._opening: dict[tuple[str, bool], asyncio.Lock] = {}

    @asynccontextmanager
    async def enter(self, scope: CommandScope, *, connected: bool = True) -> AsyncIterator[NetworkNamespace]:
        """The namespace for a command of `scope`, kept open meanwhile. Raises OSError if none can be made.

        Without `connected` it is another one, out of which nothing leads.
        """
        namespace = await self._find(scope, connected)
        if connected:
            self._server.set_turn(scope.session, scope.turn)
        namespace.commands += 1
        try:
            yield namespace
        finally:
            namespace.commands -= 1

    def set_turn(self, session: str, turn: Turn | None) -> None:
        """The turn whose person is asked about connections from now on."""
        self._server.set_turn(session, turn)

    def take_refusals(self, session: str) -> tuple[str, ...]:
        """Sentences about connections that were refused since the last time."""
        return self._server.take_refusals(session)

    def is_asking(self, session: str) -> bool:
        """True if a connection of the conversation waits for a person's answer."""
        return self._server.is_asking(session)

    async def _find(self, scope: CommandScope, connected: bool) -> NetworkNamespace:
        key = (scope.session, connected)
        async with self._opening.setdefault(key, asyncio.Lock()):
            found = self._open.pop(key, None)
            if found is None:
                *namespaces, listener = await make_namespace()
                found = NetworkNamespace(*namespaces)
                server = self._server if connected else NoConnections()
                server.serve(socket.socket(fileno=listener), scope)
            self._open[key] = found  # the most recently used is last
        await self._close_idle()
        return found

    async def _close_idle(self) -> None:
        idle = [key for key, each in self._open.items() if not each.commands]
        for key in idle[: max(0, len(idle) - self._max_idle)]:
            await self._close(key)

    async def session_left(self, session: str) -> None:
        """Hook: the conversation has ended."""
        await self.close(session)

    async def close(self, session: str) -> None:
        """Close the namespaces of a conversation."""
        for connected in (True, False):
            await self._close((session, connected))

    async def close_all(self) -> None:
        for key in [*self._open]:
            await self._close(key)

    async def _close(self, key: tuple[str, bool]) -> None:
        namespace = self._open.pop(key, None)
        self._opening.pop(key, None)
        if namespace is not None:
            namespace.close()
            if key[1]:
                await self._server.close_scope(key[0])


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
