"""Faults of the loopback Bot API, on demand."""

import math
import time
from collections import defaultdict, deque
from typing import Literal, TypeAlias

from msgspec import Struct

Harm: TypeAlias = Literal["flood", "fail", "garbage", "drop", "hang", "half_close", "conflict", "refuse"]
"""`flood` 429; `fail` a gateway's page with `status`; `garbage` 200 and no JSON; `drop` a reset; `hang` no
answer and no FIN; `half_close` FIN and nothing more; `conflict` 409; `refuse` 400 with `why`."""


class Fault(Struct):
    """A fault of matching calls. The first matching fault applies."""

    does: Harm
    methods: tuple[str, ...] = ()
    """Prefixes of method names, case-insensitive; empty: every method."""
    chat: int | None = None
    times: int | None = 1
    """Number of calls; None: until removed."""
    skip: int = 0
    """Number of matching calls that pass first."""
    seconds: float = 0.0
    """Seconds for which it applies; zero: always."""
    accepted: bool = False
    """The call takes effect; only its answer fails."""
    retry_after: int = 1
    status: int = 502
    why: str = "nobody knows"
    laid: float = 0.0

    def hits(self, method: str, chat: int | None) -> bool:
        """True if it applies to this call, which is counted."""
        over = self.seconds and time.monotonic() > self.laid + self.seconds
        named = not self.methods or any(method.startswith(name.lower()) for name in self.methods)
        if over or not named or self.times == 0 or (self.chat is not None and self.chat != chat):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Limits:
    """Rate limits like the real ones: messages per second, per chat and in total."""

    def __init__(self, per_chat: float = 0.0, overall: float = 0.0) -> None:
        self._chat, self._all = per_chat, overall
        self._seen: dict[int, deque[float]] = defaultdict(deque)
        self.refused = 0

    def wait(self, chat: int) -> int:
        """Whole seconds that the sender must wait; zero: the call passes and is counted."""
        now = time.monotonic()
        for key, rate in ((chat, self._chat), (0, self._all)):
            seen = self._seen[key]
            while seen and seen[0] < now - 1.0:
                seen.popleft()
            if rate and len(seen) >= max(1.0, rate):
                self.refused += 1
                return max(1, math.ceil(seen[0] + 1.0 - now))
        for key in (chat, 0):
            self._seen[key].append(now)
        return 0
