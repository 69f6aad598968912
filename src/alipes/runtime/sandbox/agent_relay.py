"""Lets sandboxed programs log in with the user's SSH agent after a yes; keys are never readable.

Commands see a socket of ours. Only listing identities and signatures for a login are passed on, and those only to the
program that has made the connection: nothing else can be signed, such as a file or a commit.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

from msgspec import Struct

from alipes.kernel.turns import Turn
from alipes.runtime.process_lock import short_socket_path
from alipes.runtime.sandbox.backend import CommandScope

REQUEST_IDENTITIES, SIGN_REQUEST = 11, 13
FAILURE = struct.pack(">IB", 1, 5)
MAX_MESSAGE_BYTES = 256 * 1024
_USERAUTH_REQUEST = 50
_PUBLICKEY = (b"publickey", b"publickey-hostbound-v00@openssh.com")
_PEER = struct.Struct("3i")
"""Process, user and group at the other end of a socket."""


class SshLogin(Struct, frozen=True):
    """A program wants to log in to a server with a key."""

    pid: int
    """Of the program."""
    session: bytes
    """Names the connection to the server; only its two ends know it."""


class SshAgentRelay:
    """Serves one socket per conversation; its tasks end with it."""

    def __init__(self, agent: str, may_sign: Callable[[CommandScope, SshLogin], Awaitable[bool]]) -> None:
        """`agent`: path of the user's agent. `may_sign` asks the person, or knows the answer."""
        self._agent, self._may_sign = agent, may_sign
        self._group = asyncio.TaskGroup()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scopes: dict[str, CommandScope] = {}

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        for session in [*self._tasks]:
            await self.close_scope(session)
        await self._group.__aexit__(*error)

    def serve(self, path: str, scope: CommandScope) -> None:
        """Serve a conversation on a new socket at `path`. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        with short_socket_path(path) as name:
            listener.bind(name)
        listener.listen()
        listener.setblocking(False)
        self._scopes[scope.session] = scope
        task = self._tasks[scope.session] = self._group.create_task(self._accept(listener, scope.session))
        task.add_done_callback(lambda _: listener.close())

    def set_turn(self, session: str, turn: Turn | None) -> None:
        """The turn whose person is asked from now on."""
        if known := self._scopes.get(session):
            self._scopes[session] = CommandScope(known.session, known.workdir, turn)

    async def close_scope(self, session: str) -> None:
        """Close the socket and the connections of a conversation."""
        task = self._tasks.pop(session, None)
        self._scopes.pop(session, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _accept(self, listener: socket.socket, session: str) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as connections:
            while True:
                client, _ = await loop.sock_accept(listener)
                connections.create_task(self._relay(client, session))

    async def _relay(self, client: socket.socket, session: str) -> None:
        loop = asyncio.get_running_loop()
        with client, socket.socket(socket.AF_UNIX) as agent, suppress(OSError, EOFError):
            agent.setblocking(False)
            await loop.sock_connect(agent, self._agent)
            while True:
                message = await _read_message(client)
                if await self._is_allowed(message, session, client):
                    await loop.sock_sendall(agent, message)
                    await loop.sock_sendall(client, await _read_message(agent))
                else:
                    await loop.sock_sendall(client, FAILURE)

    async def _is_allowed(self, message: bytes, session: str, client: socket.socket) -> bool:
        kind, scope = message[4], self._scopes.get(session)
        if kind == REQUEST_IDENTITIES or kind != SIGN_REQUEST or scope is None:
            return kind == REQUEST_IDENTITIES
        if not (login := find_login(message[5:])):
            return False
        pid = _PEER.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
        return await self._may_sign(scope, SshLogin(pid, login))


def find_login(request: bytes) -> bytes:
    """The session of SSH for which a login is to be signed; empty if it is anything else."""
    try:
        _, data, _ = _take_strings(request, 2)
        session, rest = _take_strings(data, 1)
        if rest[:1] != bytes([_USERAUTH_REQUEST]):
            return b""
        _, service, method, _ = _take_strings(rest[1:], 3)
    except ValueError:
        return b""
    return session if service == b"ssh-connection" and method in _PUBLICKEY else b""


def _take_strings(data: bytes, count: int) -> list[bytes]:
    """That many strings with their lengths in front, and the rest. Raises ValueError."""
    found = list[bytes]()
    for _ in range(count):
        end = 4 + int.from_bytes(data[:4])
        if len(data) < max(end, 4):
            raise ValueError("a truncated message")
        found.append(data[4:end])
        data = data[end:]
    return [*found, data]


async def _read_message(stream: socket.socket) -> bytes:
    """One message with its length. Raises EOFError at the end, or if it is too long."""
    head = await _read_exactly(stream, 4)
    (length,) = struct.unpack(">I", head)
    if not 0 < length <= MAX_MESSAGE_BYTES:
        raise EOFError
    return head + await _read_exactly(stream, length)


async def _read_exactly(stream: socket.socket, count: int) -> bytes:
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < count:
        piece = await loop.sock_recv(stream, count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found
