"""Other agents: programs that speak the Agent Client Protocol, as models and as subagents."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from alipes.features.feature import CliCommand, Feature

if TYPE_CHECKING:
    from alipes.features.agents.service import AgentService


class AgentsFeature(Feature):
    name = "agents"
    parts = ("commands", "endpoints", "doctor")
    cli_commands = (CliCommand("agents", "alipes.features.agents.cli.command", agent_actions=("list",), extra="acp"),)
    tool_names = ("agent_tool",)
    service: "AgentService | None" = None
    """None if none is configured: then its modules are not imported."""

    async def open(self, stack: AsyncExitStack) -> None:
        if self.app.settings.agents:
            from alipes.features.agents.service import open_service

            self.service = await open_service(self.app, stack)
