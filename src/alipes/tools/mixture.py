"""`mixture_of_agents`: asks several models one question and combines their answers."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

MAX_MODELS = 8


class ModelMixer(Protocol):
    async def mix(self, prompt: str, models: Sequence[str], aggregator: str) -> str:
        """Ask the models and return the combined answer. Raises `ToolError` if no model answered."""
        ...


class MixtureOfAgents:
    spec = ToolSpec(
        name="mixture_of_agents",
        description="Ask several models a hard question; an aggregator combines their answers.",
        schema=make_schema("prompt", prompt="string: with all context", models="strings", aggregator="string"),
        effect="read",
    )

    def __init__(self, mixer: ModelMixer) -> None:
        self._mixer = mixer

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        prompt, models = str(args["prompt"]).strip(), args.get("models")
        names = [str(each) for each in models] if isinstance(models, list) else []
        if not prompt:
            raise ToolError("prompt is empty")
        if len(names) > MAX_MODELS:
            raise ToolError(f"{len(names)} models given, the maximum is {MAX_MODELS}")
        return await self._mixer.mix(prompt, tuple(dict.fromkeys(names)), str(args.get("aggregator") or ""))
