"""Endpoints for MCP servers: adding, testing and removing them, their states, and accepting changed tools."""

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.config.display import mask
from alipes.config.loader import load_settings
from alipes.features.mcp.config_file import add_server, remove_server
from alipes.features.mcp.feature import McpFeature
from alipes.features.mcp.settings import McpServerConfig
from alipes.features.server import Server
from alipes.kernel.errors import ConfigError, ToolError
from alipes.web.control import ServerControl, refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, endpoints_of, json_response, no_content

if TYPE_CHECKING:
    from alipes.features.mcp.client.server import ServerStatus
    from alipes.features.mcp.client.servers import McpServers


class McpServerDocument(Struct, frozen=True, omit_defaults=True):
    name: str
    where: str
    """Its command or address."""
    state: str
    enabled: bool
    tools: tuple[str, ...] = ()
    """Tools that are accepted."""
    pending: tuple[str, ...] = ()
    """Tools that are new or changed: they are used once they are accepted."""
    changes: tuple[str, ...] = ()
    """One line for each of these tools."""
    why: str = ""
    """The last error."""
    source: str = ""
    """The file that names it, if it is not config.toml."""
    approve: str = ""
    """Which of its calls need approval."""


class McpServerList(Struct, frozen=True):
    servers: tuple[McpServerDocument, ...]


class NewMcpServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A program that is started here, or the address of a server that is reached over HTTP."""

    name: str
    command: Annotated[str, Meta(max_length=20_000)] = ""
    """The program with its arguments, as in a shell: `npx -y some-server "/a folder"`."""
    url: Annotated[str, Meta(max_length=2_000)] = ""
    env: dict[str, str] = {}
    """Variables of the program. What looks secret is kept in .env."""
    headers: dict[str, str] = {}
    """Sent with every request. What looks secret is kept in .env."""
    cwd: str = ""
    """The folder of the program; empty: that of the conversation."""


class McpToolDocument(Struct, frozen=True):
    name: str
    effect: str
    """`read` or `write`."""
    description: str


class McpTestDocument(Struct, frozen=True):
    """What a server offers."""

    seconds: float
    """Until it was connected and everything was listed."""
    tools: tuple[McpToolDocument, ...]


class McpAcceptBody(Struct, frozen=True, forbid_unknown_fields=True):
    tools: tuple[str, ...] | None = None
    """The tools as they were shown in `pending`; if they are others now, nothing is accepted. null: all."""


class McpEndpoints:
    def __init__(self, feature: McpFeature, control: ServerControl) -> None:
        self._app, self._feature, self._control = feature.app, feature, control

    @ApiEndpoint("GET", "/v1/mcp", "admin", readable=True, answer=McpServerList)
    async def list(self, _call: ApiCall) -> Response:
        """List the MCP servers. None is started for it."""
        await self._feature.configured.refresh()
        servers = self._feature.servers
        listed = () if servers is None else tuple(self._document(servers, each) for each in servers.statuses())
        return json_response(McpServerList(listed))

    @ApiEndpoint("POST", "/v1/mcp", "admin", body=NewMcpServer, answer=McpServerDocument, status=201, errors=(409,))
    async def add(self, call: ApiCall) -> Response:
        """Add a server to config.toml; it is used from the next turn on."""
        body: NewMcpServer = call.body
        with refuse_invalid(409, "mcp"):
            await asyncio.to_thread(self._add, body)
        servers, name = await self._find(body.name)
        return self._answer(servers, name, status=201)

    def _add(self, body: NewMcpServer) -> None:
        try:
            command, *args = shlex.split(body.command) or [""]
        except ValueError as error:
            raise ConfigError(f"The command is not complete: {error}.") from error
        config = McpServerConfig(
            command=command, args=tuple(args), env=body.env, cwd=body.cwd, url=body.url, headers=body.headers
        )
        add_server(load_settings(self._app.settings.home, self._control.environ), body.name, config)

    @ApiEndpoint("DELETE", "/v1/mcp/{name}", "admin", status=204, errors=(409,))
    async def delete(self, call: ApiCall) -> Response:
        """Remove a server and its login; one of the project is no longer accepted."""
        _servers, name = await self._find(call.path["name"])
        settings, workdir = self._app.settings, Path(self._app.workdir)
        with refuse_invalid(409, "mcp"):
            fresh = await asyncio.to_thread(load_settings, settings.home, self._control.environ)
            await asyncio.to_thread(remove_server, fresh, name, workdir)
        await self._feature.configured.refresh()
        self._app.store.changes.announce("mcp", name)
        return no_content()

    @ApiEndpoint("POST", "/v1/mcp/{name}/test", "admin", answer=McpTestDocument, errors=(409,))
    async def test(self, call: ApiCall) -> Response:
        """Connect to a server apart from conversations, and list what it offers. Its first start may take minutes."""
        servers, name = await self._find(call.path["name"])
        from alipes.features.mcp.client.probe import probe  # noqa: PLC0415

        config = servers.servers[name].config
        try:
            found = await probe(servers, name, config, self._app.workdir, trusted=True)
        except (ConfigError, ToolError) as error:
            raise HttpProblem(409, self._hide(str(error)), code="mcp") from error
        self._app.store.changes.announce("mcp", name)
        tools = (McpToolDocument(each.name, each.effect, self._hide(each.description)) for each in found.tools)
        return json_response(McpTestDocument(found.seconds, tuple(tools)))

    @ApiEndpoint("POST", "/v1/mcp/{name}/reload", "admin", answer=McpServerDocument, errors=(409,))
    async def reload(self, call: ApiCall) -> Response:
        """Connect to a server again and list its tools."""
        servers, name = await self._find(call.path["name"])
        try:
            await servers.reload(name)
        except (ConfigError, ToolError) as error:
            raise HttpProblem(409, self._hide(str(error)), code="mcp") from error
        return self._answer(servers, name)

    @ApiEndpoint("POST", "/v1/mcp/{name}/accept", "admin", body=McpAcceptBody, answer=McpServerDocument, errors=(409,))
    async def accept(self, call: ApiCall) -> Response:
        """Accept the new and changed tools of a server, from the next turn on."""
        body: McpAcceptBody = call.body
        servers, name = await self._find(call.path["name"])
        pending = next(each.pending for each in servers.statuses() if each.name == name)
        if not pending:
            raise HttpProblem(409, f"{name} has no changed tools", code="state")
        if body.tools is not None and {*body.tools} != {*pending}:
            raise HttpProblem(409, f"{name} changed its tools meanwhile: look at them again", code="changed")
        with refuse_invalid(409):
            servers.accept(name)
        return self._answer(servers, name)

    async def _find(self, name: str) -> "tuple[McpServers, str]":
        await self._feature.configured.refresh()
        servers = self._feature.servers
        if servers is None or name not in servers.servers:
            known = ", ".join(servers.servers) if servers is not None else ""
            raise HttpProblem(404, f"there is no MCP server {name}. Configured: {known or 'none'}.", code="no_server")
        return servers, name

    def _answer(self, servers: "McpServers", name: str, status: int = 200) -> Response:
        found = next(each for each in servers.statuses() if each.name == name)
        self._app.store.changes.announce("mcp", name)
        return json_response(self._document(servers, found), status)

    def _document(self, servers: "McpServers", status: "ServerStatus") -> McpServerDocument:
        return McpServerDocument(
            status.name,
            self._hide(status.where),
            status.state,
            servers.servers[status.name].config.enabled,
            tools=status.tool_names,
            pending=status.pending,
            changes=servers.describe_pending(status.name),
            why=self._hide(status.error),
            source=status.source,
            approve=status.approve,
        )

    def _hide(self, text: str) -> str:
        return self._app.secrets(mask(text))


def endpoints(feature: McpFeature, server: Server) -> Iterator[ApiEndpoint]:
    return endpoints_of(McpEndpoints(feature, server.control))
