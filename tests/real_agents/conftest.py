"""Prints the table of the programs."""

import pytest

from tests.real_agents.scenario import COLUMNS

PROPERTY = "real agent"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    rows = [
        value
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY and report.when == "call"
    ]
    if rows:
        terminalreporter.section("real agents")
        terminalreporter.write_line(f"| {' | '.join(COLUMNS)} |")
        for row in rows:
            terminalreporter.write_line(f"| {' | '.join(row.get(name, '-') for name in COLUMNS)} |")
