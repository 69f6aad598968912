"""`cluster.folder`: where notes, skills and checkpoints are, and who may reach them."""

import os
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from alipes.agent.approval.assessment import assess_call
from alipes.config.loader import load_settings
from alipes.config.paths import PROFILES_MARK
from alipes.config.settings import SandboxConfig, Settings
from alipes.features.checkpoints.checkpoints import Checkpoints
from alipes.features.checkpoints.store import CheckpointRecord
from alipes.features.memory.files import MemoryFiles
from alipes.features.skills.catalog import SkillCatalog
from alipes.features.skills.settings import SkillsConfig
from alipes.features.skills.skill import SKILL_FILE
from alipes.features.skills.versions import SkillChange, SkillFile, SkillStore
from alipes.gateway.outbound.policy import make_outbound_policy
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import ToolCall
from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.common import make_places
from alipes.tools.sandbox import ProjectSandboxes

SKILL = {SKILL_FILE: SkillFile(b"---\nname: bake\ndescription: Bakes bread.\n---\nKnead.")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def settings_of(home: Path, folder: Path | str) -> Settings:
    home.mkdir(parents=True, exist_ok=True)
    return load_settings(home, {"ALIPES_CLUSTER_FOLDER": str(folder)})


def test_without_the_setting_everything_is_in_the_home(tmp_path):
    paths = load_settings(tmp_path, {}).paths
    assert [each.parent for each in (paths.memory, paths.skills, paths.checkpoints)] == [tmp_path] * 3
    assert paths.memory_lock == tmp_path / "run" / "memory.lock" and paths.shared == ()


def test_all_workers_have_the_same_notes_skills_checkpoints_and_lock(tmp_path, folder):
    one, two = (settings_of(tmp_path / name, folder).paths for name in ("one", "two"))
    for name in ("memory", "skills", "checkpoints", "files", "outgoing", "memory_lock"):
        assert getattr(one, name) == getattr(two, name)
        assert getattr(one, name).is_relative_to(folder)
    assert one.run != two.run and one.spill != two.spill


def test_each_profile_has_its_own_folders(tmp_path, folder):
    work = tmp_path / "home" / "profiles" / "work"
    work.mkdir(parents=True)
    (work.parent / PROFILES_MARK).touch()
    assert settings_of(work, folder).paths.memory == folder / "profiles" / "work" / "memory"
    assert settings_of(tmp_path / "home", folder).paths.memory == folder / "memory"


def test_a_relative_path_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"ALIPES_CLUSTER_FOLDER .* must be an absolute path"):
        settings_of(tmp_path, "shared")


def test_a_folder_that_is_missing_is_refused_at_the_start_and_not_created(tmp_path, folder):
    folder.rmdir()
    paths = settings_of(tmp_path / "home", folder).paths
    with pytest.raises(ConfigError, match=r"cluster\.folder: .*shared is not a directory\. Mount"):
        paths.make()
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path, folder):
    (folder / "memory").write_text("a file is in the way")
    with pytest.raises(ConfigError, match=r"cluster\.folder: .*shared cannot be written: "):
        settings_of(tmp_path / "home", folder).paths.make()


def test_the_folders_are_private(tmp_path, folder):
    settings_of(tmp_path / "home", folder).paths.make()
    assert {os.stat(each).st_mode & 0o777 for each in folder.iterdir()} == {0o700}
    assert {each.name for each in folder.iterdir()} == {"memory", "skills", "checkpoints", "files", "outgoing"}


async def test_a_note_of_one_worker_is_read_by_another_and_the_lock_is_shared(tmp_path, folder):
    one, two = (settings_of(tmp_path / name, folder).paths for name in ("one", "two"))
    first, second = (MemoryFiles(each.memory, each.memory_lock) for each in (one, two))
    async with first.lock():
        first.write("", "memory", "- the bakery opens at six\n")
    assert second.read("", "memory") == "- the bakery opens at six\n"
    assert (folder / "memory" / ".lock").exists() and not (tmp_path / "one" / "run").exists()


