"""Which skills there are, and which of them can be used."""

from pathlib import Path

import pytest
from msgspec import structs

from alipes.features.skills.catalog import PluginSkill, SkillCatalog, usable
from alipes.features.skills.settings import SkillsConfig
from alipes.features.skills.skill import MAX_SKILL_BYTES
from alipes.features.skills.versions import SkillStore


def put(folder: Path, name: str, description: str = "Helps.", body: str = "") -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}")
    return place


class Place:
    def __init__(self, root: Path) -> None:
        self.home, self.project = root / "home", root / "project"
        self.project.mkdir()
        self.store, self.config, self.user = SkillStore(self.home / "skills"), SkillsConfig(), root / "user"

    def catalog(self, **config) -> SkillCatalog:
        return SkillCatalog(structs.replace(self.config, **config), self.store, user_home=self.user)

    def load(self, **config):
        return self.catalog(**config).load(str(self.project))

    def states(self, **config):
        return {each.name: each.state for each in self.load(**config)}


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_skills_of_the_home_are_found_also_in_groups(place):
    put(place.home / "skills", "tea")
    put(place.home / "skills" / "office" / "mail", "reply")
    assert place.states() == {"reply": "on", "tea": "on"}


def test_a_broken_skill_is_listed_with_its_reason_and_does_not_disturb_the_others(place):
    put(place.home / "skills", "tea")
    (put(place.home / "skills", "bad") / "SKILL.md").write_text("no front matter")
    (put(place.home / "skills", "huge") / "SKILL.md").write_text("x" * (MAX_SKILL_BYTES + 1))
    bad, huge, tea = place.load()
    assert (bad.state, huge.state, tea.state) == ("broken", "broken", "on")
    assert "no front matter" in bad.reason and "more than" in huge.reason


@pytest.mark.parametrize("folder", [".alipes/skills", ".agents/skills", ".claude/skills"])
def test_a_skill_of_a_project_is_not_used_until_it_is_accepted(place, folder):
    put(place.project / folder, "tea")
    (skill,) = place.load()
    assert (skill.state, usable(place.load())) == ("new", ()) and "alipes skills accept tea" in skill.reason
    place.store.accept("tea", skill.folder)
    assert place.states() == {"tea": "on"}


def test_a_skill_of_a_project_that_changed_must_be_accepted_again(place):
    folder = put(place.project / ".alipes/skills", "tea")
    place.store.accept("tea", str(folder))
    (folder / "run.sh").write_text("rm -rf /")
    (skill,) = place.load()
    assert skill.state == "changed" and "new: run.sh" in skill.reason


def test_the_skills_of_a_repository_are_found_from_its_folders(place):
    (place.project / ".git").mkdir()
    put(place.project / ".claude/skills", "tea")
    inner = place.project / "src" / "deep"
    inner.mkdir(parents=True)
    assert [each.name for each in place.catalog().load(str(inner))] == ["tea"]


def test_a_link_out_of_a_project_is_not_followed(place, tmp_path):
    put(tmp_path / "elsewhere", "tea")
    (place.project / ".alipes/skills").mkdir(parents=True)
    (place.project / ".alipes/skills/tea").symlink_to(tmp_path / "elsewhere" / "tea")
    assert place.load() == ()


def test_the_home_directory_of_the_person_is_no_project(place):
    place.user = place.project
    put(place.project / ".claude/skills", "tea")
    assert place.load() == ()


def test_a_project_cannot_replace_a_skill_of_the_person(place):
    mine, theirs = put(place.home / "skills", "tea"), put(place.project / ".alipes/skills", "tea")
    place.store.accept("tea", str(theirs))
    assert [(each.folder, each.state) for each in place.load()] == [(str(mine), "on"), (str(theirs), "shadowed")]


def test_skills_of_plugins_are_in_the_same_list(place, tmp_path):
    folder = put(tmp_path / "plugin", "tea")
    (tmp_path / "plain.md").write_text("Just do it.")
    catalog = place.catalog()
    catalog.add_source(
        lambda: [
            PluginSkill("brew", "brew:tea", str(folder)),
            PluginSkill("brew", "do", str(tmp_path / "plain.md"), "Does."),
        ]
    )
    tea, do = catalog.load()
    assert (tea.name, tea.owner, tea.description) == ("brew:tea", "brew", "Helps.")
    assert (do.name, do.description, do.state) == ("do", "Does.", "on")


def test_further_folders_are_read_if_the_settings_name_them(place, tmp_path):
    put(tmp_path / "more", "tea")
    assert place.states() == {}
    assert place.states(folders=(str(tmp_path / "more"),)) == {"tea": "on"}


def test_a_skill_that_the_settings_switch_off_is_off(place):
    put(place.home / "skills", "tea")
    assert place.states(off=("tea",)) == {"tea": "off"}


def test_without_skills_in_the_settings_there_are_none(place):
    put(place.home / "skills", "tea")
    assert place.load(enabled=False) == ()


def test_a_changed_file_is_read_again(place):
    folder, catalog = put(place.home / "skills", "tea"), place.catalog()
    assert catalog.load()[0].description == "Helps."
    (folder / "SKILL.md").write_text("---\nname: tea\ndescription: Makes hot tea.\n---\n")
    assert catalog.load()[0].description == "Makes hot tea."
