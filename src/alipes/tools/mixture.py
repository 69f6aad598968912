"""`mixture_of_agents`: asks several models and combines their answers. The `ModelMixer` runs them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec

MAX_MODELS = 8
"""Maximum number of models in one call."""


class ModelMixer(Protocol):
    async def mix(self, prompt: str, models: Sequence[str], aggregator: str) -> str:
        """Ask the models and return the combined answer. Raises `ToolError` if no model answered."""
        ...


class MixtureOfAgents:
    """The `mixture_of_agents` tool."""

    spec = ToolSpec(
        name="mixture_of_agents",
        description="Ask several models a hard question in parallel; an aggregator combines their answers.",
        schema={
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "description": "with all context needed"},
                "models": {"type": "array", "items": {"type": "string"}},
                "aggregator": {"type": "string"},
            },
            "required": ["prompt"],
        },
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
