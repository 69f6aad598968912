"""Commands about work beside the conversation: who is at it, ending it, beginning some; models together."""

from msgspec import structs

from alipes.agent.auxiliary import usual_name
from alipes.kernel.formatting import brief, span
from alipes.kernel.turns import Stop
from alipes.sessions.commands.context import Context, Reply
from alipes.sessions.commands.usage_report import ID
from alipes.sessions.subagents.delegation import beside
from alipes.sessions.subagents.text import last_words
from alipes.store.subagents import Subagent

EVERY = "all"


async def agents(context: Context, args: str) -> Reply:
    living = await context.store.subagents.unfinished(place=context.key)
    word, *names = args.split() or [""]
    if not word:
        return Reply(await _listed(context, living))
    if word.lower() != "stop":
        return await _looked_at(context, living, word)
    if len(names) != 1:
        return Reply(f"Which one? /agents stop ID, or /agents stop {EVERY}.", trouble=True)
    found = living if names[0].lower() == EVERY else _named(living, names[0])
    if not found:
        return _missing(names[0])
    for each in found:
        await context.lobby.post(each.key, Stop("user_stop", "session_interrupt", each.id))
    return Reply(f"Stopping {', '.join(f'{each.id[:ID]} {brief(_goal(each), 40)}' for each in found)}.")


async def background(context: Context, args: str) -> Reply:
    if not args:
        return Reply("What shall be done? /background TEXT.", trouble=True)
    standing = await context.store.sessions.open(context.inbound.address)
    model = context.inbound.model or standing.model
    asked = beside(structs.replace(context.inbound, text=args, model=model), standing.session)
    turn = await context.lobby.submit(asked, "queue", ruled=True)
    if turn is None:
        return Reply()  # a second copy: the first was answered for
    return Reply(f"At work in the background as {turn[:ID]}; the answer comes here. /agents shows it.")


async def moa(context: Context, args: str) -> Reply:
    name = usual_name(context.models.names())
    if not name:
        return Reply(
            "No models are set up to answer together: write [moa.default] with models and aggregator into "
            "the configuration.",
            trouble=True,
        )
    if not args:
        return Reply(f"What shall they be asked? /moa TEXT asks {name}.", trouble=True)
    asked = structs.replace(context.inbound, text=args, model=name)
    turn = await context.lobby.submit(asked, usual=context.usual)
    return Reply(turns=() if turn is None else (turn,))


async def _listed(context: Context, living: tuple[Subagent, ...]) -> str:
    if not living:
        return "Nobody is at work beside this conversation."
    now = context.clock()
    lines = [f"{'  ' * max(0, each.inbound.depth - 1)}{await _line(context, each, now)}" for each in living]
    return "\n".join([*lines, f"/agents ID shows what it said so far, /agents stop ID (or {EVERY}) ends it."])


async def _line(context: Context, each: Subagent, now: float) -> str:
    state = "waits" if each.begun is None else f"for {span(now - each.begun)}"
    facts = await context.store.archive.turn(each.id)
    calls = facts.said[-1].calls if facts is not None and facts.said else ()
    doing = f", in {', '.join(call.name for call in calls)}" if calls else ""
    origin = each.inbound.origin
    where = ", in the background" if origin is not None and origin.reports else ""
    return f"{each.id[:ID]}  {brief(_goal(each), 60)}  {state}{doing}{where}"


async def _looked_at(context: Context, living: tuple[Subagent, ...], name: str) -> Reply:
    found = _named(living, name)
    if len(found) != 1:
        return _missing(name)
    facts = await context.store.archive.turn(found[0].id)
    words = last_words(facts.said) if facts is not None else ""
    return Reply(f"{await _line(context, found[0], context.clock())}\n{words or 'It said nothing yet.'}")


def _named(living: tuple[Subagent, ...], name: str) -> tuple[Subagent, ...]:
    found = tuple(each for each in living if each.id.startswith(name.lower()))
    return found if len(found) == 1 else ()


def _missing(name: str) -> Reply:
    return Reply(f"Nobody called {brief(name, 20)} is at work beside this conversation.", trouble=True)


def _goal(each: Subagent) -> str:
    return each.inbound.origin.goal if each.inbound.origin is not None else each.inbound.text
