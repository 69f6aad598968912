"""Each rule is removed in turn: the simulation must find it, or it does not prove that rule."""

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import plan
from tests.simulation.run import run

SEEDS = 300
"""Within so many it must be found; most are within ten."""


@pytest.mark.parametrize("rule", MUTATIONS)
def test_without_this_rule_something_goes_wrong(rule, monkeypatch):
    mutate, taste = MUTATIONS[rule]
    mutate(monkeypatch)
    outcomes = (run(plan(seed, taste)) for seed in range(SEEDS))
    found = next((outcome.wrong for outcome in outcomes if outcome.wrong), ())
    assert found, f"{rule}: nothing is wrong in {SEEDS} seeds"
    assert not any("TypeError" in each or "AttributeError" in each for each in found), (
        "the patch does not fit"
    )
