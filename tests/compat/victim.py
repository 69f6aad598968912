"""A process that is killed: `python -m tests.compat.victim app|host HOME` begins a turn and waits for its model."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from alipes.testing import open_agent
from tests.compat import walking
from tests.compat.chatting import open_chat
from tests.compat.diary import PLUGINS


async def main(surface: str, home: Path) -> None:
    async with AsyncExitStack() as stack:
        if surface == "app":
            plugins = [PLUGINS / "recorder"]
            agent = await stack.enter_async_context(
                open_agent(home=home, plugins=plugins, model=walking.never(), person="once")
            )
            await agent.start("go the long way")
        else:
            chat = await stack.enter_async_context(open_chat(home, walking.never()))
            await chat.say("go the long way")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
