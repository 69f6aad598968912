"""What `alipes serve` is told to do with itself: leave, or begin anew; by signal, or by who may say so."""

import asyncio
import os
import signal
from types import TracebackType
from typing import Literal, Self, TypeAlias

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
