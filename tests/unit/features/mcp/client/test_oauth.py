"""OAuth at an MCP server with a real authorization server: login, use, renewal, revocation, and what goes wrong."""

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from msgspec import structs

from alipes.config.environment import read_variables
from alipes.config.paths import Paths
from alipes.features.mcp.client.connection import McpHost, open_connection
from alipes.features.mcp.client.definitions import McpError
from alipes.features.mcp.client.oauth import log_in, log_out, make_auth
from alipes.features.mcp.client.redirect_listener import LoginError
from alipes.features.mcp.client.token_store import StoredLogin, TokenStore, variable_of
from alipes.features.mcp.settings import McpServerConfig
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.redaction import SecretRegistry
from tests.unit.cli.test_secrets_command import StandInKeyring
from tests.world.mcp_harness import open_servers
from tests.world.oauth_server import NO_TLS, LoginServer, browse, open_login_server

NAME = "guarded"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


class World:
    def __init__(self, server: LoginServer, store: TokenStore, secrets: SecretRegistry, clients: ClientScope) -> None:
        self.server, self.store, self.secrets, self.clients = server, store, secrets, clients
        self.provider, self.config = server.provider, McpServerConfig(url=server.url)
        self.pages: list[httpx2.Response] = []

    async def visit(self, url: str) -> None:
        self.pages.append(await browse(url))

    async def log_in(self, **more) -> bool:
        given = {"clients": self.clients, "show": self.visit, "timeout_s": 20} | more
        return await log_in(NAME, self.config, self.store, **given)

    def auth(self):
        auth = make_auth(NAME, self.config, self.store, clients=self.clients)
        assert auth is not None
        return auth

    async def request(self, auth=None) -> int:
        """The status of a request as a connection sends it."""
        headers = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(auth=auth or self.auth(), trust_env=False, verify=NO_TLS) as client:
            return (await client.post(self.server.url, json=INITIALIZE, headers=headers)).status_code

    def stored(self) -> StoredLogin:
        found = self.store.read(NAME, self.config.url)
        assert found is not None
        return found


@asynccontextmanager
async def open_world(tmp_path):
    secrets = SecretRegistry()
    store = TokenStore(Paths(tmp_path), hide=secrets.add)
    async with open_login_server() as server, ClientScope() as clients:
        yield World(server, store, secrets, clients)


async def test_a_login_registers_a_client_and_gets_tokens_that_are_accepted(tmp_path):
    async with open_world(tmp_path) as world:
        assert await world.log_in()
        assert len(world.provider.clients) == 1 and "You are logged in" in world.pages[0].text
        assert await world.request() == 200
        (client,) = world.provider.clients.values()
        assert client.client_name == "alipes" and client.client_secret is None


