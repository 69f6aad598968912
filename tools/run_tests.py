"""Run the tests: `python tools/run_tests.py quick | all | [OPTIONS OF PYTEST]...`, used by the Makefile and .ci/run.

`quick` runs what ends in minutes: as on somebody else's machine, with no program or variable that the tests did not set
up. `all` runs that and the tests of whole programs as on a busy machine of somebody else, then everything that has not
run: the page, the long tests, and what was skipped because a program was hidden.

A test that fails beside others but passes alone depends on the load of the machine: it is listed as unstable, which is
a defect of the test, and does not fail the run. A test that fails alone too fails the run.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path[0] = str(ROOT)  # as `python -m pytest` does

from tools.other_machine import IGNORE_SIGNALS, busy_machine, hidden_programs  # noqa: E402

DURATIONS = ROOT / ".venv" / "test-durations.json"
"""What the tests of the last run took; see tools/slowest.py."""
GATES = ("tests/architecture",)
"""Run by `make check`."""
LATER = (
    "tests/e2e",
    "tests/conformance",
    "tests/compat/test_bundled_platforms.py",
    "tests/contract/test_docs_plugins.py",
    "tests/contract/test_embedded.py",
    "tests/contract/test_foreign_servers.py",
    "tests/contract/test_kit_pytest.py",
    "tests/contract/test_provider_model_server.py",
    "tests/contract/test_providers_in_trouble.py",
    "tests/contract/test_telegram_server.py",
    "tests/simulation/test_mutations.py",
    "tests/unit/agent/approval/test_shell_tricks.py",
    "tests/unit/cli/test_plugins_install.py",
    "tests/unit/console/markdown/test_stream.py",
    "tests/unit/features/browser",
    "tests/unit/plugins/install/test_packages.py",
)
"""Whole programs, and other tests that take long: not among the quick ones."""
LONG = ("tests/page", "tests/torture")
"""Browsers, crashes, load: run once, with all services."""
MAX_REPEATED = 10
"""With more failures nothing is repeated: the cause is not the load."""
SAVE = "--save-results="
WORKERS = os.environ.get("WORKERS") or "4"


class Results:
    """Collects what became of each test and how long it took, also in other pytest workers."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.seconds: Counter[str] = Counter()

    @property
    def failed(self) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome == "failed"]

    @property
    def skipped(self) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome == "skipped"]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.when == "call" or not report.passed:
            self._add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._add(report)

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if self.outcomes.get(report.nodeid) != "failed":
            self.outcomes[report.nodeid] = report.outcome
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")

    def add(self, saved: Mapping[str, Any]) -> None:
        """Add those of another run; what ran there counts."""
        for test, outcome in saved["outcomes"].items():
            self.outcomes[test] = outcome
        self.reasons |= saved["reasons"]
        self.seconds.update(saved["seconds"])

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"outcomes": self.outcomes, "reasons": self.reasons, "seconds": self.seconds}))

    def describe(self, name: str, started: float) -> str:
        """What was run, how long it took, and what was skipped, for the last lines of the output."""
        counts, files = Counter(self.outcomes.values()), Counter[str]()
        for test, seconds in self.seconds.items():
            files[test.partition("::")[0]] += seconds
        minutes, seconds = divmod(round(time.monotonic() - started), 60)
        lines = [f"{name}: {minutes}:{seconds:02} minutes"]
        why = Counter(self.reasons[test] for test in self.skipped if test in self.reasons)
        lines += [f"  {count} skipped: {reason}" for reason, count in why.most_common(5)]
        if len(why) > 5:
            lines.append(f"  and {sum(why.values()) - sum(n for _, n in why.most_common(5))} more, for other reasons")
        for file, seconds in files.most_common(1):
            lines.append(f"  slowest file: {file}, {seconds:.0f} s (more: python tools/slowest.py)")
        lines.append(f"tests: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
        return "\n".join(lines)


def run_pytest(arguments: list[str]) -> int:
    """Run pytest here, repeat what failed, and save the results if an argument says where."""
    targets = [Path(each.removeprefix(SAVE)) for each in arguments if each.startswith(SAVE)]
    results = Results()
    status = int(pytest.main([each for each in arguments if not each.startswith(SAVE)], plugins=[results]))
    if status == pytest.ExitCode.TESTS_FAILED and 0 < len(results.failed) <= MAX_REPEATED:
        print(f"\nrun_tests: repeating {len(results.failed)} failed tests alone", flush=True)
        status = subprocess.run([sys.executable, "-m", "pytest", *results.failed], check=False).returncode
        if status == 0:
            print("run_tests: unstable, passed when repeated alone:", *results.failed, sep="\n  ", flush=True)
            results.outcomes |= dict.fromkeys(results.failed, "passed")
    for target in targets:
        results.save(target)
    return status


def run_part(
    folder: Path,
    paths: Iterable[str],
    *,
    environ: Mapping[str, str],
    without: Iterable[str] = (),
    before: Iterable[str] = (),
) -> tuple[int, Mapping[str, Any]]:
    """Run the tests of `paths` in another process with these variables; returns its status and results. `before`: words
    before its command."""
    saved, listed = folder / "results.json", folder / "paths"
    listed.write_text("\n".join(paths))
    options = ["-n", WORKERS, "--dist", "worksteal", *(f"--ignore={each}" for each in without)]
    words = [*before, sys.executable, str(ROOT / "tools" / "run_tests.py"), f"{SAVE}{saved}", *options, f"@{listed}"]
    status = subprocess.run(words, cwd=ROOT, env=dict(environ), check=False).returncode
    return status, json.loads(saved.read_text())


def main(arguments: list[str]) -> int:
    if arguments not in (["quick"], ["all"]):
        return run_pytest(arguments)
    everything, started, results = arguments == ["all"], time.monotonic(), Results()
    with tempfile.TemporaryDirectory(prefix="alipes-run-") as name:
        folder = Path(name)
        with ExitStack() as stack:
            environ = stack.enter_context(hidden_programs())
            if everything:
                stack.enter_context(busy_machine())
            without = (*GATES, *LONG, *(() if everything else LATER))
            before = IGNORE_SIGNALS if everything else ()
            status, saved = run_part(folder, ["tests"], environ=environ, without=without, before=before)
            results.add(saved)
        if everything:
            more, saved = run_part(folder, [*LONG, *results.skipped], environ=os.environ)
            status = status or more
            results.add(saved)
    results.save(DURATIONS)
    name = "make test-all" if everything else "make test"
    print(f"\n{results.describe(name, started)}", flush=True)
    if not everything:
        print("Not run: whole programs, the page, long tests, and what needs other programs: make services test-all")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
