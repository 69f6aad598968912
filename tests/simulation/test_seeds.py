"""Some hundred small worlds, each run to its end. A failing seed is named, with the least of it that fails."""

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
def test_whatever_goes_wrong_nothing_is_lost_doubled_or_out_of_order(first):
    for seed in range(first, min(first + PART, SEEDS)):
        outcome = run(plan(seed))
        if outcome.wrong:
            least = shrink(outcome, tries=100)
            pytest.fail(
                f"seed {seed} (python -m tests.simulation {seed}): {outcome.wrong[0]}\n"
                f"the least that fails: {least.plan}\n" + "\n".join(least.wrong)
            )


def test_a_seed_takes_the_same_steps_each_time():
    assert [run(plan(seed)).digest for seed in range(10)] == [run(plan(seed)).digest for seed in range(10)]


def test_a_seed_takes_the_same_steps_in_another_process():
    say = (
        "from tests.simulation.plan import plan; from tests.simulation.run import run; "
        "print(*(run(plan(seed)).digest for seed in range(8)))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    there = subprocess.run([sys.executable, "-c", say], env=env, capture_output=True, text=True, check=True)
    assert there.stdout.split() == [run(plan(seed)).digest for seed in range(8)]


def test_the_first_seeds_have_everything_that_may_go_wrong():
    plans = [plan(seed) for seed in range(300)]
    kinds = {fault.kind for each in plans for fault in each.faults}
    deeds = {deed.kind for each in plans for deed in each.deeds}
    assert kinds == {"crash", "power", "term", "full", "net", "hook"}
    commands = {"stop", "new", "steer", "queue", "undo", "retry", "compress", "background"}
    assert deeds == {"say", "album", "again", "edit"} | commands
    assert {deed.text.split()[0] for each in plans for deed in each.deeds if deed.kind == "say"} == set(VERBS)
    assert {bool(each.window) for each in plans} == {True, False}
    assert {each.busy for each in plans} == {"queue", "interrupt", "steer"}


def test_faults_are_met_and_not_only_planned():
    seen = {str(entry[2]) for seed in range(40) for entry in run(plan(seed)).trace}
    assert {"crash", "ended", "full", "fails", "hook", "429", "500", "press", "again"} <= seen
