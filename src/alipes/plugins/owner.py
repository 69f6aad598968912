"""Who registered something: one plugin in one version of its code. Counts its strikes and its users."""

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

STRIKES = 3


class Owner:
    """A plugin as the rest of the house sees it. A reloaded plugin is another owner of the same name."""

    def __init__(self, name: str, *, lasting: bool = False) -> None:
        """`lasting`: it is the house's own, and is never switched off."""
        self.name = name
        self.strikes = 0
        self.off = False
        self.why = ""
        """Why it is off."""
        self.on_off: Callable[[Owner], None] | None = None
        """Told once, when it is switched off."""
        self.lasting = lasting
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Those that its code began, as far as they are tracked."""
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    def strike(self, what: str) -> bool:
        """It did something wrong; the third time it is switched off. True: this was that time."""
        self.strikes += 1
        if self.strikes < STRIKES or self.lasting or self.off:
            return False
        self.switch_off(f"switched off after {self.strikes} failures, the last: {what}")
        return True

    def switch_off(self, why: str) -> None:
        if self.off:
            return
        self.off, self.why = True, why
        if self.on_off is not None:
            self.on_off(self)

    def hold(self) -> None:
        """A turn begins that may use it."""
        self._users += 1
        self._unused.clear()

    def release(self) -> None:
        self._users -= 1
        if not self._users:
            self._unused.set()

    async def unused(self) -> None:
        """Return once no turn uses it any more."""
        await self._unused.wait()


CORE = Owner("core", lasting=True)
