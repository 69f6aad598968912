"""`hermes_cli.config`, secrets and setup questions: over the home's own files, through their own door."""

import os
import subprocess
import sys
import tomllib

import pytest

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.modules import install
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from tests.unit.compat.plugin_harness import RecordingHost

CONFIG = """\
model = "scripted"   # the one I like

[plugins]
enabled = ["mine"]

[plugins.entries.mine]
colour = "red"   # keep this comment
depth = 3
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("MY_TOKEN", "OTHER_TOKEN"):  # so that they are out of the environment again at the end
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / ".env").write_text("MY_TOKEN='s3cret-value'\n")
    (tmp_path / ".env").chmod(0o600)
    bridge = Bridge(RecordingHost(), Settings(home=tmp_path))
    install.install(bridge)
    yield tmp_path
    install.uninstall(bridge)


def test_the_configuration_is_read_as_it_is_in_the_file(home):
    from hermes_cli.config import cfg_get, load_config

    config = load_config()
    assert cfg_get(config, "plugins", "entries", "mine", "colour") == "red"
    assert cfg_get(config, "plugins", "entries", "other", default="none") == "none"
    assert cfg_get(config, "model", "default", default="x") == "x" and cfg_get(None, "a") is None
    config["model"] = "changed"
    assert load_config()["model"] == "scripted"


def test_what_was_changed_is_written_and_everything_else_stays(home):
    from hermes_cli.config import load_config, save_config

    config = load_config()
    mine = config["plugins"]["entries"]["mine"]
    mine |= {"colour": 'a "quoted" ä', "depth": None, "fast": True, "limits": {"low": 0.5, "names": ["a", "b"]}}
    save_config(config)
    text = (home / "config.toml").read_text()
    assert "# the one I like" in text and "# keep this comment" in text
    assert tomllib.loads(text)["plugins"]["entries"]["mine"] == {
        "colour": 'a "quoted" ä',
        "fast": True,
        "limits": {"low": 0.5, "names": ["a", "b"]},
    }
    before = (home / "config.toml").stat().st_mtime_ns
    save_config(load_config())
    assert (home / "config.toml").stat().st_mtime_ns == before


def test_to_save_a_part_takes_nothing_away(home):
    from hermes_cli.config import load_config, save_config

    save_config({"max_steps": 7})
    assert load_config()["plugins"]["entries"]["mine"]["depth"] == 3 and load_config()["max_steps"] == 7


def test_a_value_that_is_wrong_is_refused_and_the_file_is_as_it_was(home):
    from hermes_cli.config import save_config, set_config_value

    for act in (
        lambda: save_config({"max_steps": "many"}),
        lambda: save_config({"my_own_table": {"x": 1}}),
        lambda: set_config_value("plugins.entries.mine.api_key", "sk-1234567890abcdef1234567890abcdef"),
    ):
        with pytest.raises(ConfigError, match="Nothing was changed"):
            act()
    assert (home / "config.toml").read_text() == CONFIG


def test_one_setting_or_one_variable_is_set_by_its_name(home):
    from hermes_cli.config import get_env_value, load_config, set_config_value

    set_config_value("plugins.entries.mine.colour", "blue")
    set_config_value("max_steps", 9)
    set_config_value("OTHER_TOKEN", "another-value")
    assert load_config()["plugins"]["entries"]["mine"]["colour"] == "blue" and load_config()["max_steps"] == 9
    assert get_env_value("OTHER_TOKEN") == "another-value"
    assert "another-value" not in (home / "config.toml").read_text()


def test_a_secret_is_given_to_who_knows_its_name_and_nothing_lists_them(home, monkeypatch):
    from agent.secret_scope import get_secret
    from hermes_cli.config import get_env_value, load_env, remove_env_value, save_env_value

    assert get_env_value("MY_TOKEN") == get_secret("MY_TOKEN") == "s3cret-value"
    assert get_env_value("NOT_SET") is None and get_secret("NOT_SET", "usual") == "usual"
    with pytest.raises(NotImplementedError, match="use get_env_value"):
        load_env()
    save_env_value("MY_TOKEN", "new value")
    assert get_env_value("MY_TOKEN") == os.environ["MY_TOKEN"] == "new value"
    assert (home / ".env").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("MY_TOKEN", "of the environment")
    assert get_env_value("MY_TOKEN") == "of the environment"
    monkeypatch.delenv("MY_TOKEN")
    assert remove_env_value("MY_TOKEN") and not remove_env_value("MY_TOKEN")
    assert get_env_value("MY_TOKEN") is None


def test_the_home_is_ours_and_reads_well(home, monkeypatch):
    from hermes_cli.config import get_config_path, get_env_path
    from hermes_constants import display_hermes_home, get_hermes_dir, get_hermes_home

    assert get_hermes_home() == home and get_hermes_dir("cache/images", "image_cache") == home / "cache/images"
    assert (get_config_path(), get_env_path()) == (home / "config.toml", home / ".env")
    monkeypatch.setenv("HOME", str(home.parent))
    assert display_hermes_home() == f"~/{home.name}"


ASKS = """
import sys
from pathlib import Path
from alipes.compat.hermes.modules import install
from alipes.compat.hermes.bridge import Bridge
from alipes.config.settings import Settings
install.install(Bridge(None, Settings(home=Path(sys.argv[1]))))
from hermes_cli.setup import (
    get_env_value, print_header, print_info, print_success, print_warning, print_error,
    prompt, prompt_checklist, prompt_choice, prompt_yes_no, save_env_value,
)
print_header("My Platform")
print_info("one", "two")
save_env_value("MY_PLATFORM_TOKEN", prompt("Token", password=True))
print(prompt("Channel", "#general"), prompt("Name"), prompt_yes_no("Sure?", False), prompt_yes_no("Again?"))
print(prompt_choice("Colour", ["red", "blue"], 1), prompt_choice("Colour", ["red", "blue"]))
print(prompt_checklist("Rooms", ["a", "b", "c"], [0]))
print_success("set", get_env_value("MY_PLATFORM_TOKEN")); print_warning("w"); print_error("e")
print(prompt("nobody is there", "usual"), prompt_yes_no("nobody"))
"""


def test_a_setup_asks_in_plain_lines_and_takes_the_usual_where_nobody_answers(tmp_path):
    typed = "tok-123\n\nada\nperhaps\ny\n\n7\n1\n\n3, 1\n"
    done = subprocess.run(
        [sys.executable, "-c", ASKS, str(tmp_path)],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    for words in ("My Platform\n-----------", "  one\n  two", "#general ada True True", "0 0", "[0, 2]"):
        assert words in said, said
    assert "Please answer y or n." in said and "number from 1 to 2" in said
    assert "✓ set\n✓ tok-123\n! w\n✗ e" in said and "usual True" in said
    assert (tmp_path / ".env").read_text() == "MY_PLATFORM_TOKEN=tok-123\n"
