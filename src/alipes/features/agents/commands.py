"""`/agents`: the subagents that run, and the configured agents with what can be chosen for them here."""

from alipes.config.settings import AGENT_PREFIX
from alipes.features.agents.feature import AgentsFeature
from alipes.features.agents.presets import PRESETS
from alipes.kernel.formatting import format_columns
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.commands.conversation import agents as list_subagents
from alipes.sessions.commands.registry import Command

HOW = "/model agent/NAME talks to one, /agents NAME shows its commands, modes and options."


async def agents(context: CommandContext, args: str) -> CommandReply:
    feature = context.features.get(AgentsFeature)
    configured = feature.app.settings.agents
    name, *words = args.split() or [""]
    if name in configured:
        return await _one(feature, context, name, words)
    reply = await list_subagents(context, args)
    if args or not configured:
        return reply
    rows = [(f"{AGENT_PREFIX}/{each}", _describe(each)) for each in configured]
    return CommandReply(f"{reply.text}\n\nOther agents:\n{format_columns(rows)}\n{HOW}")


def _describe(name: str) -> str:
    return PRESETS[name].title if name in PRESETS else "an agent of your own"


def _shorten(text: str, room: int) -> str:
    """Some programs explain a command with a page."""
    line = " ".join(text.split())
    return line if len(line) <= room else f"{line[: room - 1].rstrip()}…"


async def _one(feature: AgentsFeature, context: CommandContext, name: str, words: list[str]) -> CommandReply:
    standing = await context.store.sessions.active(context.key)
    service = feature.service
    if service is None or standing is None:
        return CommandReply(f"This conversation has not used {name}. /model {AGENT_PREFIX}/{name} talks to it.")
    found = (await service.load()).conversation(name, standing.session)
    if words:
        if len(words) != 3 or words[0] != "set":
            return CommandReply(f"Usage: /agents {name} [set ID VALUE]", failed=True)
        if problem := await found.choose(words[1], words[2]):
            return CommandReply(problem, failed=True)
        return CommandReply(f"{name}: {words[1]} is {words[2]} in this conversation.")
    program = found.program
    if program is None:
        return CommandReply(f"{name} is not running. Its commands, modes and options are known once it has started.")
    rows = [
        (f"/{name}:{command} {_shorten(hint, 24)}".rstrip(), _shorten(text, 80))
        for command, text, hint in program.commands
    ]
    rows += [(each.id, f"{each.value} (of {', '.join(each.values)})") for each in program.choices]
    how = f"/agents {name} set ID VALUE changes a mode or an option." if program.choices else ""
    return CommandReply("\n".join(filter(None, [format_columns(rows) or f"{name} offers nothing to choose.", how])))


COMMANDS = (
    Command(
        "agents",
        "[ID | stop ID | NAME [set ID VALUE]]",
        "list subagents and other agents; stop a subagent, or see and change what an agent offers",
        agents,
        group="While a turn runs",
        place=5,
    ),
)
