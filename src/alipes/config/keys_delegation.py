"""The settings of subagents, and of models that answer together."""

from alipes.config.key import Key
from alipes.config.kinds import MODEL, MODELS, number, whole

DELEGATION_KEYS: tuple[Key, ...] = (
    Key("delegation.parallel", whole(1, 64), 4, "Subagents of one turn that work at the same time."),
    Key(
        "delegation.depth",
        whole(0, 8),
        2,
        "How deep subagents may be nested: 1 means that they have none of their own. 0: there are none.",
    ),
    Key("delegation.steps", whole(1, 10_000), 40, "Model calls of one subagent; then it sums up and ends."),
    Key(
        "delegation.minutes",
        number(0, 10_080, "minutes"),
        20.0,
        "Minutes after which a subagent is stopped; what it had said by then is kept. 0: never.",
    ),
    Key(
        "moa.*.models",
        MODELS,
        None,
        "Models that are asked the same question, side by side. The table's name makes a model of them: "
        "`[moa.best]` is `moa/best`.",
    ),
    Key("moa.*.aggregator", MODEL, "", "The model that reads their answers and gives its own, with tools."),
    Key(
        "moa.*.timeout",
        number(0.1, 3600, "seconds"),
        90.0,
        "Seconds that the others have; whoever is later is left out.",
    ),
)
