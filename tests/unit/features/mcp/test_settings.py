"""Settings of MCP servers."""

import pytest

from alipes.config.loader import load_settings
from alipes.kernel.errors import ConfigError


def load(tmp_path, text, **environ):
    (tmp_path / "config.toml").write_text(text)
    return load_settings(tmp_path, environ).mcp


def test_a_server_is_read_with_its_variables_filled(tmp_path):
    text = """
        [mcp]
        wait = 2
        [mcp.servers.web]
        url = "https://tickets.example.com/mcp"
        headers = { Authorization = "Bearer ${TICKETS}" }
        [mcp.servers.local]
        command = "npx"
        args = ["-y", "a server", "-y"]
        env = { KEY = "${LOCAL_KEY}", LEVEL = "info" }
        approve = "ask"
    """
    mcp = load(tmp_path, text, TICKETS="ticket-value", LOCAL_KEY="local-value")
    assert mcp.wait == 2
    assert mcp.servers["web"].headers == {"Authorization": "Bearer ticket-value"}
    assert mcp.servers["local"].args == ("-y", "a server", "-y")
    assert mcp.servers["local"].env == {"KEY": "local-value", "LEVEL": "info"}
    assert mcp.servers["local"].approve == "ask"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('[mcp.servers.a]\ncommand = "x"\nurl = "https://a.example"', "needs either a command or a url"),
        ("[mcp.servers.a]\nenabled = true", "needs either a command or a url"),
        ('[mcp.servers.a__b]\ncommand = "x"', "has an invalid name"),
        ('[mcp.servers."a b"]\ncommand = "x"', "has an invalid name"),
        ('[mcp.servers.a]\ncommand = "x"\nenv = { API_KEY = "abc" }', "contains a secret in API_KEY"),
        ('[mcp.servers.a]\ncommand = "x"\nenv = { "A-B" = "c" }', "cannot be the name of a variable"),
        ('[mcp.servers.a]\ncommand = "x"\nargs = "y"', "must be a list of texts"),
        ('[mcp.servers.a]\ncommand = "x"\napprove = "sometimes"', "approve"),
        ('[mcp.servers.a]\ncomand = "x"', "Did you mean command"),
        ('[mcp.server.a]\ncommand = "x"', "Did you mean servers"),
    ],
)
def test_what_is_wrong_with_a_server_is_named(tmp_path, table, why):
    with pytest.raises(ConfigError, match=why):
        load(tmp_path, table)


def test_a_variable_that_is_not_set_switches_that_server_off_and_no_other(tmp_path):
    table = '[mcp.servers.a]\ncommand = "x"\nenv = { K = "${NOT_SET}" }\n[mcp.servers.b]\ncommand = "y"'
    mcp = load(tmp_path, table)
    assert not mcp.servers["a"].is_on and mcp.servers["b"].is_on
    assert mcp.servers["a"].problem.startswith("it needs the variable NOT_SET, which is not set: add it to ")


def test_a_variable_of_a_disabled_server_need_not_be_set(tmp_path):
    mcp = load(tmp_path, '[mcp.servers.a]\nenabled = false\ncommand = "x"\nenv = { K = "${NOT_SET}" }')
    assert mcp.servers["a"].env == {"K": ""}
