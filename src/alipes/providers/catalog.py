"""What is known of models: facts, prices, names. From `catalog.json`, read when first asked; no network."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from alipes.kernel.models import ModelFacts
from alipes.kernel.turns import Usage

TOY = "smollm2-135m"
"""The embedded model unless another GGUF is set."""
_PRICES = ("price_input", "price_output", "price_cached", "price_cache_write")
_LONG = ("long_from", "long_input", "long_output")
_DATED = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


@cache
def catalog() -> dict[str, ModelFacts]:
    """By `provider/model`, in our order of preference within a provider."""
    return msgspec.json.decode(
        Path(__file__).with_name("catalog.json").read_bytes(), type=dict[str, ModelFacts]
    )


def facts(
    name: str, overrides: Mapping[str, ModelFacts] | None = None, *, known: ModelFacts | None = None
) -> ModelFacts:
    """What is known of `provider/model`, the operator's word first; `known` stands in for the catalog's.

    A dated name means its model.
    """
    found = known or catalog().get(name) or catalog().get(_DATED.sub("", name)) or ModelFacts()
    said = (overrides or {}).get(name)
    if said is None:
        return found
    unsaid = msgspec.structs.asdict(ModelFacts())
    changes = {
        field: value for field, value in msgspec.structs.asdict(said).items() if value != unsaid[field]
    }
    if any(price in changes for price in _PRICES):  # our surcharge belongs to our prices, not to theirs
        changes = {field: unsaid[field] for field in _LONG} | changes
    return msgspec.structs.replace(found, **changes)


def cost(usage: Usage, facts: ModelFacts) -> float | None:
    """US dollars for one call; None when a price that it needs is unknown.

    Reasoning is part of the output and billed as such; what was read from or written to the
    provider's cache is part of the input, with prices of its own.
    """
    fresh = max(0, usage.input - usage.cached - usage.cache_write)
    long = facts.long_from is not None and usage.input > facts.long_from
    reading, writing = (facts.long_input, facts.long_output) if long else (1.0, 1.0)
    total = 0.0
    for tokens, price, factor in (
        (fresh, facts.price_input, reading),
        (usage.cached, facts.price_cached, reading),
        (usage.cache_write, facts.price_cache_write, reading),
        (usage.output, facts.price_output, writing),
    ):
        if tokens and price is None:
            return None
        total += tokens * (price or 0.0) * factor
    return None if facts.price_input is None else total / 1_000_000


def near(name: str, known: Iterable[str], count: int = 5) -> tuple[str, ...]:
    """Those of `known` that somebody who wrote `name` may have meant, likeliest first."""
    scored = [(-_likeness(name, each), each) for each in dict.fromkeys(known)]
    return tuple(each for score, each in sorted(scored) if score <= -0.45)[:count]


def _likeness(written: str, known: str) -> float:
    """From 0 to 1: how many pairs of neighbouring letters they share; 1 when one lies in the other."""
    one, whole = _letters(written), _letters(known)
    bare, model = _letters(written.rpartition("/")[2]), _letters(known.partition("/")[2])
    if len(bare) > 2 and bare in whole:
        return 1.0 + 1 / (1 + len(model) - len(bare)) if len(model) >= len(bare) else 1.0
    return max(_shared(one, whole), _shared(bare, model))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _shared(one: str, other: str) -> float:
    pairs, others = ({text[i : i + 2] for i in range(len(text) - 1)} for text in (one, other))
    return 2 * len(pairs & others) / (len(pairs) + len(others)) if pairs and others else 0.0
