"""Each tool stopped at 50 random points of its call: what is left alive, and how long the slowest stop took."""

import sys
import tempfile
from pathlib import Path

from tests.world.tool_stops import CALLS, find_obstacle, stop_tool

from bench.measure import Row, bounded

POINTS = 50


async def stops() -> list[Row]:
    rows = []
    for tool in CALLS:
        if why := find_obstacle(tool):
            print(f"{tool} is left out: {why}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as name:
            seen = await stop_tool(tool, Path(name), points=POINTS)
        for line in seen.left:
            print(line, file=sys.stderr)
        facts = f"{seen.stopped} stopped, {seen.started} had started, within {seen.slowest_s * 1000:.0f} ms"
        rows.append(
            bounded(f"{tool} stopped at {POINTS} random points: left alive ({facts})", len(seen.left), 0, "things")
        )
    return rows
