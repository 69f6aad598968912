"""Endpoints for MCP servers: their states and tools, connecting again, and accepting changed tools."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.responses import Response

from alipes.config.display import mask
from alipes.features.mcp.feature import McpFeature
from alipes.features.server import Server
from alipes.kernel.errors import ConfigError, ToolError
from alipes.web.control import refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, endpoints_of, json_response

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


class McpAcceptBody(Struct, frozen=True, forbid_unknown_fields=True):
    tools: tuple[str, ...] | None = None
    """The tools as they were shown in `pending`; if they are others now, nothing is accepted. null: all."""


class McpEndpoints:
    def __init__(self, feature: McpFeature) -> None:
        self._app, self._feature = feature.app, feature

    @ApiEndpoint("GET", "/v1/mcp", "admin", readable=True, answer=McpServerList)
    async def list(self, _call: ApiCall) -> Response:
        """List the MCP servers. None is started for it."""
        await self._feature.configured.refresh()
        servers = self._feature.servers
        listed = () if servers is None else tuple(self._document(servers, each) for each in servers.statuses())
        return json_response(McpServerList(listed))

    @ApiEndpoint("POST", "/v1/mcp/{name}/reload", "admin", answer=McpServerDocument, errors=(409,))
    async def reload(self, call: ApiCall) -> Response:
        """Connect to a server again and list its tools."""
        servers, name = await self._find(call)
        try:
            await servers.reload(name)
        except (ConfigError, ToolError) as error:
            raise HttpProblem(409, self._hide(str(error)), code="mcp") from error
        return self._answer(servers, name)

    @ApiEndpoint("POST", "/v1/mcp/{name}/accept", "admin", body=McpAcceptBody, answer=McpServerDocument, errors=(409,))
    async def accept(self, call: ApiCall) -> Response:
        """Accept the new and changed tools of a server, from the next turn on."""
        body: McpAcceptBody = call.body
        servers, name = await self._find(call)
        pending = next(each.pending for each in servers.statuses() if each.name == name)
        if not pending:
            raise HttpProblem(409, f"{name} has no changed tools", code="state")
        if body.tools is not None and {*body.tools} != {*pending}:
            raise HttpProblem(409, f"{name} changed its tools meanwhile: look at them again", code="changed")
        with refuse_invalid(409):
            servers.accept(name)
        return self._answer(servers, name)

    async def _find(self, call: ApiCall) -> "tuple[McpServers, str]":
        await self._feature.configured.refresh()
        servers, name = self._feature.servers, call.path["name"]
        if servers is None or name not in servers.servers:
            known = ", ".join(servers.servers) if servers is not None else ""
            raise HttpProblem(404, f"there is no MCP server {name}. Configured: {known or 'none'}.", code="no_server")
        return servers, name

    def _answer(self, servers: "McpServers", name: str) -> Response:
        status = next(each for each in servers.statuses() if each.name == name)
        self._app.store.changes.announce("mcp", name)
        return json_response(self._document(servers, status))

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


def endpoints(feature: McpFeature, _server: Server) -> Iterator[ApiEndpoint]:
    return endpoints_of(McpEndpoints(feature))
