"""Configurations of other programs, and the consent to those of a project."""

import json

import pytest
from msgspec import structs

from alipes.config.environment import Variables
from alipes.config.loader import load_settings
from alipes.features.mcp.files import (
    accept_server,
    add_project_servers,
    clean_name,
    expand,
    forget_server,
    list_files,
    load_project,
    move_secrets,
    read_project,
    read_servers,
    rewrite_references,
)
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.errors import ConfigError

CLAUDE = {
    "mcpServers": {
        "files": {"command": "npx", "args": ["-y", "server-filesystem", "/data"], "env": {"DEBUG": 1}},
        "notes": {"type": "http", "url": "https://notes.example/mcp", "headers": {"Authorization": "Bearer abc"}},
    }
}
HERMES = """
model: {provider: custom}
mcp_servers:
  time:
    command: uvx
    args: ["mcp-server-time"]
    env: {TZ: Europe/Vienna}
  notes:
    url: http://127.0.0.1:9300/mcp
    headers: {Authorization: "Bearer ${NOTES_TOKEN}"}
    timeout: 5
"""


def no_variable(_name):
    return ""


def variables(tmp_path, **given):
    return Variables(given, tmp_path / ".env")


def write(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def write_project(folder, **servers):
    write(folder / ".mcp.json", {"mcpServers": servers})


def test_servers_of_claude_desktop_are_read(tmp_path):
    files, notes = read_servers(write(tmp_path / "claude_desktop_config.json", CLAUDE))
    assert files.config.command == "npx" and files.config.args == ("-y", "server-filesystem", "/data")
    assert files.config.env == {"DEBUG": "1"} and not files.problem
    assert notes.config.url == "https://notes.example/mcp" and notes.config.headers == {"Authorization": "Bearer abc"}


def test_servers_of_hermes_are_read_and_what_is_not_understood_is_named(tmp_path):
    time, notes = read_servers(write(tmp_path / "config.yaml", HERMES))
    assert (time.name, time.config.command, time.config.env) == ("time", "uvx", {"TZ": "Europe/Vienna"})
    assert notes.variables == ("NOTES_TOKEN",) and notes.ignored == ("timeout",)


def test_a_missing_file_is_none_and_one_without_servers_is_empty(tmp_path):
    assert read_servers(tmp_path / "none.json") is None
    assert read_servers(write(tmp_path / "x.json", {})) == ()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", "{", "invalid JSON"),
        ("a.json", "[]", "must be an object"),
        ("a.json", '{"mcpServers": [1]}', "must be an object"),
        ("a.yaml", "a: [", "invalid YAML"),
        ("a.yaml", "a: !!python/object/apply:os.system [x]", "invalid YAML"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        read_servers(write(tmp_path / name, text))
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("text", "not an object"),
        ({}, "either a command or a url"),
        ({"command": "a", "url": "http://x"}, "either a command or a url"),
        ({"command": ["a"]}, "command is not a text"),
        ({"command": "a\x1b[2J"}, "command is not a text"),
        ({"command": "a", "args": "b"}, "args is not a list"),
        ({"command": "a", "env": {"A": []}}, "env is not an object"),
    ],
)
def test_a_broken_entry_says_why_and_the_others_are_read(tmp_path, entry, problem):
    file = write(tmp_path / "x.json", {"mcpServers": {"bad": entry, "good": {"command": "a"}}})
    bad, good = read_servers(file)
    assert problem in bad.problem and not good.problem


def test_names_are_made_usable():
    assert [clean_name(name) for name in ("My Server", "a__b", "ünï/code!", "x" * 50)] == [
        *("My-Server", "a_b", "n-code", "x" * 32)
    ]


def test_the_places_of_programs(tmp_path):
    user, work = tmp_path / "user", tmp_path / "work"

    def find(program, **environ):
        return [str(file.relative_to(tmp_path)) for file in list_files(program, user, environ, work)]

    assert "user/.config/Claude/claude_desktop_config.json" in find("claude-desktop")
    moved = find("claude-desktop", APPDATA=str(tmp_path / "app"))
    assert moved[0] == "app/Claude/claude_desktop_config.json"
    assert find("cursor") == ["user/.cursor/mcp.json", "work/.cursor/mcp.json"]
    assert find("hermes") == ["user/.hermes/config.yaml"]
    assert find("hermes", HERMES_HOME=str(tmp_path / "h")) == ["h/config.yaml"]


def test_secrets_move_into_variables():
    config = McpServerConfig(
        url="https://x",
        env={"GITHUB_TOKEN": "ghp_0123456789abcdef", "LANG": "C", "KEPT": "${KEPT}"},
        headers={"Authorization": "Bearer abc.def", "X-Api-Key": "k1", "Accept": "text/plain"},
    )
    moved, secrets = move_secrets("my-hub", config, no_variable)
    assert moved.env == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "LANG": "C", "KEPT": "${KEPT}"}
    assert moved.headers == {
        "Authorization": "Bearer ${MY_HUB_TOKEN}",
        "X-Api-Key": "${MY_HUB_X_API_KEY}",
        "Accept": "text/plain",
    }
    assert secrets == {"GITHUB_TOKEN": "ghp_0123456789abcdef", "MY_HUB_TOKEN": "abc.def", "MY_HUB_X_API_KEY": "k1"}


