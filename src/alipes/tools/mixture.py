"""Ask several models the same, and have one make an answer of theirs. Who they are is known elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec

MOST = 8
"""Models of one call."""


class Mixes(Protocol):
    async def mix(self, prompt: str, models: Sequence[str], aggregator: str) -> str:
        """The answer. Raises `ToolError` where none of the models gave one."""
        ...


class MixtureOfAgents:
    """The `mixture_of_agents` tool."""

    spec = ToolSpec(
        name="mixture_of_agents",
        description="Put a hard question to several models at once; one makes an answer of theirs.",
        schema={
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "description": "with all they must know"},
                "models": {"type": "array", "items": {"type": "string"}},
                "aggregator": {"type": "string"},
            },
            "required": ["prompt"],
        },
        effect="read",
    )

    def __init__(self, mixes: Mixes) -> None:
        self._mixes = mixes

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        prompt, models = str(args["prompt"]).strip(), args.get("models")
        names = [str(each) for each in models] if isinstance(models, list) else []
        if not prompt:
            raise ToolError("what shall they be asked?")
        if len(names) > MOST:
            raise ToolError(f"these are {len(names)} models, and at most {MOST} are asked at once")
        return await self._mixes.mix(prompt, tuple(dict.fromkeys(names)), str(args.get("aggregator") or ""))
