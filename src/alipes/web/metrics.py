"""Figures that only grow, and figures of the moment, as Prometheus reads them. Never what anybody said."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Protocol

from msgspec import Struct

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
