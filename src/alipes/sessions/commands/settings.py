"""`/config` and `/theme` where no list can be shown: what a setting is, and how to change it."""

from alipes.config.reader import read_config
from alipes.config.schema import find_key
from alipes.config.values import explain_value, resolve_key
from alipes.sessions.commands.context import CommandContext, CommandReply


async def config(context: CommandContext, args: str) -> CommandReply:
    if not context.local_files or not args:
        return CommandReply("`alipes config show` lists the settings, `alipes config set KEY VALUE` changes one.")
    reading = read_config()
    way = resolve_key(reading, args)
    if find_key(way) is None:
        return CommandReply(f"{args} is a table of settings: `alipes config get {args}` shows it.")
    return CommandReply("\n".join(explain_value(reading, way)))


async def theme(_context: CommandContext, _args: str) -> CommandReply:
    return CommandReply("The theme is a setting of the terminal: `alipes config set terminal.theme light`.")
