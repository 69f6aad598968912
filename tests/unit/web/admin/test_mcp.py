"""MCP servers over HTTP."""

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
            await api.get("/mcp", by=by, status=200 if by == "page" else 403)
