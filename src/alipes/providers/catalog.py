"""Model catalog: context windows, prices, names. Read from `catalog.json` on first use."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from alipes.kernel.models import ModelFacts
from alipes.kernel.turns import Usage

DEMO_MODEL = "smollm2-135m"
"""The embedded model unless another GGUF is set."""
_PRICES = ("price_input", "price_output", "price_cached", "price_cache_write")
_LONG = ("long_from", "long_input", "long_output")
_DATED = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


@cache
def catalog() -> dict[str, ModelFacts]:
    """Facts by `provider/model`, in order of preference within a provider."""
    return msgspec.json.decode(Path(__file__).with_name("catalog.json").read_bytes(), type=dict[str, ModelFacts])


def find_facts(
    name: str, overrides: Mapping[str, ModelFacts] | None = None, *, known: ModelFacts | None = None
) -> ModelFacts:
    """Facts of `provider/model`, settings first; `known` replaces the catalog's.

    A dated name means its model.
    """
    found = known or catalog().get(name) or catalog().get(_DATED.sub("", name)) or ModelFacts()
    said = (overrides or {}).get(name)
    if said is None:
        return found
    unsaid = msgspec.structs.asdict(ModelFacts())
    changes = {field: value for field, value in msgspec.structs.asdict(said).items() if value != unsaid[field]}
    if any(price in changes for price in _PRICES):  # our long-context factors belong to our prices
        changes = {field: unsaid[field] for field in _LONG} | changes
    return msgspec.structs.replace(found, **changes)


def compute_cost(usage: Usage, facts: ModelFacts) -> float | None:
    """US dollars for one call; None if a needed price is unknown.

    Reasoning tokens are billed as output; tokens read from or written to the cache are part of the
    input, with their own prices.
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


def similar_names(name: str, known: Iterable[str], count: int = 5) -> tuple[str, ...]:
    """Names in `known` similar to `name`, most similar first."""
    scored = [(-_similarity(name, each), each) for each in dict.fromkeys(known)]
    return tuple(each for score, each in sorted(scored) if score <= -0.45)[:count]


def _similarity(written: str, known: str) -> float:
    """Similarity by shared letter pairs, 0 to 1; above 1 if one contains the other."""
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
