"""An MCP server on loopback that needs a login, with the authorization server of the official SDK beside it."""

import contextlib
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

Client = OAuthClientInformationFull
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, and takes no time to load."""


class LoginProvider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Approves every login at once. Tests change its fields to make things go wrong."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.lifetime = 3600
        self.refuses = False
        """The person says no."""
        self.refreshed = 0
        self.revoked: list[str] = []

    async def get_client(self, client_id: str) -> Client | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: Client) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: Client, params: AuthorizationParams) -> str:
        if self.refuses:
            raise AuthorizeError("access_denied", "the person said no")
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Client, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Client, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: Client, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: Client, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]  # each is used once
        self.refreshed += 1
        return self._issue(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.access.get(token)
        return found if found and (found.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revoked.append(token.token)
        self.revoke_all()

    def revoke_all(self) -> None:
        self.access.clear()
        self.refresh.clear()

    def expire(self) -> None:
        """The access tokens are no longer valid, the refresh tokens are."""
        self.access.clear()

    def _issue(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        until = int(time.time()) + self.lifetime
        self.access[access] = AccessToken(
            token=access, client_id=client, scopes=scopes, expires_at=until, resource=resource
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes, resource=resource)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes) or None
        )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the tests keep theirs


class LoginServer:
    def __init__(self, port: int, provider: LoginProvider) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/mcp"
        self.provider = provider
        self.paths: list[str] = []
        """Requests so far."""


@asynccontextmanager
async def open_login_server() -> AsyncIterator[LoginServer]:
    """It has a tool `whoami`."""
    provider = LoginProvider()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = LoginServer(sock.getsockname()[1], provider)
        mcp = MCPServer(
            "guarded",
            log_level="CRITICAL",
            auth_server_provider=provider,
            auth=AuthSettings(
                issuer_url=server.origin,
                resource_server_url=server.url,
                client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["use"]),
                revocation_options=RevocationOptions(enabled=True),
                required_scopes=["use"],
                validate_token_resource=True,
            ),
        )

        @mcp.tool()
        def whoami() -> str:
            """Say who is logged in."""
            return "ann"

        app = mcp.streamable_http_app(json_response=True)

        async def noting(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                server.paths.append(scope["path"])
            await app(scope, receive, send)

        config = uvicorn.Config(noting, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
        running = _Server(config)
        async with anyio.create_task_group() as group:
            group.start_soon(running.serve, [sock])
            while not running.started:
                await anyio.sleep(0.005)
            try:
                yield server
            finally:
                running.should_exit = True


async def browse(url: str) -> httpx2.Response:
    """What a browser does with the URL of a login: it follows it to the page that is shown at the end."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False, verify=NO_TLS) as browser:
        return await browser.get(url)
