"""The text of a memory file: entries, edits, undo, and pairs that could be merged."""

import pytest

from alipes.features.memory.change import MemoryEdit
from alipes.features.memory.entries import apply_edit, parse_entries, suggest_merges, undo_change
from alipes.kernel.errors import ToolError

FILE = "# Work\n\n- Uses uv, not pip\n- Deploys on\n  Fridays only\n\nA line without a dash\n"


def edit(action, content="", old_text=""):
    return MemoryEdit(action, "memory", content, old_text)


def test_list_items_and_lines_are_entries_and_headings_are_not():
    texts = [entry.text for entry in parse_entries(FILE)]
    assert texts == ["Uses uv, not pip", "Deploys on\nFridays only", "A line without a dash"]


def test_an_edit_leaves_the_rest_of_a_hand_written_file_as_it_is():
    changed = apply_edit(FILE, edit("replace", "Deploys on Mondays", "deploys on"))
    assert changed == FILE.replace("- Deploys on\n  Fridays only", "- Deploys on Mondays")
    assert apply_edit(FILE, edit("remove", old_text="Fridays")) == FILE.replace("- Deploys on\n  Fridays only\n", "")
    assert apply_edit("", edit("add", "one\n two")) == "- one\n  two\n"
    assert apply_edit("- one\n", edit("remove", old_text="one")) == ""


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (edit("add", "Uses uv,  not pip"), "exists already"),
        (edit("add", " "), "content is empty"),
        (edit("remove"), "old_text is empty"),
        (edit("remove", old_text="on"), "matches 2 entries"),
        (edit("replace", "x", "nothing like it"), "no entry contains"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why(asked, why):
    with pytest.raises(ToolError, match=why):
        apply_edit("- Uses uv, not pip\n- Deploys on Fridays\n- Meets on Mondays\n", asked)


def test_an_exact_match_is_preferred_to_entries_that_contain_it():
    assert apply_edit("- likes tea and milk\n- likes tea\n", edit("remove", old_text="likes tea")) == (
        "- likes tea and milk\n"
    )


def test_a_change_is_undone_although_others_followed():
    before = "- one\n- two\n"
    after = apply_edit(before, edit("replace", "three", "two"))
    later = apply_edit(after, edit("add", "four"))
    assert undo_change(after, before, after) == before
    assert undo_change(later, before, after) == "- one\n- two\n- four\n"


def test_a_change_that_was_changed_again_is_not_undone():
    with pytest.raises(ToolError, match="changed again"):
        undo_change("- one\n- changed\n", "- one\n", "- one\n- two\n")


def test_similar_entries_are_proposed_for_a_merge_and_others_are_not():
    text = "- The staging server is called bravo\n- The staging server runs Debian\n- Likes short answers\n"
    assert suggest_merges(text) == [("The staging server is called bravo", "The staging server runs Debian")]
    assert suggest_merges("- alpha one\n- gamma two\n") == []
