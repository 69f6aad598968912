"""Taking over from the `alipes serve` that was there before: it is asked to leave, waited for, then ended."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self, TypeAlias

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.runtime.process_lock import Holder, holder
from alipes.runtime.processes.process_tree import VARIABLE

Order: TypeAlias = Literal["leave", "restart"]
_SIGNALS: dict[signal.Signals, Order] = {
    signal.SIGTERM: "leave",
    signal.SIGINT: "leave",
    signal.SIGHUP: "restart",
}


class Orders:
    """Heeds SIGTERM, SIGINT and SIGHUP while entered. The first is obeyed in peace, the second hurries us,
    the third kills."""

    def __init__(self, *, at_terminal: bool = False) -> None:
        """`at_terminal`: a hang-up means that the terminal went away, and leaves."""
        self._meaning: dict[signal.Signals, Order] = (
            {**_SIGNALS, signal.SIGHUP: "leave"} if at_terminal else _SIGNALS
        )
        self.given = asyncio.Event()
        self.hurried = asyncio.Event()
        self.order: Order = "leave"
        self._signals = 0

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number, order in self._meaning.items():
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:
                loop.add_signal_handler(number, self._heed, number, order)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def give(self, order: Order) -> None:
        """Who leaves already does not come back for a restart; who restarts may still be told to leave."""
        if not self.given.is_set() or order == "leave":
            self.order = order
        self.given.set()

    def withdraw(self) -> None:
        """It cannot be done; the next one counts as the first."""
        self.given.clear()
        self._signals = 0

    def _heed(self, number: signal.Signals, order: Order) -> None:
        self._signals += 1
        if self._signals > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if self.given.is_set():
            self.hurried.set()
        self.give(order)


CLAIM = "serve.claim"
SPARE = 10.0
"""Seconds beyond its drain that the other has to leave."""


def succeed(settings: Settings, environ: Mapping[str, str]) -> None:
    """Return once nobody serves the home any more. Called before our own loop begins."""
    other = holder(settings.paths.run / CLAIM)
    if other is None or not other.pid:
        return
    if VARIABLE in environ and _descends_from(other.pid):
        raise ConfigError(
            f"this command runs inside the `alipes serve` it would replace (process {other.pid}), and would "
            f"end with it; say /restart in the chat, or `kill -HUP {other.pid}`"
        )
    sys.stderr.write(f"alipes: process {other.pid} at {other.address} is asked to leave\n")
    _signal(other, signal.SIGTERM)
    if not _gone(settings, other, settings.serve.drain + SPARE):
        sys.stderr.write(f"alipes: process {other.pid} does not leave, and is ended\n")
        _signal(other, signal.SIGKILL)
        if not _gone(settings, other, SPARE):
            raise ConfigError(f"process {other.pid} cannot be ended; look what it waits for")


def _gone(settings: Settings, other: Holder, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = holder(settings.paths.run / CLAIM)
        if now is None or now.pid != other.pid:
            return True
        time.sleep(0.02)
    return False


def _signal(other: Holder, number: signal.Signals) -> None:
    try:
        os.kill(other.pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise ConfigError(f"process {other.pid} belongs to somebody else, who must end it") from error


def _descends_from(pid: int) -> bool:
    at = os.getpid()
    with suppress(OSError, ValueError, IndexError):
        while at > 1:
            if at == pid:
                return True
            with open(f"/proc/{at}/stat") as file:
                at = int(file.read().rpartition(")")[2].split()[1])
    return False
