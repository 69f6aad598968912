"""hermes-agent on the same loopback Bot API and model, where it is installed. Nothing of ours runs here."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from tests.world import parrot
from tests.world.telegram_control import Served, serve

PROGRAM = "ALIPES_BENCH_HERMES"
"""Names the rival's program; without it, `hermes` is looked for on the path."""
CONFIG = """\
model:
  default: parrot
  provider: custom
  base_url: {model}
  api_key: none
  context_length: 128000
platforms:
  telegram:
    enabled: true
    extra:
      base_url: {messenger}/bot
"""


async def hermes(chats: int) -> float:
    """Turns a second, `chats` messages at once; zero where it is not installed."""
    program = os.environ.get(PROGRAM) or shutil.which("hermes")
    if not program:
        return 0.0
    with tempfile.TemporaryDirectory() as name:
        async with parrot.serve(Path(name)) as model, serve() as messenger:
            home = Path(name) / "hermes"
            home.mkdir()
            config = CONFIG.format(model=model.url("openai-chat"), messenger=messenger.url)
            (home / "config.yaml").write_text(config)
            (home / ".env").write_text(
                f"TELEGRAM_BOT_TOKEN={messenger.token}\nGATEWAY_ALLOW_ALL_USERS=true\n"
            )
            process = await asyncio.create_subprocess_exec(
                *(program, "gateway", "run"),
                env={"PATH": os.environ["PATH"], "HOME": name, "HERMES_HOME": str(home)},
                cwd=name,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                async with asyncio.timeout(240):
                    await messenger.call("polled")
                    await messenger.call("converse", chats=1, turns=2)
                    await at_once(messenger, chats)
                    await asyncio.sleep(5)  # a message that comes while it ends a turn is lost
                    return await at_once(messenger, chats)
            finally:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 20)
                except TimeoutError:
                    process.kill()
                    await process.wait()


async def at_once(messenger: Served, chats: int) -> float:
    """Turns a second while `chats` people are answered who wrote in the same moment."""
    told = await messenger.call("converse", chats=chats, turns=1, within=90)
    if not told:
        return 0.0
    return len(told) / (max(one["answered"] for one in told) - min(one["asked"] for one in told))
