"""Commands that show or set state: model, effort, status, plugins."""

from alipes.kernel.api_keys import describe_keys
from alipes.kernel.conversations import ActiveSession, PendingTurn
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import (
    ID,
    did_you_mean,
    format_ago,
    format_clock,
    format_columns,
    format_cost,
    format_count,
    format_duration,
    format_excerpt,
)
from alipes.kernel.turns import Effort
from alipes.plugins.discovery import PluginStatus
from alipes.plugins.loader import Plugins
from alipes.sessions.commands.context import CommandContext, CommandReply

DEFAULT = "default"
LISTED = 12


async def model(context: CommandContext, args: str) -> CommandReply:
    standing = await context.store.sessions.active(context.key)
    if not args:
        return CommandReply(await _shown(context, standing))
    if args == DEFAULT:
        if standing is not None:
            await context.store.sessions.configure(standing.session, model="")
        name = (await context.services.models.default()).model
        return CommandReply(f"{name} is used again{await _from_when(context)}.")
    backend = await context.services.models.open(args)  # an unknown name raises here and changes nothing
    standing = standing or await context.store.sessions.open(context.inbound.address)
    await context.store.sessions.configure(standing.session, model=backend.name)
    return CommandReply(f"Switched to {backend.name}{await _from_when(context)}.")


async def _shown(context: CommandContext, standing: ActiveSession | None) -> str:
    name, why = await _model(context, standing)
    names = [each for each in await context.services.models.list_names() if each != name]
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    others = f"\nOthers: {', '.join(names[:LISTED])}{more}. /model NAME switches." if names else ""
    return f"Model: {name} ({why}){others}"


async def _model(context: CommandContext, standing: ActiveSession | None) -> tuple[str, str]:
    if context.inbound.model:
        return context.inbound.model, "set by --model; /model NAME overrides it"
    if standing is not None and standing.model:
        return standing.model, f"chosen for this conversation; /model {DEFAULT} resets it"
    choice = await context.services.models.default()
    return choice.model, "a tiny demo model" if choice.toy else choice.why


async def _from_when(context: CommandContext, what: str = "model") -> str:
    running = await context.sessions.unfinished(context.key)
    return f", from the next message on; the running turn keeps its {what}" if running else ""


EFFORTS: dict[Effort, str] = {
    "off": "the model does not think before it answers",
    "minimal": "the model thinks as little as it can",
    "low": "the model thinks briefly",
    "medium": "the model thinks for a while",
    "high": "the model thinks thoroughly; slower, and costs more",
    "xhigh": "the model thinks longer than that, for long work",
    "max": "the model thinks as much as it can; slowest, and costs most",
}


async def effort(context: CommandContext, args: str) -> CommandReply:
    standing = await context.store.sessions.active(context.key)
    if not args:
        now = (standing.effort if standing else "") or context.sessions.defaults.effort
        others = ", ".join(f"/effort {each}" for each in (*EFFORTS, DEFAULT) if each != (now or DEFAULT))
        return CommandReply(f"Effort: {now or 'the default of the model'}. Others: {others}.")
    word = args.lower()
    chosen: Effort | None = "" if word == DEFAULT else next((each for each in EFFORTS if each == word), None)
    if chosen is None:
        levels = f"{', '.join(EFFORTS)} or {DEFAULT}"
        return CommandReply(f"Unknown effort {format_excerpt(args, 20)}. Use {levels}.", failed=True)
    standing = standing or await context.store.sessions.open(context.inbound.address)
    await context.store.sessions.configure(standing.session, effort=chosen)
    now = chosen or context.sessions.defaults.effort
    text = f"{now}: {EFFORTS[now]}" if now else "Effort: the default of the model"
    return CommandReply(f"{text}{await _from_when(context, 'effort')}.")


async def status(context: CommandContext, _args: str) -> CommandReply:
    standing = await context.store.sessions.active(context.key)
    name, _ = await _model(context, standing)
    waiting = await context.store.sessions.unfinished(context.key)
    mode = (standing.busy if standing else "") or context.sessions.defaults.busy
    rows = [("model", name), ("conversation", await _conversation(context, standing))]
    rows += [("now", _now(waiting, context.clock())), ("waiting", _queue(waiting)), ("busy mode", mode)]
    if standing is not None:
        rows.append(("context", await _fill(context, standing.session, name)))
        usage = await context.store.archive.usage(session=standing.session)
        rows.append(("cost", format_cost(usage.usage, usage.calls, usage.unpriced)))
        rows.append(("keys", await _keys(context, standing.session, name)))
        rows.append(("background", _background(context, standing.session)))
    return CommandReply(format_columns(rows))


