"""What is to be done is kept for the conversation, and shown."""

import pytest

from alipes.kernel.errors import ToolError
from alipes.tools.todo import MOST, Item, Todo, changed, shown


class Act:
    call_id, session, workdir = "c1", "s1", ""


class Book:
    def __init__(self):
        self.kept = {}

    async def read(self, session):
        return self.kept.get(session, ())

    async def write(self, session, items):
        self.kept[session] = items


async def test_a_list_is_written_changed_and_shown():
    book = Book()
    todo = Todo(book.read, book.write)
    assert await todo.run({}, Act()) == "(nothing is to be done)"
    first = [{"id": "1", "content": "look"}, {"id": "2", "content": "act", "status": "in_progress"}]
    assert await todo.run({"todos": first}, Act()) == "[ ] 1: look\n[>] 2: act\n(2 of 2 open)"
    more = [{"id": "1", "status": "completed"}, {"id": "3", "content": "tell"}]
    told = await todo.run({"todos": more, "merge": True}, Act())
    assert told == "[x] 1: look\n[>] 2: act\n[ ] 3: tell\n(2 of 3 open)" == await todo.run({}, Act())
    assert await todo.run({"todos": []}, Act()) == "(nothing is to be done)"
    assert book.kept == {"s1": ()}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["words"], "an id"),
        ([{"content": "x"}], "an id"),
        ([{"id": "1"}], "no content"),
        ([{"id": "1", "content": "x", "status": "maybe"}], "no status"),
        ([{"id": str(n), "content": "x"} for n in range(MOST + 1)], "more than"),
    ],
)
def test_what_is_no_todo_is_said(given, why):
    with pytest.raises(ToolError, match=why):
        changed((), given)


def test_items_that_are_over_are_not_open():
    items = (Item("1", "a", "completed"), Item("2", "b", "cancelled"))
    assert not any(item.open for item in items) and shown(items).endswith("(0 of 2 open)")
