"""`alipes mcp` as a program: a login with a browser, the tools of a project's server in a turn, and the agent itself."""

import asyncio
import json
import re

import pytest

from tests.e2e.program import Home, read_until
from tests.world.mcp_harness import world_server
from tests.world.oauth_server import browse, open_login_server

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_a_login_in_a_browser_is_kept_used_and_ended(home):
    async with open_login_server() as server:
        assert (await home.run("mcp", "add", "guarded", "--url", server.url)).status == 0
        refused = await home.run("mcp", "test", "guarded")
        assert refused.status == 1 and "run `alipes mcp login guarded`" in refused.err
        async with home.started("mcp", "login", "guarded", "--no-browser") as process:
            shown = await read_until(process.stderr, "code_challenge_method")
            page = await browse(re.search(r"http://\S+", shown)[0])
            out, _ = await process.communicate()
        assert process.returncode == 0 and "You are logged in" in page.text
        assert f"Logged in at guarded. The login is kept in {home.path}/.env." in out.decode()
        works = await home.run("mcp", "test", "guarded")
        assert works.status == 0 and "whoami (write): Say who is logged in." in works.out
        (listed,) = json.loads((await home.run("mcp", "list", "--json")).out)
        assert listed["logged_in"] and listed["tools"] == 1  # the list of the test is kept
        left = await home.run("mcp", "logout", "guarded")
        assert left.out == "Logged out at guarded.\n" and not server.provider.refresh
        everything = "".join(each.read_text() for each in home.path.rglob("*.log"))
        tokens = {*server.provider.access, *server.provider.revoked}
        assert not any(token in everything for token in tokens)


async def test_a_login_ends_with_the_command(home):
    async with open_login_server() as server:
        await home.run("mcp", "add", "guarded", "--url", server.url)
        async with home.started("mcp", "login", "guarded", "--no-browser") as process:
            await read_until(process.stderr, "code_challenge_method")
            process.send_signal(2)
            assert await asyncio.wait_for(process.wait(), 30) == 130
        assert not (home.path / ".env").exists()


async def test_the_server_of_a_folder_is_used_once_it_is_accepted(home, tmp_path):
    config = world_server(tmp_path / "notes")
    entry = {"command": config.command, "args": [*config.args]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"world": entry}}))
    first = await home.run("ask", "-m", "scripted", "hello")
    assert first.status == 0 and not any((tmp_path / "notes").iterdir())
    assert "not accepted: world" in (await home.run("doctor", "--json")).out
    await home.run("mcp", "accept", "--yes")
    assert "not accepted" not in (await home.run("doctor", "--json")).out
    await home.run("ask", "-m", "scripted", "hello")
    listed = json.loads((await home.run("mcp", "list", "--json")).out)
    assert listed[0]["state"] == "on" and listed[0]["tools"] > 0
