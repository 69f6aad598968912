"""How many sessions a worker of a cluster may run."""

from collections.abc import Collection

BATCH = 8
"""Sessions that a worker takes at a time."""
MAX_BATCH = 32
"""The same while many wait: each batch after a full one is twice as large."""
WORK = "work"
"""The role of workers that run turns."""
OWN = "own"
"""The role of commands that do not serve, such as the terminal: they run their own turns and take no others."""
SUBAGENTS = "agent:main:subagent:"
"""Their turns run beside the turn that waits for them, so they need no capacity."""


class Capacity:
    """The limits of one worker, and the sessions that run there."""

    def __init__(self, roles: frozenset[str] = frozenset(), sessions: int = 0, per_person: int = 0) -> None:
        """`sessions`: how many may run here; `per_person`: how many of one person in the cluster. Zero: no limit."""
        self._roles, self._sessions, self.per_person = roles, sessions, per_person
        self.busy: Collection[str] = ()
        """The keys of the sessions that run here, as they change."""
        self.serves = False
        """True while this worker starts the turns of the sessions it takes."""
        self.was_full = False
        """True if there was no room when it was last asked."""

    def room(self, batch: int = BATCH) -> int:
        """How many more sessions may run here, at most one batch."""
        if WORK not in self._roles:
            return 0
        running = sum(not key.startswith(SUBAGENTS) for key in self.busy) if self._sessions else 0
        room = min(batch, self._sessions - running) if self._sessions else batch
        self.was_full = room <= 0
        return max(room, 0)

    def may_start(self, key: str) -> bool:
        """True if the session may run here without counting those of its person."""
        return self._needs_no_room(key) or (not self.per_person and self.room() > 0)

    def limit_to_take(self, key: str) -> int | None:
        """How many sessions of one person may run if this worker takes this one (zero: any number); None if it may not
        take it."""
        if not self.serves:
            return None
        if self._needs_no_room(key):
            return 0
        return self.per_person if self.room() > 0 else None

    def _needs_no_room(self, key: str) -> bool:
        return key in self.busy or key.startswith(SUBAGENTS) or OWN in self._roles
