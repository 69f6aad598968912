"""`todo`: the task list of a conversation. Storage is passed in."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed", "cancelled"]
MAX_ITEMS, MAX_CONTENT_CHARS = 100, 500
_MARKERS: dict[TodoStatus, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class TodoItem(Struct, frozen=True):
    id: str
    content: str
    status: TodoStatus = "pending"

    @property
    def open(self) -> bool:
        return self.status in ("pending", "in_progress")


TodoItems: TypeAlias = tuple[TodoItem, ...]
ReadTodos: TypeAlias = Callable[[str], Awaitable[TodoItems]]
WriteTodos: TypeAlias = Callable[[str, TodoItems], Awaitable[None]]


class Todo:
    spec = ToolSpec(
        name="todo",
        description="Todo list for multi-step work. Omit todos to read it.",
        schema=make_schema(
            "",
            todos={
                "type": "array",
                "items": make_schema("id", id="string", content="string", status=[*get_args(TodoStatus)]),
            },
            merge="boolean: update by id",
        ),
    )

    def __init__(self, read: ReadTodos, write: WriteTodos) -> None:
        self._read, self._write = read, write

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        items, given = await self._read(act.session), args.get("todos")
        if isinstance(given, list):
            items = update_todos(items if args.get("merge") is True else (), given)
            await self._write(act.session, items)
        return format_todos(items)


def update_todos(items: TodoItems, given: list[Json]) -> TodoItems:
    """`items` updated by `given`: known ids are changed, new ones appended. Raises `ToolError`."""
    by_id = {item.id: item for item in items}
    for each in given:
        if not isinstance(each, dict) or not str(each.get("id", "")):
            raise ToolError("each todo needs an id, content and a status")
        id = str(each["id"])
        known = by_id.get(id)
        content = str(each.get("content") or (known.content if known else "")).strip()
        status = str(each.get("status") or (known.status if known else "pending"))
        if not content:
            raise ToolError(f"todo {id} is new and has no content")
        if status not in _MARKERS:
            raise ToolError(f"unknown status {status!r}; use one of {', '.join(_MARKERS)}")
        by_id[id] = TodoItem(id, content[:MAX_CONTENT_CHARS], status)
    if len(by_id) > MAX_ITEMS:
        raise ToolError(f"too many todos (maximum {MAX_ITEMS}); combine some")
    return tuple(by_id.values())


def format_todos(items: TodoItems) -> str:
    """The list as the model and the user read it."""
    if not items:
        return "(no todos)"
    left = sum(item.open for item in items)
    lines = [f"{_MARKERS[item.status]} {item.id}: {item.content}" for item in items]
    return "\n".join([*lines, f"({left} of {len(items)} open)"])