async def _keys(context: CommandContext, session: str, name: str) -> str:
    """The keys of the model's provider if it has several, each by its variable: which rest, and which is used."""
    variables = context.services.models.key_variables(name)
    if not variables:
        return ""
    rests, last = await context.store.provider_keys.look(name.partition("/")[0], session)
    return describe_keys(variables, rests, last, context.clock())


def _background(context: CommandContext, session: str) -> str:
    """What a conversation has running between its turns, in a few words."""
    jobs = (job.title for job in context.services.processes.running(session))
    subagents = (f"subagent {each}" for each in context.sessions.subagents.list_background(session))
    return ", ".join((*jobs, *subagents))


async def _conversation(context: CommandContext, standing: ActiveSession | None) -> str:
    if standing is None:
        return "new"
    facts = await context.store.archive.resolve(standing.session)
    if not facts.turns and not facts.parent:
        return f"{facts.id[:ID]}, new"
    title = f" {format_excerpt(facts.title)}" if facts.title else ""
    origin = f", a branch of {facts.parent[:ID]}" if facts.parent else ""
    begun = format_ago(facts.created, context.clock())
    return f"{facts.id[:ID]}{title}, {format_count(facts.turns, 'turn')}, started {begun}{origin}"


def _now(waiting: tuple[PendingTurn, ...], now: float) -> str:
    if not waiting or waiting[0].held:
        return "nothing is running"
    first = waiting[0]
    if first.started_at is None:
        return f"about to start {format_excerpt(first.text, 40)}"
    if first.resumes_at > now:
        return f"waits for a limit until {format_clock(first.resumes_at, now)}: {format_excerpt(first.text, 40)}"
    return f"working for {format_duration(now - first.started_at)} on {format_excerpt(first.text, 40)}"


def _queue(waiting: tuple[PendingTurn, ...]) -> str:
    behind = waiting if waiting and waiting[0].held else waiting[1:]
    return ", ".join(f"{format_excerpt(each.text, 30)}{' (kept)' if each.held else ''}" for each in behind)


async def _fill(context: CommandContext, session: str, name: str) -> str:
    """How much of the context window the conversation takes, by its last call."""
    used = await context.store.archive.context_tokens(session)
    if used is None:
        return ""
    try:
        window = (await context.services.models.open(name)).facts.window
    except ConfigError:
        window = None
    if not window:
        return f"{used:,} tokens; the context window of {name} is not known"
    return f"{used:,} of {window:,} tokens ({100 * used / window:.0f} %)"


ACTIONS = ("list", "reload", "enable", "disable", "reset")


async def plugins(context: CommandContext, args: str) -> CommandReply:
    loaded, (action, *names) = context.services.plugins, args.split() or ["list"]
    action = "reset" if action == "forgive" else action  # its name in earlier versions
    if action not in ACTIONS:
        meant = did_you_mean(action, ACTIONS)
        return CommandReply(
            f"/plugins takes {', '.join(ACTIONS[1:])} and a name; got {format_excerpt(action, 20)}.{meant}", failed=True
        )
    if action == "list":
        return CommandReply(_listed(await loaded.list_all()))
    if len(names) != 1:
        return CommandReply(f"Usage: /plugins {action} NAME", failed=True)
    act = {"reload": loaded.reload, "enable": loaded.enable, "disable": loaded.disable, "reset": loaded.forgive}[action]
    return CommandReply(await act(names[0]))


def plugin_words(loaded: Plugins) -> list[str]:
    """Completions for `/plugins`."""
    known = loaded.statuses()
    return [f"{action} {each.name}" for action in ("reload", "disable", "reset") for each in known] + ["enable "]


def _listed(facts: tuple[PluginStatus, ...]) -> str:
    if not facts:
        return "No plugins. Install one with `alipes plugins install`, or create one with `alipes plugins new`."
    return format_columns([(f"{each.name} {each.version}".rstrip(), _state(each)) for each in facts])


def _state(each: PluginStatus) -> str:
    if each.state != "on":
        return f"{each.state}: {each.why}" if each.why else each.state
    has = {"hook": each.hooks, "tool": each.tools, "command": each.commands, "skill": each.skills}
    what = [format_count(len(names), noun) for noun, names in has.items() if names] + list(each.provides)
    strikes = f"; failed {format_count(each.strikes, 'time')}" if each.strikes else ""
    silenced = "".join(f"; {callback} is {why}" for callback, why in each.silenced.items())
    return f"on: {', '.join(what) or 'background work only'}{strikes}{silenced}"
