"""`make soak`: runs the service under mixed load and checks that nothing grows.

python -m bench.soak [SECONDS]
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.world.soak import soak, summarise

LAP = 12.0
MAY_GROW = {"fds": 4, "threads": 1, "children": 0, "megabytes": 12}
"""Allowed growth between the first and the last third of the measured time; more is a leak."""


async def main(seconds: float) -> int:
    laps = max(8, int(seconds / LAP))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        soaked = await soak(Path(name), seconds=seconds, laps=laps, seed=8)
    looks, good = soaked.looks, True
    print(f"{looks[-1].turns:.0f} turns in {looks[-1].at - looks[0].at:.0f} s, {laps} laps, ", end="")
    print(f"load of the machine {os.getloadavg()[1]:.1f}; measured after the first third")
    print(", ".join(f"{what} {count}" for what, count in sorted(soaked.done.items())))
    print(f"{'':12}{'start':>9}{'end':>9}{'growth':>9}{'an hour':>10}  may grow by")
    for what, (end, grown, hourly) in summarise(looks).items():
        if what not in MAY_GROW:
            continue
        fine = grown <= MAY_GROW[what]
        good = good and fine
        start = getattr(looks[0], what)
        verdict = "ok" if fine else "GROWS"
        print(f"{what:12}{start:9.1f}{end:9.1f}{grown:9.1f}{hourly:10.1f}  {MAY_GROW[what]:<12} {verdict}")
    for what, lines in (("not answered", soaked.unanswered), ("complaint", soaked.complaints)):
        good = good and not lines
        print(f"{what}: {len(lines)}", *lines[:20], sep="\n  ")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1] if len(sys.argv) > 1 else 600))))
