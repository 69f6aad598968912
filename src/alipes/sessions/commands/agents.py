"""Commands for subagents, background tasks and model mixtures."""

from msgspec import structs

from alipes.agent.auxiliary import default_mixture
from alipes.kernel.formatting import format_duration, format_excerpt
from alipes.kernel.turns import Stop
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.commands.usage_report import ID
from alipes.sessions.subagents.delegation import background_task
from alipes.sessions.subagents.text import last_text
from alipes.store.subagents import Subagent

EVERY = "all"


async def agents(context: CommandContext, args: str) -> CommandReply:
    living = await context.store.subagents.unfinished(place=context.key)
    word, *names = args.split() or [""]
    if not word:
        return CommandReply(await _listed(context, living))
    if word.lower() != "stop":
        return await _looked_at(context, living, word)
    if len(names) != 1:
        return CommandReply(f"Usage: /agents stop ID, or /agents stop {EVERY}", failed=True)
    found = living if names[0].lower() == EVERY else _named(living, names[0])
    if not found:
        return _missing(names[0])
    for each in found:
        await context.sessions.post(each.key, Stop("user_stop", "session_interrupt", each.id))
    return CommandReply(
        f"Stopping {', '.join(f'{each.id[:ID]} {format_excerpt(_goal(each), 40)}' for each in found)}."
    )


async def background(context: CommandContext, args: str) -> CommandReply:
    if not args:
        return CommandReply("Usage: /background TEXT", failed=True)
    standing = await context.store.sessions.open(context.inbound.address)
    model = context.inbound.model or standing.model
    asked = background_task(structs.replace(context.inbound, text=args, model=model), standing.session)
    turn = await context.sessions.submit(asked, "queue", ruled=True)
    if turn is None:
        return CommandReply()  # a second copy: the first was handled
    return CommandReply(
        f"Started in the background ({turn[:ID]}). The answer will appear here; /agents shows it."
    )


async def moa(context: CommandContext, args: str) -> CommandReply:
    name = default_mixture(context.models.names())
    if not name:
        return CommandReply(
            "No mixture is configured. Set [moa.default] in config.toml first (models, aggregator).",
            failed=True,
        )
    if not args:
        return CommandReply(f"Usage: /moa TEXT (asks {name})", failed=True)
    asked = structs.replace(context.inbound, text=args, model=name)
    turn = await context.sessions.submit(asked, usual=context.default_busy)
    return CommandReply(turns=() if turn is None else (turn,))


async def _listed(context: CommandContext, living: tuple[Subagent, ...]) -> str:
    if not living:
        return "No subagents running."
    now = context.clock()
    lines = [f"{'  ' * max(0, each.inbound.depth - 1)}{await _line(context, each, now)}" for each in living]
    return "\n".join([*lines, f"/agents ID shows its output so far, /agents stop ID (or {EVERY}) stops it."])


async def _line(context: CommandContext, each: Subagent, now: float) -> str:
    state = "queued" if each.started is None else f"for {format_duration(now - each.started)}"
    facts = await context.store.archive.turn(each.id)
    calls = facts.said[-1].calls if facts is not None and facts.said else ()
    doing = f", in {', '.join(call.name for call in calls)}" if calls else ""
    origin = each.inbound.origin
    where = ", in the background" if origin is not None and origin.reports else ""
    return f"{each.id[:ID]}  {format_excerpt(_goal(each), 60)}  {state}{doing}{where}"


async def _looked_at(context: CommandContext, living: tuple[Subagent, ...], name: str) -> CommandReply:
    found = _named(living, name)
    if len(found) != 1:
        return _missing(name)
    facts = await context.store.archive.turn(found[0].id)
    words = last_text(facts.said) if facts is not None else ""
    return CommandReply(f"{await _line(context, found[0], context.clock())}\n{words or 'No output yet.'}")


def _named(living: tuple[Subagent, ...], name: str) -> tuple[Subagent, ...]:
    found = tuple(each for each in living if each.id.startswith(name.lower()))
    return found if len(found) == 1 else ()


def _missing(name: str) -> CommandReply:
    return CommandReply(f"No running subagent matches {format_excerpt(name, 20)}.", failed=True)


def _goal(each: Subagent) -> str:
    return each.inbound.origin.goal if each.inbound.origin is not None else each.inbound.text
