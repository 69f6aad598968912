"""Pins of plugins: what counts as a change, what is pinned by itself, and what must be accepted."""

import os
from pathlib import Path

import pytest
from msgspec import structs

from alipes.config.settings import PluginsConfig, Settings
from alipes.plugins import pins
from alipes.plugins.discovery import DiscoveredPlugin, inspect_folder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def plugin(settings: Settings) -> DiscoveredPlugin:
    return make_plugin(settings.home / "plugins" / "one", "home")


def make_plugin(folder: Path, source: str) -> DiscoveredPlugin:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def setup(ctx): ...\n")
    (folder / "skills").mkdir()
    (folder / "skills" / "SKILL.md").write_text("Be kind.\n")
    (folder / "words.json").write_text("{}")
    found = inspect_folder(folder, source)
    assert found is not None
    return found


def refused(settings: Settings, plugin: DiscoveredPlugin) -> str:
    return pins.find_refused(settings, [plugin]).get(plugin.name, "")


def test_a_plugin_of_the_home_is_pinned_when_it_is_first_loaded(settings, plugin):
    assert refused(settings, plugin) == "" and pins.is_pinned(settings.home, plugin)


@pytest.mark.parametrize("name", ["__init__.py", "skills/SKILL.md", "words.json"])
def test_a_changed_file_is_named_and_refused(settings, plugin, name):
    assert refused(settings, plugin) == ""
    (plugin.path / name).write_text("import os\n")
    why = refused(settings, plugin)
    assert f"changed: {name}" in why and "`alipes plugins accept one`" in why


def test_a_change_that_keeps_size_and_time_is_found(settings, plugin):
    file = plugin.path / "__init__.py"
    before = file.stat()
    assert refused(settings, plugin) == ""
    file.write_text(file.read_text().replace("setup", "other"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "changed: __init__.py" in refused(settings, plugin)


@pytest.mark.parametrize("name", ["json.py", "fast.so", ".packages/dep/__init__.py", "sub/SKILL.md", "old.pyc"])
def test_a_new_file_is_refused(settings, plugin, name):
    assert refused(settings, plugin) == ""
    (plugin.path / name).parent.mkdir(parents=True, exist_ok=True)
    (plugin.path / name).write_text("")
    assert f"new: {name}" in refused(settings, plugin)


def test_a_removed_file_is_refused(settings, plugin):
    assert refused(settings, plugin) == ""
    (plugin.path / "skills" / "SKILL.md").unlink()
    assert "removed: skills/SKILL.md" in refused(settings, plugin)


def test_a_file_that_becomes_executable_is_refused(settings, plugin):
    assert refused(settings, plugin) == ""
    (plugin.path / "words.json").chmod(0o755)
    assert "changed: words.json" in refused(settings, plugin)


def test_a_link_to_a_file_that_changed_is_refused(settings, plugin, tmp_path):
    target = tmp_path / "elsewhere.py"
    target.write_text("A = 1\n")
    (plugin.path / "linked.py").symlink_to(target)
    assert refused(settings, plugin) == ""
    target.write_text("A = 2\n")
    assert "changed: linked.py" in refused(settings, plugin)


@pytest.mark.parametrize("name", ["cache.db", "notes.log", "state.json", "__pycache__/x.cpython-311.pyc"])
def test_data_that_a_plugin_writes_is_no_change(settings, plugin, name):
    assert refused(settings, plugin) == ""
    for text in ("one", "two"):
        (plugin.path / name).parent.mkdir(exist_ok=True)
        (plugin.path / name).write_text(text)
        assert refused(settings, plugin) == ""


def test_a_copy_with_the_same_content_is_no_change(settings, plugin):
    assert refused(settings, plugin) == ""
    file = plugin.path / "__init__.py"
    text = file.read_text()
    file.unlink()
    file.write_text(text)
    assert refused(settings, plugin) == ""


def test_a_refused_plugin_stays_refused(settings, plugin):
    assert refused(settings, plugin) == ""
    (plugin.path / "__init__.py").write_text("import os\n")
    assert refused(settings, plugin) and refused(settings, plugin)


def test_an_accepted_plugin_is_loaded_again(settings, plugin):
    assert refused(settings, plugin) == ""
    (plugin.path / "__init__.py").write_text("import os\n")
    assert str(pins.accept_plugin(settings.home, plugin)) == "changed: __init__.py"
    assert refused(settings, plugin) == ""


def test_a_plugin_of_a_project_must_be_accepted_first(settings, tmp_path):
    plugin = make_plugin(tmp_path / "project" / ".alipes" / "plugins" / "one", "project")
    assert "is new and was not accepted" in refused(settings, plugin)
    pins.accept_plugin(settings.home, plugin)
    assert refused(settings, plugin) == ""


def test_a_plugin_of_another_project_does_not_use_the_pin_of_its_name(settings, tmp_path):
    pins.accept_plugin(settings.home, make_plugin(tmp_path / "mine" / ".alipes" / "plugins" / "one", "project"))
    assert refused(settings, make_plugin(tmp_path / "theirs" / ".alipes" / "plugins" / "one", "project"))


def test_a_file_hook_that_appears_later_must_be_accepted(settings, plugin):
    assert refused(settings, plugin) == ""
    hook = structs.replace(make_plugin(settings.home / "hooks" / "new", "hooks"), kind="file-hook")
    assert "is new and was not accepted" in refused(settings, hook)


def test_file_hooks_of_an_older_release_are_pinned_once(settings):
    hook = structs.replace(make_plugin(settings.home / "hooks" / "old", "hooks"), kind="file-hook")
    assert refused(settings, hook) == ""


def test_a_plugin_under_development_is_not_checked(settings, plugin):
    assert refused(settings, plugin) == ""
    (plugin.path / "__init__.py").write_text("import os\n")
    free = structs.replace(settings, plugins=PluginsConfig(unpinned=("one",)))
    assert refused(free, plugin) == ""


def test_pins_are_private(settings, plugin):
    assert refused(settings, plugin) == ""
    assert (settings.home / "plugins" / "pins.json").stat().st_mode & 0o777 == 0o600


def test_unchanged_plugins_write_nothing(settings, plugin):
    assert refused(settings, plugin) == ""
    before = (settings.home / "plugins" / "pins.json").stat().st_ino
    assert refused(settings, plugin) == ""
    assert (settings.home / "plugins" / "pins.json").stat().st_ino == before
