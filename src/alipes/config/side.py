"""What the operator decided about models that work beside the one that answers, and how it is read."""

import re
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from alipes.config.checking import Problem
from alipes.config.endpoints import check_model
from alipes.config.keys_side import AMOUNT_FORM
from alipes.config.masking import dotted, sentence
from alipes.config.near import did_you_mean
from alipes.config.reading import Reading
from alipes.kernel.endpoints import Endpoint
from alipes.kernel.ports import Effort

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
