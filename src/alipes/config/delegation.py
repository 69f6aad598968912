"""What the operator decided about subagents, and about models that answer together: values, and how read."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from alipes.config.checking import Problem
from alipes.config.endpoints import check_model
from alipes.config.masking import bare, quoted, sentence
from alipes.config.reading import Reading
from alipes.kernel.endpoints import Endpoint

MIXED = "moa"
"""What stands for a provider in the names of mixtures."""


class DelegationSettings(Struct, frozen=True):
    parallel: int = 4
    depth: int = 2
    steps: int = 40
    minutes: float = 20.0


class MixturePreset(Struct, frozen=True):
    models: tuple[str, ...]
    aggregator: str
    timeout: float = 90.0


def delegation_settings(picked: Mapping[str, Any]) -> DelegationSettings:
    """`picked`: the values of all keys without a `*`, by path."""
    fields = {name: picked[f"delegation.{name}"] for name in DelegationSettings.__struct_fields__}
    return DelegationSettings(**fields)


def mixtures(reading: Reading, known: dict[str, Endpoint]) -> dict[str, MixturePreset]:
    """Every `[moa.NAME]` that is whole; what is wrong with the others is added to `reading`."""
    found: dict[str, MixturePreset] = {}
    for name in reading.names(MIXED):
        fields = {
            each: reading.picked(MIXED, name, each).value for each in ("models", "aggregator", "timeout")
        }
        models = [
            _checked(reading, name, "models", str(each), known)
            for each in cast("list[str]", fields["models"] or [])
        ]
        aggregator = _checked(reading, name, "aggregator", str(fields["aggregator"] or ""), known)
        if not models or not aggregator:
            lacks = "models" if not models else "aggregator"
            what = f"[{MIXED}.{bare(name)}] lacks its {lacks}: name it as provider/model."
            reading.problems.append(Problem((MIXED, name), what))
        found[name] = MixturePreset(tuple(models), aggregator, cast("float", fields["timeout"]))
    return found


def is_mixture(reading: Reading, name: str) -> bool:
    """Does `name` mean one that there is?"""
    first, _, preset = name.partition("/")
    return first == MIXED and preset in reading.names(MIXED)


def _checked(reading: Reading, preset: str, field: str, name: str, known: dict[str, Endpoint]) -> str:
    if not name:
        return ""
    try:
        return check_model(name, known)
    except ValueError as error:
        told = sentence(f"{field} of [{MIXED}.{bare(preset)}] has {quoted(name)}, which {error}")
        reading.problems.append(Problem((MIXED, preset, field), told))
        return name
