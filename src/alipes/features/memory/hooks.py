"""What the memory adds to an app: hooks of turns, a section of the prompt, and where there are no notes."""

from contextlib import AsyncExitStack

from alipes.features.memory.change import memory_scope
from alipes.features.memory.feature import MemoryFeature
from alipes.features.memory.tool import MemoryTool
from alipes.kernel.turns import Turn


async def add_hooks(feature: MemoryFeature, _stack: AsyncExitStack) -> None:
    app, service = feature.app, feature.service
    app.add_hooks(*service.hooks(), patient=True)
    app.add_prompt_section(service.snapshot)
    app.tool_access.add_hidden(_list_hidden)


def _list_hidden(turn: Turn) -> tuple[str, ...]:
    return (MemoryTool.spec.name,) if memory_scope(turn.inbound) is None else ()
