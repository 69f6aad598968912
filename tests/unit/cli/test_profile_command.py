"""`alipes profile`, and the option `-P`."""

import os
from pathlib import Path

import pytest

from alipes.cli.commands import profile
from alipes.cli.main import command_names
from alipes.config.loader import load_settings
from alipes.console import options
from alipes.kernel.errors import ConfigError
from alipes.runtime.process_lock import hold_process_lock


@pytest.fixture
def root(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALIPES_PROFILE", "")
    return tmp_path / "home"


def home_of(root: Path, name: str) -> Path:
    return root / "profiles" / name


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("-P work ask hi", "ask hi"),
        ("ask -P work hi", "ask hi"),
        ("ask hi --profile work", "ask hi"),
        ("--profile=work config show", "config show"),
        ("-Pwork", ""),
        ("-m a/b -P work doctor", "-m a/b doctor"),
        ("serve -P work", "serve"),
        ("serve install -P work --write", "serve install --write"),
    ],
)
def test_the_option_chooses_the_profile_of_every_command(root, words, left):
    assert options.take_profile(words.split(), command_names()) == left.split()
    assert os.environ["ALIPES_PROFILE"] == "work"


@pytest.mark.parametrize("words", ["ask -- -P work", "config set model -P", "a-plugin -P x", "mcp add x -- npx -P y"])
def test_words_of_others_are_not_taken_for_the_option(root, words):
    assert options.take_profile(words.split(), command_names()) == words.split()
    assert os.environ["ALIPES_PROFILE"] == ""


def test_only_serve_takes_several_profiles(root):
    assert options.take_profile(["serve", "-P", "a", "-P", "b"], command_names()) == ["serve", "-P", "a", "-P", "b"]
    with pytest.raises(ConfigError, match="Only `alipes serve`"):
        options.take_profile(["ask", "-P", "a", "-P", "b", "hi"], command_names())


@pytest.mark.parametrize("words", ["-P", "ask -P", "--profile= ask", "-P -m x"])
def test_the_option_needs_a_name(root, words):
    with pytest.raises(ConfigError, match="needs the name"):
        options.take_profile(words.split(), command_names())


def test_a_new_profile_is_a_private_home_with_its_own_port(root, capsys):
    assert profile.run(["new", "work"]) == 0 and profile.run(["new", "play"]) == 0
    assert home_of(root, "work").stat().st_mode & 0o777 == 0o700
    ports = {load_settings(home, {}).serve.port for home in (root, home_of(root, "work"), home_of(root, "play"))}
    assert len(ports) == 3
    assert profile.run(["list"]) == 0
    listed = capsys.readouterr().out
    assert "default *" in listed and str(home_of(root, "work")) in listed


def test_an_existing_profile_is_not_created_again(root):
    profile.run(["new", "work"])
    with pytest.raises(ConfigError, match="already exists"):
        profile.run(["new", "work"])


def test_a_similar_name_is_mentioned(root, capsys):
    profile.run(["new", "work"])
    profile.run(["new", "works"])
    assert "There is also a profile work." in capsys.readouterr().err


@pytest.fixture
def source(root: Path) -> Path:
    """A profile with something of everything."""
    profile.run(["new", "work"])
    home = home_of(root, "work")
    (home / "config.toml").write_text('max_steps = 7\n[serve]\nport = 9000\nkey_env = "WORK_API_KEY"\n')
    (home / ".env").write_text("OPENAI_API_KEY=canary-key\nWORK_API_KEY=canary-of-the-api\n")
    (home / "skills" / "tidy").mkdir(parents=True)
    (home / "skills" / "tidy" / "SKILL.md").write_text("a skill")
    (home / "MEMORY.md").write_text("a memory")
    for name in ("alipes.db", "alipes.db-wal", "history", "files/telegram/a.txt", "logs/alipes.log", "outgoing/b.png"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("private")
    return home


def test_a_clone_has_settings_memory_and_skills_but_no_conversations_and_keys(root, source):
    assert profile.run(["clone", "work", "play"]) == 0
    home = home_of(root, "play")
    files = {str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()}
    assert files - {"run/config.lock"} == {"config.toml", "MEMORY.md", "skills/tidy/SKILL.md"}
    settings = load_settings(home, {})
    assert settings.max_steps == 7 and settings.serve.port != 9000


def test_a_clone_with_keys_does_not_get_the_key_that_opens_the_other(root, source):
    profile.run(["clone", "work", "play", "--with-keys"])
    assert (home_of(root, "play") / ".env").read_text() == "OPENAI_API_KEY=canary-key\n"
    assert (home_of(root, "play") / ".env").stat().st_mode & 0o777 == 0o600


def test_remove_needs_the_exact_name_and_says_what_is_deleted(root, source, capsys):
    assert profile.run(["remove", "work", "--confirm", "wrok"]) == 1
    said = capsys.readouterr().out
    assert "OPENAI_API_KEY" in said and "canary" not in said and source.exists()
    assert profile.run(["remove", "work", "--confirm", "work"]) == 0
    assert not source.exists() and not list(source.parent.glob("*work*"))


def test_memory_and_skills_in_the_shared_folder_are_cloned_and_kept_by_remove(root, source, tmp_path, capsys):
    shared = tmp_path / "shared" / "profiles"
    (source / "config.toml").write_text(f'[cluster]\nfolder = "{tmp_path}/shared"\n')
    for name in ("memory/MEMORY.md", "memory/.lock", "skills/bake/SKILL.md", "checkpoints/x/folder"):
        (shared / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (shared / "work" / name).write_text("x")
    assert profile.run(["clone", "work", "play"]) == 0
    copied = {str(file.relative_to(shared / "play")) for file in (shared / "play").rglob("*") if file.is_file()}
    assert copied == {"memory/MEMORY.md", "skills/bake/SKILL.md"}
    assert profile.run(["remove", "work", "--confirm", "work"]) == 0
    assert f"in {shared / 'work'} were kept" in capsys.readouterr().out and (shared / "work" / "memory").is_dir()


def test_a_profile_in_use_is_not_removed(root, source):
    with (
        hold_process_lock(source / "run" / "serve.claim"),
        pytest.raises(ConfigError, match=f"in use by process {os.getpid()}"),
    ):
        profile.run(["remove", "work", "--confirm", "work"])
    assert source.exists()


def test_the_default_profile_is_not_removed(root):
    with pytest.raises(ConfigError, match="cannot be removed"):
        profile.run(["remove", "default", "--confirm", "default"])
