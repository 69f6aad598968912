"""A short soak of `alipes serve`: after each lap of load it is as small as before. `make soak` is the long one."""

import pytest

from tests.world.soaking import Look, facts, growth, slope, soak


@pytest.mark.deadline(120)
async def test_nothing_grows_under_mixed_load_with_stops_failures_and_lost_connections(tmp_path):
    soaked = await soak(tmp_path, seconds=12, laps=6, seed=3, counted=True)
    assert not soaked.unanswered and not soaked.complaints, soaked
    told = facts(soaked.looks)
    assert soaked.looks[-1].turns > 20, soaked
    assert told["fds"][1] <= 6 and told["threads"][1] <= 2 and told["children"][1] <= 0, soaked
    assert told["megabytes"][1] <= 20, soaked
    assert [look.held for look in soaked.looks] == [0] * 7, soaked  # nothing holds a turn that is over
    assert told["things"][1] <= 1500, soaked


def test_a_slope_is_told_an_hour_and_noise_about_a_level_has_none():
    assert slope([(0, 1.0), (1800, 2.0), (3600, 3.0)]) == pytest.approx(2.0)
    assert slope([(0, 1.0), (10, 3.0), (20, 1.0)]) == pytest.approx(0.0)
    assert growth([5, 5, 9, 5, 5, 5, 5, 5, 5]) == 0


def test_what_is_warming_up_is_not_judged():
    looks = [
        Look(float(n), fds=10 + min(n, 3), threads=3, children=1, megabytes=50, turns=n) for n in range(12)
    ]
    assert facts(looks)["fds"] == (13, 0, 0.0)
    leaking = [Look(float(n), 10 + n, 3, 1, 50, n) for n in range(12)]
    assert facts(leaking)["fds"][1] == 6
