"""Auxiliary work, much of it failing or stopped: nothing is left over, with one connection pool per endpoint."""

import os

import pytest

from tests.world.auxiliary_load import KINDS, at_baseline, run_rounds

ROUNDS = int(os.environ.get("ALIPES_TORTURE_TRIALS", "6")) * 5


@pytest.mark.deadline(600)
@pytest.mark.parametrize("seed", [1])
async def test_rounds_of_auxiliary_work_leave_nothing_behind(tmp_path, seed, capfd, figures):
    left = await run_rounds(tmp_path / "w", rounds=ROUNDS, seed=seed)
    assert at_baseline(left.before, left.after), (left.before, left.after)
    assert left.complaints == [] and capfd.readouterr().err == ""
    assert len(left.pools) == len(set(left.pools)), left.pools
    figures.tried(ROUNDS)
    assert left.endings["stopped"] > 3 and left.endings["answered"] > 3


@pytest.mark.deadline(600)
@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_stopped_at_random_points_leaves_nothing_running(tmp_path, kind):
    left = await run_rounds(tmp_path / "w", rounds=max(8, ROUNDS // 12), seed=3, kinds=(kind,), stops=1.0)
    assert at_baseline(left.before, left.after), (left.before, left.after)
    assert left.complaints == []
