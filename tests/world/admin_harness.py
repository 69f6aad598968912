"""The administration endpoints on a real app, store and HTTP server; the gateway is open but not run."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
from starlette.applications import Starlette

from alipes.app import App, open_app
from alipes.cli.serve.admin import ServeControl
from alipes.cli.serve.platforms import ServedPlatforms
from alipes.cli.serve.signals import ExitRequest
from alipes.config.loader import load_settings
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.web.admin.endpoints import admin_endpoints
from alipes.web.auth import Authenticator, KeyHolder, RequestLimits, hash_key
from alipes.web.endpoint import Caller
from alipes.web.router import ApiRouter
from alipes.web.server import bind_socket, open_server, server_url
from tests.world.api_harness import ApiClient
from tests.world.environment import LIMIT_S

CALLERS = {
    "root": Caller("root", frozenset({"admin"})),
    "page": Caller("page", frozenset({"read"}), sees_all=True),
    "ann": Caller("ann", frozenset({"run"})),
    "reader": Caller("reader", frozenset({"read"})),
}
"""The callers; the key of each is `key-NAME`. `page` is a browser that may only read."""


async def _find(hash: bytes) -> KeyHolder | None:
    for name, caller in CALLERS.items():
        if hash_key(f"key-{name}-0123456789abcdef") == hash:
            return KeyHolder(caller)
    return None


class AdminHarness(ApiClient):
    def __init__(self, client: httpx2.AsyncClient, app: App, platforms: ServedPlatforms, exit: ExitRequest) -> None:
        super().__init__(client)
        self.app, self.platforms, self.exit = app, platforms, exit

    async def get(self, path: str, *, by: str = "root", status: int = 200) -> Any:
        return await self.call("GET", path, by=by, status=status)

    async def call(self, method: str, path: str, body: Any = None, *, by: str = "root", status: int = 200) -> Any:
        """The JSON of the answer, which must have this status."""
        answer = await self.ask(method, path, body, by=by)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else {}


@asynccontextmanager
async def open_admin(
    home: Path, config: str = "", *, env: str = "", environ: Mapping[str, str] | None = None
) -> AsyncIterator[AdminHarness]:
    """`config`: more lines of config.toml; `env`: the lines of .env."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f'model = "scripted"\n{config}')
    if env:
        (home / ".env").write_text(env)
        (home / ".env").chmod(0o600)
    settings, exit_request = load_settings(home, environ or {}), ExitRequest()
    platforms = ServedPlatforms(settings)
    async with open_app(
        settings, interactive=True, lent={"scripted": ScriptedProvider()}, outbound=platforms.outbound
    ) as app:
        platforms.open(app, lambda: exit_request.request("restart"))
        with closing(bind_socket("127.0.0.1", 0)) as door:
            control = ServeControl(app, platforms, exit_request, server_url(door))
            control.environ = dict(environ or {})
            router = ApiRouter(admin_endpoints(app, control), Authenticator("", _find), RequestLimits(rate=0))
            async with (
                open_server(Starlette(routes=router.routes()), door),
                httpx2.AsyncClient(base_url=server_url(door), trust_env=False, timeout=LIMIT_S) as client,
            ):
                yield AdminHarness(client, app, platforms, exit_request)
                await router.disconnect_all()
