"""Servers of single conversations: who has them, what is behind their names, and when they end."""

import pytest
from msgspec import structs

from alipes.features.mcp.client.conversation_servers import hidden_tools, name_server, offer_only_in
from alipes.features.mcp.client.tools import READ_RESOURCE
from alipes.features.mcp.settings import McpServerConfig, find_server_problem
from alipes.kernel.errors import ToolError
from alipes.kernel.turns import Address, Origin, Turn
from tests.world.mcp_harness import FakeContext, events, is_alive, make_turn, open_servers, world_server

pytestmark = pytest.mark.deadline(60)
MINE, OTHER = Address("test", "mine"), Address("test", "other")


def turn_in(folder, address: Address, origin: Address | None = None) -> Turn:
    turn = make_turn(folder)
    inbound = structs.replace(turn.inbound, address=address, origin=Origin(origin) if origin is not None else None)
    return structs.replace(turn, inbound=inbound)


@pytest.mark.parametrize("given", ["time", "My Server!", "a__b", "-", "", "x" * 100, "ünï"])
def test_every_name_of_an_editor_becomes_a_valid_one(given):
    config = McpServerConfig(command="server")
    assert not find_server_problem(name_server(given, config), config)


def test_the_name_depends_on_the_program_and_not_on_its_variables():
    config = McpServerConfig(command="server")
    name = name_server("time", config)
    assert name_server("time", structs.replace(config, args=("--other",))) != name
    assert name_server("time", structs.replace(config, env={"KEY": "x"})) == name


async def test_tools_are_offered_and_run_in_the_conversation_only(tmp_path):
    config = world_server(tmp_path / "notes")
    name = name_server("notes", config)
    async with open_servers(tmp_path, {}) as (servers, _):
        assert await offer_only_in(servers, MINE.key, [("notes", config)]) == ()
        await servers.prepare(turn_in(tmp_path, OTHER))
        assert not events(tmp_path / "notes", "started")
        mine = turn_in(tmp_path, MINE)
        await servers.prepare(mine)
        echo = servers.tools()[f"mcp__{name}__echo"]
        assert (await echo.run({"text": "hi"}, FakeContext(tmp_path, mine))).text == "hi"
        assert not hidden_tools(servers, mine)
        assert hidden_tools(servers, turn_in(tmp_path, OTHER)) == {*servers.tools(), READ_RESOURCE}
        with pytest.raises(ToolError, match="belongs to another conversation"):
            await echo.run({"text": "hi"}, FakeContext(tmp_path, turn_in(tmp_path, OTHER)))
        resource = {"server": name, "uri": "test://x"}
        with pytest.raises(ToolError, match=f"no MCP server named {name}; configured: none"):
            await servers.tools()[READ_RESOURCE].run(resource, FakeContext(tmp_path, turn_in(tmp_path, OTHER)))


async def test_a_subagent_has_the_servers_of_the_conversation_it_works_for(tmp_path):
    config = world_server(tmp_path / "notes")
    async with open_servers(tmp_path, {}) as (servers, _):
        await offer_only_in(servers, MINE.key, [("notes", config)])
        (server,) = servers.servers.values()
        assert server.serves(turn_in(tmp_path, OTHER, origin=MINE).inbound)
        assert not server.serves(turn_in(tmp_path, MINE, origin=OTHER).inbound)


async def test_a_shared_server_ends_with_its_last_conversation(tmp_path):
    config = world_server(tmp_path / "notes")
    async with open_servers(tmp_path, {"own": config}) as (servers, _):
        for each in (MINE, OTHER):
            await offer_only_in(servers, each.key, [("notes", config)])
        name = name_server("notes", config)
        await servers.servers[name].connect(str(tmp_path))
        (pid,) = events(tmp_path / "notes", "started")
        await offer_only_in(servers, MINE.key, [])
        assert is_alive(pid)
        await offer_only_in(servers, OTHER.key, [])
        assert not is_alive(pid) and [*servers.servers] == ["own"]


async def test_changed_variables_start_the_server_again(tmp_path):
    config = world_server(tmp_path / "notes")
    name, mine = name_server("notes", config), turn_in(tmp_path, MINE)
    async with open_servers(tmp_path, {}) as (servers, _):
        for value in ("one", "two"):
            await offer_only_in(servers, MINE.key, [("notes", structs.replace(config, env={"WORD": value}))])
            await servers.prepare(mine)
            env = servers.tools()[f"mcp__{name}__env"]
            assert (await env.run({"name": "WORD"}, FakeContext(tmp_path, mine))).text == value


async def test_a_server_of_an_unknown_kind_is_reported(tmp_path):
    async with open_servers(tmp_path, {}) as (servers, _):
        assert await offer_only_in(servers, MINE.key, [("odd", McpServerConfig())]) == ("odd",)
        assert not servers.servers
