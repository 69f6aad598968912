"""Each rule of the house in turn is taken away: the simulation finds it, or it is no proof of that rule."""

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import plan
from tests.simulation.running import run

SEEDS = 200
"""Within so many it must be found; most are within thirty."""


@pytest.mark.parametrize("rule", MUTATIONS)
def test_without_this_rule_something_goes_wrong(rule, monkeypatch):
    MUTATIONS[rule](monkeypatch)
    assert any(run(plan(seed)).bad for seed in range(SEEDS)), f"{rule}: nothing is wrong in {SEEDS} seeds"
