"""What goes wrong at the loopback Bot API, when asked to. Which answer it becomes, the server knows."""

import math
import time
from collections import defaultdict, deque
from typing import Literal, TypeAlias

from msgspec import Struct

Harm: TypeAlias = Literal["flood", "fail", "garbage", "drop", "hang", "half_close", "conflict", "refuse"]
"""`flood` 429; `fail` a gateway's page with `status`; `garbage` 200 and no JSON; `drop` a reset; `hang` no
answer and no FIN; `half_close` FIN and nothing more; `conflict` 409; `refuse` 400 with `why`."""


class Fault(Struct):
    """Calls that match it come to harm. The first that matches counts."""

    does: Harm
    methods: tuple[str, ...] = ()
    """Beginnings of names, in any case; empty: every method."""
    chat: int | None = None
    times: int | None = 1
    """So many calls; None: until it is mended."""
    skip: int = 0
    """So many matching calls pass before."""
    seconds: float = 0.0
    """Only so long after it was laid; zero: for ever."""
    accepted: bool = False
    """The call takes effect first: only its answer comes to harm."""
    retry_after: int = 1
    status: int = 502
    why: str = "nobody knows"
    laid: float = 0.0

    def hits(self, method: str, chat: int | None) -> bool:
        """Whether this call comes to harm; counts it."""
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
    """Flood control as the real one has it: so many messages a second in a chat, and in all."""

    def __init__(self, per_chat: float = 0.0, overall: float = 0.0) -> None:
        self._chat, self._all = per_chat, overall
        self._seen: dict[int, deque[float]] = defaultdict(deque)
        self.refused = 0

    def wait(self, chat: int) -> int:
        """Whole seconds that the sender must wait; zero: the call passes, and counts."""
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
