"""Signals as requests: the first asks the turn to stop, the second to leave at once, the third kills."""

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


class Interrupts:
    """Heeds SIGINT, SIGTERM and SIGHUP while entered. Enter it in the task that is to be cancelled.

    Before `begin` and after `end` there is nothing to stop, so the first signal leaves at once.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.insisted = asyncio.Event()
        self.reason = ("user_stop", "session_interrupt")
        self._stoppable = False
        self._count = 0
        self._main: asyncio.Task[object] | None = None

    def __enter__(self) -> Self:
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in _REASONS:
            # Under nohup a hang-up stays ignored; a SIGINT is heeded even if a shell ignores it for its jobs.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, self._heed, number)
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

    def begin(self) -> None:
        """From now on a turn lives, and the first signal asks it to stop."""
        self._stoppable = True

    def end(self) -> None:
        self._stoppable = False

    def ask(self, *reason: str) -> None:
        """Ask for a stop without a signal, as when nobody reads the answer any more."""
        if not self.asked.is_set():
            self.reason = (reason[0], reason[-1])
            self.asked.set()

    def leave(self) -> None:
        """Give up waiting: what is open closes, and the program ends."""
        assert self._main is not None
        self._main.cancel()

    def stop(self, turn: str) -> Stop:
        return Stop(*self.reason, turn=turn)

    def _heed(self, number: signal.Signals) -> None:
        self._count += 1
        if self._count > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._stoppable:
            self.leave()
        elif self.asked.is_set():
            self.insisted.set()
        else:
            self.ask(*_REASONS[number])
