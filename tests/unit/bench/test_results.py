"""The last results of the bench: a file that is read back as it was, names that stay, and what counts as worse."""

import pytest
from bench import plots, results
from bench.measure import Row
from bench.results import Figure, Name, Results, figure, named, worse


def row(what="it", ours="2.00 ms", ratio="", reach="<= 5 ms"):
    return Row(what, ours, "", ratio, reach, True)


def test_a_figure_keeps_its_name_whatever_was_measured_on_the_way():
    rows = [
        row("stop, p99 of 187 (p50 3.1 ms)"),
        row("stop, p99 of 12 (p50 2 ms)"),
        row("kill -9 at 200 moments"),
    ]
    assert [name.words for name in named("x", rows)] == ["stop, p99", "stop, p99 2", "kill -9 at 200 moments"]


def test_of_a_ratio_the_ratio_is_kept_and_of_words_nothing():
    name = Name("oneshot", "it")
    ours = figure(name, row(ours="120 ms CPU", ratio="1.20"), 0.5)
    assert ours is not None and (ours.value, ours.unit, ours.load) == (1.2, "x", 0.5)
    plain = figure(name, row(ours="206.1 turns/s", reach=">= 150 turns/s"), 0.5)
    assert plain is not None and (plain.value, plain.unit, plain.more) == (206.1, "turns/s", True)
    assert figure(name, row(ours="0 lost, 0 repeated"), 0.5) is None


@pytest.mark.parametrize(
    "before,now,unit,more,bad",
    [
        (10, 14.9, "ms", False, False),
        (10, 16, "ms", False, True),
        (1.0, 1.2, "x", False, True),
        (1.2, 0.9, "x", False, False),
        (200, 160, "turns/s", True, False),
        (200, 140, "turns/s", True, True),
        (0, 1, "modules", False, True),
    ],
)
def test_worse_is_what_is_beyond_noise_in_the_wrong_direction(before, now, unit, more, bad):
    noise = results.NOISE.get(unit, (0.0, 0.0))[0]
    old, new = (Figure("f", value, unit, "2026-01-01", 0.1, noise, more) for value in (before, now))
    assert worse(old, new, same_machine=True) == bad


def test_on_another_machine_seconds_are_not_compared_but_ratios_are():
    def pair(unit):
        return [Figure("f", value, unit, "2026-01-01", 0.1) for value in (1.0, 9.0)]

    assert not worse(*pair("ms"), same_machine=False)
    assert worse(*pair("x"), same_machine=False)


def test_what_is_kept_is_read_back_and_a_figure_stays_in_its_place(tmp_path):
    file = tmp_path / "last.json"
    last = Results(rivals={"date": "2026-01-01", "load": "1.0", "alipes": {"cpu": 0.3}})
    for name, value in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        last.put(Figure(name, value, "ms", "2026-01-01", 0.1))
    results.save(last, file)
    assert results.load(file) == last and [each.figure for each in last.figures] == ["a", "b"]


def test_the_pictures_show_every_contestant_and_leave_out_crowds_that_were_not_all_answered():
    def seen(wait):
        points = {str(n): {"answered": n, "p50": wait * n} for n in (1, 16, 256)}
        return {"first": wait, "ready": wait, "crowd": points}

    rivals = {"date": "2026-01-01", "load": "1.0", "alipes": seen(0.01), "nanobot": seen(0.4)}
    rivals["nanobot"]["crowd"]["256"]["answered"] = 250
    drawn = plots.latency(rivals, "note")
    assert drawn.count("<circle") == 5 and "alipes" in drawn and "nanobot" in drawn
    assert plots.cold_start(rivals, "note").count('<rect class="bar') == 4
