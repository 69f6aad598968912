"""The saved results of the bench: file format, stable names, and what counts as worse."""

import pytest
from bench import plots, results
from bench.measure import Row
from bench.results import Figure, Name, Results, figure, named, worse


def row(what="it", ours="2.00 ms", ratio="", reach="<= 5 ms"):
    return Row(what, ours, "", ratio, reach, True)


def test_the_name_of_a_figure_contains_no_measured_value():
    rows = [row("stop, p99 of 187 (p50 3.1 ms)"), row("stop, p99 of 12 (p50 2 ms)"), row("kill -9 at 200 moments")]
    assert [name.words for name in named("x", rows)] == ["stop, p99", "stop, p99 2", "kill -9 at 200 moments"]


def test_a_figure_is_the_ratio_or_our_value_and_text_has_none():
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
def test_a_figure_is_worse_only_beyond_noise(before, now, unit, more, bad):
    noise = results.NOISE.get(unit, (0.0, 0.0))[0]
    old, new = (Figure("f", value, unit, "2026-01-01", 0.1, noise, more) for value in (before, now))
    assert worse(old, new, same_machine=True) == bad


def test_between_machines_only_comparable_units_count():
    def pair(unit):
        return [Figure("f", value, unit, "2026-01-01", 0.1) for value in (1.0, 9.0)]

    assert not worse(*pair("ms"), same_machine=False)
    assert worse(*pair("x"), same_machine=False)


def test_saved_results_are_read_back_in_the_same_order(tmp_path):
    file = tmp_path / "last.json"
    last = Results(rivals={"date": "2026-01-01", "load": "1.0", "alipes": {"cpu": 0.3}})
    for name, value in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        last.put(Figure(name, value, "ms", "2026-01-01", 0.1))
    results.save(last, file)
    assert results.load(file) == last and [each.figure for each in last.figures] == ["a", "b"]


def test_pictures_show_each_contestant_without_crowds_that_lost_answers():
    def seen(wait):
        points = {str(n): {"answered": n, "p50": wait * n} for n in (1, 16, 256)}
        return {"first": wait, "ready": wait, "crowd": points}

    rivals = {"date": "2026-01-01", "load": "1.0", "alipes": seen(0.01), "nanobot": seen(0.4)}
    rivals["nanobot"]["crowd"]["256"]["answered"] = 250
    drawn = plots.latency(rivals, "note")
    assert drawn.count("<circle") == 5 and "alipes" in drawn and "nanobot" in drawn
    assert plots.cold_start(rivals, "note").count('<rect class="bar') == 4
