"""MCP over HTTP at `/mcp`, with the keys, scopes and limits of the API. The SDK is imported with the first request."""

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from alipes.features.mcp.server.tools import ConversationTools
from alipes.web.auth import Authenticator
from alipes.web.endpoint import ApiEndpoint, Caller, HttpProblem, problem_response
from alipes.web.router import ApiRouter

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
CALLER, PERSON = "alipes.caller", "alipes.check_person"
"""Keys in the scope of a request."""
_ENDPOINT = ApiEndpoint("POST", PATH, "read")
"""Every tool checks its own scope."""
MISSING = "MCP needs more packages on the server: run `alipes install mcp` there"


class McpEndpoint:
    """An ASGI app. `run` must be running."""

    def __init__(self, tools: ConversationTools, router: ApiRouter, keys: Authenticator, *, max_body: int) -> None:
        self._tools, self._router, self._keys, self._max_body = tools, router, keys, max_body
        self._wanted = asyncio.Event()
        self._manager: asyncio.Future[StreamableHTTPSessionManager]
        self._manager = asyncio.get_running_loop().create_future()

    def route(self) -> Route:
        return Route(PATH, self)

    async def run(self) -> None:
        """Serve until cancelled. Does nothing before the first request."""
        await self._wanted.wait()
        try:
            sdk = await asyncio.to_thread(import_module, "alipes.features.mcp.server.server")
        except ImportError as error:
            self._manager.set_exception(HttpProblem(501, f"{MISSING} ({error})", code="not_installed"))
            return
        manager = sdk.make_manager(sdk.make_server(self._tools, _identify), max_body=self._max_body)
        async with manager.run():
            self._manager.set_result(manager)
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await self._router.authorize(_ENDPOINT, Request(scope, receive))
            async with self._router.requests.open(None):
                manager = await self._open()
                await manager.handle_request(self._with_caller(scope, caller), receive, send)
        except HttpProblem as problem:
            await problem_response(problem)(scope, receive, send)
        except TimeoutError:
            if not self._router.requests.closed:
                raise

    async def _open(self) -> "StreamableHTTPSessionManager":
        if find_spec("mcp") is None:
            raise HttpProblem(501, MISSING, code="not_installed")
        self._wanted.set()
        return await asyncio.shield(self._manager)

    def _with_caller(self, scope: Scope, caller: Caller) -> dict[str, Any]:
        """The scope with the caller, for the tools and as the owner of an MCP session."""
        auth = import_module("mcp.server.auth.middleware.bearer_auth")
        token = import_module("mcp.server.auth.provider").AccessToken(
            token="", client_id=caller.name, scopes=sorted(caller.scopes)
        )

        async def check_person() -> None:
            await self._keys.refuse_own_child(scope, agents=True)

        return {**scope, CALLER: caller, PERSON: check_person, "user": auth.AuthenticatedUser(token)}


def _identify(context: Any) -> tuple[Caller, Any]:
    scope = context.request.scope
    return scope[CALLER], scope[PERSON]
