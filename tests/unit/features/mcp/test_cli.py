"""`alipes mcp`: servers are added, listed, tested, imported, accepted and removed."""

import io
import json
import tomllib

import pytest

from alipes.cli.main import main
from alipes.config.loader import load_settings
from alipes.features.mcp.client.catalog import ToolCatalog
from alipes.features.mcp.client.definitions import Offer, ServerInfo, ToolDefinition
from alipes.features.mcp.settings import McpServerConfig
from tests.world.mcp_harness import world_server

TOKEN = "ghp_0123456789abcdefgh"


class Program:
    def __init__(self, folder, monkeypatch, capsys):
        self.home, self.work, self.user = folder / "home", folder / "work", folder / "user"
        self._monkeypatch, self._capsys = monkeypatch, capsys
        for each in (self.work, self.user):
            each.mkdir()
        monkeypatch.setenv("ALIPES_HOME", str(self.home))
        monkeypatch.setenv("HOME", str(self.user))
        for name in ("HERMES_HOME", "XDG_CONFIG_HOME", "APPDATA", "GITHUB_TOKEN", "NOTES_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(self.work)

    def run(self, *words, stdin=""):
        self._monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        try:
            status = main(["mcp", *words])
        except SystemExit as left:
            status = left.code
        shown = self._capsys.readouterr()
        assert TOKEN not in shown.out + shown.err
        return status, shown.out, shown.err

    def config(self):
        return tomllib.loads((self.home / "config.toml").read_text())["mcp"]["servers"]

    def env(self):
        return (self.home / ".env").read_text()

    def listed(self):
        return {each["name"]: each for each in json.loads(self.run("list", "--json")[1])}

    def write(self, name, content):
        file = (self.user if name.startswith(".") and not name.startswith(".mcp") else self.work) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def program(tmp_path, monkeypatch, capsys):
    return Program(tmp_path, monkeypatch, capsys)


def test_a_started_server_is_added_listed_and_removed(program):
    assert "No MCP servers" in program.run()[1]
    words = ("--no-test", "--env", "LANG=C", "--", "npx", "-y", "server", "--root", "a b")
    status, out, _ = program.run("add", "files", *words)
    assert status == 0 and "alipes mcp test files" in out
    assert program.config() == {
        "files": {"command": "npx", "args": ["-y", "server", "--root", "a b"], "env": {"LANG": "C"}}
    }
    shown = program.run("list")[1]
    assert "npx -y server --root 'a b'" in shown and "config.toml" in shown
    assert program.run("remove", "files")[0] == 0 and "No MCP servers" in program.run("list")[1]


def test_secrets_are_written_to_the_file_of_secrets(program):
    program.run("add", "hub", "--no-test", "--env", f"GITHUB_TOKEN={TOKEN}", "--", "hub")
    header = f"Authorization=Bearer {TOKEN}"
    program.run("add", "notes", "--no-test", "--url", "https://notes.example/mcp", "--header", header)
    assert program.config()["hub"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}
    assert program.config()["notes"]["headers"] == {"Authorization": "Bearer ${NOTES_TOKEN}"}
    assert program.env() == f"GITHUB_TOKEN={TOKEN}\nNOTES_TOKEN={TOKEN}\n"
    settings = load_settings(program.home, {})
    assert settings.mcp.servers["notes"].headers == {"Authorization": f"Bearer {TOKEN}"}
    assert TOKEN not in json.dumps(program.listed())


def test_a_variable_can_be_taken_from_the_file_of_secrets(program):
    program.home.mkdir()
    (program.home / ".env").write_text("MY_KEY=value-1234\n")
    program.run("add", "x", "--env", "MY_KEY", "--", "x")
    assert program.config()["x"]["env"] == {"MY_KEY": "${MY_KEY}"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add",), "one NAME"),
        (("add", "x"), "needs either a command or a url"),
        (("add", "x", "--url", "https://x", "--", "y"), "needs either a command or a url"),
        (("add", "a__b", "--", "y"), "invalid name"),
        (("add", "x", "--env", "=1", "--", "y"), "takes NAME=TEXT"),
        (("add", "x", "--header", "A", "--url", "https://x"), "takes NAME=TEXT"),
        (("add", "x", "--env", "UNSET_VARIABLE", "--", "y"), "needs the variable UNSET_VARIABLE"),
        (("add", "x", "--url", "ftp://x"), "url"),
        (("remove", "x"), "There is no MCP server x."),
        (("test", "x"), "There is no MCP server x."),
        (("logs", "x"), "There is no MCP server x."),
        (("login", "x"), "There is no MCP server x."),
        (("accept", "x"), "There is no MCP server x."),
        (("import", "/nowhere/x.json"), "is not a file, nor one of"),
        (("forget", "x"), "unknown action: forget"),
        (("logs", "x", "-n", "0"), "is not a number of lines"),
    ],
)
def test_mistakes_are_refused_with_a_hint(program, words, says):
    status, _, err = program.run(*words)
    assert status == 2 and says in err and not (program.home / "config.toml").exists()


