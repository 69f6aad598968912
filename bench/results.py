"""The last results that were kept, in `bench/last.json`, and what got worse since. Measures nothing."""

import json
import os
import platform
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

from bench.measure import Row

FILE = Path(__file__).parent / "last.json"
NOISE = {
    "x": (0.15, 0.0), "ms": (0.4, 1.0), "us": (0.3, 0.3), "s": (0.3, 0.1), "%": (0.01, 0.3),
    "MB": (0.1, 3.0), "bytes": (0.02, 0.0), "turns/s": (0.25, 0.0),
}  # fmt: skip
"""By unit: which part of a value is noise, and how much is noise whatever the value. Others have none."""
ANYWHERE = ("x", "bytes", "complete", "modules", "stops", "things", "")
"""Units that mean the same on any machine."""


class Figure(Struct):
    """One value as it was measured: of a ratio the ratio, else ours."""

    figure: str
    value: float
    unit: str
    date: str
    load: float
    """How busy the machine was, in processes that wanted to run, when measuring began."""
    tolerance: float = 0.0
    """Which part of the value is noise."""
    more: bool = False
    """More is better."""


class Kept(Struct):
    machine: str = ""
    figures: list[Figure] = field(default_factory=list)
    rivals: dict[str, Any] = field(default_factory=dict)
    """What `make bench-rivals` found: `date`, `load`, and by contestant its figures."""

    def find(self, name: str) -> Figure | None:
        return next((each for each in self.figures if each.figure == name), None)

    def put(self, new: Figure) -> None:
        """In the place of the former one, so that a change of the file shows what changed."""
        places = [n for n, each in enumerate(self.figures) if each.figure == new.figure]
        if places:
            self.figures[places[0]] = new
        else:
            self.figures.append(new)


class Name(NamedTuple):
    room: str
    """By which a figure is chosen on the command line."""
    words: str

    def __str__(self) -> str:
        return f"{self.room}: {self.words}"


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def load(file: Path = FILE) -> Kept:
    return msgspec.json.decode(file.read_bytes(), type=Kept) if file.exists() else Kept()


def save(kept: Kept, file: Path = FILE) -> None:
    """A figure a line."""
    kept.machine = machine()
    seen = msgspec.to_builtins(kept)
    lines = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in seen["figures"])
    rivals = ",\n  ".join(f"{json.dumps(who)}: {json.dumps(each)}" for who, each in seen["rivals"].items())
    file.write_text(
        f'{{\n "machine": {json.dumps(kept.machine)},\n "figures": [\n  {lines}\n ],\n'
        f' "rivals": {{\n  {rivals}\n }}\n}}\n'
    )


def named(room: str, rows: list[Row]) -> list[Name]:
    """Names that stay the same from run to run: without what was measured on the way."""
    names: list[Name] = []
    for row in rows:
        words = plain = re.sub(r"\s*\([^)]*\)|,? of \d+", "", row.what)
        count = 1
        while Name(room, words) in names:
            count += 1
            words = f"{plain} {count}"
        names.append(Name(room, words))
    return names


def figure(name: Name, row: Row, busy: float) -> Figure | None:
    """None where the row is no number."""
    if row.ratio:
        value, unit = float(row.ratio), "x"
    else:
        found = re.fullmatch(r"(-?[\d.]+) ?(\D*)", row.ours)
        if not found:
            return None
        value, unit = float(found[1]), found[2]
    day, noise = time.strftime("%Y-%m-%d", time.gmtime()), NOISE.get(unit, (0.0, 0.0))[0]
    return Figure(str(name), value, unit, day, round(busy, 1), noise, row.reach.startswith(">="))


def worse(before: Figure, now: Figure, *, same_machine: bool) -> bool:
    """Beyond noise; on another machine only what means the same there is compared."""
    if before.unit != now.unit or not (same_machine or now.unit in ANYWHERE):
        return False
    noise = before.value * before.tolerance + NOISE.get(now.unit, (0.0, 0.0))[1]
    return now.value < before.value - noise if now.more else now.value > before.value + noise
