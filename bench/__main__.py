"""`make bench`: all figures in one table. Names on the command line select some.

Also shows the last results of `make bench-rivals`. `--keep` saves these as the last results.
"""

import asyncio
import os
import sys

from bench import (
    api,
    approval,
    auxiliary_rounds,
    chat_stops,
    checkpoints,
    cluster,
    cluster_home,
    cluster_services,
    delegation,
    figures,
    gateway,
    mcp,
    page,
    plugins,
    relay,
    remote,
    results,
    sandbox,
    schedules,
    search,
    serve,
    terminal,
    tool_stops,
    web,
)
from bench.measure import Row
from bench.results import Name
from bench.rivals import SHORT, rival_figures

ALL = {
    **figures.ALL,
    "start": terminal.start,
    "streaming": terminal.streaming,
    "keys": terminal.keys,
    "resizing": terminal.resizing,
    "idling": terminal.idle_terminal,
    "stopping": terminal.stopping,
    "stale": terminal.stale,
    "relay": relay.relay,
    "plugins": plugins.plugins,
    "remote": remote.stop_notified,
    "serve": serve.idle_service,
    "turns": gateway.turns,
    "warm": gateway.warm,
    "crowd": gateway.crowd,
    "chatstops": chat_stops.stops,
    "eleventh": chat_stops.eleventh,
    "chat_kills": gateway.kills,
    "api": api.turns,
    "first": api.first_byte,
    "health": api.kept_connection,
    "kept": api.kept_turn,
    "burst": api.burst,
    "listeners": api.listeners,
    "apistops": api.stops,
    "auxiliary": auxiliary_rounds.side_work,
    "stopped": auxiliary_rounds.stopped,
    "delegation": delegation.delegation,
    "toolstops": tool_stops.stops,
    "sandbox": sandbox.commands,
    "judging": approval.judging,
    "web": web.extraction,
    "mcp": mcp.servers,
    "checkpoints": checkpoints.checkpoints,
    "search": search.search,
    "schedules": schedules.schedules,
    **cluster.ALL,
    **cluster_services.ALL,
    **cluster_home.ALL,
    "pageload": page.load,
    "pagestream": page.streaming,
    "pagelong": page.long_conversation,
    "pagestops": page.stops,
    "pages": page.many_pages,
    "pageidle": page.idle_page,
}
GROUPS = {
    "terminal": ("start", "keys", "resizing", "idling", "streaming", "stopping"),
    "cluster": (*cluster.ALL, *cluster_services.ALL, *cluster_home.ALL),
    "page": ("pageload", "pagestream", "pagelong", "pagestops", "pages", "pageidle"),
}
"""Names for several figures."""
HEAD = ("figure", "ours", "raw limit", "ratio", f"rivals ({', '.join(SHORT.values())})", "reach", "")


def main(given: list[str]) -> int:
    words = [name for name in given if not name.startswith("-")]
    names = [name for word in words for name in GROUPS.get(word, (word,))]
    if unknown := set(names) - set(ALL):
        sys.exit(f"unknown figure {', '.join(sorted(unknown))}; known: {', '.join([*ALL, *GROUPS])}")
    last, seen = results.load(), list[tuple[Name, Row, float]]()
    for name, measure in ALL.items():
        if names and name not in names:
            continue
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        busy = os.getloadavg()[0]
        rows = asyncio.run(measure())
        seen += [(each, row, busy) for each, row in zip(results.named(name, rows), rows, strict=True)]
    _table(seen, last)
    _compare(seen, last)
    if "--keep" in given:
        for each, row, busy in seen:
            if now := results.figure(each, row, busy):
                last.put(now)
        results.save(last)
    return 0 if all(row.ok for _, row, _ in seen) else 1


def _table(seen: list[tuple[Name, Row, float]], last: results.Results) -> None:
    lines = [HEAD]
    for name, row, _ in seen:
        rivals = rival_figures(str(name), last.rivals)
        lines.append((*row[:4], rivals, row.reach, "yes" if row.ok else "NO"))
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEAD))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if last.rivals:
        print(f"rivals: as measured {last.rivals['date']} on {last.machine}, load {last.rivals['load']}")


def _compare(seen: list[tuple[Name, Row, float]], last: results.Results) -> None:
    same = last.machine == results.machine()
    compared, bad = 0, []
    for name, row, busy in seen:
        before, now = last.find(str(name)), results.figure(name, row, busy)
        if before is None or now is None:
            continue
        compared += 1
        if results.worse(before, now, same_machine=same):
            was = f"{before.value:g} {before.unit} on {before.date} (load {before.load:g})"
            bad.append(f"{name}: {now.value:g} {now.unit}, was {was}; noise is {before.tolerance:.0%}")
    where = "" if same else f"; kept on another machine ({last.machine}), so only ratios and counts"
    print(f"{compared} figures compared with the last results{where}: {len(bad)} worse beyond noise")
    for line in bad:
        print("  WORSE", line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
