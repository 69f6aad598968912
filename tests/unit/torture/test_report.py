"""The report of the torture suite: what was tried, what failed, and what could not be tried."""

from pathlib import Path

from tests.torture import conftest as report


def test_every_file_belongs_to_a_scenario():
    files = sorted(Path(report.__file__).parent.glob("test_*.py"))
    numbers = {report.scenario(f"{file}::test_it") for file in files}
    assert numbers == set(report.SCENARIOS)


def test_a_violation_is_listed_by_its_test_id():
    failed = "tests/torture/test_01_x.py::test_it[7]"
    line = report.Line(tests=2, seeds=96, violations=[failed], worst={"stop": (0.25, "s")})
    seen = "\n".join(report.table({"1": line}))
    assert seen.startswith("# Torture: 1 violations") and f"- {failed}\n" in seen
    assert "| 1 Interrupt storm against open files | 2 | 96 | 1 | stop 0.25 s |" in seen
    assert all(f"- {number}: {why}" in seen for number, why in report.MISSING.items())
