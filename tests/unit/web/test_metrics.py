"""Figures as Prometheus reads them: judged by the text format's own rules."""

import re

from alipes.kernel.turns import Address, Inbound, Turn, Usage
from alipes.plugins.dispatch import Hooks
from alipes.runtime.http.egress import EgressCounts
from alipes.web.metrics import Counter, Gauge, Histogram, QueueDepths, ServerMetrics, render_metrics

LINE = re.compile(
    r'^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?P<labels>[a-z_]+="(\\.|[^"\\\n])*"(,[a-z_]+="(\\.|[^"\\\n])*")*)\})? '
    r"(?P<value>-?\d+(\.\d+)?(e-?\d+)?)$"
)


def seen(text: str) -> dict[str, float]:
    """The samples of a page; fails where a line is not one, or its kind was not reported before."""
    kinds: dict[str, str] = {}
    found = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds, "reported twice"
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            match = LINE.match(line)
            assert match, line
            assert any(match["name"].startswith(name) for name in kinds)
            found[line.rpartition(" ")[0]] = float(match["value"])
    return found


def turn(platform: str = "telegram", id: str = "t1") -> Turn:
    return Turn(id, "s", Inbound("i", Address(platform, "1"), "someone", "a secret thing was said"))


def test_a_counter_counts_by_its_labels_and_names_are_made_harmless():
    counter = Counter("things_total", "Things.", "kind")
    counter.add("a")
    counter.add("a", amount=1.5)
    counter.add('say "no"\\\n')
    assert seen(render_metrics([counter])) == {
        'things_total{kind="a"}': 2.5,
        'things_total{kind="say \\"no\\"\\\\\\n"}': 1,
    }
    assert counter.value("a") == 2.5


def test_a_counter_without_labels_is_reported_from_the_start():
    assert seen(render_metrics([Counter("things_total", "Things.")])) == {"things_total": 0}


def test_a_histogram_counts_what_is_at_most_so_much():
    histogram = Histogram("wait_seconds", "Waits.", (1.0, 0.1))
    for value in (0.1, 0.5, 7.0):
        histogram.observe(value)
    assert seen(render_metrics([histogram])) == {
        'wait_seconds_bucket{le="0.1"}': 1,
        'wait_seconds_bucket{le="1"}': 2,
        'wait_seconds_bucket{le="+Inf"}': 3,
        "wait_seconds_sum": 7.6,
        "wait_seconds_count": 3,
    }


def test_a_gauge_is_what_it_was_set_to_last():
    gauge = Gauge("deep", "How deep.", "queue")
    gauge.set(3, "turns")
    gauge.set(1, "turns")
    assert seen(render_metrics([gauge])) == {'deep{queue="turns"}': 1}


async def test_turns_and_stops_are_counted_by_the_door_that_plugins_use():
    now = [10.0]
    tally, hooks = ServerMetrics("1.2.3", clock=lambda: now[0]), Hooks()
    tally.register(hooks)
    assert {"turn_ended", "agent_loop_stopped"} <= set(hooks._entries)
    await tally.agent_loop_stopped("t1")
    now[0] += 0.02
    await tally.turn_ended(turn(), "stopped", None)
    await tally.turn_ended(turn("discord", "t2"), "answered", Usage(input=100, output=5, cached=50, cost=0.25))
    await tally.turn_ended(turn("discord", "t3"), "answered", Usage(input=1, output=1))
    found = seen(render_metrics(tally.metrics))
    assert found['alipes_turns_total{platform="telegram",ending="stopped"}'] == 1
    assert found['alipes_turns_total{platform="discord",ending="answered"}'] == 2
    assert found['alipes_stop_seconds_bucket{le="0.025"}'] == 1
    assert found["alipes_stop_seconds_count"] == 1
    assert found['alipes_tokens_total{kind="input"}'] == 101
    assert found["alipes_cost_dollars_total"] == 0.25


def test_what_is_queued_and_what_came_and_went_is_reported():
    tally = ServerMetrics("1.2.3")
    tally.update_gauges(
        QueueDepths(turns=2, owed=3, dead=1, oldest=4.5), {("telegram", "in"): 7, ("telegram", "dead"): 1}
    )
    found = seen(render_metrics(tally.metrics))
    assert found['alipes_queue_depth{queue="turns"}'] == 2
    assert found['alipes_queue_depth{queue="outbox"}'] == 3
    assert found['alipes_queue_depth{queue="dead_letters"}'] == 1
    assert found["alipes_oldest_debt_seconds"] == 4.5
    assert found['alipes_messages_total{platform="telegram",fate="in"}'] == 7
    assert found['alipes_info{version="1.2.3"}'] == 1
    assert "secret thing" not in render_metrics(tally.metrics)


def test_connections_of_commands_are_reported_by_verdict():
    tally = ServerMetrics("1.2.3")
    tally.update_egress(EgressCounts(allowed=3, refused=2, bytes_in=100, bytes_out=7))
    found = seen(render_metrics(tally.metrics))
    assert found['alipes_egress_connections_total{verdict="allowed"}'] == 3
    assert found['alipes_egress_connections_total{verdict="refused"}'] == 2
    assert found['alipes_egress_bytes_total{direction="out"}'] == 7
