"""The owner of a registration: one version of one plugin. Counts its strikes and the turns that use it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

STRIKES = 3
WINDOW_S = 600.0
"""Failures count for this long."""


class PluginOwner:
    """A plugin as seen by the rest of alipes. A reloaded plugin is another owner of the same name."""

    def __init__(self, name: str, *, permanent: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """`permanent`: part of alipes itself, never disabled."""
        self.name = name
        self.disabled = False
        self.disabled_reason = ""
        """Why it is disabled."""
        self.on_disabled: Callable[[PluginOwner], None] | None = None
        """Called once, when it is disabled."""
        self.permanent = permanent
        self.required = False
        """Without it nothing may run: its gates refuse rather than being silenced."""
        self.silenced: dict[str, str] = {}
        """Callbacks that are switched off, and why."""
        self.tasks: set[asyncio.Task[Any]] = set()
        """Unfinished tasks that its code started. Held here, or the garbage collector could end one that waits."""
        self._clock = clock
        self._failures: dict[str, list[float]] = {}
        """When each callback failed, within the window."""
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @property
    def strikes(self) -> int:
        """The number of failures within the window."""
        return sum(len(self._recent(callback)) for callback in tuple(self._failures))

    def strike(self, callback: str) -> bool:
        """Count a failure of `callback`. Returns True if it failed too often within the window."""
        recent = self._failures[callback] = [*self._recent(callback), self._clock()]
        return len(recent) >= STRIKES and not self.permanent

    def silence(self, callback: str, why: str) -> str:
        """Switch `callback` off; returns the sentence that says so."""
        self.silenced[callback] = f"off after {STRIKES} failures within {WINDOW_S / 60:g} minutes, the last: {why}"
        how = f"Use /plugins reset {self.name} to switch it on again."
        return f"{callback} of plugin {self.name} is {self.silenced[callback].rstrip('.')}. {how}"

    def forgive(self) -> None:
        """Forget its failures and call all its callbacks again."""
        self._failures.clear()
        self.silenced.clear()

    def _recent(self, callback: str) -> list[float]:
        since = self._clock() - WINDOW_S
        return [when for when in self._failures.get(callback, ()) if when > since]

    def disable(self, why: str) -> None:
        if self.disabled or self.required:
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
