"""The tool through which another agent shows its work: each call of it is one that the agent makes itself."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from alipes.kernel.approvals import AGENT_TOOL
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolOutput, ToolSpec
from alipes.tools.common import make_schema

if TYPE_CHECKING:
    from alipes.features.agents.agents import Agents


class AgentTool:
    spec = ToolSpec(
        name=AGENT_TOOL,
        description="What another agent does with a tool of its own.",
        schema=make_schema("title", title="string", kind="string"),
        untrusted=False,
    )

    def __init__(self, find_agents: "Callable[[], Agents | None]") -> None:
        """`find_agents()`: None if none was used yet."""
        self._find_agents = find_agents

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        """Wait until the agent has ended its call; its requests are served meanwhile."""
        agents = self._find_agents()
        prompt, found = (None, None) if agents is None else agents.find_call(act.turn, act.call_id)
        if agents is None or prompt is None or found is None:
            raise ToolError("this is a tool of another agent, which no longer waits for it")
        await agents.requests.calls.serve(prompt, found, act)
        if found.failed:
            raise ToolError(found.output or "it failed")
        return await asyncio.to_thread(found.describe, act.workdir)
