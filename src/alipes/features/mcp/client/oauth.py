"""OAuth at MCP servers. `make_auth` sends and renews stored tokens during turns and never starts a login; `log_in` is
what `alipes mcp login` does. Imports the SDK: import it only when a server is used over HTTP."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from msgspec import structs
from pydantic import AnyUrl, BaseModel, ValidationError

from alipes.features.mcp.client.redirect_listener import (
    HOST,
    PATH,
    LoginError,
    RedirectListener,
    open_redirect_listener,
)
from alipes.features.mcp.client.token_store import StoredLogin, TokenStore
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.messages import Json
from alipes.runtime.http.auth_flow import (
    AuthFlow,
    AuthFlowError,
    AuthRequest,
    AuthResponse,
    make_form,
    make_post,
    permit_host,
    run_auth_flow,
    send_request,
)
from alipes.runtime.http.clients import ClientScope, HttpClient
from alipes.runtime.tasks import run_to_completion

LOGIN_TIMEOUT_S = 300.0
REQUEST_TIMEOUT_S = 30.0
RENEW_EARLY_S = 10.0
"""A token that expires within this time is renewed before it is sent."""
Model = TypeVar("Model", bound=BaseModel)
ShowUrl: TypeAlias = Callable[[str], Awaitable[None]]
"""Shows the URL of the login to the person, or opens it in a browser."""
_FIRST_MESSAGE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "alipes", "version": "1"}},
}


def make_auth(name: str, config: McpServerConfig, storage: TokenStore, *, clients: ClientScope) -> "StoredAuth | None":
    """Authenticates the requests to a server; None if it is not reached over HTTP or has a key of its own.

    `clients`: tokens are renewed with a client of its own.
    """
    if not config.url or any(header.lower() == "authorization" for header in config.headers):
        return None
    http = clients.http(f"login at {name}", stall=REQUEST_TIMEOUT_S, permits=permit_host(config.url))
    return StoredAuth(name, config.url, storage, http)


class StoredAuth(OAuthClientProvider):
    """Sends the stored token and renews it. If that is not enough, the server's refusal (401 or 403) is the answer, and
    `problem` says what to do: an error raised here would end the connection and every other call on it."""

    def __init__(self, name: str, url: str, store: TokenStore, http: HttpClient) -> None:
        self._tokens, self._http = _ServerTokens(name, url, store), http
        super().__init__(url, _client_metadata(0), self._tokens)
        self.name = name
        self.problem = ""
        """Why the last request was refused, and what to do; empty if it was not."""

    async def _initialize(self) -> None:
        await super()._initialize()
        login = self._tokens.login
        self.context.token_expiry_time = login.expires_at - RENEW_EARLY_S if login and login.expires_at else None
        self.context.oauth_metadata = _parse(OAuthMetadata, login.metadata if login else None)
        self.context.protected_resource_metadata = _parse(ProtectedResourceMetadata, login.resource if login else None)

    async def _auth_flow(self, request: AuthRequest) -> AuthFlow:
        """Unlike that of the SDK, it asks nobody and registers nothing, and requests do not wait for each other."""
        context = self.context
        async with context.lock:
            self.problem = ""
            context.protocol_version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
            if not self._initialized or not context.is_token_valid():
                await self._initialize()  # another process may have renewed the token
            if not context.is_token_valid() and context.can_refresh_token():
                await run_to_completion(self._renew)
            used = self._add_token(request)
        response = yield request
        if response.status_code == 401:
            async with context.lock:
                if self._token() == used:
                    await self._initialize()
                if self._token() == used and context.can_refresh_token():
                    await run_to_completion(self._renew)
                again = self._add_token(request)
            if again and again != used:
                response = yield request
        if (response.status_code == 401 or _lacks_scope(response)) and not self.problem:
            self.problem = self._explain("no longer accepts the login" if used else "needs a login")

    def _token(self) -> str:
        return self.context.current_tokens.access_token if self.context.current_tokens else ""

    def _add_token(self, request: AuthRequest) -> str:
        """The token that is sent; empty if there is none."""
        if self._token():
            self._add_auth_header(request)
        return self._token()

    async def _renew(self) -> None:
        """Get a new token. A login that cannot be renewed now is kept for later."""
        later = f"the login at the MCP server {self.name} could not be renewed now; try again later"
        try:
            response = await send_request(self._http, await self._refresh_token(), REQUEST_TIMEOUT_S)
        except AuthFlowError:
            self.problem = later
            return
        if response.status_code >= 500 or response.status_code == 429:
            self.problem = later
        elif not await self._handle_refresh_response(response):
            self.problem = self._explain("no longer accepts the login")

    def _explain(self, what: str) -> str:
        return f"the MCP server {self.name} {what}: run `alipes mcp login {self.name}`"


class _ServerTokens:
    """The `TokenStorage` of one server. Renewed tokens are saved even if the request is cancelled meanwhile: the old
    ones may be void already."""

    def __init__(self, name: str, url: str, store: TokenStore) -> None:
        self._name, self._url, self._store = name, url, store
        self.login: StoredLogin | None = None

    async def get_tokens(self) -> OAuthToken | None:
        self.login = await asyncio.to_thread(self._store.read, self._name, self._url)
        return _parse(OAuthToken, self.login.tokens if self.login else None)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return _parse(OAuthClientInformationFull, self.login.client if self.login else None)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        old = self.login or StoredLogin(self._url, {})
        login = self.login = structs.replace(old, tokens=_dump(tokens) or {}, expires_at=_expiry(tokens))
        await run_to_completion(lambda: asyncio.to_thread(self._store.write, self._name, login))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("a client is registered by a login only")


class _NewLogin:
    """The `TokenStorage` of a login: collects what is saved when it has succeeded."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client = client
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def log_in(
    name: str,
    config: McpServerConfig,
    storage: TokenStore,
    *,
    clients: ClientScope,
    show: ShowUrl,
    timeout_s: float = LOGIN_TIMEOUT_S,
) -> bool:
    """Log in with a browser and save the tokens. False if the server needs no login. Raises `LoginError`; then the
    login before this one is kept."""
    old = await asyncio.to_thread(storage.read, name, config.url)
    async with open_redirect_listener(old.port if old else 0) as listener:
        # a client is registered for one address: on another port it must be registered again
        known = _parse(OAuthClientInformationFull, old.client) if old and old.port == listener.port else None
        collected = _NewLogin(known)
        provider = _make_login_provider(config.url, collected, listener, show=show, timeout_s=timeout_s)
        http = clients.http(f"login at {name}", stall=REQUEST_TIMEOUT_S, permits=permit_host(config.url))
        try:
            await _send_first_message(provider, http, config)
        except (OAuthFlowError, ValidationError, AuthFlowError, TimeoutError) as error:
            raise LoginError(f"the login at {name} failed: {_first_line(error)}") from error
        if collected.tokens is None:
            return False
        login = StoredLogin(
            config.url,
            _dump(collected.tokens) or {},
            expires_at=_expiry(collected.tokens),
            client=_dump(collected.client),
            metadata=_dump(provider.context.oauth_metadata),
            resource=_dump(provider.context.protected_resource_metadata),
            port=listener.port,
        )
        await run_to_completion(lambda: asyncio.to_thread(storage.write, name, login))
        return True


