"""Models asked together on behalf of a turn: each call on its bill, all ended with it."""

from collections.abc import Mapping, Sequence
from functools import partial

from alipes.agent.auxiliary import Auxiliary
from alipes.config.delegation import MIXED, MixturePreset
from alipes.hooks.tracking import TURN
from alipes.kernel.errors import ProviderError, ToolError
from alipes.kernel.messages import Message, Text, user
from alipes.kernel.turns import Turn
from alipes.providers.mixture import considered, consult, tally

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
