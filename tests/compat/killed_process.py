"""A process that is killed: `python -m tests.compat.killed_process app|host|tool HOME` begins a turn that does not end.

In the app and on the host it waits for its model; `tool`: in a tool.
"""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from alipes.testing import call, open_agent
from tests.compat import turn_scripts
from tests.compat.chat_harness import open_chat
from tests.compat.hook_log import PLUGINS


async def main(surface: str, home: Path) -> None:
    async with AsyncExitStack() as stack:
        if surface != "host":
            script = [call("ponder")] if surface == "tool" else turn_scripts.endless_script()
            known = {"home": home, "plugins": [PLUGINS / "recorder"], "person": "once"}
            agent = await stack.enter_async_context(open_agent(**known, model=script))
            await agent.start("go the long way")
        else:
            chat = await stack.enter_async_context(open_chat(home, turn_scripts.endless_script()))
            await chat.say("go the long way")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
