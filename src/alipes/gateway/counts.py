"""What the gateway has done since it was opened, in numbers: no content, no names of people."""

from collections import Counter


class Counts:
    """Read them whenever you like; they only grow."""

    def __init__(self) -> None:
        self.arrived: Counter[str] = Counter()
        """By platform, what came in, second copies included."""
        self.strangers: Counter[str] = Counter()
        """By platform, what was said by people who may not."""
        self.sent: Counter[str] = Counter()
        """By platform, what was paid of what was owed."""
        self.uncertain: Counter[str] = Counter()
        self.postponed: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        """Turns that ended in chats, by ending."""
        self.stops: list[float] = []
        """Seconds from each of the last stops in a chat to the end of the turn."""

    def stopped(self, seconds: float) -> None:
        self.stops = [*self.stops[-999:], seconds]
