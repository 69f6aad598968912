"""Draws the measurements in docs/pictures as SVG, from bench/last.json alone.

    python -m bench.plots

Colours follow the reader's theme: one file is readable on a light and on a dark page.
"""

import html
import math
from pathlib import Path
from typing import Any

from bench import results

OUT = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 120, 62, 52
STYLE = """<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #3a3f47 }
.title { font-size: 15px; font-weight: 600; fill: #1f2328 } .note { font-size: 12px; fill: #6b727c }
.ground { fill: #fcfcfb; stroke: #d9dad6 } .grid { stroke: #e4e5e2 }
.a { --c: #2f6fc4 } .b { --c: #c4602c } .c { --c: #7b8a2a } .d { --c: #8a8f98 }
.line { fill: none; stroke: var(--c); stroke-width: 2 } .dot, .bar { fill: var(--c) }
.name { fill: var(--c); font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #c3c8d0 } .title { fill: #eceff3 } .note { fill: #8f97a3 }
.ground { fill: #16181d; stroke: #2b2f38 } .grid { stroke: #2b2f38 }
.a { --c: #6fa5ee } .b { --c: #e8905c } .c { --c: #b3c455 } .d { --c: #9aa1ac }
}
</style>"""
LOOKS = {"alipes": "a", "hermes-agent": "b", "nanobot": "c", "pi": "d", "codex": "d", "raw httpx2": "d"}


def draw(rivals: dict[str, Any]) -> None:
    (OUT / "latency.svg").write_text(latency(rivals, note(rivals)))
    (OUT / "cold-start.svg").write_text(cold_start(rivals, note(rivals)))


def note(rivals: dict[str, Any]) -> str:
    return f"measured {rivals['date']}, load {rivals['load']}"


def latency(rivals: dict[str, Any], below: str) -> str:
    """Both axes are logarithmic, so that values that differ a hundredfold are visible."""
    curves = {who: _points(rivals.get(who, {})) for who in LOOKS if rivals.get(who, {}).get("crowd")}
    every = [point for curve in curves.values() for point in curve]
    chats = sorted({x for x, _ in every})
    low = math.floor(math.log10(min(y for _, y in every)))
    high = math.ceil(math.log10(max(y for _, y in every)))

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(x / chats[0]) / math.log(chats[-1] / chats[0])

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(y) - low) / (high - low)

    out = _frame("Median wait for an answer on Telegram, many people writing at once", HEIGHT)
    for power in range(low, high + 1):
        y = up(10**power)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(_text(LEFT - 8, y + 4, _seconds(10**power), anchor="end"))
    out += [_text(across(x), HEIGHT - BOTTOM + 20, f"{x:g}", anchor="middle") for x in chats]
    out.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "people at once", "note", anchor="middle"))
    for who, curve in curves.items():
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve)
        out.append(f'<g class="{LOOKS[who]}"><polyline class="line" points="{path}"/>')
        out += [f'<circle class="dot" cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5"/>' for x, y in curve]
        out.append("</g>")
    out += _names({who: up(curve[-1][1]) for who, curve in curves.items()})
    return _end(out, below + "; model without delay")


def _names(heights: dict[str, float]) -> list[str]:
    """Each next to the end of its curve, without overlaps."""
    out, last = [], -math.inf
    for who, height in sorted(heights.items(), key=lambda pair: pair[1]):
        last = max(height, last + 16)
        out.append(f'<g class="{LOOKS[who]}">{_text(WIDTH - RIGHT + 10, last + 4, who, "name")}</g>')
    return out


def _points(seen: dict[str, Any]) -> list[tuple[int, float]]:
    """Only crowds in which everyone was answered."""
    crowd = seen["crowd"].items()
    return [(int(chats), point["p50"]) for chats, point in crowd if point["answered"] == int(chats)]


def cold_start(rivals: dict[str, Any], below: str) -> str:
    """Grouped bars: a one-shot question, and the gateway."""
    groups = [("first", "from the command to the first request to the model"), ("ready", "gateway ready")]
    found = [(title, _bars(rivals, figure)) for figure, title in groups]
    longest = max(value for _, bars in found for _, value in bars)
    height = TOP + sum(30 + 26 * len(bars) for _, bars in found) + 12
    out, y = _frame("Cold start, in seconds", height), TOP + 4
    for title, bars in found:
        out.append(_text(LEFT - 56, y + 10, title, "note"))
        y += 18
        for who, value in bars:
            long = (WIDTH - LEFT - RIGHT - 60) * value / longest
            out.append(_text(LEFT + 24, y + 15, who, anchor="end"))
            place = f'x="{LEFT + 32}" y="{y + 3}" width="{long:.1f}" height="17" rx="2"'
            out.append(f'<rect class="bar {LOOKS[who]}" {place}/>')
            out.append(_text(LEFT + 40 + long, y + 16, f"{value:.2f} s"))
            y += 26
        y += 12
    return _end(out, below, height)


def _bars(rivals: dict[str, Any], figure: str) -> list[tuple[str, float]]:
    seen = [(who, rivals.get(who, {}).get(figure)) for who in ("raw httpx2", *LOOKS)]
    return [(who, value) for who, value in dict(seen).items() if isinstance(value, float)]


def _frame(title: str, height: float) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{html.escape(title)}">',
        STYLE,
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>',
        _text(20, 28, title, "title"),
    ]


def _text(x: float, y: float, words: str, look: str = "", *, anchor: str = "start") -> str:
    kind = f' class="{look}"' if look else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def _seconds(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1000:g} ms"


def _end(out: list[str], below: str, height: float = HEIGHT) -> str:
    return "\n".join([*out, _text(20, 47, below, "note"), "</svg>"]) + "\n"


if __name__ == "__main__":
    draw(results.load().rivals)
