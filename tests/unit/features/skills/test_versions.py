"""The skills of a home on disk: every change is a version, and can be undone."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from alipes.features.skills.skill import SKILL_FILE
from alipes.features.skills.versions import MAX_VERSIONS, SkillChange, SkillFile, SkillStore, diff_files
from alipes.kernel.errors import ConfigError

ME = SkillChange("person", "a test")


def skill(body: str = "Boil water.", name: str = "tea") -> dict[str, SkillFile]:
    return {SKILL_FILE: SkillFile(f"---\nname: {name}\ndescription: Makes tea\n---\n{body}\n".encode())}


@pytest.fixture
def store(tmp_path) -> SkillStore:
    return SkillStore(tmp_path / "skills")


def text(store: SkillStore, path: str = SKILL_FILE) -> str:
    return (store.folder / "tea" / path).read_text()


def test_a_new_skill_is_on_disk_and_is_version_1(store):
    version = store.create("tea", skill(), SkillChange("model", "was asked to", "s1", "t1"))
    assert "Boil water." in text(store)
    assert store.versions.history("tea") == (version,)
    assert (version.number, version.change.author, version.change.turn) == (1, "model", "t1")


def test_a_second_skill_of_the_same_name_is_refused(store):
    store.create("tea", skill(), ME)
    with pytest.raises(ConfigError, match="already exists"):
        store.create("tea", skill("Other."), ME)
    assert "Boil water." in text(store)


def test_a_change_of_one_file_keeps_the_others_and_their_rights(store):
    store.create("tea", {**skill(), "scripts/boil.sh": SkillFile(b"#!/bin/sh\n", executable=True)}, ME)
    store.change("tea", {"notes.md": SkillFile(b"hot")}, ME)
    assert text(store, "notes.md") == "hot"
    assert os.access(store.folder / "tea/scripts/boil.sh", os.X_OK)


def test_an_earlier_version_can_be_brought_back_as_a_new_one(store):
    store.create("tea", {**skill(), "old.md": SkillFile(b"old")}, ME)
    store.write("tea", skill("Use a kettle."), ME)
    version = store.roll_back("tea", 1, ME)
    assert (version.number, "Boil water." in text(store), text(store, "old.md")) == (3, True, "old")


def test_without_a_number_the_last_change_is_undone(store):
    store.create("tea", skill(), ME)
    store.write("tea", skill("Use a kettle."), ME)
    store.roll_back("tea", 0, ME)
    assert "Boil water." in text(store)


def test_a_removed_skill_can_be_brought_back(store):
    store.create("tea", skill(), ME)
    assert store.remove("tea", ME).removed and not store.exists("tea")
    store.roll_back("tea", 0, ME)
    assert store.exists("tea")


def test_what_was_edited_by_hand_is_kept_before_something_else_is_written(store):
    store.create("tea", skill(), ME)
    (store.folder / "tea" / "mine.md").write_text("by hand")
    store.write("tea", skill("Use a kettle."), ME)
    assert [each.change.author for each in store.versions.history("tea")] == ["person", "hand", "person"]
    assert store.versions.read("tea", 2)["mine.md"].data == b"by hand"


def test_a_skill_made_by_hand_gets_a_version_before_its_first_change(store):
    (store.folder / "tea").mkdir(parents=True)
    (store.folder / "tea" / SKILL_FILE).write_bytes(skill()[SKILL_FILE].data)
    store.change("tea", {"notes.md": SkillFile(b"hot")}, ME)
    assert [each.change.author for each in store.versions.history("tea")] == ["hand", "person"]


def test_old_versions_beyond_the_limit_are_removed(store):
    for number in range(MAX_VERSIONS + 3):
        store.write("tea", skill(f"Step {number}."), ME)
    history = store.versions.history("tea")
    assert (len(history), history[-1].number) == (MAX_VERSIONS, MAX_VERSIONS + 3)


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "", ".git/hooks/x", "a/../../b", "x\0y"])
def test_a_file_outside_of_the_skill_is_refused(store, path):
    with pytest.raises(ConfigError, match="inside its folder"):
        store.create("tea", {**skill(), path: SkillFile(b"x")}, ME)
    assert not store.exists("tea")


@pytest.mark.parametrize(
    ("name", "files", "says"),
    [
        ("Tea", skill(), "not a valid name"),
        ("..", skill(), "not a valid name"),
        ("tea", {"README.md": SkillFile(b"x")}, "no SKILL.md"),
        ("tea", {SKILL_FILE: SkillFile(b"no front matter")}, "no front matter"),
    ],
)
def test_what_is_no_skill_is_not_written(store, name, files, says):
    with pytest.raises(ConfigError, match=says):
        store.write(name, files, ME)
    assert not store.exists("tea")


def test_a_link_that_leads_out_of_a_skill_is_not_followed(store, tmp_path):
    store.create("tea", skill(), ME)
    (tmp_path / "secret").write_text("canary")
    (store.folder / "tea" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="leads out of the skill"):
        store.read("tea")


def test_a_change_that_was_cut_off_leaves_the_old_skill(store):
    store.create("tea", skill(), ME)
    (store.folder / ".before").mkdir()
    (store.folder / "tea").rename(store.folder / ".before" / "tea")  # killed between the two renames
    (store.folder / ".new" / "x").mkdir(parents=True)
    store.recover()
    assert "Boil water." in text(store)
    assert not (store.folder / ".before").exists() and not (store.folder / ".new").exists()


def test_changes_of_several_threads_do_not_get_lost(store):
    store.create("tea", skill(), ME)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store.change("tea", {f"{n}.md": SkillFile(b"x")}, ME), range(12)))
    assert len(store.read("tea")) == 13 and len(store.versions.history("tea")) == 13


def test_a_diff_shows_texts_line_by_line_and_binary_files_by_name(store):
    store.create("tea", {**skill(), "pic": SkillFile(b"\xff\x00")}, ME)
    diff = diff_files(
        store.read("tea"), {**skill("Use a kettle."), "pic": SkillFile(b"\xfe\x00"), "new.md": SkillFile(b"x\n")}
    )
    assert (
        "-Boil water." in diff and "+Use a kettle." in diff and "Binary files a/pic" in diff and "+++ b/new.md" in diff
    )


def test_an_installed_skill_is_pinned_to_its_files_and_changes_of_alipes_are_pinned_again(store):
    store.create("tea", skill(), SkillChange("install", source={"kind": "folder", "place": "/x"}))
    folder = os.path.realpath(store.folder / "tea")
    assert not store.accepted.find_changes(folder)
    (store.folder / "tea" / "data.json").write_text("{}")
    assert str(store.accepted.find_changes(folder)) == "new: data.json"
    store.accept("tea", folder)
    store.change("tea", {"notes.md": SkillFile(b"hot")}, ME)
    assert not store.accepted.find_changes(folder)
    assert store.versions.source("tea") == {"kind": "folder", "place": "/x"}
