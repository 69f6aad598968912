"""What is said when a limit of spending is met, and what a call may use at worst. Pure."""

from msgspec import structs

from alipes.agent.compact_view import fixed, letters
from alipes.config.side import Amount
from alipes.kernel.endpoints import ModelFacts
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import Request
from alipes.kernel.side import Sum
from alipes.kernel.turns import Ending, Replied, Turn, Usage
from alipes.kernel.wording import money
from alipes.providers.catalog import cost

NAME = "spend"
_WHERE = {"per_turn": "this turn", "per_session": "this conversation", "per_day": "today"}


class Spent(ToolError):
    """A limit is met and nobody let us go on. Inside a tool the model reads it; the turn ends at its next
    question."""

    def __init__(self, scope: str, limit: Amount, used: Sum, by_person: bool) -> None:
        said = refusal(scope, limit, used)
        super().__init__(
            f"{said}; the person said to stop here"
            if by_person
            else f"{said}, and nobody is here to let it go on: raise that, or ask again with --yes"
        )
        self.ending: Ending = "stopped" if by_person else "failed"


def refusal(scope: str, limit: Amount, used: Sum) -> str:
    return f"{_used(limit, used)} {_were(limit)} used {_in(scope)}; spend.{scope} allows {limit.text}"


def question(scope: str, limit: Amount, used: Sum) -> str:
    """Follows "It"."""
    unpriced = f", beside {used.unpriced:,} calls of unknown price" if used.unpriced and limit.dollars else ""
    return (
        f"has used {_used(limit, used)} {_in(scope)}{unpriced}, and the limit is {limit.text}. Yes, once: as "
        "much again; for this conversation: no more questions about this limit; no: it stops here"
    )


def call(scope: str, limit: Amount, root: Turn, place: str, id: str) -> ToolCall:
    """What is asked about, as a call; equal for equal limits of one conversation and for nothing else."""
    where = f", {place}" if scope == "per_day" else ""
    what = f"go on beyond {scope} = {limit.text} in conversation {root.session}{where}"
    return ToolCall(f"{NAME}-{id}", NAME, {"command": what})


def worst(request: Request, facts: ModelFacts) -> Usage:
    """More than a call will use: every second letter a token, and an answer as long as it may be."""
    usage = Usage(input=(fixed(request) + letters(request.messages)) // 2, output=request.max_tokens)
    return Usage(input=usage.input, output=usage.output, cost=cost(usage, facts))


def priced(reply: Replied, facts: ModelFacts) -> Replied:
    """The answer with what it cost, where the provider did not say and we know."""
    if reply.usage.cost is not None:
        return reply
    return structs.replace(reply, usage=structs.replace(reply.usage, cost=cost(reply.usage, facts)))


def _used(limit: Amount, used: Sum) -> str:
    return money(used.dollars) if limit.dollars is not None else f"{used.tokens:,} tokens"


def _were(limit: Amount) -> str:
    return "was" if limit.dollars is not None else "were"


def _in(scope: str) -> str:
    return _WHERE[scope] if scope == "per_day" else f"in {_WHERE[scope]}"
