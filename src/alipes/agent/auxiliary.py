"""Models that work beside the one that answers: each call owned by its turn, limited, and on the bill."""

import asyncio
from collections.abc import Awaitable, Callable

from alipes.agent.asking import Asker, Patience, ask
from alipes.agent.chain import Opens
from alipes.agent.spending import Spending
from alipes.agent.spending_words import priced, worst
from alipes.config.side import Errand, Side
from alipes.kernel.errors import Transient
from alipes.kernel.messages import Message
from alipes.kernel.ports import Request
from alipes.kernel.side import Billed
from alipes.kernel.turns import Event, Replied, Turn
from alipes.providers.opening import Backend

MAX_TOKENS = 8192


class Auxiliary:
    """One per process. What it asks is shown to nobody; who waits for the answer may be cancelled."""

    def __init__(
        self,
        models: Opens,
        spending: Spending,
        side: Side | None = None,
        *,
        choice: Callable[[], Awaitable[str]],
        patience: Patience | None = None,
    ) -> None:
        """`choice()`: the model that answers where neither a message nor a session names one."""
        self.patience = patience or Patience()
        self._models, self.spending, self._side, self._choice = models, spending, side or Side(), choice

    def errand(self, task: str) -> Errand:
        """How the operator wants this work to be done."""
        return self._side.errand(task)

    async def limit_met(self, turn: Turn) -> bool:
        """May no more be spent without asking? Work that nobody waits for is not begun then."""
        return await self.spending.met(turn)

    async def backend(self, task: str, turn: Turn, model: str = "") -> Backend:
        """The model for a task: the one named here, else the operator's, else the one that answers."""
        named = model or self._side.errand(task).model or turn.inbound.model or turn.model
        return await self._models.open(named or await self._choice())

    async def ask(  # noqa: PLR0913
        self,
        task: str,
        turn: Turn,
        *,
        system: str,
        messages: tuple[Message, ...],
        model: str = "",
        max_tokens: int = 0,
        tool: str = "",
    ) -> Replied:
        """The whole answer. `tool`: on whose behalf, for the bill.

        Raises `ProviderError` kinds, `Transient` also when it takes too long, `ConfigError` where there is
        no such model, and `Spent`, a `ToolError`, where a limit is met and nobody let us go on.
        """
        errand, backend = self._side.errand(task), await self.backend(task, turn, model)
        limit = max_tokens or errand.max_tokens or MAX_TOKENS
        request = Request(
            model=backend.model,
            system=system,
            messages=messages,
            max_tokens=min(limit, backend.facts.output or limit),
            effort=errand.effort,
        )
        async with self.spending.call(turn, worst(request, backend.facts)):
            try:
                async with asyncio.timeout(errand.timeout):
                    reply = await ask(backend, request, Asker(turn, _unheard, self.patience))
            except TimeoutError:
                raise Transient(f"{backend.name} gave no answer within {errand.timeout:g} s") from None
            reply = priced(reply, backend.facts)
            await self.spending.owe(Billed(turn, task, backend.name, reply.usage, tool))
        return reply


async def _unheard(_event: Event) -> None:
    return None
