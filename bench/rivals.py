"""`make bench-rivals`: a raw script, alipes and its rivals, measured in one run on one scripted model.

`--keep` writes the results to bench/last.json and redraws docs/pictures from them.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench import gateways, oneshots, plots, results
from bench.rival_agents import ALIPES, ALL, HERMES, NANOBOT, Contestant

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
CROWDS = (1, 4, 16, 64, 256)
LAPS = 5
NAMES = oneshots.NAMES | gateways.NAMES
SHORT = {HERMES.name: "hermes", NANOBOT.name: "nanobot"}
RIVAL_FIGURES = {
    "oneshot: one-shot / raw httpx2": ("cpu", "s CPU"),
    "oneshot: one-shot, peak memory": ("peak", "MB"),
    "oneshot: system prompt + core tool schemas": ("bytes", "bytes with all tools"),
    "rounds: 50 terminal rounds, each / raw": ("round", "ms"),
    "rounds: TCP connections for 51 calls": ("lines", ""),
    "serve: serve: start to ready, median": ("ready", "s"),
    "serve: serve: resident after 20 s at rest, no platform": ("idle", "MB"),
    "turns: Telegram, 64 chats, model without delay": ("rate", "turns/s"),
    "turns: the same, CPU per turn": ("each", "ms"),
    "warm: warm turn beyond model and messenger, p50": ("warm", "ms in all"),
    "chatstops: /stop in a chat to child gone, p99": ("stop", "ms p50"),
}
"""By our figure: the matching figure of the rivals, and its unit."""


def rival_figures(name: str, rivals: dict[str, Any]) -> str:
    """The values of the rivals for one of our figures."""
    figure, unit = RIVAL_FIGURES.get(name, ("", ""))
    if name.startswith("chat_kills: kill -9"):
        figure, unit = "kill", ""
    found = [(short, rivals.get(who, {}).get(figure)) for who, short in SHORT.items()]
    return ", ".join(f"{short} {show(value)} {unit}".rstrip() for short, value in found if value is not None)


def show(value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


async def measure(contestants: tuple[Contestant, ...]) -> dict[str, dict[str, Any]]:
    print("measuring one-shots ...", file=sys.stderr, flush=True)
    found: dict[str, dict[str, Any]] = dict(await oneshots.measure(contestants, LAPS))
    for each in contestants:
        if each.gateway is not None:
            print(f"measuring the gateway of {each.name} ...", file=sys.stderr, flush=True)
            found[each.name] |= await gateways.measure(each, CROWDS)
        else:
            found[each.name] |= dict.fromkeys(gateways.NAMES, "no gateway")
    return found


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """A Markdown table: one row per figure, one column per contestant."""
    lines = ["| | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    for figure, words in NAMES.items():
        lines.append(f"| {words} | " + " | ".join(show(seen.get(figure)) for seen in found.values()) + " |")
    for chats in CROWDS:
        cells = [_crowd(seen.get("crowd", {}).get(str(chats)), chats) for seen in found.values()]
        lines.append(f"| gateway: {chats} at once, p50 to p99 (s) | " + " | ".join(cells) + " |")
    return lines


def _crowd(point: dict[str, float] | None, chats: int) -> str:
    if not point or not point["answered"]:
        return "none answered" if point else "-"
    seen = f"{point['p50']:.3g} to {point['p99']:.3g}"
    return seen if point["answered"] == chats else f"{seen}, {chats - point['answered']:.0f} never"


def format_page_section(last: results.Results) -> str:
    """The section about rivals in docs/benchmarks.md."""
    found = {who: each for who, each in last.rivals.items() if isinstance(each, dict)}
    where = f"Measured {last.rivals['date']}: {last.machine}; load {last.rivals['load']}."
    return "\n".join(["", where, "", *table(found), ""])


def _between(page: str) -> str:
    return page.partition("<!-- rivals -->")[2].partition("<!-- /rivals -->")[0]


def _rounded(seen: Any) -> Any:
    """Round each number to four digits."""
    if isinstance(seen, dict):
        return {name: _rounded(each) for name, each in seen.items()}
    return float(f"{seen:.4g}") if isinstance(seen, float) else seen


def main(given: list[str]) -> int:
    there = tuple(each for each in ALL if each.there)
    for each in (each for each in ALL if not each.there):
        print(f"{each.name} is not installed and is left out", file=sys.stderr)
    busy = os.getloadavg()[0]
    found = _rounded(asyncio.run(measure(there)))
    print("\n".join(table(found)))
    load = f"{busy:.1f} at the start, {os.getloadavg()[2]:.1f} on average at the end"
    print(f"\n{results.machine()}; load {load}. A text in a cell says why there is no number.")
    if "--keep" in given:
        last = results.load()
        day = time.strftime("%Y-%m-%d", time.gmtime())
        last.rivals = {"date": day, "load": load, **found}
        results.save(last)
        plots.draw(last.rivals)
        page = PAGE.read_text()
        PAGE.write_text(page.replace(f"-->{_between(page)}<!-- /", f"-->{format_page_section(last)}<!-- /"))
    return 0 if ALIPES.name in found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