async def test_the_login_is_kept_in_the_file_of_secrets_for_this_user_only(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
        assert variable_of(NAME) in read_variables(tmp_path / ".env", {}).lines


async def test_tokens_are_masked(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        tokens = world.stored().tokens
        shown = world.secrets(f"got {tokens['access_token']} and {tokens['refresh_token']}")
        assert shown == "got *** and ***"


async def test_without_a_login_a_request_fails_and_says_how_to_log_in(tmp_path):
    async with open_world(tmp_path) as world:
        auth = world.auth()
        assert await world.request(auth) == 401
        assert auth.problem == "the MCP server guarded needs a login: run `alipes mcp login guarded`"
        assert world.server.paths == ["/mcp"]  # nothing was registered or looked up


async def test_an_expired_token_is_renewed_before_it_is_sent(tmp_path):
    async with open_world(tmp_path) as world:
        world.provider.lifetime = 1
        await world.log_in()
        world.provider.lifetime = 3600
        world.server.paths.clear()
        assert await world.request() == 200
        assert world.server.paths == ["/token", "/mcp"]
        assert (world.stored().expires_at or 0) > time.time() + 3000


async def test_a_token_that_the_server_no_longer_knows_is_renewed_and_the_request_repeated(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        auth = world.auth()
        assert await world.request(auth) == 200
        world.provider.expire()
        world.server.paths.clear()
        assert await world.request(auth) == 200
        assert world.server.paths == ["/mcp", "/token", "/mcp"]


async def test_a_renewed_token_is_stored_because_the_old_one_is_used_up(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        before = world.stored().tokens
        world.provider.expire()
        await world.request()
        after = world.stored().tokens
        assert before["refresh_token"] != after["refresh_token"]
        world.provider.expire()
        assert await world.request() == 200  # as after a restart: with what is stored


async def test_a_revoked_login_fails_and_says_how_to_log_in(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        world.provider.revoke_all()
        auth = world.auth()
        assert await world.request(auth) == 401
        assert auth.problem == "the MCP server guarded no longer accepts the login: run `alipes mcp login guarded`"


async def test_after_a_new_login_the_same_connection_works_again(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        auth = world.auth()
        world.provider.revoke_all()
        assert await world.request(auth) == 401
        await world.log_in()
        assert await world.request(auth) == 200 and not auth.problem


async def test_a_token_that_another_process_renewed_is_used(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        here, there = world.auth(), world.auth()
        assert [await world.request(each) for each in (here, there)] == [200, 200]
        world.provider.expire()
        assert await world.request(there) == 200
        assert await world.request(here) == 200 and world.provider.refreshed == 1


async def test_parallel_requests_renew_the_token_once(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        auth = world.auth()
        world.provider.expire()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(world.request(auth)) for _ in range(5)]
        assert [task.result() for task in tasks] == [200] * 5 and world.provider.refreshed == 1


async def test_a_second_login_uses_the_registered_client_again(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        await world.log_in()
        assert len(world.provider.clients) == 1


async def test_a_client_is_registered_again_if_its_port_is_taken(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        taken = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", world.stored().port)
        async with taken:
            await world.log_in()
        assert len(world.provider.clients) == 2 and await world.request() == 200


async def test_a_refused_login_says_why_and_keeps_the_one_before(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        before = world.stored()
        world.provider.refuses = True
        with pytest.raises(LoginError, match="the login was refused: the person said no"):
            await world.log_in()
        assert world.stored() == before and "refused" in world.pages[-1].text


async def test_nobody_who_logs_in_is_a_clear_error(tmp_path):
    async with open_world(tmp_path) as world:

        async def look_away(url):
            pass

        with pytest.raises(LoginError, match=r"nobody logged in within 0 s. Run the command again"):
            await world.log_in(show=look_away, timeout_s=0.05)
        assert world.store.read(NAME, world.config.url) is None


async def test_a_stranger_cannot_finish_the_login(tmp_path):
    async with open_world(tmp_path) as world:
        """A page that guesses the port sends a code of its own, without the state or with another one."""
        statuses = []

        async def attacked(url):
            back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
            for attack in ("?code=stolen", "?code=stolen&state=guess", "?error=no&state=", "/../x"):
                statuses.append((await browse(f"{back}{attack}")).status_code)
            await world.visit(url)

        assert await world.log_in(show=attacked) and statuses == [400, 400, 400, 404]
        assert await world.request() == 200


async def test_a_server_without_a_login_needs_none(tmp_path):
    async with open_world(tmp_path) as world:

        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as open_to_all:
            port = open_to_all.sockets[0].getsockname()[1]
            world.config = McpServerConfig(url=f"http://127.0.0.1:{port}/mcp")
            assert await world.log_in() is False


async def test_a_server_that_cannot_be_reached_is_a_clear_error(tmp_path):
    async with open_world(tmp_path) as world:
        world.config = McpServerConfig(url="http://127.0.0.1:1/mcp")
        with pytest.raises(LoginError, match="the login at guarded failed: "):
            await world.log_in()


async def test_a_logout_revokes_the_login_and_forgets_it(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        token = world.stored().tokens["refresh_token"]
        assert await log_out(NAME, world.config, world.store, clients=world.clients) == "revoked"
        assert world.provider.revoked == [token] and world.store.read(NAME, world.config.url) is None
        assert await log_out(NAME, world.config, world.store, clients=world.clients) == ""


async def test_a_login_is_not_sent_to_another_address(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        assert world.store.read(NAME, world.server.origin + "/other") is None


async def test_a_server_with_a_key_of_its_own_or_a_command_has_no_login(tmp_path):
    async with open_world(tmp_path) as world:
        keyed = structs.replace(world.config, headers={"authorization": "Bearer x"})
        assert make_auth(NAME, keyed, world.store, clients=world.clients) is None
        assert make_auth(NAME, McpServerConfig(command="server"), world.store, clients=world.clients) is None


@asynccontextmanager
async def failing_token_server(world, status: bytes):
    """The stored login renews its token at a server that fails."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as broken:
        address = f"http://127.0.0.1:{broken.sockets[0].getsockname()[1]}/token"
        login = world.stored()
        metadata = {**(login.metadata or {}), "token_endpoint": address}
        world.store.write(NAME, structs.replace(login, metadata=metadata, expires_at=1.0))
        yield


async def test_a_login_server_that_is_down_does_not_lose_the_login(tmp_path):
    async with open_world(tmp_path) as world:
        await world.log_in()
        before = world.stored()
        async with failing_token_server(world, b"503 Down"):
            world.provider.expire()
            auth = world.auth()
            assert await world.request(auth) == 401
            assert auth.problem.endswith("could not be renewed now; try again later")
        assert world.stored().tokens == before.tokens


@pytest.mark.parametrize("text", ["", "nonsense", '{"url": 1}', "[]"])
def test_a_broken_entry_is_no_login(tmp_path, text):
    store = TokenStore(Paths(tmp_path))
    if text:
        (tmp_path / ".env").write_text(f"{variable_of('x')}='{text}'\n")
    assert store.read("x", "http://x") is None
    assert store.remove("x") is bool(text)


def test_a_login_can_be_kept_in_the_keyring(tmp_path, monkeypatch):
    keyring = StandInKeyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    monkeypatch.setitem(sys.modules, "keyring.errors", keyring.errors)
    store, login = TokenStore(Paths(tmp_path), keyring=True), StoredLogin("https://x", {"access_token": "t"})
    store.write("x", login)
    assert store.read("x", "https://x") == login and not (tmp_path / ".env").exists()
    assert store.remove("x") and store.read("x", "https://x") is None and not store.remove("x")


def test_names_become_variables():
    assert variable_of("my-server") == "MCP_MY_SERVER_OAUTH_TOKEN"


async def test_a_connection_works_after_the_login_and_says_how_to_log_in_before(tmp_path):
    async with open_world(tmp_path) as world:
        auth_for = partial(make_auth, storage=world.store, clients=world.clients)
        host = McpHost(None, world.clients, {}, tmp_path / "logs", auth_for=auth_for)
        with pytest.raises(McpError, match="run `alipes mcp login guarded`"):
            async with open_connection(NAME, world.config, host):
                pass
        await world.log_in()
        async with open_connection(NAME, world.config, host) as connection:
            assert [tool.name for tool in connection.tools] == ["whoami"]
            world.provider.expire()
            assert "ann" in str(await connection.call_tool("whoami", {}))
            world.provider.revoke_all()
            with pytest.raises(McpError, match="it no longer accepts the login: run `alipes mcp login guarded`"):
                await connection.call_tool("whoami", {})
        with pytest.raises(McpError, match="run `alipes mcp login guarded`"):
            async with open_connection(NAME, world.config, host):
                pass


@asynccontextmanager
async def open_logged_in(world, tmp_path):
    """The server as turns use it, after a login."""
    await world.log_in()
    auth_for = partial(make_auth, storage=world.store, clients=world.clients)
    host = McpHost(None, world.clients, {}, tmp_path / "logs", auth_for=auth_for)
    async with open_servers(tmp_path, {NAME: world.config}, host=host) as (servers, _):
        yield servers.servers[NAME]


async def whoami(connection):
    return await connection.call_tool("whoami", {})


async def test_a_login_that_is_revoked_while_connected_fails_calls_until_the_next_login(tmp_path):
    async with open_world(tmp_path) as world, open_logged_in(world, tmp_path) as server:
        assert "ann" in str(await server.use(whoami))
        world.provider.revoke_all()
        for _ in range(2):  # of the connection, and of the next one
            with pytest.raises(McpError, match="run `alipes mcp login guarded`"):
                await server.use(whoami)
        await world.log_in()
        assert "ann" in str(await server.use(whoami))


async def test_a_token_that_expires_and_cannot_be_renewed_fails_the_call_and_says_how_to_log_in(tmp_path):
    async with open_world(tmp_path) as world, open_logged_in(world, tmp_path) as server:
        assert "ann" in str(await server.use(whoami))
        login = world.stored()
        tokens = {name: value for name, value in login.tokens.items() if name != "refresh_token"}
        world.store.write(NAME, structs.replace(login, tokens=tokens))
        world.provider.expire()
        with pytest.raises(McpError, match="it no longer accepts the login: run `alipes mcp login guarded`"):
            await server.use(whoami)
