"""Clusters under faults: workers killed, paused, cut off; PostgreSQL restarted and replaced by its standby.

A failing seed is printed with its plan and reruns alone. `make torture` runs ten seeds; the faults of each last
ALIPES_TORTURE_MINUTES divided by ten, two minutes at most. Otherwise each kind of fault is tried once.
"""

import os

import pytest

from tests.torture.fault_injector import main, run_on_node, run_on_pair, run_on_sqlite
from tests.torture.fault_plan import SHORT_PLAN, SHORT_PROMOTION
from tests.torture.trials import LONG, seeds
from tests.world.postgres_pair import data_template

MINUTES = float(os.environ.get("ALIPES_TORTURE_MINUTES", "0"))
SECONDS = min(120.0, MINUTES * 6) if MINUTES else 15.0
DEADLINE = SECONDS + 300


@pytest.fixture(scope="module", autouse=True)
def template():
    data_template()


@pytest.mark.deadline(DEADLINE)
@pytest.mark.parametrize("seed", seeds(1, 3))
async def test_a_killed_worker_on_sqlite_loses_and_doubles_nothing(seed, tmp_path, figures):
    report = await run_on_sqlite(tmp_path, seed, 15.0 if LONG else 4.0)
    assert report.messages and report.violations == [], report
    figures.tried(len(report.faults))


@pytest.mark.deadline(DEADLINE)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_four_workers_under_faults_lose_double_and_reorder_nothing(seed, tmp_path, figures):
    report = await (run_on_node(tmp_path, seed, SECONDS) if LONG else run_on_node(tmp_path, seed, 7.0, SHORT_PLAN))
    print(report)
    assert report.messages and report.violations == [], report
    figures.tried(len(report.faults))
    figures.worst("longest wait under faults", report.longest_wait_s, "s")
    figures.worst("tool calls in flight at a take-over", report.in_flight)


@pytest.mark.deadline(DEADLINE)
@pytest.mark.parametrize("seed", seeds(1, 10))
async def test_a_promoted_standby_has_every_accepted_message(seed, tmp_path, figures):
    report = await (run_on_pair(tmp_path, seed, SECONDS) if LONG else run_on_pair(tmp_path, seed, 6.0, SHORT_PROMOTION))
    print(report)
    assert report.messages and report.violations == [], report
    figures.tried(len(report.faults))


@pytest.mark.deadline(DEADLINE)
def test_the_command_prints_a_line_for_each_seed_and_a_total(capsys):
    assert main(["--first", "3", "--seeds", "1", "--minutes", "0.05"]) == 0
    seed, total = capsys.readouterr().out.splitlines()
    assert seed.startswith("seed 3: 60 messages, ") and seed.endswith(" 0 violations")
    assert total.startswith("total: 1 seeds, 60 messages, ") and total.endswith(" 0 violations")
