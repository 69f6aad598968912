"""A short soak test of `alipes serve`: it does not grow under load. `make soak` is the long one."""

import pytest

from tests.world.soak import Sample, growth, slope, soak, summarise


@pytest.mark.deadline(240)
async def test_nothing_grows_under_mixed_load_with_stops_failures_and_lost_connections(tmp_path):
    soaked = await soak(tmp_path, seconds=12, laps=6, seed=3, counted=True)
    assert not soaked.unanswered and not soaked.complaints, soaked
    seen = summarise(soaked.looks)
    assert soaked.looks[-1].turns > 20, soaked
    assert seen["fds"][1] <= 6 and seen["threads"][1] <= 2 and seen["children"][1] <= 0, soaked
    assert seen["megabytes"][1] <= 20, soaked
    assert [look.held for look in soaked.looks] == [0] * 7, soaked  # no finished turn is kept in memory
    assert seen["things"][1] <= 1500, soaked


def test_a_slope_is_reported_per_hour_and_noise_has_none():
    assert slope([(0, 1.0), (1800, 2.0), (3600, 3.0)]) == pytest.approx(2.0)
    assert slope([(0, 1.0), (10, 3.0), (20, 1.0)]) == pytest.approx(0.0)
    assert growth([5, 5, 9, 5, 5, 5, 5, 5, 5]) == 0


def test_the_warm_up_phase_does_not_count():
    looks = [Sample(float(n), fds=10 + min(n, 3), threads=3, children=1, megabytes=50, turns=n) for n in range(12)]
    assert summarise(looks)["fds"] == (13, 0, 0.0)
    leaking = [Sample(float(n), 10 + n, 3, 1, 50, n) for n in range(12)]
    assert summarise(leaking)["fds"][1] == 6