def test_a_name_is_not_used_twice(program):
    program.run("add", "x", "--", "y")
    status, _, err = program.run("add", "x", "--", "z")
    assert status == 2 and "already" in err and program.config()["x"]["command"] == "y"


def test_only_servers_with_a_url_have_a_login(program):
    program.run("add", "x", "--", "y")
    assert "only servers with a URL have a login" in program.run("login", "x")[2]
    program.home.joinpath(".env").write_text("K=value-1234\n")
    program.run("add", "z", "--url", "https://z.example/mcp", "--header", "Authorization=Bearer ${K}")
    assert "used instead of a login" in program.run("logout", "z")[2]


@pytest.mark.deadline(60)
def test_a_server_is_tested(program, tmp_path):
    config = world_server(tmp_path / "notes")
    program.run("add", "world", "--", config.command, *config.args)
    status, out, err = program.run("test", "world")
    assert status == 0 and out.startswith("world works: ") and "over stdio" in out, err
    assert "(read)" in out and "(write)" in out and "tools" in out
    report = json.loads(program.run("test", "world", "--json")[1])
    assert report["name"] == "world" and report["server"]["transport"] == "stdio" and report["seconds"] > 0


@pytest.mark.deadline(60)
def test_a_server_that_does_not_work_says_why(program):
    program.run("add", "bad", "--", "sh", "-c", "exit 3")
    status, _, err = program.run("test", "bad")
    assert status == 1 and err.startswith("bad: ")
    program.run("add", "gone", "--url", "http://127.0.0.1:1/mcp")
    status, _, err = program.run("test", "gone")
    assert status == 1 and "gone: it cannot be reached" in err


def test_a_log_shows_its_last_lines(program):
    program.run("add", "x", "--", "y")
    assert "has not logged anything" in program.run("logs", "x")[2]
    folder = program.home / "logs" / "mcp"
    folder.mkdir(parents=True)
    (folder / "x.log").write_text("one\ntwo \x1b[31mred\nthree\n")
    assert program.run("logs", "x", "-n", "2")[1] == "two [31mred\nthree\n"


# --- import

CURSOR = {"mcpServers": {"hub": {"command": "hub", "env": {"GITHUB_TOKEN": TOKEN, "MODE": "fast"}}}}
HERMES = """
mcp_servers:
  time: {command: uvx, args: [mcp-server-time]}
  notes: {url: "http://127.0.0.1:9300/mcp", headers: {Authorization: "Bearer ${NOTES_TOKEN}"}}
"""


def test_what_can_be_imported_is_listed(program):
    assert "Nothing to import" in program.run("import")[1]
    program.write(".cursor/mcp.json", CURSOR)
    program.write(".hermes/config.yaml", HERMES)
    out = program.run("import")[1]
    assert [line.split()[:3] for line in out.splitlines()[1:4]] == [
        ["cursor", "hub", "new"],
        ["hermes", "time", "new"],
        ["hermes", "notes", "new"],
    ]


def test_servers_of_cursor_are_copied_with_their_secrets_in_the_file_of_secrets(program):
    program.write(".cursor/mcp.json", CURSOR)
    status, out, _ = program.run("import", "cursor", "--yes")
    assert status == 0 and "hub: hub" in out and "GITHUB_TOKEN=***, MODE=fast" in out and "1 secret saved" in out
    assert program.config()["hub"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "fast"}
    assert TOKEN in program.env()


def test_a_server_of_hermes_brings_the_variable_that_it_needs(program):
    program.write(".hermes/config.yaml", HERMES)
    program.write(".hermes/.env", "NOTES_TOKEN=note-canary-1\nOTHER_TOKEN=stays\n")
    program.run("import", "hermes", "--yes")
    assert program.env() == "NOTES_TOKEN=note-canary-1\n"
    assert load_settings(program.home, {}).mcp.servers["notes"].headers == {"Authorization": "Bearer note-canary-1"}


