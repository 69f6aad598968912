"""The owner of a registration: one version of one plugin. Counts its strikes and the turns that use it."""

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

STRIKES = 3


class PluginOwner:
    """A plugin as seen by the rest of alipes. A reloaded plugin is another owner of the same name."""

    def __init__(self, name: str, *, permanent: bool = False) -> None:
        """`permanent`: part of alipes itself, never disabled."""
        self.name = name
        self.strikes = 0
        self.disabled = False
        self.disabled_reason = ""
        """Why it is disabled."""
        self.on_disabled: Callable[[PluginOwner], None] | None = None
        """Called once, when it is disabled."""
        self.permanent = permanent
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Tracked tasks that its code started."""
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    def strike(self, what: str) -> bool:
        """Count a failure; the third disables the plugin. Returns True if this was the third."""
        self.strikes += 1
        if self.strikes < STRIKES or self.permanent or self.disabled:
            return False
        self.disable(f"disabled after {self.strikes} failures, the last: {what}")
        return True

    def disable(self, why: str) -> None:
        if self.disabled:
            return
        self.disabled, self.disabled_reason = True, why
        if self.on_disabled is not None:
            self.on_disabled(self)

    def hold(self) -> None:
        """A turn starts that may use it."""
        self._users += 1
        self._unused.clear()

    def release(self) -> None:
        self._users -= 1
        if not self._users:
            self._unused.set()

    async def wait_unused(self) -> None:
        """Return once no turn uses it."""
        await self._unused.wait()


CORE = PluginOwner("core", permanent=True)
