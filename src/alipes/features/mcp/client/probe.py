"""Connects to a server once, apart from conversations, and reports what it offers."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from alipes.features.mcp.client.connection import open_connection
from alipes.features.mcp.client.definitions import PromptInfo, ResourceInfo, ServerInfo, only_tools
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Address, Inbound, Turn

if TYPE_CHECKING:
    from alipes.features.mcp.client.servers import McpServers

START_TIMEOUT_S = 300.0
"""Seconds that the server may take to start: it may be downloading itself. Turns wait less."""


class ReportedTool(Struct, frozen=True):
    name: str
    effect: str
    """`read` or `write`."""
    description: str


class ServerReport(Struct, frozen=True):
    name: str
    seconds: float
    """Until the server was connected and everything was listed."""
    server: ServerInfo
    tools: tuple[ReportedTool, ...]
    resources: tuple[ResourceInfo, ...]
    prompts: tuple[PromptInfo, ...]


async def probe(
    servers: "McpServers", name: str, config: McpServerConfig, workdir: str, *, trusted: bool
) -> ServerReport:
    """Connect, and keep the list of tools for conversations. `trusted`: nobody is asked about its connections.

    Raises ConfigError and ToolError.
    """
    if config.problem:
        raise ConfigError(f"{name} is off: {config.problem}.")
    config = structs.replace(config, start_timeout=max(config.start_timeout, START_TIMEOUT_S))
    inbound = Inbound("", Address("terminal", "mcp-test"), "terminal", "", workdir=workdir, trusted=trusted)
    began = time.monotonic()
    async with open_connection(name, config, servers.host, workdir=workdir, turn=Turn("", "", inbound)) as connection:
        seconds = round(time.monotonic() - began, 3)
        with suppress(OSError):  # conversations list the tools themselves then
            servers.catalog.record(name, config, only_tools(connection.offer, config.tools), connection.info)
        offered = (each for each in connection.tools if not config.tools or each.name in config.tools)
        tools = (ReportedTool(each.name, "read" if each.read_only else "write", each.description) for each in offered)
        return ServerReport(name, seconds, connection.info, tuple(tools), connection.resources, connection.prompts)
