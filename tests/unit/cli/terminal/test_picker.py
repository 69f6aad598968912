"""The list to choose from."""

import asyncio

import pytest

from alipes.cli.terminal.pickers.picker import Picker, PickerAction, PickerItem
from alipes.console.screen_diff import strip_escapes, visible_width
from alipes.console.styles import make_style

STYLE = make_style("none")
ITEMS = [
    PickerItem("1", "Fix the parser", "2 h ago", "This folder"),
    PickerItem("2", "Write the docs", "3 h ago", "This folder", mark="*"),
    PickerItem("3", "Parse mails", "1 d ago", "Other folders"),
]


def rows(picker: Picker, columns: int = 60, lines: int = 24) -> list[str]:
    head, below, _ = picker.draw(columns, lines, STYLE)
    return [strip_escapes(row).rstrip() for row in (*head, *below)]


async def chosen(picker: Picker, *keys) -> str | None:
    for key in keys:
        key(picker)
    item = await picker.run(lambda: None)
    return item.value if item else None


async def test_groups_have_headings_until_a_filter_is_typed():
    picker = Picker("Conversations", ITEMS)
    assert rows(picker) == [
        "Conversations · 3",
        "›",
        "  This folder",
        "▸   Fix the parser  2 h ago",
        "  * Write the docs  3 h ago",
        "  Other folders",
        "    Parse mails     1 d ago",
        "  enter choose · esc cancel",
    ]
    picker.insert("pars")
    assert rows(picker)[:4] == [
        "Conversations · 2 of 3",
        "› pars",
        "▸   Parse mails     1 d ago",
        "    Fix the parser  2 h ago",
    ]
    picker.insert("zz")
    assert "  nothing matches" in rows(picker)


async def test_labels_come_before_details_and_equal_matches_keep_their_order():
    names = ("openai/gpt-6.1-sol", "openai/gpt-6", "groq/solar")
    picker = Picker("T", [PickerItem(name, name, f"{n}M context, $2 out") for n, name in enumerate(names)])
    for query, found in (("gpt", names[:2]), ("context 2m", names[2:]), ("sol", names[::2]), ("cntxt", ())):
        picker.delete(lambda _: "")
        picker.insert(query)
        assert [word for row in rows(picker) for word in row.split() if "/" in word] == [*found]


async def test_a_narrow_screen_shows_labels_in_full():
    picker = Picker("T", [PickerItem("1", "anthropic/claude-opus-5-5", "1M context")])
    assert rows(picker, 36)[2] == "▸   anthropic/claude-opus-5-5"
    assert rows(picker, 60)[2] == "▸   anthropic/claude-opus-5-5  1M context"


async def test_labels_without_details_take_the_whole_width():
    picker = Picker("T", [PickerItem("1", "x" * 100)])
    assert rows(picker, 80)[2] == "▸   " + "x" * 74 + "…"


async def test_arrows_wrap_and_enter_takes_the_selected_item():
    assert await chosen(Picker("T", ITEMS), Picker.enter) == "1"
    assert await chosen(Picker("T", ITEMS, selected="2"), Picker.enter) == "2"
    assert await chosen(Picker("T", ITEMS), lambda picker: picker.move(-1), Picker.enter) == "3"
    assert await chosen(Picker("T", ITEMS), lambda picker: picker.move(8, wrap=False), Picker.enter) == "3"
    assert await chosen(Picker("T", ITEMS), lambda picker: picker.insert("docs"), Picker.enter) == "2"


async def test_escape_leaves_without_a_choice():
    assert await chosen(Picker("T", ITEMS), Picker.escape) is None
    assert await chosen(Picker("T", []), Picker.enter, Picker.escape) is None


async def test_items_that_arrive_later_keep_the_selection():
    picker = Picker("T", ITEMS)
    picker.move(1)
    picker.add([ITEMS[0], PickerItem("4", "New one")])
    assert picker.selected == ITEMS[1] and rows(picker)[0] == "T · 4"


async def test_the_preview_follows_the_selection():
    async def preview(item: PickerItem) -> list[str]:
        return [f"about {item.label}"]

    picker = Picker("T", ITEMS, preview=preview)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(picker.run(lambda: None))
        await asyncio.sleep(0)
        assert "  │ about Fix the parser" in rows(picker)
        picker.move(1)
        await asyncio.sleep(0)
        assert "  │ about Write the docs" in rows(picker)
        picker.escape()
    assert running.result() is None


async def test_an_action_may_ask_and_change_the_list():
    async def rename(picker: Picker, item: PickerItem) -> None:
        title = await picker.ask("Title:", item.label)
        picker.replace(item, PickerItem(item.value, title or "none"))

    async def delete(picker: Picker, item: PickerItem) -> None:
        if await picker.confirm("Delete? [y] yes [n] no"):
            picker.replace(item, None)

    actions = {"c-r": PickerAction("ctrl-r rename", rename), "c-d": PickerAction("ctrl-d delete", delete)}
    picker = Picker("T", ITEMS, actions=actions)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(picker.run(lambda: None))
        for key in (lambda: picker.act("c-r"), lambda: picker.delete(lambda _: ""), lambda: picker.insert("Better")):
            key()
            await asyncio.sleep(0)
        assert rows(picker)[1] == "› Title: Better" and rows(picker)[-1] == "  enter save · esc cancel"
        picker.enter()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "▸   Better" in rows(picker)
        for answer, count in (("n", 3), ("y", 2)):
            picker.act("c-d")
            await asyncio.sleep(0)
            assert "Delete? [y] yes [n] no" in rows(picker)[1]
            picker.insert(answer)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert rows(picker)[0] == f"T · {count}"
        picker.enter()
    assert running.result() == ITEMS[1]


@pytest.mark.parametrize("columns", [10, 30, 80])
@pytest.mark.parametrize("lines", [2, 4, 8, 40])
async def test_the_list_fits_every_screen(columns, lines):
    picker = Picker("A long title of a list", [PickerItem(str(n), f"Item {n} " * 9, "detail " * 5) for n in range(50)])
    picker.move(30)
    drawn = rows(picker, columns, lines)
    assert len(drawn) <= max(2, lines)
    assert columns < 30 or all(visible_width(row) <= columns for row in drawn)
