"""A connection to an MCP server: opened by its command or URL, with what the server offers."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from alipes.config.mcp import McpServerConfig
from alipes.kernel.messages import Json
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.sandbox.backend import CommandBackend

AuthFor: TypeAlias = Callable[[str, McpServerConfig], Any]
"""The `httpx2.Auth` of a server by its name and settings, or None if it needs none (see `oauth.py`)."""


class ServerInfo(Struct, frozen=True):
    """How a server names itself."""

    name: str
    version: str
    protocol: str
    """The version of MCP that was negotiated."""
    transport: str
    """`stdio`, `http` or `sse`."""
    instructions: str = ""


class ToolDefinition(Struct, frozen=True):
    """A tool as its server describes it."""

    name: str
    description: str
    schema: dict[str, Json]
    read_only: bool = False
    title: str = ""


class ResourceInfo(Struct, frozen=True):
    uri: str
    name: str = ""
    description: str = ""
    mime: str = ""


class PromptInfo(Struct, frozen=True):
    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()
    """Name, and whether it is required."""


class McpHost(Struct, frozen=True):
    """What connections use of the app. `App.mcp.host` is one that is ready to use."""

    backend: CommandBackend
    """Runs the commands of servers."""
    clients: ClientScope
    environment: Mapping[str, str]
    """Variables of started servers, without secrets."""
    logs: Path
    """Folder of the logs: `NAME.log` has what the server wrote to its standard error."""
    auth_for: AuthFor | None = None


class Connection:
    """An initialised session. Used only while its scope is open, from any task of the loop."""

    name: str
    info: ServerInfo
    tools: tuple[ToolDefinition, ...]
    resources: tuple[ResourceInfo, ...]
    prompts: tuple[PromptInfo, ...]

    async def call_tool(self, tool: str, args: Mapping[str, Json]) -> Any:
        """The `CallToolResult` of the SDK. Raises `ToolError`."""
        raise NotImplementedError

    async def ping(self) -> float:
        """Seconds until the server answered. Raises `ToolError`."""
        raise NotImplementedError


@asynccontextmanager
async def open_connection(
    name: str, config: McpServerConfig, host: McpHost, *, workdir: str = ""
) -> AsyncIterator[Connection]:
    """Start or reach the server, initialise the session and list what it offers.

    Enter and leave it in the same task. Raises `McpError` (a `ToolError`) with the reason in one sentence: the command
    is missing, the server does not answer within `config.start_timeout`, login is needed. Leaving it ends the
    processes of the server.
    """
    raise NotImplementedError
    yield  # pragma: no cover
