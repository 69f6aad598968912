"""How often something may happen, shared by many: each is given a moment of its own. It does not wait."""

from collections.abc import Callable


class Pace:
    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._apart, self._clock = 1.0 / per_second, clock
        self._next = 0.0

    def reserve(self) -> float:
        """Seconds until the moment that is given out by this."""
        now = self._clock()
        mine = max(now, self._next)
        self._next = mine + self._apart
        return mine - now

    def spare(self) -> bool:
        """Is this a moment that nobody else was given? Then it is ours."""
        if self._next > self._clock():
            return False
        self.reserve()
        return True
