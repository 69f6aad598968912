"""What happens, counted: turns, stops, tokens, messages, and how late the loop is. It decides nothing."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from alipes.kernel.turns import Turn, Usage
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Sample(Struct, frozen=True):
    """One line of the page."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Metric(Protocol):
    """A named figure, and what it is now."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str: ...

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]: ...

    def samples(self) -> Iterator[Sample]: ...


class Counter:
    """Counts up, by the values of its labels."""

    kind: Literal["counter"] = "counter"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self._labels = name, help, labels
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, *values: str, amount: float = 1.0) -> None:
        self._values[values] = self._values.get(values, 0.0) + amount

    def reach(self, total: float, *values: str) -> None:
        """Somebody else counts, and has come to `total`."""
        self._values[values] = total

    def value(self, *values: str) -> float:
        return self._values.get(values, 0.0)

    def samples(self) -> Iterator[Sample]:
        for values, amount in sorted(self._values.items()):
            yield Sample("", tuple(zip(self._labels, values, strict=True)), amount)


class Histogram:
    """How often a figure was at most so much."""

    kind: Literal["histogram"] = "histogram"

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
            yield Sample("_bucket", (("le", "+Inf" if bound == float("inf") else f"{bound:g}"),), seen)
        yield Sample("_sum", (), self._sum)
        yield Sample("_count", (), seen)


class Gauge:
    """What is so now; set when the page is asked for."""

    kind: Literal["gauge"] = "gauge"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self._labels = name, help, labels
        self._values: dict[tuple[str, ...], float] = {}

    def set(self, value: float, *values: str) -> None:
        self._values[values] = value

    def samples(self) -> Iterator[Sample]:
        for values, amount in sorted(self._values.items()):
            yield Sample("", tuple(zip(self._labels, values, strict=True)), amount)


def page(metrics: Iterable[Metric]) -> str:
    """The whole page, in the text format."""
    return "".join(line + "\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for sample in metric.samples():
        yield f"{metric.name}{sample.suffix}{_labelled(dict(sample.labels))} {_number(sample.value)}"


def _labelled(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    told = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(told) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


BEAT = 0.5
"""Seconds between two looks at how late the loop is: two a second cost nothing that can be measured."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Depths(Struct, frozen=True):
    """What waits, as the store knows it."""

    turns: int = 0
    owed: int = 0
    dead: int = 0
    oldest: float = 0.0
    """Seconds that the oldest debt has waited."""


class Tally:
    """Everything that `/metrics` tells. One for the life of the process."""

    def __init__(self, version: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._stopped = clock, dict[str, float]()
        self.messages = Counter(
            "alipes_messages_total", "Messages by platform and what became of them.", "platform", "fate"
        )
        self.turns = Counter("alipes_turns_total", "Turns by platform and ending.", "platform", "ending")
        self.tokens = Counter("alipes_tokens_total", "Tokens of model calls.", "kind")
        self.cost = Counter("alipes_cost_dollars_total", "What model calls cost, as far as prices are known.")
        self.stops = Histogram("alipes_stop_seconds", "From the stop of a turn to its end.", _SECONDS)
        self.lag = Histogram("alipes_loop_lag_seconds", "How late the event loop was.", _SECONDS)
        self.queue = Gauge("alipes_queue_depth", "What waits: turns, and messages to be sent.", "queue")
        self.oldest = Gauge("alipes_oldest_debt_seconds", "How long the oldest unsent message has waited.")
        self.up = Gauge("alipes_platform_ready", "Whether a platform can receive and send.", "platform")
        self.started = Gauge("alipes_start_time_seconds", "When this process began to serve.")
        self.started.set(round(time.time(), 3))
        self.about = Gauge("alipes_info", "Which alipes this is.", "version")
        self.about.set(1, version)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            self.messages,
            self.turns,
            self.tokens,
            self.cost,
            self.stops,
            self.lag,
            self.queue,
            self.oldest,
            self.up,
            self.started,
            self.about,
        )

    def listen(self, hooks: Hooks) -> None:
        """Hear of turns by the same door as plugins do."""
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

    def weigh(self, depths: Depths, messages: Mapping[tuple[str, str], int]) -> None:
        """`messages`: by platform and fate, as whoever carries them has counted."""
        for (platform, fate), count in messages.items():
            self.messages.reach(count, platform, fate)
        self.queue.set(depths.turns, "turns")
        self.queue.set(depths.owed, "outbox")
        self.queue.set(depths.dead, "dead_letters")
        self.oldest.set(round(depths.oldest, 3))

    async def watch_loop(self) -> None:
        """Until cancelled, see how late a timer of ours is called."""
        while True:
            due = self._clock() + BEAT
            await asyncio.sleep(BEAT)
            self.lag.observe(max(self._clock() - due, 0.0))
