"""Commands that tell how things stand: the model, the state, what was spent; and that choose the model."""

from msgspec import structs

from alipes.kernel.conversations import Standing, Waiting
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import ago, aligned, brief, count, did_you_mean, span
from alipes.plugins.discovery import PluginFacts
from alipes.plugins.loader import Plugins
from alipes.sessions.commands.context import Context, Reply
from alipes.sessions.commands.usage_report import ID, cost, lines, report, spent
from alipes.store.export import Spent

DEFAULT = "default"
LISTED = 12
LONGEST = 366
"""Days that can be looked back."""


async def model(context: Context, args: str) -> Reply:
    standing = await context.store.sessions.standing(context.key)
    if not args:
        return Reply(await _shown(context, standing))
    if args == DEFAULT:
        if standing is not None:
            await context.store.sessions.configure(standing.session, model="")
        return Reply(f"{(await context.choice()).model} answers here again{await _from_when(context)}.")
    backend = await context.models.open(args)  # a name that means nothing is told here, and changes nothing
    standing = standing or await context.store.sessions.open(context.inbound.address)
    await context.store.sessions.configure(standing.session, model=backend.name)
    return Reply(f"{backend.name} answers in this conversation{await _from_when(context)}.")


async def _shown(context: Context, standing: Standing | None) -> str:
    name, why = await _model(context, standing)
    names = [each for each in context.models.names() if each != name]
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    others = f"\nOthers: {', '.join(names[:LISTED])}{more}. /model NAME changes it here." if names else ""
    return f"{name} answers. {why}{others}"


async def _model(context: Context, standing: Standing | None) -> tuple[str, str]:
    if context.inbound.model:
        return context.inbound.model, "It was asked for with --model; /model NAME goes over that."
    if standing is not None and standing.model:
        return standing.model, f"It was chosen for this conversation; /model {DEFAULT} goes back."
    choice = await context.choice()
    return choice.model, choice.why


async def _from_when(context: Context) -> str:
    running = await context.store.sessions.unfinished(context.key)
    return ", from the next message on; what is running keeps its model" if running else ""


async def usage(context: Context, args: str) -> Reply:
    if args:
        return await _usage_of_days(context, args)
    archive = context.store.archive
    standing = await context.store.sessions.standing(context.key)
    rows = [("today", spent(await archive.usage(days=1))), ("in all", spent(await archive.usage()))]
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
    return Reply(aligned(rows))


async def _usage_of_days(context: Context, args: str) -> Reply:
    """The same as `alipes usage`."""
    days = args.removeprefix("--days").strip()
    if not days.isascii() or not days.isdecimal() or not 1 <= int(days) <= LONGEST:
        return Reply(f"/usage N takes a number of days from 1 to {LONGEST}.", trouble=True)
    told = await report(context.store.archive, int(days), context.clock)
    if not context.files:  # a chat may have other people's conversations beside it
        standing = await context.store.sessions.standing(context.key)
        own = tuple(each for each in told.by_session if standing and each.name == standing.session)
        told = structs.replace(told, by_session=own)
    return Reply("\n".join(lines(told)))


async def status(context: Context, _args: str) -> Reply:
    standing = await context.store.sessions.standing(context.key)
    name, _ = await _model(context, standing)
    waiting = await context.store.sessions.unfinished(context.key)
    mode = (standing.busy if standing else "") or context.lobby.habits.busy
    rows = [("model", name), ("conversation", await _conversation(context, standing))]
    rows += [("now", _now(waiting, context.clock())), ("waiting", _queue(waiting)), ("busy mode", mode)]
    if standing is not None:
        rows.append(("context", await _fill(context, standing.session, name)))
        rows.append(("cost", _cost(await context.store.archive.usage(session=standing.session))))
        rows.append(("background", context.background(standing.session)))
    return Reply(aligned(rows))


async def _conversation(context: Context, standing: Standing | None) -> str:
    if standing is None:
        return "a new one"
    facts = await context.store.archive.resolve(standing.session)
    if not facts.turns and not facts.parent:
        return f"{facts.id[:ID]}, a new one"
    title = f" {brief(facts.title)}" if facts.title else ""
    origin = f", a branch of {facts.parent[:ID]}" if facts.parent else ""
    begun = ago(facts.created, context.clock())
    return f"{facts.id[:ID]}{title}, {count(facts.turns, 'turn')}, begun {begun}{origin}"


def _now(waiting: tuple[Waiting, ...], now: float) -> str:
    if not waiting:
        return "nothing is running"
    first = waiting[0]
    if first.begun is None:
        return f"about to begin {brief(first.text, 40)}"
    return f"working for {span(now - first.begun)} on {brief(first.text, 40)}"


def _queue(waiting: tuple[Waiting, ...]) -> str:
    return ", ".join(brief(each.text, 30) for each in waiting[1:])


async def _fill(context: Context, session: str, name: str) -> str:
    """How much of the model's window the conversation takes, by what the last call said."""
    used = await context.store.archive.context(session)
    if used is None:
        return ""
    try:
        window = (await context.models.open(name)).facts.window
    except ConfigError:
        window = None
    if not window:
        return f"{used:,} tokens; the window of {name} is not known"
    return f"{used:,} of {window:,} tokens ({100 * used / window:.0f} %)"


def _cost(sum: Spent) -> str:
    return cost(sum) if sum.calls else ""


ACTIONS = ("list", "reload", "enable", "disable")


async def plugins(context: Context, args: str) -> Reply:
    loaded, (action, *names) = context.plugins, args.split() or ["list"]
    if loaded is None:
        return Reply("Nothing is known of plugins here.", trouble=True)
    if action not in ACTIONS:
        meant = did_you_mean(action, ACTIONS)
        return Reply(
            f"/plugins takes {', '.join(ACTIONS[1:])} and a name, not {brief(action, 20)}.{meant}",
            trouble=True,
        )
    if action == "list":
        return Reply(_listed(await loaded.listing()))
    if len(names) != 1:
        return Reply(f"Which one? /plugins {action} NAME.", trouble=True)
    act = {"reload": loaded.reload, "enable": loaded.enable, "disable": loaded.disable}[action]
    return Reply(await act(names[0]))


def plugin_words(loaded: Plugins) -> list[str]:
    """What may follow `/plugins`."""
    known = loaded.facts()
    return [f"{action} {each.name}" for action in ("reload", "disable") for each in known] + ["enable "]


def _listed(facts: tuple[PluginFacts, ...]) -> str:
    if not facts:
        return "There is no plugin. `alipes plugins install` brings one, `alipes plugins new` begins one."
    return aligned([(f"{each.name} {each.version}".rstrip(), _state(each)) for each in facts])


def _state(each: PluginFacts) -> str:
    if each.state != "on":
        return f"{each.state}: {each.why}" if each.why else each.state
    has = {"hook": each.hooks, "tool": each.tools, "command": each.commands, "skill": each.skills}
    what = [count(len(names), noun) for noun, names in has.items() if names] + list(each.provides)
    strikes = f"; failed {count(each.strikes, 'time')}" if each.strikes else ""
    return f"on: {', '.join(what) or 'at work in the background'}{strikes}"
