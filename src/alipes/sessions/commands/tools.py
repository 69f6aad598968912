"""`/tools`: lists the tools and switches them off and on in this conversation."""

from collections.abc import Iterable
from itertools import groupby

from alipes.config.tools import select_tools
from alipes.kernel.formatting import did_you_mean, format_columns, format_count, format_excerpt, join_names
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.tool_access import ToolAccess, ToolState

USAGE = "Usage: /tools [off NAME | on NAME | reset]. NAME is a tool or a group."
_SHOWN = 40
"""Tools of a group that are listed one by one; a larger group is counted unless it is asked for by name."""


async def tools(context: CommandContext, args: str) -> CommandReply:
    access = context.services.tools
    match args.split():
        case [] | ["list"]:
            return CommandReply(_list(await _states(context, access)))
        case ["list", *names]:
            chosen = _find_meant(await _states(context, access), names)
            return CommandReply(_list(chosen, full=True) if chosen else f"No tool matches. {USAGE}", failed=not chosen)
        case ["off", *names] if names:
            return await _switch_off(context, access, names)
        case ["on", *names] if names:
            return await _switch_on(context, access, names)
        case ["reset"]:
            standing = await context.store.sessions.active(context.key)
            if standing is not None:
                await context.store.tool_choices.write(standing.session, ())
            return CommandReply(f"The tools are as in the settings{await _from_when(context)}.")
    return CommandReply(USAGE, failed=True)


def tool_words(states: Iterable[str]) -> list[str]:
    """Completions for `/tools`."""
    return [f"{action} {name}" for action in ("off", "on") for name in states] + ["reset"]


async def _states(context: CommandContext, access: ToolAccess) -> list[ToolState]:
    standing = await context.store.sessions.active(context.key)
    return await access.list_states(context.inbound.address.platform, standing.session if standing else "")


def _find_meant(states: list[ToolState], names: list[str]) -> list[ToolState]:
    chosen = {*select_tools(names, {each.name: each.group for each in states})}
    return [each for each in states if each.name in chosen]


async def _switch_off(context: CommandContext, access: ToolAccess, names: list[str]) -> CommandReply:
    states = await _states(context, access)
    if problem := _find_unknown(states, names):
        return CommandReply(problem, failed=True)
    standing = await context.store.sessions.open(context.inbound.address)
    before = await context.store.tool_choices.read(standing.session)
    await context.store.tool_choices.write(standing.session, dict.fromkeys((*before, *names)))
    meant = (each.name for each in _find_meant(states, names))
    return CommandReply(f"Off in this conversation: {_join(meant)}{await _from_when(context)}.")


async def _switch_on(context: CommandContext, access: ToolAccess, names: list[str]) -> CommandReply:
    """Undo `/tools off`. What the settings switch off stays off: a chat must not undo the operator's choice."""
    states = await _states(context, access)
    if problem := _find_unknown(states, names):
        return CommandReply(problem, failed=True)
    meant = _find_meant(states, names)
    groups = {each.name: each.group for each in states}
    wanted = {each.name for each in meant}
    standing = await context.store.sessions.open(context.inbound.address)
    left: list[str] = []
    for name in await context.store.tool_choices.read(standing.session):
        covered = select_tools((name,), groups)
        # a group of which some are switched on is replaced by the others
        left += [name] if wanted.isdisjoint(covered) else [each for each in covered if each not in wanted]
    await context.store.tool_choices.write(standing.session, dict.fromkeys(left))
    still = [each for each in meant if each.state in ("off", "unavailable")]
    if not still:
        return CommandReply(f"On: {_join(wanted)}{await _from_when(context)}.")
    lines = [f"{each.name} stays {each.state}. {each.reason}" for each in still[:_SHOWN]]
    return CommandReply("\n".join(lines), failed=len(still) == len(meant))


def _find_unknown(states: list[ToolState], names: list[str]) -> str:
    """A sentence about names that mean no tool; empty if there are none."""
    groups = {each.name: each.group for each in states}
    for name in names:
        if not select_tools((name,), groups):
            known = [*groups, *dict.fromkeys(groups.values())]
            return f"Unknown tool {format_excerpt(name, 40)}.{did_you_mean(name, known)} /tools lists them."
    return ""


async def _from_when(context: CommandContext) -> str:
    running = await context.sessions.unfinished(context.key)
    return ", from the next message on" if running else ""


def _list(states: list[ToolState], *, full: bool = False) -> str:
    groups: dict[str, list[ToolState]] = {}
    for each in states:
        groups.setdefault(each.group, []).append(each)
    blocks = [f"{group}\n{_list_group(members, full=full)}" for group, members in groups.items()]
    return "\n\n".join([*blocks, USAGE])


def _list_group(members: list[ToolState], *, full: bool) -> str:
    if len(members) > _SHOWN and not full:
        counts = {state: sum(each.state == state for each in members) for state in ("on", "off", "off here")}
        known = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        return f"  {format_count(len(members), 'tool')}: {known or 'unavailable'}. /tools list GROUP shows them."
    rows = []
    for (prefix, described), alike in groupby(members, lambda each: (each.name.partition("_")[0], _describe(each))):
        names = [each.name for each in alike]
        merged = not full and len(names) > 2 and not described.startswith("on ")
        rows += (
            [(f"  {prefix}_* ({len(names)})", described)] if merged else [(f"  {each}", described) for each in names]
        )
    return format_columns(rows)


def _describe(state: ToolState) -> str:
    if state.state == "on":
        return f"on ({state.effect})"
    return f"{state.state}: {state.reason}" if state.state != "off here" else "off here"


def _join(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = [format_count(len(listed) - 10, "other")] if len(listed) > 11 else []
    return join_names([*(listed[:10] if more else listed), *more])