def test_a_variable_with_another_value_is_not_replaced():
    config = McpServerConfig(command="x", env={"API_KEY": "mine"})
    moved, secrets = move_secrets("hub", config, {"API_KEY": "other"}.get)
    assert moved.env == {"API_KEY": "${HUB_API_KEY}"} and secrets == {"HUB_API_KEY": "mine"}
    assert move_secrets("hub", config, {"API_KEY": "mine"}.get)[1] == {"API_KEY": "mine"}


def test_references_of_other_programs_become_ours():
    config = McpServerConfig(
        command="${BIN:-run}", args=("--dir", "${DIR}"), env={"A": "${env:TOKEN}", "B": "${SET:-x}", "C": "${UNSET:-x}"}
    )
    rewritten = rewrite_references(config, {"DIR": "/data", "SET": "y"})
    assert (rewritten.command, rewritten.args) == ("run", ("--dir", "/data"))
    assert rewritten.env == {"A": "${TOKEN}", "B": "${SET}", "C": "x"}


def test_variables_of_a_project_are_filled_in(tmp_path):
    config = McpServerConfig(command="${workspaceFolder}/run", headers={"A": "${T}"}, env={"E": "${NO:-def}"})
    filled = expand(config, variables(tmp_path, T="secret"), "/work")
    assert filled.command == "/work/run" and filled.headers == {"A": "secret"} and filled.env == {"E": "def"}
    with pytest.raises(ConfigError, match="needs the variable T, which is not set"):
        expand(config, variables(tmp_path), "/work")


# --- projects


def states(home, work):
    return {each.found.name: each.state for each in read_project(home, work)}


def accept_all(home, work):
    for each in read_project(home, work):
        accept_server(home, each.found)


def test_a_server_of_a_project_is_used_after_it_was_accepted(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    write_project(work, time={"command": "uvx", "args": ["mcp-server-time"]})
    usable, notes = load_project(home, home / ".env", work)
    assert usable == {} and "not accepted: time" in notes[0] and "alipes mcp accept" in notes[0]
    accept_all(home, work)
    usable, notes = load_project(home, home / ".env", work)
    assert usable["time"].command == "uvx" and usable["time"].source == str(work / ".mcp.json") and not notes


@pytest.mark.parametrize(
    "changed",
    [
        {"command": "uvx", "args": ["mcp-server-time", "--evil"]},
        {"command": "sh"},
        {"command": "uvx", "args": ["mcp-server-time"], "env": {"A": "b"}},
    ],
)
def test_a_changed_entry_must_be_accepted_again(tmp_path, changed):
    home, work = tmp_path / "home", tmp_path / "work"
    write_project(work, time={"command": "uvx", "args": ["mcp-server-time"]})
    accept_all(home, work)
    write_project(work, time=changed)
    assert states(home, work) == {"time": "changed"} and load_project(home, home / ".env", work)[0] == {}
    accept_all(home, work)
    assert states(home, work) == {"time": "accepted"}


def test_an_acceptance_counts_for_its_project_only(tmp_path):
    home = tmp_path / "home"
    for name in ("one", "two"):
        write_project(tmp_path / name, time={"command": "uvx"})
    accept_all(home, tmp_path / "one")
    assert states(home, tmp_path / "one") == {"time": "accepted"} and states(home, tmp_path / "two") == {"time": "new"}


def test_what_is_forgotten_must_be_accepted_again(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    write_project(work, time={"command": "uvx"})
    accept_all(home, work)
    forget_server(home, read_project(home, work)[0].found)
    assert states(home, work) == {"time": "new"}


def test_a_damaged_list_of_acceptances_accepts_nothing(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    write_project(work, time={"command": "uvx"})
    accept_all(home, work)
    assert (home / "mcp-projects.json").stat().st_mode & 0o777 == 0o600
    (home / "mcp-projects.json").write_text("{")
    assert states(home, work) == {"time": "new"}


def test_problems_of_a_project_are_notes_and_stop_nothing(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    write(work / ".mcp.json", "{")
    assert "invalid JSON" in load_project(home, home / ".env", work)[1][0]
    write_project(work, bad={}, needy={"command": "x", "env": {"A": "${NOT_SET_ANYWHERE}"}})
    accept_all(home, work)
    usable, notes = load_project(home, home / ".env", work)
    assert [*usable] == ["needy"] and not usable["needy"].is_on
    assert "bad" in notes[0] and "needs the variable NOT_SET_ANYWHERE" in notes[1]


def test_settings_come_before_the_file_of_a_project(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    write(home / "config.toml", '[mcp.servers.time]\ncommand = "ours"\n')
    write_project(work, time={"command": "theirs"}, more={"url": "https://x", "headers": {"X-Token": "canary-77aa0d"}})
    accept_all(home, work)
    settings = add_project_servers(load_settings(home, {}), str(work))
    assert settings.mcp.servers["time"].command == "ours" and settings.mcp.servers["more"].url == "https://x"
    assert "canary-77aa0d" in settings.secrets()


def test_without_a_file_the_settings_are_the_same(tmp_path):
    settings = load_settings(tmp_path, {})
    assert add_project_servers(settings, str(tmp_path)) is settings


def test_a_disabled_entry_is_not_used(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    write_project(work, a={"command": "x", "disabled": True}, b={"command": "x", "enabled": False})
    accept_all(home, work)
    assert load_project(home, home / ".env", work) == ({}, ())
    assert structs.asdict(read_project(home, work)[0])["state"] == "accepted"
