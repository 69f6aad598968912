"""`/jobs`: background processes and background subagents of a conversation: list, show, follow, stop."""

from collections.abc import Sequence

from alipes.kernel.formatting import ID, format_columns, format_duration, format_excerpt, join_names
from alipes.kernel.turns import Stop
from alipes.sessions.commands.context import CommandContext, CommandReply, FollowJob
from alipes.sessions.subagents.text import last_text
from alipes.store.sql.subagents import Subagent
from alipes.tools.shell.background import BackgroundProcess, stop_processes

EVERY = "all"
SHOWN_LINES = 40
"""Lines of output that `/jobs ID` shows."""
STOP_GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL."""
_HOW = "/jobs ID shows one, /jobs follow ID follows it, /jobs stop ID (or all) stops it."


async def jobs(context: CommandContext, args: str) -> CommandReply:
    words = args.split()
    processes, subagents = await _find_all(context)
    if not words:
        return CommandReply(_list_jobs(processes, subagents, context.clock()))
    if words[0].lower() == "stop":
        return await _stop(context, words[1:], processes, subagents)
    if words[0].lower() == "follow":
        return await _follow(context, words[1:], processes, subagents)
    if len(words) > 1:
        return CommandReply("Usage: /jobs [ID | follow ID | stop ID]", failed=True)
    return await _show(context, words[0], processes, subagents)


async def count_jobs(context: CommandContext) -> int:
    """How many jobs of the conversation are running."""
    processes, subagents = await _find_all(context)
    return sum(not process.is_finished for process in processes) + len(subagents)


async def _find_all(context: CommandContext) -> tuple[tuple[BackgroundProcess, ...], tuple[Subagent, ...]]:
    """The processes of the conversation, also finished ones, and its subagents in the background."""
    standing = await context.store.sessions.active(context.key)
    processes = () if standing is None else context.services.processes.processes_of(standing.session)
    living = await context.store.subagents.unfinished(place=context.key)
    return processes, tuple(each for each in living if each.inbound.origin is not None and each.inbound.origin.reports)


def _list_jobs(processes: Sequence[BackgroundProcess], subagents: Sequence[Subagent], now: float) -> str:
    rows = [(process.name, f"{_command(process)}  {process.status.removeprefix('is ')}") for process in processes]
    rows += [(each.id[:ID], f"{_describe(each)}  {_state(each, now)}") for each in subagents]
    if not rows:
        return "No background jobs."
    return f"{format_columns(rows)}\n{_HOW}"


def _command(process: BackgroundProcess) -> str:
    return format_excerpt(process.command, 60)[1:-1]


def _describe(each: Subagent) -> str:
    goal = each.inbound.origin.goal if each.inbound.origin is not None else each.inbound.text
    return f"subagent {format_excerpt(goal, 60)}"


def _state(each: Subagent, now: float) -> str:
    return "queued" if each.started is None else f"running ({format_duration(now - each.started)})"


async def _show(
    context: CommandContext, name: str, processes: Sequence[BackgroundProcess], subagents: Sequence[Subagent]
) -> CommandReply:
    if (process := _process(processes, name)) is not None:
        output = await process.log.read_lines(0, SHOWN_LINES)
        return CommandReply(f"{process.title} {process.status}\n{output}")
    found = _subagents(subagents, name)
    if len(found) != 1:
        return _missing(name)
    facts = await context.store.archive.turn(found[0].id)
    words = last_text(facts.said) if facts is not None else ""
    return CommandReply(
        f"{found[0].id[:ID]}  {_describe(found[0])}  {_state(found[0], context.clock())}\n{words or 'No output yet.'}"
    )


async def _follow(
    context: CommandContext, names: list[str], processes: Sequence[BackgroundProcess], subagents: Sequence[Subagent]
) -> CommandReply:
    if not names:
        return CommandReply(action=FollowJob("", ""))
    process = _process(processes, names[0])
    if process is None or process.is_finished or not context.local_files:
        return await _show(context, names[0], processes, subagents)
    text = f"Following {process.title}. Esc or /jobs follow leaves it; the job keeps running."
    return CommandReply(text, action=FollowJob(process.session, process.name))


async def _stop(
    context: CommandContext, names: list[str], processes: Sequence[BackgroundProcess], subagents: Sequence[Subagent]
) -> CommandReply:
    if len(names) != 1:
        return CommandReply(f"Usage: /jobs stop ID, or /jobs stop {EVERY}", failed=True)
    every = names[0].lower() == EVERY
    named = _process(processes, names[0])
    stopped = [each for each in processes if not each.is_finished and (every or each is named)]
    agents = subagents if every else _subagents(subagents, names[0]) if named is None else ()
    if named is not None and named.is_finished:
        return CommandReply(f"{named.title} {named.status}.")
    if not stopped and not agents:
        return CommandReply("No background jobs.") if every else _missing(names[0])
    await stop_processes(stopped, STOP_GRACE_S)
    for each in agents:
        await context.sessions.post(each.key, Stop("user_stop", "session_interrupt", each.id))
    titles = [*(process.title for process in stopped), *(f"{each.id[:ID]} ({_describe(each)})" for each in agents)]
    return CommandReply(f"Stopped {join_names(titles)}.")


def _process(processes: Sequence[BackgroundProcess], name: str) -> BackgroundProcess | None:
    return next((process for process in processes if process.name == name.lower()), None)


def _subagents(subagents: Sequence[Subagent], name: str) -> tuple[Subagent, ...]:
    found = tuple(each for each in subagents if each.id.startswith(name.lower()))
    return found if len(found) == 1 else ()


def _missing(name: str) -> CommandReply:
    return CommandReply(f"No background job matches {format_excerpt(name, 20)}. /jobs lists them.", failed=True)
