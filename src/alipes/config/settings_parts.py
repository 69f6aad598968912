"""What the operator decided about plugins, toolsets and shell hooks. What there is to load is not known."""

import os
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from alipes.config.display import bare, dotted, quoted, sentence
from alipes.config.environment import Variables, read_text, read_variables
from alipes.config.loader import Reading
from alipes.config.paths import Paths
from alipes.config.platforms import fitting
from alipes.config.providers import check_model
from alipes.config.schema_features import AMOUNT_FORM
from alipes.config.toml_lines import Place, lines_of, nearest_line
from alipes.config.validation import Problem
from alipes.config.value_types import REFERENCE
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Effort


class Api(Struct, frozen=True):
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    rate: int = 1200
    body: int = 20_000_000
    body_seconds: float = 30.0
    wait: float = 600.0


def api_settings(_reading: Reading, picked: dict[str, Any]) -> Api:
    """`picked`: the values of all keys without a `*`, by path."""
    return Api(**fitting({path[4:]: value for path, value in picked.items() if path.startswith("api.")}))


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


class PluginSettings(Struct, frozen=True):
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    safe: bool = False
    project: bool = False
    import_hermes: bool = False
    deadline: float = 5.0
    deadlines: dict[str, float] = {}
    """By hook, what goes over `deadline`."""
    entries: dict[str, dict[str, Json]] = {}
    """By plugin, its own table, as it stands in the file."""


class ShellHook(Struct, frozen=True):
    command: str
    matcher: str = ""
    """A regular expression for the names of tools; empty means all."""
    timeout: float = 60.0


def plugin_settings(reading: Reading, picked: Mapping[str, Any]) -> PluginSettings:
    """`picked`: the values of `[plugins]` that have a name of ours."""
    return PluginSettings(
        **picked,
        deadlines=cast("dict[str, float]", _named(reading, "plugins", "deadlines")),
        entries=cast("dict[str, dict[str, Json]]", _named(reading, "plugins", "entries")),
    )


def toolsets(reading: Reading) -> dict[str, tuple[str, ...]]:
    found = cast("dict[str, list[str]]", _named(reading, "toolsets"))
    return {platform: tuple(names) for platform, names in found.items()}


def shell_hooks(reading: Reading) -> dict[str, tuple[ShellHook, ...]]:
    found = cast("dict[str, list[dict[str, Any]]]", _named(reading, "hooks"))
    return {
        hook: tuple(ShellHook(**{"timeout": 60.0, **each}) for each in tables)
        for hook, tables in found.items()
    }


def _named(reading: Reading, *tables: str) -> dict[str, Json]:
    """The values directly under a table whose names the operator chose."""
    depth = len(tables)
    return {
        way[depth]: value
        for way, value in reading.values.items()
        if way[:depth] == tables and len(way) == depth + 1
    }


def variables_now(paths: Paths) -> Variables:
    """What the environment and `.env` say at this moment. Raises ConfigError."""
    return read_variables(paths.env, os.environ)


def filled(table: dict[str, Json], variables: Variables) -> dict[str, Json]:
    """A plugin's table with `${NAME}` replaced. Raises KeyError with the variable that is not set."""

    def value(found: re.Match[str]) -> str:
        if not (text := variables.get(found[1])):
            raise KeyError(found[1])
        return text

    def fill(item: Any) -> Any:
        match item:
            case str():
                return re.sub(REFERENCE, value, item)
            case list():
                return [fill(each) for each in item]
            case dict():
                return {name: fill(each) for name, each in item.items()}
        return item

    return cast("dict[str, Json]", fill(table))


def where(paths: Paths, place: Place) -> str:
    """`/home/me/.alipes/config.toml:7`, the line nearest to what stands at `place`."""
    try:
        line = nearest_line(lines_of(read_text(paths.config) or ""), place)
    except ConfigError:
        line = None
    return f"{paths.config}:{line}" if line else str(paths.config)


class Senses(Struct, frozen=True):
    allow: tuple[str, ...] = ()
    """Private hosts that may be fetched from."""
    images_model: str = ""
    images_timeout: float = 180.0
    clarify_timeout: float = 600.0
    code_timeout: float = 300.0
    code_calls: int = 50


def senses_settings(picked: dict[str, Any]) -> Senses:
    """`picked`: the values of all keys without a `*`, by path."""
    return Senses(
        allow=tuple(picked["fetch.allow"]),
        images_model=picked["images.model"],
        images_timeout=picked["images.timeout"],
        clarify_timeout=picked["clarify.timeout"],
        code_timeout=picked["code.timeout"],
        code_calls=picked["code.calls"],
    )


Task: TypeAlias = Literal["compaction", "titles", "vision", "approval", "web", "judge", "moa"]
TASKS: tuple[Task, ...] = ("compaction", "titles", "vision", "approval", "web", "judge", "moa")
_TIMES = {"": 1, "k": 1_000, "M": 1_000_000}
_MIXTURE = "moa/"


class Errand(Struct, frozen=True):
    """How one kind of work beside the answer is done."""

    model: str = ""
    """Empty: the model that answers."""
    max_tokens: int = 0
    timeout: float = 120.0
    effort: Effort = ""


class Amount(Struct, frozen=True):
    """Money or tokens; the other of the two is None."""

    text: str
    dollars: float | None = None
    tokens: int | None = None


class Spend(Struct, frozen=True):
    per_turn: Amount | None = None
    per_session: Amount | None = None
    per_day: Amount | None = None


class Compacting(Struct, frozen=True):
    at: float = 0.8
    background: bool = True


class Side(Struct, frozen=True):
    auxiliary: dict[str, Errand] = {}
    """By task; one that is not named is done as usual."""
    spend: Spend = Spend()
    compaction: Compacting = Compacting()

    def errand(self, task: str) -> Errand:
        return self.auxiliary.get(task, Errand())


def side_settings(reading: Reading, picked: dict[str, Any], known: dict[str, Endpoint]) -> Side:
    """`picked`: the values of all keys without a `*`, by path; `known`: the providers there are."""
    return Side(
        auxiliary={task: _errand(reading, task, known) for task in reading.names("auxiliary")},
        spend=Spend(*(amount(picked[f"spend.{each}"]) for each in ("per_turn", "per_session", "per_day"))),
        compaction=Compacting(picked["compaction.at"], picked["compaction.background"]),
    )


def _errand(reading: Reading, task: str, known: dict[str, Endpoint]) -> Errand:
    place = ("auxiliary", task)
    if task not in TASKS:
        meant = did_you_mean(task, TASKS) or f" There is {', '.join(TASKS)}."
        reading.problems.append(Problem(place, f"[{dotted(place)}] is no work we know of.{meant}"))
        return Errand()
    fields = {name: reading.picked(*place, name).value for name in Errand.__struct_fields__}
    name = str(fields["model"])
    try:
        fields["model"] = name if not name or name.startswith(_MIXTURE) else check_model(name, known)
    except ValueError as error:
        told = sentence(f'{dotted((*place, "model"))} = "{name}" {error}')
        reading.problems.append(Problem((*place, "model"), told))
    return Errand(**cast("dict[str, Any]", fields))


def amount(text: str) -> Amount | None:
    """What a limit says; None for none. The text was checked before."""
    found = re.fullmatch(AMOUNT_FORM, text)
    if found is None:
        return None
    dollars, number, times = found.groups()
    if dollars:
        return Amount(text, dollars=float(dollars))
    return Amount(text, tokens=int(float(number) * _TIMES[times]))
