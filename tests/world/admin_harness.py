"""The administration endpoints on a real app, store and HTTP server; the gateway is open but not run."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from itertools import chain
from pathlib import Path
from typing import Any, cast

import httpx2
from starlette.applications import Starlette

from alipes.app import Features, open_app
from alipes.cli.serve.admin import ServeControl
from alipes.cli.serve.platforms import ServedPlatforms
from alipes.cli.serve.signals import ExitRequest
from alipes.config.loader import load_settings
from alipes.core.app import App
from alipes.features.all import FEATURES
from alipes.features.server import Server
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.web.admin.endpoints import admin_endpoints
from alipes.web.auth import Authenticator, KeyHolder, RequestLimits, hash_key
from alipes.web.endpoint import Caller, ServerState
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
        self.paths: dict[str, set[str]] = {}
        """The paths that features added to the API, by feature."""

    async def get(self, path: str, *, by: str = "root", status: int = 200) -> Any:
        return await self.call("GET", path, by=by, status=status)

    async def call(self, method: str, path: str, body: Any = None, *, by: str = "root", status: int = 200) -> Any:
        """The JSON of the answer, which must have this status."""
        answer = await self.ask(method, path, body, by=by)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else {}


@asynccontextmanager
async def open_admin(
    home: Path,
    config: str = "",
    *,
    env: str = "",
    environ: Mapping[str, str] | None = None,
    features: Features = FEATURES,
) -> AsyncIterator[AdminHarness]:
    """`config`: more lines of config.toml; `env`: the lines of .env."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f'model = "scripted"\n{config}')
    if env:
        (home / ".env").write_text(env)
        (home / ".env").chmod(0o600)
    settings, exit_request = load_settings(home, environ or {}), ExitRequest()
    platforms = ServedPlatforms(settings)
    lent = {"scripted": ScriptedProvider()}
    async with open_app(settings, interactive=True, lent=lent, outbound=platforms.outbound, features=features) as app:
        platforms.open(app, lambda: exit_request.request("restart"))
        with closing(bind_socket("127.0.0.1", 0)) as door:
            control = ServeControl(app, platforms, exit_request, server_url(door))
            control.environ = dict(environ or {})
            none = cast(Any, None)
            server = Server(
                workdir=platforms.workdir,
                gateway=platforms.gateway,
                outbound=platforms.outbound,
                runs=none,
                admission=none,
                control=control,
                state=ServerState(),
                keys=none,
                files=none,
                resolve_target=none,
            )
            added = {feature.name: tuple(feature.endpoints(server)) for feature in app.features}
            endpoints = (*admin_endpoints(app, control), *chain(*added.values()))
            router = ApiRouter(endpoints, Authenticator("", _find), RequestLimits(rate=0))
            async with (
                open_server(Starlette(routes=router.routes()), door),
                httpx2.AsyncClient(base_url=server_url(door), trust_env=False, timeout=LIMIT_S) as client,
            ):
                harness = AdminHarness(client, app, platforms, exit_request)
                harness.paths = {name: {each.path for each in given} for name, given in added.items()}
                yield harness
                await router.disconnect_all()
