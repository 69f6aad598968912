"""The settings of models that work beside the one that answers: what each does, and what all may cost."""

import re

from alipes.config.key import Key
from alipes.config.kinds import FLAG, MODEL, Kind, choice, number, whole
from alipes.config.urls import Wrong

AMOUNT_FORM = r"\$(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?) ?([kM]?) tokens"
_SAYS = 'amount like "$0.50" or "200k tokens"'


def _amount(value: object) -> str:
    if not isinstance(value, str):
        raise Wrong(f"does not say of what: write an {_SAYS}, in quotes")
    text = " ".join(value.split())
    if text and not re.fullmatch(AMOUNT_FORM, text):
        raise Wrong(f"must be an {_SAYS}; empty: no limit")
    if text and not any(digit in text for digit in "123456789"):
        raise Wrong("would let nothing be asked: raise it, or leave it empty for no limit")
    return text


AMOUNT = Kind(_SAYS, _amount)
_TASKS = "compaction, titles, vision, approval, web, judge or moa"

SIDE_KEYS: tuple[Key, ...] = (
    Key(
        "auxiliary.*.model",
        MODEL,
        "",
        f"The model that does this work beside the one that answers; `*` is {_TASKS}. Empty: the one that "
        "answers. `titles` are only asked for where a model is set here.",
    ),
    Key("auxiliary.*.max_tokens", whole(0, 10_000_000), 0, "Tokens its answer may have. 0: what suits."),
    Key(
        "auxiliary.*.timeout",
        number(0.1, 86_400, "seconds"),
        120.0,
        "Seconds in which it must have answered, all attempts together.",
    ),
    Key(
        "auxiliary.*.effort",
        choice("", "low", "medium", "high"),
        "",
        "How hard it should think. Empty: the model's own default.",
    ),
    Key(
        "spend.per_turn",
        AMOUNT,
        "",
        "What one turn may use, with all that works for it, before you are asked. Tokens count in and out. "
        "Empty: no limit.",
    ),
    Key("spend.per_session", AMOUNT, "", "The same for all turns of a conversation."),
    Key("spend.per_day", AMOUNT, "", "The same for everything since midnight, in all conversations."),
    Key(
        "compaction.at",
        number(0, 0.95, "parts of the window"),
        0.8,
        "How full the model's window may be before what was said first is summed up. 0: only when the model "
        "says that a conversation is too long.",
    ),
    Key(
        "compaction.background",
        FLAG,
        True,
        "Whether a conversation that will soon be too long is summed up between two turns.",
    ),
)
