"""What the Hermes door remembers between two moments of a turn. The last few hundred of each, no more."""

from typing import Any, Generic, TypeVar

from alipes.kernel.turns import ApprovalAsked, Inbound

K = TypeVar("K")
V = TypeVar("V")
KEPT = 256


class Recent(Generic[K, V]):
    """A mapping that forgets its oldest entries."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._entries: dict[K, V] = {}

    def __setitem__(self, key: K, value: V) -> None:
        self._entries.pop(key, None)
        self._entries[key] = value
        while len(self._entries) > self._kept:
            del self._entries[next(iter(self._entries))]

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def latest(self) -> V | None:
        return next(reversed(self._entries.values()), None)


class Notes:
    """Shared by all Hermes plugins of an app; written and read on the loop's thread."""

    def __init__(self) -> None:
        self.requests: Recent[str, tuple[str, str]] = Recent()
        """By turn: id and model of its last question."""
        self.outcomes: Recent[str, tuple[float, Exception | None]] = Recent()
        """By call: how long it took, and what it raised."""
        self.traces: Recent[str, list[dict[str, Any]]] = Recent()
        """By call or question: who changed it, and why they say they did."""
        self.asked: Recent[str, ApprovalAsked] = Recent()
        self.heard: Recent[str, Inbound] = Recent()
        """By session key: what a person said there last."""
        self._replaced: Recent[int, tuple[Any, Any]] = Recent(64)

    def replace(self, original: Any, replacement: Any) -> None:
        """A Hermes callback has its say about a value; no other one after it has."""
        self._replaced[id(replacement)] = replacement, original

    def original(self, value: Any) -> Any | None:
        """What `value` stands for, if a Hermes callback made it; the pair keeps both alive."""
        known = self._replaced.get(id(value))
        return known[1] if known is not None and known[0] is value else None
