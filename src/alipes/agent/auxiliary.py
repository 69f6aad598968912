"""Models that work beside the one that answers: each call owned by its turn, limited, and on the bill."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from alipes.agent.budget import Spending, priced, worst
from alipes.agent.model_call import Asker, Opens, Patience, ask
from alipes.config.settings_parts import MIXED, Errand, MixturePreset, Side
from alipes.kernel.errors import ProviderError, ToolError, Transient
from alipes.kernel.messages import Message, Text, user
from alipes.kernel.ports import Request
from alipes.kernel.turns import Event, Replied, Turn
from alipes.kernel.usage import Billed
from alipes.plugins.attribution import TURN
from alipes.providers.mixture import considered, consult, tally
from alipes.providers.registry import Backend

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


TASK, TOOL = "moa", "mixture_of_agents"
USUAL = "default"
TIMEOUT = MixturePreset((), "").timeout
_SYSTEM = "Answer the question on your own, thoroughly and to the point. Say what you are not sure of."


class Mixing:
    """See `tools.mixture.Mixes`, whose words these are; and what `providers.mixture` asks the others by."""

    def __init__(self, auxiliary: Auxiliary, presets: Mapping[str, MixturePreset]) -> None:
        self._auxiliary, self._presets = auxiliary, presets

    async def ask(self, model: str, system: str, messages: tuple[Message, ...], max_tokens: int) -> str:
        """One of the models that a mixture consists of."""
        turn = _turn()
        replied = await self._auxiliary.ask(
            TASK, turn, system=system, messages=messages, model=model, max_tokens=max_tokens
        )
        return replied.message.text

    async def mix(self, prompt: str, models: Sequence[str], aggregator: str) -> str:
        preset = usual(self._presets)
        chosen = tuple(models) or (preset.models if preset else ())
        if not chosen:
            raise ToolError(
                "name the models to be asked; the operator has set up none for this ([moa.default])"
            )
        turn = _turn()
        opinions = await consult(
            chosen, partial(self._one, turn, prompt), preset.timeout if preset else TIMEOUT
        )
        told = considered(opinions)
        if not told:
            raise ToolError(f"none of them answered: {tally(opinions)}")
        question = Message("user", (*user(prompt).parts, Text(f"\n\n{told}")))
        last = aggregator or (preset.aggregator if preset else "")
        try:
            replied = await self._auxiliary.ask(
                TASK, turn, system=_SYSTEM, messages=(question,), model=last, tool=TOOL
            )
        except ProviderError as error:
            raise ToolError(f"the answers were not brought together: {error}\n\n{told}") from error
        return f"{replied.message.text}\n\n[{tally(opinions)}]"

    async def _one(self, turn: Turn, prompt: str, model: str) -> str:
        replied = await self._auxiliary.ask(
            TASK, turn, system=_SYSTEM, messages=(user(prompt),), model=model, tool=TOOL
        )
        return replied.message.text


def usual(presets: Mapping[str, MixturePreset]) -> MixturePreset | None:
    """The one that is meant where none is named."""
    return presets.get(USUAL) or next(iter(presets.values()), None)


def usual_name(names: Sequence[str]) -> str:
    """The same, of the names of models; empty where there is none."""
    mixed = [name for name in names if name.startswith(f"{MIXED}/")]
    return f"{MIXED}/{USUAL}" if f"{MIXED}/{USUAL}" in mixed else next(iter(mixed), "")


def _turn() -> Turn:
    turn = TURN.get()
    if turn is None:
        raise ToolError("models answer together in a conversation, and this call belongs to none")
    return turn
