"""Tools of MCP servers, as models call them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from alipes.features.mcp.client.definitions import ToolDefinition
from alipes.features.mcp.client.results import ResultReader
from alipes.features.mcp.client.server import McpServer
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolOutput, ToolSpec
from alipes.tools.common import make_schema

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from alipes.features.mcp.client.sdk import McpConnection

READ_RESOURCE = "mcp_read_resource"


class McpTool:
    """A tool of a server, as it was accepted."""

    def __init__(self, name: str, server: McpServer, definition: ToolDefinition, reader: ResultReader) -> None:
        self.server, self.definition, self._reader = server, definition, reader
        self.spec = ToolSpec(
            name=name,
            description=definition.description,
            schema=definition.schema,
            effect="read" if definition.read_only else "write",
            untrusted=True,
        )

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> ToolOutput:
        wanted = self.definition
        if not self.server.serves(act.turn.inbound):
            raise ToolError(f"the MCP server {self.server.name} belongs to another conversation")

        async def call(connection: "McpConnection") -> "CallToolResult":
            now = next((tool for tool in connection.tools if tool.name == wanted.name), None)
            if now is None:
                raise ToolError(f"the server {self.server.name} no longer has the tool {wanted.name}")
            if now.digest != wanted.digest:
                raise ToolError(
                    f"not run: the server {self.server.name} changed the tool {wanted.name}. The user must accept it "
                    f"first: /mcp accept {self.server.name}"
                )
            return await connection.call_tool(wanted.name, args, act)

        result = await self.server.use(call, act.workdir, act.turn)
        return await self._reader.read_result(result)


class ReadResource:
    """The `mcp_read_resource` tool; offered if a server has resources."""

    spec = ToolSpec(
        name=READ_RESOURCE,
        description="Read a resource of an MCP server.",
        schema=make_schema("server uri", server="string", uri="string"),
        effect="read",
        untrusted=True,
    )

    def __init__(self, servers: Mapping[str, McpServer], reader: ResultReader) -> None:
        self._servers, self._reader = servers, reader

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> ToolOutput:
        server = self._servers.get(str(args["server"]))
        if server is None or not server.serves(act.turn.inbound):
            known = ", ".join(name for name, each in self._servers.items() if each.serves(act.turn.inbound))
            raise ToolError(f"no MCP server named {args['server']}; configured: {known or 'none'}")
        uri = str(args["uri"])
        result = await server.use(lambda connection: connection.read_resource(uri), act.workdir, act.turn)
        return await self._reader.read_contents(result)
