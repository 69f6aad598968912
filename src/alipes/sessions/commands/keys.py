"""`/keys`: the keys of the terminal."""

from alipes.config.keys import key_table
from alipes.kernel.formatting import format_columns
from alipes.sessions.commands.context import CommandContext, CommandReply


async def keys(context: CommandContext, _args: str) -> CommandReply:
    table = format_columns(key_table(context.keys))
    return CommandReply(f"Keys of the terminal; change them in [keys] of config.toml.\n\n{table}")
