"""What may be said about plugins, toolsets and shell hooks, and how it is reported when it is wrong."""

import pytest

from alipes.config.environment import current_variables, fill_references
from alipes.config.loader import load_settings
from alipes.config.paths import Paths
from alipes.config.reader import locate
from alipes.config.settings import PluginsConfig, ShellHook
from alipes.kernel.errors import ConfigError

WHOLE = """\
[plugins]
enabled = ["weather", "git.hub"]
disabled = ["old"]
safe = true
project = true
import_hermes = true
deadline = 2

[plugins.deadlines]
before_tool = 30

[plugins.entries.weather]
city = "Lisbon"
days = 3
api_key = "${WEATHER_KEY}"
nested = { list = [1, 2] }

[toolsets]
telegram = ["core", "weather"]

[[hooks.pre_tool_call]]
command = "~/bin/check"
matcher = "terminal|process"
timeout = 10

[[hooks.pre_tool_call]]
command = "other"
"""


def loaded(home, text, environ=None):
    Paths(home).config.write_text(text)
    return load_settings(home, environ or {})


def refused(home, text, environ=None):
    with pytest.raises(ConfigError) as error:
        loaded(home, text, environ)
    return str(error.value)


def test_all_of_it_is_read(tmp_path):
    settings = loaded(tmp_path, WHOLE)
    entry = {"city": "Lisbon", "days": 3, "api_key": "${WEATHER_KEY}", "nested": {"list": [1, 2]}}
    assert settings.plugins == PluginsConfig(
        enabled=("weather", "git.hub"),
        disabled=("old",),
        safe=True,
        project=True,
        import_hermes=True,
        deadline=2.0,
        deadlines={"before_tool": 30.0},
        entries={"weather": entry},
    )
    assert settings.toolsets == {"telegram": ("core", "weather")}
    assert settings.hooks == {"pre_tool_call": (ShellHook("~/bin/check", "terminal|process", 10.0), ShellHook("other"))}


def test_nothing_is_loaded_unless_it_is_said(tmp_path):
    settings = loaded(tmp_path, "")
    assert settings.plugins == PluginsConfig()
    assert not settings.plugins.enabled and not settings.toolsets and not settings.hooks


@pytest.mark.parametrize(("text", "safe"), [("1", True), ("true", True), ("0", False), ("false", False)])
def test_safe_mode_has_a_variable_of_its_own(tmp_path, text, safe):
    assert load_settings(tmp_path, {"ALIPES_SAFE": text}).plugins.safe is safe


def test_enabled_plugins_can_be_given_by_variable(tmp_path):
    assert load_settings(tmp_path, {"ALIPES_PLUGINS_ENABLED": "one, two"}).plugins.enabled == ("one", "two")


@pytest.mark.parametrize(
    ("text", "line", "seen"),
    [
        ('[plugins]\nenabled = "weather"', 2, "must be a list of names"),
        ('[plugins]\nenabled = [\n "a",\n "b c",\n]', 4, "letters, digits"),
        ('[plugins]\nenabled = ["a", "a"]', 2, "twice"),
        ('[plugins]\nenable = ["a"]', 2, "Did you mean enabled?"),
        ("[plugins]\nsafe = 1", 2, "true or false"),
        ("[plugins.deadlines]\nbefore_tool = 0", 2, "out of range"),
        ("[plugins.entries]\nweather = 3", 2, "must be a table"),
        ('[plugins.entries.w]\na = 1\napi_key = "abcdef"', 1, 'write api_key = "${NAME}"'),
        ('[plugins.entries.w]\nx = [{ token = "abcdef" }]', 1, "contains a secret in token"),
        ('[plugins.entries.w]\nx = "sk-abcdefghijklmnop"', 1, "contains a secret in x"),
        ("[plugins.entries.w]\nday = 2026-01-01", 1, "a date or time"),
        ('[toolsets]\ntelegram = "core"', 2, "must be a list of names"),
        ('[hooks]\npre_tool_call = "x"', 2, "write [[hooks.NAME]] above each"),
        ('[[hooks.x]]\ncommand = "a"\n[[hooks.x]]\ncomand = "b"', 3, "use command, matcher and timeout"),
        ('[[hooks.x]]\nmatcher = "a"', 1, "has no command"),
        ('[[hooks.x]]\ncommand = "a"\nmatcher = "("', 1, "invalid regular expression"),
        ('[[hooks.x]]\ncommand = "a"\ntimeout = 0', 1, "out of range"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(tmp_path, text, line, seen):
    problem = refused(tmp_path, text)
    assert problem.startswith(f"{tmp_path}/config.toml:{line}: ") and seen in problem
    assert "abcdef" not in problem


def test_a_variable_in_a_plugins_table_is_filled_in_when_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.setenv("FROM_OUTSIDE", "out")
    Paths(tmp_path).env.write_text("FROM_FILE=in\n")
    variables = current_variables(Paths(tmp_path))
    table = {"a": "x-${FROM_FILE}", "b": ["${FROM_OUTSIDE}", 1], "c": {"d": "${FROM_FILE}${FROM_OUTSIDE}"}}
    assert fill_references(table, variables) == {"a": "x-in", "b": ["out", 1], "c": {"d": "inout"}}
    with pytest.raises(KeyError, match="NOWHERE"):
        fill_references({"a": "${NOWHERE}"}, variables)


def test_the_place_of_a_value_can_be_asked_for_later(tmp_path):
    loaded(tmp_path, WHOLE)
    paths = Paths(tmp_path)
    assert locate(paths, ("plugins", "entries", "weather", "days")) == f"{paths.config}:14"
    assert locate(paths, ("plugins", "entries", "weather", "none")) == f"{paths.config}:12"
    assert locate(paths, ("plugins", "entries", "other")) == f"{paths.config}:12"
    paths.config.unlink()
    assert locate(paths, ("plugins",)) == str(paths.config)
