"""How what was spent reads in a reply. Pure."""

from alipes.kernel.wording import count, money, tokens
from alipes.store.facts import Spent

ID = 6
"""Letters of an id that are shown; any beginning that is unique will do."""


def cost(spent: Spent) -> str:
    """What it cost; a price that is unknown is never taken for nothing."""
    if spent.unpriced == spent.calls:
        return "price unknown" if spent.calls else "$0.00"
    known = money(spent.usage.cost or 0.0)
    return known if not spent.unpriced else f"{known} and {count(spent.unpriced, 'call')} of unknown price"


def spent(sum: Spent) -> str:
    if not sum.calls:
        return "nothing yet"
    return f"{count(sum.calls, 'call')} · {tokens(sum.usage)} · {cost(sum)}"
