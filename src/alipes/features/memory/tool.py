"""`memory`: reads and changes the notes that are kept from one conversation to the next."""

from collections.abc import Mapping
from typing import get_args

from alipes.features.memory.change import MemoryAction, MemoryTarget, parse_edit
from alipes.features.memory.feature import MemoryFeature
from alipes.features.memory.service import MemoryService
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Tool, ToolContext, ToolSpec
from alipes.tools.common import make_schema

READ = "read"


class MemoryTool:
    spec = ToolSpec(
        name="memory",
        description=(
            "Lasting notes, one short fact each. user: who they are, what they prefer. memory: decisions, conventions, "
            "lessons. No progress, no secrets; replace what is outdated."
        ),
        schema=make_schema(
            "action target",
            action=[*get_args(MemoryAction), READ],
            target=[*get_args(MemoryTarget)],
            content="string",
            old_text="string: unique part of the entry",
        ),
    )

    def __init__(self, service: MemoryService) -> None:
        self._service = service

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        if args["action"] == READ:
            target: MemoryTarget = "user" if args["target"] == "user" else "memory"
            return await self._service.describe(act, target)
        edit = parse_edit(args)
        if edit is None:
            raise ToolError(f"unknown action {args['action']!r}")
        return await self._service.change(act, edit)


def tools(feature: MemoryFeature) -> tuple[Tool, ...]:
    return (MemoryTool(feature.service),)
