"""How long the conversion of a large web page takes, and how long the event loop waits meanwhile."""

import asyncio
import os
import random
import statistics
import time
from pathlib import Path

from alipes.features.web_search.converter import ConvertJob, PageConverter
from bench.measure import Row, bounded, descendants

PAGE_BYTES = 1_000_000
ROUNDS = 15
WORDS = [
    "lark",
    "song",
    "river",
    "morning",
    "stone",
    "window",
    "garden",
    "history",
    "model",
    "system",
    "energy",
    "water",
    "people",
    "country",
    "report",
    "local",
]


def make_page(size: int = PAGE_BYTES) -> bytes:
    """An article such as newspapers serve: half of it is scripts and styles, the rest text, links and tables."""
    rng = random.Random(1)

    def words(count: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(count))

    script = f"<script>window.state = {{{','.join(f'{word}: {n}' for n, word in enumerate(WORDS * 40))}}}</script>"
    style = "<style>" + "".join(f".c{n} {{ color: red; margin: {n}px }}" for n in range(200)) + "</style>"
    parts = [
        f"<!doctype html><html><head><title>Larks</title>{style}</head><body><nav><a href='/'>Home</a></nav><article>"
    ]
    length, number = 0, 0
    while length < size:
        number += 1
        row = "".join(f"<td class='data'><a href='/item/{number}-{cell}'>{words(2)}</a></td>" for cell in range(3))
        part = (
            f"<h2 id='s{number}'>Section {number}</h2><p class='text'>{words(60)} <a href='/{number}'>{words(3)}</a> "
            f"{words(60)}.</p><ul><li>{words(12)}</li><li>{words(9)}</li></ul><table><tr>{row}</tr></table>"
        )
        parts.append(part := part + script * (number % 8 == 0))
        length += len(part)
    return ("".join(parts) + "</article></body></html>").encode()


async def extraction() -> list[Row]:
    job = ConvertJob("html", make_page(), url="https://site.example/page")
    async with PageConverter(dict(os.environ)) as converter:
        began = time.perf_counter()
        made = await converter.convert(job)
        first = (time.perf_counter() - began) * 1000
        assert len(made.text) > 200_000, len(made.text)
        times, lags, used = [], [], _child_cpu()
        for _ in range(ROUNDS):
            took, lag = await _measure(converter, job)
            times.append(took * 1000)
            lags.append(lag * 1000)
        used = (_child_cpu() - used) / ROUNDS * 1000
    return [
        bounded("extraction of a 1 MB page (median)", statistics.median(times), 300, "ms"),
        bounded("the same, CPU of its process (mean)", used, 300, "ms"),
        bounded("loop lag meanwhile (median)", statistics.median(lags), 20, "ms"),
        bounded("the first one, with the start of its process", first, 1500, "ms"),
    ]


def _child_cpu() -> float:
    """User and system seconds of all child processes so far."""
    total = 0.0
    for pid in descendants(os.getpid()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


async def _measure(converter: PageConverter, job: ConvertJob) -> tuple[float, float]:
    """Seconds until the page is converted, and the longest time that a ready task waited."""
    longest, done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not done.is_set():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began - 0.001)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        await asyncio.sleep(0.01)
        began = time.perf_counter()
        await converter.convert(job)
        took = time.perf_counter() - began
        done.set()
    return took, longest
