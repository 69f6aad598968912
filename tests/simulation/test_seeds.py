"""Some hundred seeds, each run to its end. A failing seed is reported with its smallest failing plan."""

import os
import subprocess
import sys

import pytest

from tests.simulation.plan import VERBS, plan
from tests.simulation.run import run
from tests.simulation.shrink import shrink

SEEDS = int(os.environ.get("ALIPES_SIMULATION", "200"))
PART = 50


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_nothing_is_lost_duplicated_or_reordered_whatever_fails(first):
    for seed in range(first, min(first + PART, SEEDS)):
        outcome = run(plan(seed))
        if outcome.violations:
            smallest = shrink(outcome, tries=100)
            pytest.fail(
                f"seed {seed} (python -m tests.simulation {seed}): {outcome.violations[0]}\n"
                f"the smallest failing plan: {smallest.plan}\n" + "\n".join(smallest.violations)
            )


def test_a_seed_takes_the_same_steps_each_time():
    assert [run(plan(seed)).digest for seed in range(10)] == [run(plan(seed)).digest for seed in range(10)]


def test_a_seed_takes_the_same_steps_in_another_process():
    code = (
        "from tests.simulation.plan import plan; from tests.simulation.run import run; "
        "print(*(run(plan(seed)).digest for seed in range(8)))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    there = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert there.stdout.split() == [run(plan(seed)).digest for seed in range(8)]


def test_the_first_seeds_contain_every_kind_of_action_and_fault():
    plans = [plan(seed) for seed in range(300)]
    kinds = {fault.kind for each in plans for fault in each.faults}
    actions = {action.kind for each in plans for action in each.actions}
    assert kinds == {"crash", "power", "term", "full", "net", "hook"}
    commands = {"stop", "new", "steer", "queue", "undo", "retry", "compress", "background"}
    assert actions == {"say", "album", "again", "edit"} | commands
    assert {action.text.split()[0] for each in plans for action in each.actions if action.kind == "say"} == set(VERBS)
    assert {bool(each.window) for each in plans} == {bool(each.jobs) for each in plans} == {True, False}
    assert {each.busy for each in plans} == {"queue", "interrupt", "steer"}


def test_planned_faults_do_happen():
    seen = {str(entry[2]) for seed in range(40) for entry in run(plan(seed)).trace}
    assert {"crash", "ended", "full", "fails", "hook", "429", "500", "press", "again"} <= seen