def _make_login_provider(
    url: str, collected: _NewLogin, listener: RedirectListener, *, show: ShowUrl, timeout_s: float
) -> OAuthClientProvider:
    async def redirect(to: str) -> None:
        _require_encryption(url, to)
        listener.expect(parse_qs(urlsplit(to).query).get("state", [""])[0])
        await show(to)

    async def wait() -> AuthorizationCodeResult:
        answer = await listener.wait(timeout_s)
        return AuthorizationCodeResult(code=answer.code, state=answer.state, iss=answer.issuer)

    return OAuthClientProvider(url, _client_metadata(listener.port), collected, redirect, wait)


async def _send_first_message(provider: OAuthClientProvider, http: HttpClient, config: McpServerConfig) -> None:
    """Send `initialize`, so that the server says whether and how one logs in."""
    headers = {**config.headers, "Accept": "application/json, text/event-stream"}
    message = make_post(config.url, _FIRST_MESSAGE, headers)
    check = partial(_require_encryption, config.url)
    flow = provider.async_auth_flow(message)
    await run_auth_flow(flow, http, message, check=check, timeout_s=REQUEST_TIMEOUT_S)


def _require_encryption(server: str, address: str) -> None:
    """A server that is reached with TLS must not lead to an address without it."""
    if server.startswith("https:") and not address.startswith("https:"):
        raise LoginError(f"the server names an address without TLS for its login: {address.partition('?')[0][:200]}")


async def log_out(name: str, config: McpServerConfig, storage: TokenStore, *, clients: ClientScope) -> str:
    """Remove the login, and revoke it at the server if that is possible. Says what was done."""
    login = await asyncio.to_thread(storage.read, name, config.url)
    removed = await asyncio.to_thread(storage.remove, name)
    if login is None:
        return "removed" if removed else ""
    metadata, client = _parse(OAuthMetadata, login.metadata), login.client or {}
    if metadata is None or metadata.revocation_endpoint is None:
        return "removed"
    token = login.tokens.get("refresh_token") or login.tokens.get("access_token")
    form = {"token": str(token), **{key: str(client.get(key) or "") for key in ("client_id", "client_secret")}}
    http = clients.http(f"logout at {name}", stall=REQUEST_TIMEOUT_S, permits=permit_host(config.url))
    try:
        request = make_form(str(metadata.revocation_endpoint), form)
        response = await send_request(http, request, REQUEST_TIMEOUT_S)
    except AuthFlowError:
        return "removed"
    return "revoked" if response.status_code == 200 else "removed"


def _client_metadata(port: int) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name="alipes",
        redirect_uris=[AnyUrl(f"http://{HOST}:{port}{PATH}")],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )


def _lacks_scope(response: AuthResponse) -> bool:
    return response.status_code == 403 and "insufficient_scope" in response.headers.get("www-authenticate", "")


def _expiry(tokens: OAuthToken) -> float | None:
    return time.time() + tokens.expires_in if tokens.expires_in is not None else None


def _parse(model: type[Model], values: dict[str, Json] | None) -> Model | None:
    """The stored values as the SDK's type; None if there are none, or an older SDK wrote them differently."""
    try:
        return model.model_validate(values) if values else None
    except ValidationError:
        return None


def _dump(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:300]
