"""Connections to MCP servers: opened by a command or a URL. The SDK is imported with the first one.

`sdk.py` has the connection itself, `server.py` keeps one open and restarts it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from alipes.config.extras import explain_missing
from alipes.features.mcp.client.definitions import McpError
from alipes.features.mcp.client.host import McpHost
from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.turns import Turn

if TYPE_CHECKING:
    from alipes.features.mcp.client.sdk import McpConnection

SDK = "alipes.features.mcp.client.sdk"


async def import_sdk() -> Any:
    """The module that uses the SDK. Imported in a thread, because that takes a second. Raises `McpError`."""
    try:
        return await asyncio.to_thread(import_module, SDK)
    except ModuleNotFoundError as missing:
        raise McpError(explain_missing("mcp")) from missing


@asynccontextmanager
async def open_connection(
    name: str, config: McpServerConfig, host: McpHost, *, workdir: str = "", turn: Turn | None = None
) -> AsyncIterator["McpConnection"]:
    """Start or reach the server, initialise the session and list what it offers.

    Enter and leave it in the same task. Raises `McpError` (a `ToolError`) with the reason in one sentence: the command
    is missing, the server does not answer within `config.start_timeout`, login is needed. Leaving it ends the
    processes of the server. `turn`: whose person is asked about its first connections.
    """
    sdk = await import_sdk()
    async with sdk.open_session(name, config, host, workdir=workdir, turn=turn) as connection:
        yield connection
