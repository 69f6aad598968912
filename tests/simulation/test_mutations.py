"""Each rule is removed in turn: the simulation must find it, or it does not prove that rule."""

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import plan
from tests.simulation.run import run

SEEDS = 300
"""The violation must appear within this many seeds; most appear within ten."""


@pytest.mark.parametrize("rule", MUTATIONS)
def test_the_simulation_notices_that_a_rule_is_missing(rule, monkeypatch):
    mutate, profile = MUTATIONS[rule]
    mutate(monkeypatch)
    outcomes = (run(plan(seed, profile)) for seed in range(SEEDS))
    found = next((outcome.violations for outcome in outcomes if outcome.violations), ())
    assert found, f"{rule}: no violation in {SEEDS} seeds"
    assert not any("TypeError" in each or "AttributeError" in each for each in found), "the patch does not fit"
