"""`alipes memory`: shows and changes the notes of the home in a shell, as `/memory` does in a conversation."""

import asyncio
import os

from alipes.app import open_for_checks
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.console import render
from alipes.console.options import OptionParser
from alipes.features.memory.commands import memory
from alipes.features.memory.help import MEMORY
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.turns import Address, Inbound
from alipes.sessions.commands.context import CommandReply

ACTIONS = ("list", "add", "edit", "merge", "remove", "history", "diff", "undo", "pending", "accept", "reject")


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes memory", MEMORY)
    _, words = parser.parse_with_words(argv)
    if words and words[0] not in ACTIONS:
        parser.error(f"unknown action: {words[0]} (use {', '.join(ACTIONS)}).{did_you_mean(words[0], ACTIONS)}")
    reply = asyncio.run(_run(load_settings(), " ".join(words)))
    print(render.sanitize(reply.text))
    return int(reply.failed)


async def _run(settings: Settings, text: str) -> CommandReply:
    inbound = Inbound(os.urandom(8).hex(), Address("terminal", "shell"), "owner", f"/memory {text}", owner=True)
    async with open_for_checks(settings) as app:
        try:
            return await memory(app.context(inbound), text, "alipes memory")
        except ToolError as error:
            raise ConfigError(str(error)) from error
