"""The last saved results, in `bench/last.json`, and what got worse since."""

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
"""By unit: relative and absolute noise. Other units have none."""
ANYWHERE = ("x", "bytes", "complete", "modules", "stops", "things", "")
"""Units that can be compared between machines."""


class Figure(Struct):
    """One measured value: the ratio if there is one, otherwise our value."""

    figure: str
    value: float
    unit: str
    date: str
    load: float
    """Load average when the measurement started."""
    tolerance: float = 0.0
    """Relative noise."""
    more: bool = False
    """More is better."""


class Results(Struct):
    machine: str = ""
    figures: list[Figure] = field(default_factory=list)
    rivals: dict[str, Any] = field(default_factory=dict)
    """Results of `make bench-rivals`: `date`, `load`, and the figures by contestant."""

    def find(self, name: str) -> Figure | None:
        return next((each for each in self.figures if each.figure == name), None)

    def put(self, new: Figure) -> None:
        """Replace a figure in place, so that the diff of the file stays small."""
        places = [n for n, each in enumerate(self.figures) if each.figure == new.figure]
        if places:
            self.figures[places[0]] = new
        else:
            self.figures.append(new)


class Name(NamedTuple):
    group: str
    """Its name on the command line."""
    words: str

    def __str__(self) -> str:
        return f"{self.group}: {self.words}"


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def load(file: Path = FILE) -> Results:
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else Results()


def save(last: Results, file: Path = FILE) -> None:
    """Write one figure per line."""
    last.machine = machine()
    seen = msgspec.to_builtins(last)
    lines = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in seen["figures"])
    rivals = ",\n  ".join(f"{json.dumps(who)}: {json.dumps(each)}" for who, each in seen["rivals"].items())
    file.write_text(
        f'{{\n "machine": {json.dumps(last.machine)},\n "figures": [\n  {lines}\n ],\n'
        f' "rivals": {{\n  {rivals}\n }}\n}}\n'
    )


def named(group: str, rows: list[Row]) -> list[Name]:
    """Names that stay the same from run to run: without measured values."""
    names: list[Name] = []
    for row in rows:
        words = plain = re.sub(r"\s*\([^)]*\)|,? of \d+", "", row.what)
        count = 1
        while Name(group, words) in names:
            count += 1
            words = f"{plain} {count}"
        names.append(Name(group, words))
    return names


def figure(name: Name, row: Row, busy: float) -> Figure | None:
    """None if the row is not a number."""
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
    """True if worse beyond noise; between machines only comparable units count."""
    if before.unit != now.unit or not (same_machine or now.unit in ANYWHERE):
        return False
    noise = before.value * before.tolerance + NOISE.get(now.unit, (0.0, 0.0))[1]
    return now.value < before.value - noise if now.more else now.value > before.value + noise
