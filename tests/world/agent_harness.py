"""A conversation with the agent of `acp_agent.py`."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from alipes.features.agents.agents import Agents
from alipes.features.agents.feature import AgentsFeature
from alipes.testing import open_agent
from alipes.testing.agent import Conversation

SCRIPT = Path(__file__).with_name("acp_agent.py")
NAME = "test"
MODEL = f"agent/{NAME}"


def write_agent(folder: Path) -> Path:
    """The program, as it would be installed."""
    path = folder / "installed" / "agent"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{SCRIPT.read_text().partition(chr(10))[2]}")
    path.chmod(0o755)
    return path


def agent_config(folder: Path, *words: str, backend: str = "host", name: str = NAME, **more: Any) -> dict[str, Any]:
    """`name`: that of a preset gives it the settings and protected folders of that program."""
    own = {"ACP_TEST_HOME": str(folder / "home" / "agents" / name / "home")}
    agents = {name: {"command": str(write_agent(folder)), "args": list(words), "env": own}}
    return {"model": f"agent/{name}", "agents": agents, "sandbox": {"backend": backend}, **more}


@asynccontextmanager
async def open_with_agent(
    folder: Path, *words: str, person: Any = "once", backend: str = "host", script: Any = None, **more: Any
) -> AsyncIterator[Conversation]:
    """`words`: how the agent behaves."""
    config = agent_config(folder, *words, backend=backend, **more)
    async with open_agent(config=config, home=folder / "home", person=person, model=script) as agent:
        yield agent


def agents_of(agent: Conversation) -> Agents:
    service = agent.app.features.get(AgentsFeature).service
    assert service is not None and service.agents is not None
    return service.agents


def program_of(agent: Conversation) -> Any:
    """The program of the only conversation; None if it has not begun."""
    service = agent.app.features.get(AgentsFeature).service
    open_ones = [] if service is None or service.agents is None else [*service.agents._open.values()]
    return open_ones[0].program if open_ones else None


def notices(reply: Any) -> list[str]:
    return [event.text for event in reply.events if type(event).__name__ == "Notice"]