def test_a_skill_of_one_worker_is_seen_by_the_next_load_at_another(tmp_path, folder):
    one, two = (settings_of(tmp_path / name, folder).paths for name in ("one", "two"))
    store = SkillStore(one.skills)
    catalog = SkillCatalog(SkillsConfig(), SkillStore(two.skills), user_home=tmp_path)
    assert catalog.load() == ()
    store.create("bake", SKILL, SkillChange("model"))
    assert [(each.name, each.description) for each in catalog.load()] == [("bake", "Bakes bread.")]
    changed = SkillFile(SKILL[SKILL_FILE].data.replace(b"bread", b"cakes"))
    store.write("bake", {SKILL_FILE: changed}, SkillChange("model"))
    assert [each.description for each in catalog.load()] == ["Bakes cakes."]
    store.remove("bake", SkillChange("person"))
    assert catalog.load() == ()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_a_checkpoint_of_one_worker_can_be_restored_by_another(tmp_path, folder):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("before")
    both = [settings_of(tmp_path / name, folder) for name in ("one", "two")]
    one, two = (Checkpoints(each.paths.checkpoints, each.checkpoints, make_places(each)) for each in both)
    made = await one.make(str(project), CheckpointRecord(turn="t", words="change it"))
    (project / "a.txt").write_text("after")
    await one.finish(str(project), made)
    (found,) = await two.list_checkpoints(str(project))
    assert found.files == ("a.txt",)
    await two.restore(str(project), found.checkpoint.number)
    assert (project / "a.txt").read_text() == "before"


def test_files_made_for_chats_are_offered_by_every_worker_and_no_others(tmp_path, folder):
    one, two = (settings_of(tmp_path / name, folder) for name in ("one", "two"))
    one.paths.make()
    for name in ("outgoing/a.png", "memory/MEMORY.md", "files/telegram/b.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    (folder / "outgoing" / "link.md").symlink_to(folder / "memory" / "MEMORY.md")
    policy = make_outbound_policy(two)
    found = policy.find_media(str(one.paths.outgoing / "a.png"))
    assert found is not None and found.path == str(folder / "outgoing" / "a.png")
    for name in ("memory/MEMORY.md", "outgoing/../memory/MEMORY.md", "outgoing/link.md", "files/telegram/b.txt"):
        assert policy.find_media(str(folder / name)) is None


def test_tools_read_nothing_there_but_the_own_skills_and_files(tmp_path, folder):
    places = make_places(settings_of(tmp_path / "home", folder))
    for name in ("skills/bake/SKILL.md", "files/telegram/a.txt", "outgoing/b.png"):
        assert places.secrecy(str(folder / name)) == ""
    for name in ("memory/MEMORY.md", "checkpoints/x/git/HEAD", "profiles/work/files/a", "profiles/work/skills/x"):
        assert places.secrecy(str(folder / name)) == "ours"
    assert places.secrecy(str(folder / "projects" / "app.py")) == ""  # a workspace beside our folders


@pytest.mark.parametrize(
    ("tool", "argument", "text", "floor"),
    [
        ("terminal", "command", "cat {0}/memory/MEMORY.md", True),
        ("terminal", "command", "echo x > {0}/memory/MEMORY.md", True),
        ("terminal", "command", "rm -rf {0}", True),
        ("terminal", "command", "cp x {0}/skills/bake/SKILL.md", False),
        ("write_file", "path", "{0}/skills/bake/SKILL.md", False),
        ("write_file", "path", "{0}/profiles/work/skills/bake/SKILL.md", True),
    ],
)
def test_changes_of_our_folders_are_asked_for_or_forbidden(tmp_path, folder, tool, argument, text, floor):
    places = structs.replace(make_places(settings_of(tmp_path / "home", folder)), scratch=())
    risk = assess_call(ToolCall("1", tool, {argument: text.format(folder)}), str(tmp_path / "project"), places)
    assert risk is not None and risk.floor == floor


def test_the_sandbox_hides_our_folders_and_not_a_project_beside_them(tmp_path, folder):
    settings = settings_of(tmp_path / "home", folder)
    settings.paths.make()
    (folder / "projects").mkdir()
    sandboxes = ProjectSandboxes(
        SandboxConfig(), home=str(tmp_path), alipes_home=settings.home, environ={}, shared=settings.paths.shared
    )
    policy = sandboxes.make_policy(CommandScope(workdir=str(folder / "projects")))
    assert {str(folder / name) for name in ("memory", "skills", "checkpoints")} <= set(policy.hidden)
    assert str(folder) not in policy.hidden and str(folder / "projects") in policy.writable
