"""`memory`: reads and changes the notes that are kept from one conversation to the next. Storage is passed in."""

from collections.abc import Mapping
from typing import Protocol, get_args

from alipes.features.memory.change import MemoryAction, MemoryEdit, MemoryTarget
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

READ = "read"


class KeepsNotes(Protocol):
    """The notes of the person whom a turn works for."""

    async def describe(self, act: ToolContext, target: MemoryTarget) -> str:
        """The text of one file."""

    async def change(self, act: ToolContext, edit: MemoryEdit) -> str:
        """Make the edit; returns what to tell the model. Raises `ToolError`."""


class MemoryTool:
    spec = ToolSpec(
        name="memory",
        description=(
            "Notes kept across conversations. Save what stays useful: `user` for who the user is and what they "
            "prefer, `memory` for decisions, conventions and lessons about the work. One short fact per entry; no "
            "task progress, no secrets. Replace outdated entries instead of adding."
        ),
        schema=make_schema(
            "action target",
            action=[*get_args(MemoryAction), READ],
            target=[*get_args(MemoryTarget)],
            content="string: the entry, for add and replace",
            old_text="string: a unique part of the entry to replace or remove",
        ),
    )

    def __init__(self, notes: KeepsNotes) -> None:
        self._notes = notes

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        if args["action"] == READ:
            target: MemoryTarget = "user" if args["target"] == "user" else "memory"
            return await self._notes.describe(act, target)
        edit = parse_edit(args)
        if edit is None:
            raise ToolError(f"unknown action {args['action']!r}")
        return await self._notes.change(act, edit)


def parse_edit(args: Mapping[str, Json]) -> MemoryEdit | None:
    """The change that a call asks for; None if it only reads."""
    action = next((each for each in get_args(MemoryAction) if each == args.get("action")), None)
    target = next((each for each in get_args(MemoryTarget) if each == args.get("target")), None)
    if action is None or target is None:
        return None
    return MemoryEdit(action, target, str(args.get("content") or "").strip(), str(args.get("old_text") or "").strip())
