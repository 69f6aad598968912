"""Time budget and report of the torture suite: scenario, seeds, violations, worst figure, and what is missing.

`ALIPES_TORTURE_MINUTES`: shared by the files; what one does not use goes to the next. Tests that would start later
are skipped and listed, except the first of a file. `ALIPES_TORTURE_REPORT`: the file for the report; without it,
the long pass prints the report at its end.
"""

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct, field

from tests.torture.trials import LONG, Figures

SCENARIOS = {
    "1": "Interrupt storm against open files",
    "2": "Many writers, random kills",
    "3": "Crash at every point of delivery",
    "4": "Flood control while streaming",
    "5": "Burst, duplicates, restart while busy",
    "6": "Stop means stop",
    "7": "Die mid tool call, then resume",
    "8": "Running but not receiving",
    "9": "Compressed month",
    "10": "Misbehaving MCP servers",
    "11": "Slow world, hung plugin",
    "12": "Compaction adversary",
    "13": "Schedules under stress",
    "14": "Hostile web pages, keys and commands",
    "15": "Canary exfiltration",
    "16": "Clusters under faults",
    "spare": "Other",
}
FILES = {
    "background": "6",
    "children": "6",
    "cluster_faults": "16",
    "cluster_mutations": "16",
    "compaction": "12",
    "delegation": "6",
    "gateway_kills": "3",
    "kill_resume": "7",
    "messenger_kills": "3",
    "side_work": "6",
    "soak": "9",
    "store_bad_disk": "2",
    "store_processes": "2",
}
"""The scenario of files without a number in their name."""
MISSING = {"2": "the page: not in the product", "14": "the page: not in the product"}
OTHER_SUITES = {
    "4": "tests/conformance/test_recovery.py",
    "5": "tests/conformance/test_stop.py",
    "13": "tests/unit/features/schedules/test_cron.py, tests/unit/features/schedules/test_scheduler.py, tests/simulation",
    "14": "tests/unit/agent/approval, tests/conformance/test_hostile.py, tests/e2e/test_api_keys.py",
    "15": "tests/unit/runtime/test_redaction.py, test_secrets.py",
    "spare": "tests/e2e/test_stale_clients.py, test_terminal_*.py, test_backup.py, tests/contract",
}
STARTED_AT = time.monotonic()
BUDGET = float(os.environ.get("ALIPES_TORTURE_MINUTES", "0")) * 60
DEADLINES: dict[Path, float] = {}
"""By file, the seconds since the start at which its time is up."""
STARTED_FILES: set[Path] = set()


class Line(Struct):
    """One scenario of the report."""

    tests: int = 0
    seeds: int = 0
    violations: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)


LINES: dict[str, Line] = defaultdict(Line)


def scenario(name: str) -> str:
    """The scenario of a test, by its file name."""
    file = Path(name.partition("::")[0]).stem.removeprefix("test_")
    numbered = re.match(r"(\d+|spare)_", file)
    return numbered[1].lstrip("0") if numbered else FILES.get(file, "spare")


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Figures for the report: number of attempts and the worst value seen."""
    yield Figures(request.node)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = dict.fromkeys(item.path for item in items if "torture" in item.path.parts)
    DEADLINES.update({file: BUDGET * place / len(files) for place, file in enumerate(files, 1)})


def pytest_runtest_setup(item: pytest.Item) -> None:
    if BUDGET and item.path in DEADLINES:
        if item.path in STARTED_FILES and time.monotonic() - STARTED_AT > DEADLINES[item.path]:
            pytest.skip("the time for this file is used up")
        STARTED_FILES.add(item.path)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/torture/" not in report.nodeid:
        return
    line = LINES[scenario(report.nodeid)]
    if report.skipped:
        line.left_out.append(f"{report.nodeid.partition('::')[2]}: {_skip_reason(report)}")
    if report.failed:
        line.violations.append(report.nodeid)
    if report.when != "call":
        return
    line.tests += 1
    seen = [value for kind, value in report.user_properties if kind == "tried"]
    line.seeds += sum(int(str(value)) for value in seen) or 1
    for kind, value in report.user_properties:
        if kind == "worst" and isinstance(value, list | tuple):
            name, figure, unit = value
            line.worst[name] = (max(figure, line.worst.get(name, (figure, ""))[0]), unit)


def _skip_reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "skipped"


def table(lines: dict[str, Line]) -> Iterable[str]:
    """The report, in Markdown."""
    yield f"# Torture: {sum(len(line.violations) for line in lines.values())} violations"
    yield ""
    yield "| scenario | tests | trials | violations | worst figure |"
    yield "|---|---|---|---|---|"
    for number, name in SCENARIOS.items():
        line = lines.get(number, Line())
        worst = ", ".join(f"{what} {value:g} {unit}".strip() for what, (value, unit) in line.worst.items())
        yield f"| {number} {name} | {line.tests} | {line.seeds} | {len(line.violations)} | {worst} |"
    yield from ("", "Violations; each name reruns alone:")
    yield from [f"- {each}" for line in lines.values() for each in line.violations] or ["- none"]
    yield from ("", "Not tried, because the product has no such part:")
    yield from (f"- {number}: {why}" for number, why in MISSING.items())
    yield from ("", "Tried by other suites too:")
    yield from (f"- {number}: {where}" for number, where in OTHER_SUITES.items())
    yield from ("", "Left out in this run:")
    yield from [f"- {each}" for line in lines.values() for each in line.left_out] or ["- none"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    where = os.environ.get("ALIPES_TORTURE_REPORT", "")
    if not LINES or not (LONG or where):
        return
    if where:
        Path(where).write_text("\n".join(table(LINES)) + "\n")
        return
    terminalreporter.write_line("")
    for each in table(LINES):
        terminalreporter.write_line(each)
