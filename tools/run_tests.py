"""Run pytest, and repeat alone what failed. `python tools/run_tests.py [OPTIONS OF PYTEST]...`, used by .ci/run.

A test that fails beside others but passes alone depends on the load of the machine: it is listed as unstable, which is
a defect of the test, and does not fail the run. A test that fails alone too fails the run.
"""

import subprocess
import sys
from pathlib import Path

import pytest

MAX_REPEATED = 10
"""With more failures nothing is repeated: the cause is not the load."""


class FailedTests:
    """Collects the tests that failed, also those of other pytest workers."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.ids[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.ids[report.nodeid] = None


def main(arguments: list[str]) -> int:
    failed = FailedTests()
    status = int(pytest.main(arguments, plugins=[failed]))
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed.ids) <= MAX_REPEATED:
        return status
    print(f"\nrun_tests: repeating {len(failed.ids)} failed tests alone", flush=True)
    repeated = subprocess.run([sys.executable, "-m", "pytest", *failed.ids], check=False).returncode
    if repeated == 0:
        print("run_tests: unstable, passed when repeated alone:", *failed.ids, sep="\n  ", flush=True)
    return repeated


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # as `python -m pytest` does
    sys.exit(main(sys.argv[1:]))
