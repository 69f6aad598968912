"""Namespaces of conversations: commands of one conversation share loopback and files, and nothing else."""

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from alipes.kernel.turns import Turn
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.starters import Starter, Starters, View

PROXY_PORT = 3128
"""Where the egress proxy listens inside each namespace."""
MAX_IDLE = 64
"""Namespaces that are kept although no command uses them."""


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
        self.starters = Starters()
        self._views: dict[tuple[str, str], View] = {}
        """By conversation and kind."""
        self._mounts = MountWatch()

    @asynccontextmanager
    async def enter(
        self, scope: CommandScope, starter: Starter, *, connected: bool = True
    ) -> AsyncIterator[NetworkNamespace]:
        """The namespace for a command of `scope`, kept open meanwhile. Raises OSError if none can be made.

        Without `connected` it is another one, out of which nothing leads.
        """
        namespace = await self._find(scope, starter, connected)
        if connected:
            self._server.set_turn(scope.session, scope.turn)
        namespace.commands += 1
        try:
            yield namespace
        finally:
            namespace.commands -= 1

    def find_view(self, session: str, kind: str, made_of: object) -> View | None:
        """The view of a conversation, if nothing has changed since it was made."""
        if self._mounts.has_changed():
            for key in [*self._views]:
                self._close_view(key)
        found = self._views.get((session, kind))
        if found is not None and found.made_of != made_of:
            self._close_view((session, kind))
            return None
        return found

    def add_view(self, session: str, kind: str, view: View) -> View:
        """Keep a view for the next commands of the conversation."""
        self._close_view((session, kind))
        self._views[session, kind] = view
        return view

    def _close_view(self, key: tuple[str, str]) -> None:
        if view := self._views.pop(key, None):
            self.starters.forget(view)
            view.close()

    def set_turn(self, session: str, turn: Turn | None) -> None:
        """The turn whose person is asked about connections from now on."""
        self._server.set_turn(session, turn)

    def take_refusals(self, session: str) -> tuple[str, ...]:
        """Sentences about connections that were refused since the last time."""
        return self._server.take_refusals(session)

    def is_asking(self, session: str) -> bool:
        """True if a connection of the conversation waits for a person's answer."""
        return self._server.is_asking(session)

    async def _find(self, scope: CommandScope, starter: Starter, connected: bool) -> NetworkNamespace:
        key = (scope.session, connected)
        async with self._opening.setdefault(key, asyncio.Lock()):
            found = self._open.pop(key, None)
            if found is None:
                user, net, listener = await starter.make({"make": "network", "port": PROXY_PORT})
                found = NetworkNamespace(user, net)
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
        for key in [key for key in self._views if key[0] == session]:
            self._close_view(key)
        for connected in (True, False):
            await self._close((session, connected))

    async def close_all(self) -> None:
        """Close everything, and end the starters; they start again with the next command."""
        self.starters.close()
        for view in [*self._views]:
            self._close_view(view)
        self._mounts.close()
        for key in [*self._open]:
            await self._close(key)

    async def _close(self, key: tuple[str, bool]) -> None:
        namespace = self._open.pop(key, None)
        self._opening.pop(key, None)
        if namespace is not None:
            namespace.close()
            if key[1]:
                await self._server.close_scope(key[0])


class MountWatch:
    """Tells whether something was mounted or unmounted on this machine: a view does not show it."""

    def __init__(self) -> None:
        self._handle = -1
        self._poll = select.poll()

    def has_changed(self) -> bool:
        """True if something has changed since the last time. The first time there is nothing to compare."""
        if self._handle < 0:
            self._handle = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            self._poll.register(self._handle, select.POLLPRI | select.POLLERR)
            self._poll.poll(0)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        if self._handle >= 0:
            self._poll.unregister(self._handle)
            os.close(self._handle)
            self._handle = -1
