"""The commands that run in sandboxes: which of them made a connection, for the question about it."""

import asyncio
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from alipes.runtime.processes.child import Child
from alipes.runtime.processes.socket_peers import find_namespaced_peers
from alipes.runtime.sandbox.backend import CommandScope


class RunningCommand:
    def __init__(self, text: str, child: Child, folder: str) -> None:
        """`folder`: of the project that a model's command works in; empty if no model wrote it."""
        self.text, self.child, self.folder = text, child, folder

    def owns(self, pids: Sequence[int]) -> bool:
        """True if one of the processes is its own; it reads /proc."""
        return not {process.pid for process in self.child.tree.living()}.isdisjoint(pids)


class RunningCommands:
    """By conversation, in the order of their start."""

    def __init__(self) -> None:
        self._commands: dict[str, list[RunningCommand]] = {}

    @contextmanager
    def add(self, scope: CommandScope, command: str | Sequence[str], child: Child) -> Iterator[None]:
        """It runs until the block is left."""
        text = scope.title or (command if isinstance(command, str) else shlex.join(command))
        is_models = scope.turn is not None and scope.turn.session == scope.session
        running = RunningCommand(text, child, scope.workdir if is_models else "")
        commands = self._commands.setdefault(scope.session, [])
        commands.append(running)
        try:
            yield
        finally:
            commands.remove(running)
            if not commands:
                self._commands.pop(scope.session, None)

    def list_folders(self) -> frozenset[str]:
        """The folders in which commands of a model run now, of all conversations."""
        return frozenset(each.folder for commands in self._commands.values() for each in commands) - {""}

    async def find(self, session: str, client: socket.socket | None) -> RunningCommand | None:
        """The command that made a connection; None if it is not known."""
        commands = tuple(self._commands.get(session, ()))
        if len(commands) < 2 or client is None:
            return commands[0] if len(commands) == 1 else None
        return await asyncio.to_thread(_find_owner, commands, client)


def _find_owner(commands: Sequence[RunningCommand], client: socket.socket) -> RunningCommand | None:
    pids = find_namespaced_peers(client)
    return next((each for each in commands if each.owns(pids)), None) if pids else None
