"""Profiles: their homes and names, and the environment of the one that a task works for."""

import asyncio
import os
from pathlib import Path

import pytest

from alipes.config import secret_store
from alipes.config.environment import export_variables, process_environment, read_variables
from alipes.config.loader import load_settings
from alipes.config.paths import (
    PROFILES_MARK,
    all_homes,
    check_profile_name,
    current_scope,
    find_home,
    find_profile,
    find_root,
    profile_name,
    use_environ,
)
from alipes.kernel.errors import ConfigError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("work", "play"):
        (tmp_path / "profiles" / name).mkdir(parents=True)
    (tmp_path / "profiles" / PROFILES_MARK).touch()
    return tmp_path


def test_the_variable_chooses_the_home_of_a_profile(root):
    environ = {"ALIPES_HOME": str(root), "ALIPES_PROFILE": "work"}
    assert find_home(environ) == root / "profiles" / "work"
    assert find_home({**environ, "ALIPES_PROFILE": "default"}) == root
    assert find_home({"ALIPES_HOME": str(root / "profiles" / "work"), "ALIPES_PROFILE": "play"}).name == "play"


def test_a_misspelt_profile_is_refused_with_the_one_that_was_meant(root):
    with pytest.raises(ConfigError, match=r"no profile 'wrok'\. Did you mean work"):
        find_profile(root, "wrok")


def test_the_home_of_a_profile_is_known_by_its_path(root):
    home = root / "profiles" / "work"
    assert (profile_name(home), find_root(home)) == ("work", root)
    assert all_homes(home) == [root, root / "profiles" / "play", home]
    assert load_settings(home, {}).profile == "work"


def test_any_other_folder_called_profiles_holds_no_profiles(tmp_path):
    home = tmp_path / "profiles" / "ann"
    home.mkdir(parents=True)
    assert (profile_name(home), find_root(home), all_homes(home)) == ("default", home, [home])


@pytest.mark.parametrize("name", ["", "Work", "a/b", "..", "-x", "x" * 33, "default", "main", "a b", "wörk"])
def test_a_name_that_is_no_plain_folder_name_is_refused(name):
    with pytest.raises(ConfigError):
        check_profile_name(name)


async def test_a_task_and_its_threads_see_only_the_environment_of_their_profile(root):
    homes = {name: str(root / "profiles" / name) for name in ("work", "play")}

    async def look(name: str) -> tuple[str, dict[str, str], str]:
        with use_environ({"ALIPES_HOME": homes[name], "NAME": name}):
            await asyncio.sleep(0)
            return current_scope(), await asyncio.to_thread(process_environment), find_home().name

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(look(name)) for name in homes}
    for name, task in tasks.items():
        assert task.result() == (homes[name], {"ALIPES_HOME": homes[name], "NAME": name}, name)
    assert current_scope() == ""


def test_variables_of_one_of_several_profiles_are_not_exported_to_the_process(root):
    (root / ".env").write_text("CANARY=1\n")
    with use_environ({"ALIPES_HOME": str(root)}):
        assert export_variables(read_variables(root / ".env", {}), ["CANARY"]) == set()
    assert "CANARY" not in os.environ


def test_the_keyring_keeps_the_keys_of_each_profile_apart(root, monkeypatch):
    stored: dict[tuple[str, str], str] = {}

    class Keyring:
        class KeyringError(Exception): ...

        @staticmethod
        def set_password(service: str, name: str, value: str) -> None:
            stored[service, name] = value

        @staticmethod
        def get_password(service: str, name: str) -> str | None:
            return stored.get((service, name))

    monkeypatch.setattr(secret_store, "import_module", lambda _name: Keyring)
    secret_store.write_keyring(root, "KEY", "of the default one")
    secret_store.write_keyring(root / "profiles" / "work", "KEY", "of work")
    assert secret_store.read_keyring(root, "KEY") == "of the default one"
    assert secret_store.read_keyring(root / "profiles" / "work", "KEY") == "of work"
    assert secret_store.read_keyring(root / "profiles" / "play", "KEY") == ""
