"""MCP, both ways: tools of other servers for the model, and conversations for other clients."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.config.settings import Settings
    from alipes.features.mcp.client.servers import McpServers


class McpFeature(Feature):
    name = "mcp"
    parts = ("commands", "endpoints", "serve", "doctor")
    cli_commands = (
        CliCommand(
            "mcp", "alipes.features.mcp.cli.command", agent_actions=("list", "serve"), names_action=True, extra="mcp"
        ),
    )
    servers: "McpServers | None" = None
    """None if none is configured: then its modules are not imported."""

    @classmethod
    def extend_settings(cls, settings: "Settings", workdir: str) -> "Settings":
        from alipes.features.mcp.files import add_project_servers

        return add_project_servers(settings, workdir)

    async def open(self, stack: AsyncExitStack) -> None:
        settings = self.app.settings.mcp
        if settings.servers or settings.in_conversations:
            from alipes.features.mcp.client.open import open_servers

            self.servers = await open_servers(self.app, stack)
