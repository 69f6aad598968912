"""Metrics in Prometheus text format: turns, stops, tokens, messages, connections, event loop lag."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from alipes.kernel.turns import Turn, Usage
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE
from alipes.runtime.http.egress import EgressCounts
from alipes.store.ports.cluster import ClusterStatus, ClusterView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""One line of the output: suffix of the name, labels, value."""


class Gauge:
    """A value per combination of labels."""

    kind = "gauge"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self._labels = name, help, labels
        self._values: dict[tuple[str, ...], float] = {}

    def set(self, value: float, *values: str) -> None:
        self._values[values] = value

    def value(self, *values: str) -> float:
        return self._values.get(values, 0.0)

    def clear(self) -> None:
        self._values.clear()

    def samples(self) -> Iterator[Sample]:
        for values, amount in sorted(self._values.items()):
            yield "", dict(zip(self._labels, values, strict=True)), amount


class Counter(Gauge):
    """Its values only grow; `set` is for totals that are counted elsewhere."""

    kind = "counter"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__(name, help, *labels)
        if not labels:
            self.set(0.0)

    def add(self, *values: str, amount: float = 1.0) -> None:
        self.set(self.value(*values) + amount, *values)


class Histogram:
    """Counts observations by upper bound."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Iterable[float]) -> None:
        self.name, self.help = name, help
        self._bounds = (*sorted(bounds), float("inf"))
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._sum += value
        for place, bound in enumerate(self._bounds):
            if value <= bound:
                self._counts[place] += 1
                return

    def samples(self) -> Iterator[Sample]:
        seen = 0
        for bound, count in zip(self._bounds, self._counts, strict=True):
            seen += count
            yield "_bucket", {"le": "+Inf" if bound == float("inf") else f"{bound:g}"}, seen
        yield "_sum", {}, self._sum
        yield "_count", {}, seen


Metric: TypeAlias = Gauge | Histogram


def render_metrics(metrics: Iterable[Metric]) -> str:
    return "".join(line + "\n" for metric in metrics for line in _format_metric(metric))


def _format_metric(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for suffix, labels, value in metric.samples():
        number = str(int(value)) if value == int(value) else repr(float(value))
        yield f"{metric.name}{suffix}{_format_labels(labels)} {number}"


def _format_labels(labels: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    pairs = (f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}" if labels else ""


LAG_INTERVAL_S = 0.5
"""Interval of the event loop lag measurement; twice a second has no measurable cost."""
_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


ROLES = ("listen", "work", "web")
_LEADER = ("name", "worker")


class QueueDepths(Struct, frozen=True):
    """Queue sizes in the store."""

    turns: int = 0
    owed: int = 0
    dead: int = 0
    oldest: float = 0.0
    """Age of the oldest unsent message in seconds."""


class ServerMetrics:
    def __init__(self, version: str, profile: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._stopped = clock, dict[str, float]()
        self.messages = Counter("alipes_messages_total", "Messages by platform and result.", "platform", "fate")
        self.turns = Counter("alipes_turns_total", "Turns by platform and ending.", "platform", "ending")
        self.tokens = Counter("alipes_tokens_total", "Tokens of model calls.", "kind")
        self.cost = Counter("alipes_cost_dollars_total", "Cost of model calls, as far as prices are known.")
        self.wrong_keys = Counter("alipes_wrong_keys_total", "Requests with a wrong API key.")
        self.egress = Counter("alipes_egress_connections_total", "Connections of commands and fetches.", "verdict")
        self.egress_bytes = Counter("alipes_egress_bytes_total", "Bytes of these connections.", "direction")
        self.stops = Histogram("alipes_stop_seconds", "From the stop of a turn to its end.", _BOUNDS_S)
        self.lag = Histogram("alipes_loop_lag_seconds", "Event loop lag.", _BOUNDS_S)
        self.queue = Gauge("alipes_queue_depth", "Queued turns and messages to be sent.", "queue")
        self.oldest = Gauge("alipes_oldest_debt_seconds", "Age of the oldest unsent message.")
        self.up = Gauge("alipes_platform_ready", "Whether a platform can receive and send.", "platform")
        self.started = Gauge("alipes_start_time_seconds", "When this process started to serve.")
        self.started.set(round(time.time(), 3))
        self.about = Gauge("alipes_info", "Version of alipes.", "version")
        self.about.set(1, version)
        self.profile = Gauge("alipes_profile", "The profile that is served here.", "profile")
        if profile:
            self.profile.set(1, profile)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(each for each in vars(self).values() if isinstance(each, Metric))

    def register(self, hooks: Hooks) -> None:
        """Observe turns through hooks, like a plugin."""
        hooks.add(CORE, self.turn_ended)
        hooks.add(CORE, self.agent_loop_stopped)

    async def turn_ended(self, turn: Turn, ending: str, usage: Usage | None) -> None:
        self.turns.add(turn.inbound.address.platform, ending)
        if (marked := self._stopped.pop(turn.id, None)) is not None:
            self.stops.observe(self._clock() - marked)
        if usage is None:
            return
        kinds = {"input": usage.input, "output": usage.output, "cached": usage.cached}
        for kind, amount in kinds.items():
            self.tokens.add(kind, amount=amount)
        self.cost.add(amount=usage.cost or 0.0)

    async def agent_loop_stopped(self, turn_id: str) -> None:
        self._stopped[turn_id] = self._clock()

    def update_gauges(self, depths: QueueDepths, messages: Mapping[tuple[str, str], int]) -> None:
        """`messages`: totals by platform and result."""
        for (platform, fate), count in messages.items():
            self.messages.set(count, platform, fate)
        self.queue.set(depths.turns, "turns")
        self.queue.set(depths.owed, "outbox")
        self.queue.set(depths.dead, "dead_letters")
        self.oldest.set(round(depths.oldest, 3))

    def update_egress(self, counts: EgressCounts) -> None:
        for verdict in ("allowed", "refused", "failed", "invalid"):
            self.egress.set(getattr(counts, verdict), verdict)
        self.egress_bytes.set(counts.bytes_in, "in")
        self.egress_bytes.set(counts.bytes_out, "out")

    async def watch_loop(self) -> None:
        """Measure event loop lag until cancelled."""
        while True:
            due = self._clock() + LAG_INTERVAL_S
            await asyncio.sleep(LAG_INTERVAL_S)
            self.lag.observe(max(self._clock() - due, 0.0))


class ClusterMetrics:
    """Of a worker in a cluster. What is counted in the store is the same at all of them."""

    def __init__(self) -> None:
        self.workers = Gauge("alipes_cluster_workers", "Living workers by role.", "role")
        self.sessions = Gauge("alipes_cluster_sessions", "Sessions that a worker holds.", "worker")
        self.lease_age = Gauge("alipes_cluster_lease_age_seconds", "Time since a worker renewed its lease.", "worker")
        self.waiting = Gauge("alipes_cluster_waiting_sessions", "Sessions that wait for a worker.")
        self.oldest = Gauge("alipes_cluster_oldest_waiting_seconds", "How long the first of them has waited.")
        self.full = Gauge("alipes_cluster_full", "Whether new work is refused because sessions wait for long.")
        self.takeovers = Counter("alipes_cluster_takeovers_total", "Sessions freed from dead workers.", "cause")
        self.leaders = Gauge("alipes_cluster_leader", "Which worker leads, such as receiving of a platform.", *_LEADER)
        self.fenced = Counter("alipes_fenced_writes_total", "Writes of this worker that came after a take-over.")
        self.commits = Counter("alipes_store_commits_total", "Commits of this worker.")
        self.commit_seconds = Counter("alipes_store_commit_seconds_total", "Time of these commits.")
        self.writes = Counter("alipes_store_writes_total", "Writes in these commits.")
        self.bus_lag = Gauge("alipes_bus_lag_seconds", "Time of a notification of this worker through the server.")

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(each for each in vars(self).values() if isinstance(each, Metric))

    def update(self, status: ClusterStatus, view: ClusterView, *, full: bool) -> None:
        for gauge in (self.sessions, self.lease_age, self.leaders):
            gauge.clear()  # workers come and go
        for role in ROLES:
            self.workers.set(sum(role in worker.roles for worker in status.workers), role)
        for worker in status.workers:
            self.sessions.set(worker.sessions, worker.id)
            self.lease_age.set(worker.lease_age_s, worker.id)
        self.waiting.set(status.waiting)
        self.oldest.set(status.oldest_waiting_s)
        self.full.set(full)
        for cause, count in status.takeovers.items():
            self.takeovers.set(count, cause)
        for name, leader in status.leaders.items():
            self.leaders.set(bool(leader), name, leader)
        counts = view.counts
        self.fenced.set(counts.fenced)
        self.commits.set(counts.commits)
        self.commit_seconds.set(round(counts.seconds, 6))
        self.writes.set(counts.writes)
        self.bus_lag.set(round(view.bus_lag_s, 6))
