"""The questions of one turn to models: each within what may be spent, and on the bill in the end."""

from alipes.agent.asking import Asker, ask
from alipes.agent.spending import Slip, Spending
from alipes.agent.spending_words import priced, worst
from alipes.kernel.ports import Request
from alipes.kernel.side import Billed
from alipes.kernel.turns import Replied, Usage
from alipes.providers.opening import Backend


class Purse:
    """What an answer used is on the bill when its message is kept; until then it counts from here."""

    def __init__(self, spending: Spending | None, asker: Asker) -> None:
        self._spending, self._asker = spending, asker
        self._slips: list[Slip] = []

    async def ask(self, backend: Backend, request: Request, question: int) -> Replied:
        """The answer, and what it cost. Raises `Spent` where it may not be asked for."""
        if self._spending is None or not self._spending.limited:
            return priced(await ask(backend, request, self._asker, question), backend.facts)
        usage = worst(request, backend.facts)
        async with self._spending.call(self._asker.turn, usage, self._asker.emit) as slip:
            reply = priced(await ask(backend, request, self._asker, question), backend.facts)
            slip.usage, slip.owed = reply.usage, True
            self._slips.append(slip)
        return reply

    def let_go(self) -> None:
        """What was used is on the bill, or we are not there any more to put it there."""
        if self._spending is not None:
            self._spending.kept(*self._slips)
        self._slips.clear()

    async def settle(self, owed: Usage | None, backend: Backend | None) -> None:
        """Put on the bill what was used for answers that nobody got."""
        if owed is not None and backend is not None and self._spending is not None:
            await self._spending.owe(Billed(self._asker.turn, "answer", backend.name, owed))
