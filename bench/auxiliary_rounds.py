"""Many rounds of auxiliary work (vision, images, mixtures, subagents, code): what is left over at the end."""

import tempfile
from pathlib import Path

from tests.world.auxiliary_load import KINDS, at_baseline, run_rounds

from bench.measure import Row

ROUNDS, STOPS = 500, 50


async def side_work() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        left = await run_rounds(Path(name) / "w", rounds=ROUNDS, seed=7)
    more = left.after["fds"] - left.before["fds"]
    pools = len(left.pools) - len(set(left.pools))
    endings = ", ".join(f"{count} {ending}" for ending, count in sorted(left.endings.items()))
    alive = len(left.after["children"]) - len(left.before["children"])
    tasks = len(left.after["tasks"]) - len(left.before["tasks"])
    seen = f"{more:+d} fds, {tasks:+d} tasks, {alive:+d} children, "
    seen += f"{len(left.complaints)} complaints, {pools} pools too many"
    ok = at_baseline(left.before, left.after) and not left.complaints and not pools
    return [Row(f"{ROUNDS} rounds of side work ({endings})", seen, "", "", "nothing left", ok)]


async def stopped() -> list[Row]:
    rows = []
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as name:
            left = await run_rounds(Path(name) / "w", rounds=STOPS, seed=11, kinds=(kind,), stops=1.0)
        more, alive = (
            left.after["fds"] - left.before["fds"],
            set(left.after["children"]) - set(left.before["children"]),
        )
        ok = at_baseline(left.before, left.after) and not left.complaints
        seen = f"{more:+d} fds, {len(alive)} children, {len(left.complaints)} complaints"
        rows.append(Row(f"{kind} stopped at {STOPS} random points", seen, "", "", "nothing left", ok))
    return rows
