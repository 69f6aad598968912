"""MCP servers that are added, changed or removed while alipes runs: used from the next turn on, without a restart."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.core.app import App
from alipes.features.mcp.files import add_project_servers, list_sources
from alipes.features.mcp.settings import McpConfig
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Turn

if TYPE_CHECKING:
    from alipes.features.mcp.client.servers import McpServers

_Stamp: TypeAlias = tuple[int, int, int] | None


class ConfiguredServers:
    """The servers of the settings, as the files are now."""

    def __init__(self, app: App) -> None:
        self._app, self._workdir = app, app.settings.workdir or os.getcwd()
        self._files = list_sources(app.settings, self._workdir)
        self._seen = self._look()
        self._lock, self._closing = asyncio.Lock(), asyncio.Event()
        self._owner: asyncio.Task[object] | None = None
        self.servers: McpServers | None = None
        """None as long as none is configured: then its modules are not imported."""

    async def refresh(self, turn: Turn | None = None) -> None:
        """Read the files again if one of them has changed. Called before each turn, so it costs a few `stat`."""
        if self._look() == self._seen:
            return
        async with self._lock:
            if (seen := self._look()) == self._seen:
                return
            self._seen = seen
            try:
                settings = await asyncio.to_thread(self._load)
            except ConfigError as error:
                line = str(error).partition("\n")[0]
                self._app.notify(
                    f"MCP: the servers stay as they were, because the settings have an error. {line}", turn
                )
                return
            self._app.secrets.add(*settings.secrets())
            await self.use(settings.mcp)

    def _look(self) -> list[_Stamp]:
        return [_stamp(file) for file in self._files]

    def _load(self) -> Settings:
        return add_project_servers(load_settings(self._app.settings.home), self._workdir)

    async def use(self, config: McpConfig) -> None:
        """Use these servers from now on."""
        if self.servers is not None:
            self.servers.configure(config)
        elif config.servers or config.in_conversations:
            await self._open(config)

    async def _open(self, config: McpConfig) -> None:
        from alipes.features.mcp.client.open import add_servers, make_servers  # noqa: PLC0415

        servers, opened = make_servers(self._app, config), asyncio.Event()

        async def own() -> None:  # a task of its own: a turn that opens them ends before they do
            async with servers:
                opened.set()
                await self._closing.wait()

        self._owner = self._app.resources.tasks.spawn(own, "MCP servers")
        await opened.wait()
        add_servers(self._app, servers)
        self.servers = servers

    async def close(self) -> None:
        self._closing.set()
        if self._owner is not None:
            await asyncio.wait({self._owner})


def _stamp(file: Path) -> _Stamp:
    try:
        facts = os.stat(file)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
