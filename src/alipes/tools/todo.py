"""`todo`: what is still to be done in a conversation, written down. Where it is kept is not known here."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec

State: TypeAlias = Literal["pending", "in_progress", "completed", "cancelled"]
MOST, LONGEST = 100, 500
_SIGNS: dict[State, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class Item(Struct, frozen=True):
    id: str
    content: str
    status: State = "pending"

    @property
    def open(self) -> bool:
        return self.status in ("pending", "in_progress")


Items: TypeAlias = tuple[Item, ...]
Read: TypeAlias = Callable[[str], Awaitable[Items]]
"""Of a session."""
Write: TypeAlias = Callable[[str, Items], Awaitable[None]]


class Todo:
    """The `todo` tool."""

    spec = ToolSpec(
        name="todo",
        description="Keep a list of what is to be done, for work of several steps. Without todos: show it.",
        schema={
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string"},
                            "content": {"type": "string"},
                            "status": {"type": "string", "enum": [*get_args(State)]},
                        },
                        "required": ["id"],
                    },
                },
                "merge": {"type": "boolean", "description": "change items by id; else the list is replaced"},
            },
        },
    )

    def __init__(self, read: Read, write: Write) -> None:
        self._read, self._write = read, write

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        items, given = await self._read(act.session), args.get("todos")
        if isinstance(given, list):
            items = changed(items if args.get("merge") is True else (), given)
            await self._write(act.session, items)
        return shown(items)


def changed(items: Items, given: list[Json]) -> Items:
    """The items with what was given: known ones are changed, new ones follow. Raises `ToolError`."""
    by_id = {item.id: item for item in items}
    for each in given:
        if not isinstance(each, dict) or not str(each.get("id", "")):
            raise ToolError("each todo has an id, content and a status")
        id = str(each["id"])
        known = by_id.get(id)
        content = str(each.get("content") or (known.content if known else "")).strip()
        status = str(each.get("status") or (known.status if known else "pending"))
        if not content:
            raise ToolError(f"todo {id} is new and has no content")
        if status not in _SIGNS:
            raise ToolError(f"{status!r} is no status: {', '.join(_SIGNS)}")
        by_id[id] = Item(id, content[:LONGEST], status)
    if len(by_id) > MOST:
        raise ToolError(f"more than {MOST} todos: put some together")
    return tuple(by_id.values())


def shown(items: Items) -> str:
    """As the model and the person read it."""
    if not items:
        return "(nothing is to be done)"
    left = sum(item.open for item in items)
    lines = [f"{_SIGNS[item.status]} {item.id}: {item.content}" for item in items]
    return "\n".join([*lines, f"({left} of {len(items)} open)"])
