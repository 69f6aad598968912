"""`make bench`: every figure promised so far, one table. Names on the command line choose some."""

import asyncio
import sys

from bench import (
    api,
    chatstops,
    delegation,
    figures,
    gateway,
    plugins,
    relay,
    remote,
    senses,
    serve,
    terminal,
)
from bench.measure import Row

ALL = {
    **figures.ALL,
    "start": terminal.start,
    "streaming": terminal.streaming,
    "idling": terminal.idle_terminal,
    "stopping": terminal.stopping,
    "stale": terminal.stale,
    "relay": relay.relay,
    "plugins": plugins.plugins,
    "remote": remote.stop_told,
    "serve": serve.idle_service,
    "turns": gateway.turns,
    "warm": gateway.warm,
    "crowd": gateway.crowd,
    "chatstops": chatstops.stops,
    "eleventh": chatstops.eleventh,
    "siege": gateway.kills,
    "api": api.turns,
    "first": api.first_byte,
    "listeners": api.listeners,
    "apistops": api.stops,
    "senses": senses.side_work,
    "stopped": senses.stopped,
    "delegation": delegation.delegation,
}


def main(names: list[str]) -> int:
    rows: list[Row] = []
    for name, figure in ALL.items():
        if names and name not in names:
            continue
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows += asyncio.run(figure())
    widths = [max(len(str(row[n])) for row in (*rows, Row._fields)) for n in range(5)]
    for row in (Row._fields, *rows):
        last = "" if row is Row._fields else ("yes" if row[5] else "NO")
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=False)), last)
    return 0 if all(row.ok for row in rows) else 1


sys.exit(main(sys.argv[1:]))
