"""`/mcp`: shows the MCP servers, connects to one again, and accepts changed tools."""

from alipes.features.mcp.feature import McpFeature
from alipes.kernel.formatting import format_columns, format_count
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.commands.registry import Command

_USAGE = "Usage: /mcp [reload NAME | accept NAME]"
NONE = "No MCP servers. Add one with `alipes mcp add`, or as [mcp.servers.NAME] in config.toml."


async def mcp(context: CommandContext, args: str) -> CommandReply:
    configured = context.features.get(McpFeature).configured
    await configured.refresh()
    servers = configured.servers
    if servers is None or not servers.statuses():
        return CommandReply(NONE)
    match args.split():
        case [] | ["list"]:
            rows = [(each.name, f"{each.line}; {each.where}") for each in servers.statuses()]
            pending = [each for each in servers.statuses() if each.pending]
            notes = [f"/mcp accept {each.name} shows and accepts its changed tools." for each in pending]
            return CommandReply("\n".join([format_columns(rows), *notes]))
        case ["reload", name]:
            status = await servers.reload(name)
            return CommandReply(f"{name} is {status.line}.")
        case ["accept", name]:
            if context.inbound.untrusted:
                return CommandReply("Only an owner can accept tools.", failed=True)
            lines = servers.describe_pending(name)
            accepted = servers.accept(name)
            if not accepted:
                return CommandReply(f"{name} has no changed tools.")
            head = f"Accepted {format_count(len(accepted), 'change')} of {name}, from the next turn on:"
            return CommandReply("\n".join([head, *(f"  {line}" for line in lines)]))
    return CommandReply(_USAGE, failed=True)


COMMANDS = (
    Command(
        "mcp",
        "[reload NAME | accept NAME]",
        "list the MCP servers; reload one, or accept its changed tools",
        mcp,
        group="alipes",
        place=6,
    ),
)
