"""Prints the table of everyday tasks."""

import pytest

EVERYDAY = "everyday task"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed", "skipped") for report in terminalreporter.stats.get(kind, ())]
    rows = [
        value.split("|")
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == EVERYDAY and report.when == "call"
    ]
    if not rows:
        return
    terminalreporter.section("everyday tasks in the sandbox")
    terminalreporter.write_line(f"{'task':<44}{'questions':>10}  result")
    for task, questions, result in rows:
        terminalreporter.write_line(f"{task:<44}{questions:>10}  {result}")
    done = [row for row in rows if row[2] == "done"]
    asked = sum(int(questions) for _, questions, _ in rows)
    terminalreporter.write_line(f"{len(done)} of {len(rows)} done, {asked} questions")
