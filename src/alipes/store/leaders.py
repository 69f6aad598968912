"""Leader election of a home in one file: its only `alipes serve` process leads everything.

A lock in the home's `run` directory, which `serve` holds, refuses a second one.
"""

from collections.abc import Awaitable, Callable


class LocalLeaders:
    """Always leads."""

    def leads(self, _name: str) -> bool:
        return True

    async def lead(self, _name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`."""
        await work()
