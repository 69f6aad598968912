"""Opens MCP servers for tests: the one of `mcp_server.py`, on the host or in a sandbox."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.features.mcp.client.host import McpHost
from alipes.features.mcp.client.server import McpServer
from alipes.features.mcp.client.servers import McpServers
from alipes.features.mcp.settings import McpConfig, McpServerConfig
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox.backend import CommandBackend, HostBackend
from alipes.tools.shell.output import SpillFolder
from tests.world.environment import ROOT, SERVICES, require, skip

SCRIPT = str(ROOT / "tests" / "world" / "mcp_server.py")


def world_server(folder: Path, mode: str = "normal", **more: Any) -> McpServerConfig:
    """The settings of a server that notes what happens in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return McpServerConfig(command=sys.executable, args=("-S", "-I", SCRIPT, mode, str(folder)), **more)


def world_table(folder: Path, mode: str = "normal", **more: Any) -> dict[str, Any]:
    """The same as a table of config.toml."""
    config = world_server(folder, mode)
    return {"command": config.command, "args": [*config.args], **more}


def events(folder: Path, kind: str) -> list[str]:
    """What a server noted."""
    path = folder / kind
    return path.read_text().splitlines() if path.exists() else []


def is_alive(pid: str | int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def node_server(name: str, *args: str, **more: Any) -> McpServerConfig:
    """A server from npm; the test is skipped if it is not installed."""
    script = SERVICES / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js"
    if not script.exists():
        skip(f"{name} is not installed (make services)")
    return McpServerConfig(command=require("node"), args=(str(script), *args), **more)


def time_server() -> McpServerConfig:
    """The reference server from PyPI; the test is skipped if it is not installed."""
    program = SERVICES / "mcp-server-time" / "bin" / "mcp-server-time"
    if not program.exists():
        skip("mcp-server-time is not installed (make services)")
    return McpServerConfig(command=str(program))


class FakeContext:
    """The context of a tool call: collects progress."""

    def __init__(self, workdir: Path, turn: Turn | None = None) -> None:
        self.call_id, self.session, self.workdir = "call", "session", str(workdir)
        self.turn = turn or make_turn(workdir)
        self.shown: list[str] = []

    async def progress(self, text: str) -> None:
        self.shown.append(text)

    async def run_tool(self, name: str, args: Any) -> Any:
        raise NotImplementedError


def make_turn(workdir: Path) -> Turn:
    address = Address("test", "me")
    return Turn("turn", "session", Inbound(id="1", address=address, sender="me", text="hi", workdir=str(workdir)))


@asynccontextmanager
async def open_host(
    folder: Path, backend: CommandBackend | None = None, guard: OrphanGuard | None = None, **more: Any
) -> AsyncIterator[McpHost]:
    async with ClientScope() as clients:
        environment = {"PATH": os.environ["PATH"]}
        yield McpHost(backend or HostBackend(guard), clients, environment, folder / "logs", **more)


@asynccontextmanager
async def open_servers(
    folder: Path, servers: dict[str, McpServerConfig], *, wait: float = 60.0, host: McpHost | None = None, **more: Any
) -> AsyncIterator[tuple[McpServers, list[str]]]:
    """The servers, and the sentences that people were shown."""
    shown: list[str] = []
    async with open_host(folder) as own:
        made = McpServers(
            McpConfig(wait, servers),
            host or own,
            home=folder / "mcp",
            spill=SpillFolder(folder / "spill"),
            notify=lambda text, turn: shown.append(text),
        )
        async with made:
            yield made, shown


@asynccontextmanager
async def open_server(folder: Path, config: McpServerConfig, **more: Any) -> AsyncIterator[McpServer]:
    async with open_servers(folder, {"world": config}, **more) as (servers, _):
        yield servers.servers["world"]
