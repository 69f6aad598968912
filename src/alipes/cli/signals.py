"""Signals during `alipes ask`: the first stops the turn, the second exits, the third kills."""

import asyncio
import os
import signal
from types import TracebackType
from typing import Self

from alipes.kernel.turns import Stop

_REASONS = {
    signal.SIGINT: ("user_stop", "session_interrupt"),
    signal.SIGTERM: ("shutdown", "shutdown"),
    signal.SIGHUP: ("disconnected", "disconnected"),
}


class InterruptSignals:
    """Handles SIGINT, SIGTERM and SIGHUP while entered. Enter it in the task to be cancelled.

    While no turn is running, the first signal exits at once.
    """

    def __init__(self) -> None:
        self.stop_requested = asyncio.Event()
        self.exit_requested = asyncio.Event()
        self.reason = ("user_stop", "session_interrupt")
        self._stoppable = False
        self._count = 0
        self._main: asyncio.Task[object] | None = None

    def __enter__(self) -> Self:
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in _REASONS:
            # nohup ignores SIGHUP: keep that. Shells ignore SIGINT for background jobs: handle it anyway.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in _REASONS:
            loop.remove_signal_handler(number)

    def turn_started(self) -> None:
        """A turn is running: the first signal stops it."""
        self._stoppable = True

    def turn_ended(self) -> None:
        self._stoppable = False

    def ask(self, *reason: str) -> None:
        """Request a stop without a signal, for example when the reader is gone."""
        if not self.stop_requested.is_set():
            self.reason = (reason[0], reason[-1])
            self.stop_requested.set()

    def cancel_main(self) -> None:
        """Cancel the main task, which closes everything and exits."""
        assert self._main is not None
        self._main.cancel()

    def stop(self, turn: str) -> Stop:
        return Stop(*self.reason, turn=turn)

    def _on_signal(self, number: signal.Signals) -> None:
        self._count += 1
        if self._count > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._stoppable:
            self.cancel_main()
        elif self.stop_requested.is_set():
            self.exit_requested.set()
        else:
            self.ask(*_REASONS[number])
