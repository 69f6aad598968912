"""MCP, both ways: tools of other servers for the model, and conversations for other clients."""

from functools import cached_property
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.config.settings import Settings
    from alipes.features.mcp.changes import ConfiguredServers
    from alipes.features.mcp.client.servers import McpServers


class McpFeature(Feature):
    name = "mcp"
    parts = ("hooks", "commands", "endpoints", "serve", "doctor")
    cli_commands = (
        CliCommand(
            "mcp", "alipes.features.mcp.cli.command", agent_actions=("list", "serve"), names_action=True, extra="mcp"
        ),
    )

    @classmethod
    def extend_settings(cls, settings: "Settings", workdir: str) -> "Settings":
        from alipes.features.mcp.files import add_project_servers

        return add_project_servers(settings, workdir)

    @cached_property
    def configured(self) -> "ConfiguredServers":
        from alipes.features.mcp.changes import ConfiguredServers

        return ConfiguredServers(self.app)

    @property
    def servers(self) -> "McpServers | None":
        return self.configured.servers
