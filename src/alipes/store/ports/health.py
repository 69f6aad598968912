"""The state of the store: whether it can be written, how much waits in it, and when writes are safe."""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class StoreStatus(NamedTuple):
    turns: int
    """Unfinished turns."""
    queued: int
    """Unsent messages in the outbox."""
    failed: int
    """Messages in the outbox that were given up."""
    oldest_s: float
    """Age of the oldest unsent message in seconds."""


class StoreHealth(Protocol):
    async def check_writable(self) -> None:
        """Write something; raises `StoreError` if that is not possible."""

    async def read_status(self) -> StoreStatus:
        """How much work is in the store."""

    async def wait_synced(self, patience_s: float = 0.0) -> None:
        """Return once everything written so far is on disk; other writes continue meanwhile."""

    async def warm_up(self) -> None:
        """Prepare for many writes, before a server starts."""

    def call_during_sync(self, callback: Callable[[], None]) -> None:
        """Call it once, while the next write that waits for the disk does so: for work that can be done meanwhile."""
