"""Each tool, stopped at random points of its call, leaves nothing alive, and the next message is answered."""

import pytest

from alipes.testing import open_agent
from tests.torture.trials import trials
from tests.world.environment import skip
from tests.world.tool_stops import CALLS, OTHERS, find_obstacle, stop_tool

POINTS = trials(4, 50)
TOOLS = [
    pytest.param(tool, marks=pytest.mark.service("chromium") if tool.startswith("browser_") else ()) for tool in CALLS
]


@pytest.mark.deadline(300)
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_tool_that_is_stopped_leaves_nothing_alive(tmp_path, tool, figures):
    if why := find_obstacle(tool):
        skip(why)
    seen = await stop_tool(tool, tmp_path, points=POINTS)
    assert seen.left == () and seen.started > 0
    figures.tried(POINTS)
    figures.worst(f"stop of {tool}", seen.slowest_s * 1000, "ms")


async def test_every_tool_is_stopped_here_or_has_a_reason():
    async with open_agent(model=[]) as agent:
        known = {name for name in agent.app.contributions.tools() if not name.startswith("browser_")}
    assert known <= CALLS.keys() | OTHERS.keys()
