"""`/usage`: tokens and cost of this conversation, of today and of the last days."""

from msgspec import structs

from alipes.features.usage.report import lines, report, spent
from alipes.kernel.formatting import format_columns
from alipes.sessions.commands.context import CommandContext, CommandReply, parse_count
from alipes.sessions.commands.registry import Command

LONGEST = 366
"""Days that can be looked back."""


async def usage(context: CommandContext, args: str) -> CommandReply:
    if args:
        return await _usage_of_days(context, args)
    archive = context.store.archive
    standing = await context.store.sessions.active(context.key)
    rows = [("today", spent(await archive.usage(days=1))), ("total", spent(await archive.usage()))]
    if standing is not None:
        session = standing.session
        rows.insert(0, ("this conversation", spent(await archive.usage(session=session))))
        each = await archive.usage_by("model", session=session)
        shares = [(sum.name or "unknown", sum) for sum in each if len(each) > 1 or sum.name]
        tasks = await archive.usage_by("task", session=session)
        shares += [(sum.name, sum) for sum in tasks if sum.name != "answer"]
        tools = await archive.usage_by("tool", session=session)
        shares += [(f"for {sum.name}", sum) for sum in tools if sum.name]
        rows[1:1] = [(f"  {name}", spent(sum)) for name, sum in shares]
    return CommandReply(format_columns(rows))


async def _usage_of_days(context: CommandContext, args: str) -> CommandReply:
    """The same as `alipes usage`."""
    days = parse_count(args.removeprefix("--days").strip(), LONGEST)
    if days is None:
        return CommandReply(f"/usage N takes a number of days from 1 to {LONGEST}.", failed=True)
    shown = await report(context.store.archive, days, context.clock)
    if not context.local_files:  # a chat must not see other people's conversations
        standing = await context.store.sessions.active(context.key)
        own = tuple(each for each in shown.by_session if standing and each.name == standing.session)
        shown = structs.replace(shown, by_session=own)
    return CommandReply("\n".join(lines(shown)))


COMMANDS = (
    Command("usage", "[DAYS]", "show token usage and cost", usage, aliases=("cost",), group="Model and cost", place=5),
)
