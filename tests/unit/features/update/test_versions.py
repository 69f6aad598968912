import os
import subprocess

import pytest

from alipes.features.update.versions import CURRENT, InstalledVersion, Versions
from alipes.kernel.errors import ConfigError


@pytest.fixture
def versions(tmp_path):
    made = Versions(tmp_path)
    made.folder.mkdir()
    return made


def add(versions: Versions, name: str, installed: float = 1.0) -> None:
    """A version whose program prints its name and its words."""
    program = versions.folder / name / "bin" / "alipes"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
    program.chmod(0o755)
    versions.complete(InstalledVersion(name, name, "", "", installed))


def start(versions: Versions, *words: str) -> str:
    return subprocess.run([versions.launcher, *words], capture_output=True, text=True, check=True).stdout.strip()


def test_the_launcher_starts_the_current_version_with_the_words(versions, tmp_path):
    add(versions, "1.0")
    add(versions, "2.0")
    versions.write_launcher(str(versions.folder / "1.0" / "bin" / "alipes"))
    versions.switch("2.0")
    assert start(versions, "ask", "a  b") == "2.0 ask a  b"


def test_without_a_current_version_the_launcher_starts_the_first_installation(versions, tmp_path):
    origin = tmp_path / 'an "odd" $name' / "alipes"
    origin.parent.mkdir()
    origin.write_text('#!/bin/sh\necho origin "$@"\n')
    origin.chmod(0o755)
    add(versions, "2.0")
    versions.write_launcher(str(origin))
    versions.switch("2.0", origin=str(origin))
    versions.switch("")
    assert start(versions, "ask") == "origin ask"


def test_an_incomplete_version_is_not_listed_and_cannot_be_current(versions):
    (versions.folder / "1.0").mkdir()
    (versions.folder / CURRENT).symlink_to("1.0")
    assert versions.list() == [] and versions.current() == ""


def test_a_switch_that_was_broken_off_before_the_link_does_not_count(versions):
    for name in ("1.0", "2.0", "3.0"):
        add(versions, name)
    versions.switch("1.0")
    versions.switch("2.0")
    kept = os.readlink(versions.folder / CURRENT)
    versions.switch("3.0")
    (versions.folder / CURRENT).unlink()
    (versions.folder / CURRENT).symlink_to(kept)
    last = versions.last_switch()
    assert last is not None and (last.before, last.after) == ("1.0", "2.0")


def test_a_switch_is_announced_once(versions):
    add(versions, "1.0")
    versions.switch("1.0")
    first, second = versions.take_announcement(), versions.take_announcement()
    assert first is not None and first.after == "1.0" and second is None


def test_the_oldest_versions_are_removed_but_not_the_current_one_and_the_one_before(versions):
    for number in range(6):
        add(versions, f"{number}.0", installed=number)
    (versions.folder / "broken").mkdir()
    versions.backups.mkdir()
    versions.switch("0.0")
    versions.switch("1.0")
    versions.remove_leftovers()
    assert [each.name for each in versions.list()] == ["0.0", "1.0", "3.0", "4.0", "5.0"]
    assert versions.backups.is_dir() and not (versions.folder / "broken").exists()


def test_what_killed_updates_left_is_removed(versions):
    versions.backups.mkdir(parents=True)
    for name in (".history.json.14405", ".alipes.14405", ".current.14405"):
        (versions.folder / name).touch()
    for name in (
        "before-2.0-261119.tgz",
        ".before-2.0-261119.tgz.1f.part",
        ".before-2.0-261119.tgz.1f.db.part-journal",
    ):
        (versions.backups / name).touch()
    versions.remove_leftovers()
    assert [each.name for each in versions.folder.iterdir()] == ["backups"]
    assert [each.name for each in versions.backups.iterdir()] == ["before-2.0-261119.tgz"]


def test_a_second_update_of_the_home_is_refused(versions):
    with versions.locked(), pytest.raises(ConfigError, match="another `alipes update` is running"):
        with Versions(versions.folder.parent).locked():
            pass


def test_a_profile_uses_the_versions_of_the_default_home(tmp_path):
    profile = tmp_path / "profiles" / "work"
    profile.mkdir(parents=True)
    (tmp_path / "profiles" / ".alipes-profiles").touch()
    assert Versions(profile).folder == tmp_path / "versions"
