"""The `todo` tool."""

import pytest

from alipes.kernel.errors import ToolError
from alipes.tools.todo import MAX_ITEMS, Todo, TodoItem, format_todos, update_todos


class FakeContext:
    call_id, session, workdir = "c1", "s1", ""


class FakeStore:
    def __init__(self):
        self.kept = {}

    async def read(self, session):
        return self.kept.get(session, ())

    async def write(self, session, items):
        self.kept[session] = items


async def test_list_is_written_updated_and_shown():
    store = FakeStore()
    todo = Todo(store.read, store.write)
    assert await todo.run({}, FakeContext()) == "(no todos)"
    first = [{"id": "1", "content": "look"}, {"id": "2", "content": "act", "status": "in_progress"}]
    assert await todo.run({"todos": first}, FakeContext()) == "[ ] 1: look\n[>] 2: act\n(2 of 2 open)"
    more = [{"id": "1", "status": "completed"}, {"id": "3", "content": "tell"}]
    seen = await todo.run({"todos": more, "merge": True}, FakeContext())
    assert seen == "[x] 1: look\n[>] 2: act\n[ ] 3: tell\n(2 of 3 open)" == await todo.run({}, FakeContext())
    assert await todo.run({"todos": []}, FakeContext()) == "(no todos)"
    assert store.kept == {"s1": ()}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["words"], "an id"),
        ([{"content": "x"}], "an id"),
        ([{"id": "1"}], "no content"),
        ([{"id": "1", "content": "x", "status": "maybe"}], "unknown status"),
        ([{"id": str(n), "content": "x"} for n in range(MAX_ITEMS + 1)], "too many"),
    ],
)
def test_invalid_todos_are_refused(given, why):
    with pytest.raises(ToolError, match=why):
        update_todos((), given)


def test_finished_items_are_not_open():
    items = (TodoItem("1", "a", "completed"), TodoItem("2", "b", "cancelled"))
    assert not any(item.open for item in items) and format_todos(items).endswith("(0 of 2 open)")