def test_a_server_whose_variable_is_not_set_is_off(program):
    program.write(".hermes/config.yaml", HERMES)
    status, out, _ = program.run("import", "hermes", "--yes")
    assert status == 0 and "off until NOTES_TOKEN is set" in out
    settings = load_settings(program.home, {})
    servers = settings.mcp.servers
    assert servers["time"].is_on and servers["notes"].enabled and not servers["notes"].is_on
    assert "it needs the variable NOTES_TOKEN" in servers["notes"].problem
    assert settings.notes == (f"The MCP server notes is off: {servers['notes'].problem}.",)
    assert "off: it needs the variable NOTES_TOKEN" in program.run("list")[1]
    status, _, err = program.run("test", "notes")
    assert status == 2 and "notes is off: it needs the variable NOTES_TOKEN" in err
    (program.home / ".env").write_text("NOTES_TOKEN=note-canary-1\n")
    assert load_settings(program.home, {}).mcp.servers["notes"].is_on


def test_named_servers_of_a_file_are_imported_and_those_that_exist_are_not_touched(program):
    program.write("x.json", {"mcpServers": {"a": {"command": "1"}, "b": {"command": "2"}, "c": {}}})
    program.run("add", "b", "--", "mine")
    status, out, _ = program.run("import", "x.json", "b", "c", "a", "--yes")
    assert status == 0 and "b is left out: there is one" in out and "c is left out: needs either" in out
    assert program.config() == {"a": {"command": "1"}, "b": {"command": "mine"}}
    assert "Did you mean a" in program.run("import", "x.json", "aa", "--yes")[2]


def test_without_a_terminal_an_import_needs_yes(program):
    program.write(".cursor/mcp.json", CURSOR)
    status, _, err = program.run("import", "cursor")
    assert status == 2 and "use --yes" in err and not (program.home / "config.toml").exists()


# --- projects and consent


def test_a_server_of_the_folder_is_shown_and_used_once_it_is_accepted(program):
    program.write(".mcp.json", {"mcpServers": {"time": {"command": "uvx", "env": {"K": "${MY_SECRET}"}}}})
    assert program.listed()["time"]["state"] == "not accepted"
    status, out, _ = program.run("accept", "--yes")
    assert status == 0 and "time: uvx" in out and "it gets these variables of yours: MY_SECRET" in out
    assert program.listed()["time"]["state"] == "on" and "nothing to accept" in program.run("accept")[1]
    program.write(".mcp.json", {"mcpServers": {"time": {"command": "evil"}}})
    assert program.listed()["time"]["state"] == "changed" and "alipes mcp accept" in program.run("list")[1]


def test_a_server_of_the_folder_that_is_removed_must_be_accepted_again(program):
    program.write(".mcp.json", {"mcpServers": {"time": {"command": "uvx"}}})
    program.run("accept", "time", "--yes")
    assert "no longer accepted" in program.run("remove", "time")[1]
    assert program.listed()["time"]["state"] == "not accepted"


def test_consent_needs_a_person(program):
    program.write(".mcp.json", {"mcpServers": {"time": {"command": "uvx"}}})
    status, _, err = program.run("accept")
    assert status == 2 and "use --yes" in err and program.listed()["time"]["state"] == "not accepted"


def test_changed_tools_are_shown_and_accepted(program):
    program.run("add", "x", "--no-test", "--", "y")
    config, catalog = McpServerConfig(command="y"), ToolCatalog(program.home / "mcp")
    old, new = ToolDefinition("look", "Look around", {}), ToolDefinition("look", "Send all files", {})
    for tool in (old, new):
        catalog.record("x", config, Offer((tool,)), ServerInfo())
    assert program.listed()["x"]["pending"] == ["look"] and "1 to accept" in program.run("list")[1]
    status, out, _ = program.run("accept", "x", "--yes")
    assert status == 0 and "x: look (write): Send all files" in out and "Accepted 1 change of x." in out
    assert program.listed()["x"]["pending"] == [] and program.listed()["x"]["tools"] == 1


def test_a_server_that_is_added_is_connected_once_and_its_tools_are_shown_and_kept(program, tmp_path):
    config = world_server(tmp_path / "server")
    status, out, err = program.run("add", "world", "--yes", "--", config.command, *config.args)
    assert (status, err) == (0, "") and out.startswith("Added world.\nworld works: ")
    assert "echo (read): Return the text." in out
    assert program.listed()["world"]["tools"] > 10


def test_a_server_that_cannot_be_connected_is_added_and_the_reason_is_said(program):
    status, out, err = program.run("add", "gone", "--", "/nowhere/gone")
    assert status == 0 and out == "Added gone.\n"
    assert "gone: " in err and "run `alipes mcp test gone`" in err
    assert program.config()["gone"] == {"command": "/nowhere/gone"}
