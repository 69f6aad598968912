"""Seeded plans of faults for a cluster: what happens to which worker or server, when and for how long."""

import random
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

FaultKind: TypeAlias = Literal["kill", "pause", "silence", "cut", "restart", "promote", "replace"]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
"""`replace`: each worker in turn leaves and is started again. `restart` and `promote` concern PostgreSQL."""
WEIGHTS = {"kill": 5, "pause": 4, "silence": 4, "cut": 4, "restart": 2, "promote": 1, "replace": 1}
GAP_S = (0.5, 3.0)
"""Quiet time between the starts of two faults."""
LENGTHS_S: dict[FaultKind, tuple[float, float]] = {
    "kill": (0.0, 2.0),
    "pause": (0.1, 6.0),
    "silence": (0.1, 6.0),
    "cut": (0.0, 0.0),
    "restart": (0.0, 3.0),
    "promote": (0.0, 0.0),
    "replace": (0.0, 0.0),
}
"""How long a fault lasts: a killed worker stays away, a paused one is stopped, and so on."""


class PlannedFault(Struct, frozen=True):
    at: float
    """Seconds since the start."""
    kind: FaultKind
    worker: int
    """The place of the worker; -1 for a fault of the server or of all workers."""
    length_s: float

    def __str__(self) -> str:
        who = "" if self.worker < 0 else f" worker {self.worker}"
        return f"{self.at:.2f} s: {self.kind}{who} for {self.length_s:.2f} s"


SHORT_PLAN = (
    PlannedFault(0.5, "kill", 0, 0.5),
    PlannedFault(1.0, "pause", 1, 3.5),
    PlannedFault(1.5, "silence", 2, 3.5),
    PlannedFault(2.5, "cut", 3, 0.0),
    PlannedFault(6.0, "restart", -1, 0.2),
)
"""Each kind of fault once, except for those that take long."""
SHORT_PROMOTION = (PlannedFault(1.5, "promote", -1, 0.0), PlannedFault(4.0, "kill", 1, 0.2))


def make_plan(seed: int, seconds: float, workers: int, kinds: tuple[FaultKind, ...] = KINDS) -> list[PlannedFault]:
    """The same seed gives the same plan. One worker at least has no fault at any moment."""
    return list(_generate(random.Random(seed), seconds, workers, kinds))


def _generate(
    dice: random.Random, seconds: float, workers: int, kinds: tuple[FaultKind, ...]
) -> Iterator[PlannedFault]:
    busy = [0.0] * workers
    """When the last fault of each worker is over."""
    at, server_until = dice.uniform(*GAP_S), 0.0
    while at < seconds:
        kind = dice.choices(kinds, [WEIGHTS[each] for each in kinds])[0]
        length = dice.uniform(*LENGTHS_S[kind])
        if kind in ("restart", "promote", "replace"):
            if at >= max(server_until, *busy):
                server_until = at + length + 2.0
                yield PlannedFault(at, kind, -1, length)
        else:
            free = [place for place in range(workers) if busy[place] <= at]
            if len(free) > 1 and at >= server_until:
                worker = dice.choice(free)
                busy[worker] = at + length
                yield PlannedFault(at, kind, worker, length)
        at += dice.uniform(*GAP_S)
