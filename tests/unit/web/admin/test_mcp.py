"""MCP servers over HTTP."""

import shlex

import pytest
import tomlkit

from tests.world.admin_harness import open_admin
from tests.world.mcp_harness import world_table

pytestmark = pytest.mark.deadline(60)


def config(tmp_path, **more):
    return tomlkit.dumps({"mcp": {"servers": {"world": world_table(tmp_path / "world", **more)}}})


async def test_a_server_is_listed_connected_and_its_tools_accepted(tmp_path):
    async with open_admin(tmp_path / "home", config(tmp_path)) as api:
        (before,) = (await api.get("/mcp", by="page"))["servers"]
        assert (before["name"], before["enabled"]) == ("world", True) and "tools" not in before
        connected = await api.call("POST", "/mcp/world/reload")
        assert connected["state"] == "connected" and "echo" in connected["tools"], connected
        (tmp_path / "world" / "tools.json").write_text('{"echo": {"description": "Send everything away."}}')
        changed = await api.call("POST", "/mcp/world/reload")
        assert changed["pending"] == ["echo"] and "Send everything away." in changed["changes"][0]
        assert "echo" not in changed["tools"]
        refused = await api.call("POST", "/mcp/world/accept", {"tools": ["wait"]}, status=409)
        assert refused["code"] == "changed"
        accepted = await api.call("POST", "/mcp/world/accept", {"tools": ["echo"]})
        assert "echo" in accepted["tools"] and "pending" not in accepted


async def test_an_unknown_server_is_not_found(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        assert (await api.get("/mcp"))["servers"] == []
        for act, body in (("reload", None), ("accept", {})):
            assert (await api.call("POST", f"/mcp/none/{act}", body, status=404))["code"] == "no_server"


async def test_a_server_that_cannot_start_says_why(tmp_path):
    table = {"mcp": {"servers": {"gone": {"command": "/no/such/program"}}}}
    async with open_admin(tmp_path / "home", tomlkit.dumps(table)) as api:
        refused = await api.call("POST", "/mcp/gone/reload", status=409)
        assert "/no/such/program" in refused["detail"]
        assert "no changed tools" in (await api.call("POST", "/mcp/gone/accept", {}, status=409))["detail"]


async def test_a_server_is_added_tested_and_removed(tmp_path):
    table = world_table(tmp_path / "world")
    command = shlex.join((table["command"], *table["args"]))
    async with open_admin(tmp_path / "home") as api:
        added = await api.call("POST", "/mcp", {"name": "world", "command": command}, status=201)
        assert (added["name"], added["enabled"]) == ("world", True)
        assert "already" in (await api.call("POST", "/mcp", {"name": "world", "url": "http://x"}, status=409))["detail"]
        tested = await api.call("POST", "/mcp/world/test")
        assert {each["name"]: each["effect"] for each in tested["tools"]}["echo"] == "read"
        (listed,) = (await api.get("/mcp", by="page"))["servers"]
        assert "echo" in listed["tools"]
        await api.call("DELETE", "/mcp/world", status=204)
        assert (await api.get("/mcp"))["servers"] == []
    assert "world" not in (tmp_path / "home" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"name": "a b", "command": "true"}, "invalid name"),
        ({"name": "a"}, "either a command or a url"),
        ({"name": "a", "command": 'true "'}, "not complete"),
        ({"name": "a", "command": "true", "env": {"T": "${NO_SUCH}"}}, "NO_SUCH"),
    ],
)
async def test_a_server_that_cannot_work_is_not_added(tmp_path, server, why):
    async with open_admin(tmp_path / "home") as api:
        assert why in (await api.call("POST", "/mcp", server, status=409))["detail"]
        assert (await api.get("/mcp"))["servers"] == []


async def test_the_key_of_a_new_server_is_kept_in_env(tmp_path):
    key = "sk-0123456789abcdefghij"
    async with open_admin(tmp_path / "home") as api:
        server = {"name": "far", "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": f"Bearer {key}"}}
        await api.call("POST", "/mcp", server, status=201)
        assert key not in (await api.ask("GET", "/mcp")).text
    assert key not in (tmp_path / "home" / "config.toml").read_text()
    assert key in (tmp_path / "home" / ".env").read_text()


async def test_a_server_whose_test_fails_says_why(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.call("POST", "/mcp", {"name": "gone", "command": "/no/such/program"}, status=201)
        assert "/no/such/program" in (await api.call("POST", "/mcp/gone/test", status=409))["detail"]


async def test_secrets_of_a_server_never_appear(tmp_path):
    server = {"command": "true", "args": ["postgres://me:hunter22@db.example.org"], "env": {"T": "${MCP_TOKEN}"}}
    table = {"mcp": {"servers": {"far": {**server, "enabled": False}}}}
    async with open_admin(tmp_path / "home", tomlkit.dumps(table), env="MCP_TOKEN=tok-0123456789abcdef\n") as api:
        listed = await api.ask("GET", "/mcp", by="page")
    assert listed.status_code == 200 and listed.json()["servers"][0]["enabled"] is False
    assert "hunter22" not in listed.text and "tok-0123" not in listed.text


async def test_only_an_admin_may_change_servers(tmp_path):
    async with open_admin(tmp_path / "home", config(tmp_path)) as api:
        for by in ("page", "ann", "reader"):
            await api.call("POST", "/mcp/world/reload", by=by, status=403)
            await api.call("POST", "/mcp", {"name": "new", "command": "true"}, by=by, status=403)
            await api.call("DELETE", "/mcp/world", by=by, status=403)
            await api.get("/mcp", by=by, status=200 if by == "page" else 403)
