"""Signals of `alipes serve`, and `--replace`, which ends the running server."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self, TypeAlias

from alipes.config.paths import LOCK_NAME
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.runtime.process_lock import LockHolder, find_holder
from alipes.runtime.processes.process_tree import VARIABLE

ExitAction: TypeAlias = Literal["leave", "restart"]
_SIGNALS: dict[signal.Signals, ExitAction] = {signal.SIGTERM: "leave", signal.SIGINT: "leave", signal.SIGHUP: "restart"}


class ExitRequest:
    """A request to exit or to restart, and whether it is urgent."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hurry = asyncio.Event()
        self.action: ExitAction = "leave"

    def request(self, order: ExitAction) -> None:
        """Request an action. A restart does not override an exit; an exit overrides a restart."""
        if not self.requested.is_set() or order == "leave":
            self.action = order
        self.requested.set()

    def withdraw_request(self) -> None:
        """Forget the request."""
        self.requested.clear()


class ExitSignals(ExitRequest):
    """Handles SIGTERM, SIGINT and SIGHUP while entered. The first exits gracefully, the second skips
    waiting, the third kills."""

    def __init__(self, *, at_terminal: bool = False) -> None:
        """`at_terminal`: SIGHUP means that the terminal was closed, and exits."""
        super().__init__()
        self._actions = dict(_SIGNALS)
        if at_terminal:
            self._actions[signal.SIGHUP] = "leave"
        self._signals = 0

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number, order in self._actions.items():
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:
                loop.add_signal_handler(number, self._on_signal, number, order)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def withdraw_request(self) -> None:
        """Forget the request; the next signal counts as the first."""
        super().withdraw_request()
        self._signals = 0

    def _on_signal(self, number: signal.Signals, order: ExitAction) -> None:
        self._signals += 1
        if self._signals > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if self.requested.is_set():
            self.hurry.set()
        self.request(order)


EXIT_GRACE_S = 10.0
"""Time after its drain that the other process has to exit."""


def replace_running_server(settings: Settings, environ: Mapping[str, str]) -> None:
    """Stop the server of this home and wait for its exit. Called before the event loop starts."""
    other = find_holder(settings.paths.run / LOCK_NAME)
    if other is None or not other.pid:
        return
    if VARIABLE in environ and _is_child_of(other.pid):
        raise ConfigError(
            f"this command runs inside the `alipes serve` that it would replace (process {other.pid}); "
            f"use /restart in the chat, or `kill -HUP {other.pid}`"
        )
    sys.stderr.write(f"alipes: asking process {other.pid} at {other.address} to exit\n")
    _send_signal(other, signal.SIGTERM)
    if not _wait_until_gone(settings, other, settings.serve.drain + EXIT_GRACE_S):
        sys.stderr.write(f"alipes: process {other.pid} did not exit; killing it\n")
        _send_signal(other, signal.SIGKILL)
        if not _wait_until_gone(settings, other, EXIT_GRACE_S):
            raise ConfigError(f"process {other.pid} cannot be killed; check what it is waiting for")


def _wait_until_gone(settings: Settings, other: LockHolder, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = find_holder(settings.paths.run / LOCK_NAME)
        if now is None or now.pid != other.pid:
            return True
        time.sleep(0.02)
    return False


def _send_signal(other: LockHolder, number: signal.Signals) -> None:
    try:
        os.kill(other.pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise ConfigError(f"process {other.pid} belongs to another user, who must stop it") from error


def _is_child_of(pid: int) -> bool:
    at = os.getpid()
    with suppress(OSError, ValueError, IndexError):
        while at > 1:
            if at == pid:
                return True
            with open(f"/proc/{at}/stat") as file:
                at = int(file.read().rpartition(")")[2].split()[1])
    return False
