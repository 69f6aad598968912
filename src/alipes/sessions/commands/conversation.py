"""Commands that change a conversation: stop, new, branch, resume, retry, queue, steer, compact, background agents."""

from msgspec import structs

from alipes.agent.auxiliary import default_mixture
from alipes.agent.compaction.compaction import (
    CompactionJob,
    Compactor,
    ContextBudget,
    full_budget,
    tail_start,
    trim_results,
)
from alipes.kernel.conversations import PendingTurn, SessionSwitch
from alipes.kernel.errors import AlipesError
from alipes.kernel.formatting import ID, did_you_mean, format_columns, format_count, format_duration, format_excerpt
from alipes.kernel.messages import count_chars
from alipes.kernel.tool_labels import describe_activity
from alipes.kernel.turns import BusyMode, Steer, Stop, Turn
from alipes.sessions.commands.context import CommandContext, CommandReply, ShowConversation, parse_count
from alipes.sessions.subagents.registry import background_task
from alipes.sessions.subagents.text import last_text
from alipes.store.sql.subagents import Subagent

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
    return CommandReply(f"Stopping {', '.join(f'{each.id[:ID]} {format_excerpt(_goal(each), 40)}' for each in found)}.")


async def background(context: CommandContext, args: str) -> CommandReply:
    if not args:
        return CommandReply("Usage: /background TEXT", failed=True)
    standing = await context.store.sessions.open(context.inbound.address)
    model = context.inbound.model or standing.model
    asked = background_task(structs.replace(context.inbound, text=args, model=model), standing.session)
    turn = await context.sessions.submit(asked, "queue", ruled=True)
    if turn is None:
        return CommandReply()  # a second copy: the first was handled
    return CommandReply(f"Started in the background ({turn[:ID]}). The answer will appear here; /agents shows it.")


async def moa(context: CommandContext, args: str) -> CommandReply:
    name = default_mixture(context.services.models.names())
    if not name:
        return CommandReply(
            "No mixture is configured. Set [moa.default] in config.toml first (models, aggregator).", failed=True
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
    state = "queued" if each.started is None else format_duration(now - each.started)
    facts = await context.store.archive.turn(each.id)
    calls = facts.said[-1].calls if facts is not None and facts.said else ()
    doing = f", {', '.join(map(describe_activity, calls))}" if calls else ""
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


PREVIEW = "--preview"
PATIENCE = 5.0
"""Seconds that a chat waits for it: the chat is blocked meanwhile."""


async def compress(context: CommandContext, args: str) -> CommandReply:
    preview = PREVIEW in args.split()
    focus = " ".join(word for word in args.split() if word != PREVIEW)
    compaction = context.services.compactor
    standing = await context.store.sessions.active(context.key)
    if standing is None:
        return CommandReply("This conversation is empty.")
    running = await context.store.sessions.unfinished(context.key)
    if running and running[0].started_at is not None and not preview:
        return _while_running(context, compaction, standing.session, focus)
    turn = await compaction.store.latest(standing.session)
    latest = turn.inbound.model if turn is not None else ""
    model = standing.model or latest or (await context.services.models.default()).model
    if context.services.models.own_tools(model):
        return CommandReply(f"{model} keeps its own history and compacts it itself.", failed=True)
    room = None if turn is None else await compaction.budget_for(turn)
    if turn is None or room is None:
        return CommandReply("The size of this conversation is not known yet: no model call was measured.")
    if preview:
        return CommandReply(await _preview(compaction, turn, room))
    job = CompactionJob(turn, turn.history, turn.compaction, room, focus, turn_running=False, requested=True)
    done = await compaction.compact_in_background(job, None if context.local_files else PATIENCE)
    if done is None:
        return CommandReply("Compacting in the background; you can keep talking.")
    if isinstance(done, AlipesError):
        raise done
    return CommandReply(f"{done.message[:1].upper()}{done.message[1:]}.", failed=done.outcome == "failed")


def _while_running(context: CommandContext, compaction: Compactor, session: str, focus: str) -> CommandReply:
    if not context.sessions.is_busy(context.key):
        return CommandReply("Another alipes process is using this conversation. Try again later.", failed=True)
    compaction.focus_requests[session] = focus
    return CommandReply("The conversation will be compacted before the next step of the running turn.")


async def _preview(compaction: Compactor, turn: Turn, room: ContextBudget) -> str:
    messages, digest = turn.history, turn.compaction
    window = await compaction.window_of(turn)
    of = f"of {window:,} tokens" if window else "tokens; the context window of the model is not known"
    room = full_budget(messages, digest, room)
    start = tail_start(messages, room)
    trim = trim_results(messages, digest, room)
    count, chars = format_count(start - digest.covered, "message"), count_chars(messages[digest.covered : start])
    so_far = f", beside a summary of {format_count(digest.covered, 'message')}" if digest.covered else ""
    beside = await compaction.session_notes(turn.session)
    rows = [
        ("now", f"about {room.tokens(messages, digest):,} {of}{so_far}"),
        ("trim old tool output", f"{room.tokens(messages, trim):,} tokens left"),
        ("compacted", f"{count}, {chars:,} characters" if start > digest.covered else "nothing"),
        ("kept verbatim", f"first request + last {format_count(len(messages) - start, 'message')}"),
        ("kept in addition", "; ".join(beside)),
    ]
    return f"{format_columns(rows)}\nPreview only. Run /compact to do it; all messages stay stored."


MODES: dict[BusyMode, str] = {
    "interrupt": "messages you send while it works stop it and are answered next",
    "queue": "messages you send while it works wait for their turn",
    "steer": "messages you send while it works reach it at the next step",
}


async def stop(context: CommandContext, _args: str) -> CommandReply:
    going = await _describe_background(context)
    found = "stop_command" if context.sessions.is_busy(context.key) else "stop_command_handler"
    stopped = await context.sessions.stop(context.key, Stop("user_stop", found))
    said = "Stopped." if stopped.turn else "Nothing is running."
    kept = f" {describe_held(len(stopped.held), context.queue_hint)}" if stopped.held else ""
    return CommandReply(f"{said}{kept}{going}")


def describe_held(count: int, hint: str) -> str:
    """`2 queued messages kept: Enter to send, Esc to discard.`"""
    hint = hint.replace("them", "it") if count == 1 else hint
    return f"{format_count(count, 'queued message')} kept: {hint}."


async def _describe_background(context: CommandContext) -> str:
    """Background work that a stop does not end."""
    standing = await context.store.sessions.active(context.key)
    going = context.sessions.subagents.describe_background(standing.session) if standing is not None else ""
    return f" Still running {going}." if going else ""


async def new(context: CommandContext, _args: str) -> CommandReply:
    left = await context.store.sessions.reset(context.key)
    if left is None:
        return CommandReply("This conversation is already empty.")
    await context.sessions.announce_switch(context.key, left, "new")
    return CommandReply(f"Started a new conversation.{_ended(left)}")


async def branch(context: CommandContext, args: str) -> CommandReply:
    left = await context.store.sessions.branch(context.key, args)
    await context.sessions.announce_switch(context.key, left, "branch")
    return CommandReply(
        f"Created a branch. The original is unchanged.{_ended(left)} Use /resume {left.old[:ID]} to go back to it."
    )


async def resume(context: CommandContext, args: str) -> CommandReply:
    if not args:
        return CommandReply("Usage: /resume NAME (an id or a title; see /sessions)", failed=True)
    wanted = await context.store.archive.resolve(args, title_start=True)
    standing = await context.store.sessions.active(context.key)
    if standing is not None and standing.session == wanted.id:
        return CommandReply(f"{format_excerpt(wanted.title or wanted.id)} is the current conversation.")
    left = await context.store.sessions.switch(context.inbound.address, wanted.id)
    await context.sessions.announce_switch(context.key, left, "resume")
    said = len(await context.store.archive.messages(wanted.id))
    what = f"{format_excerpt(wanted.title or wanted.id)}, {format_count(said, 'message')}"
    return CommandReply(f"Resumed {what}.{_ended(left)}", action=ShowConversation(wanted.id))


def _ended(left: SessionSwitch) -> str:
    """What leaving a conversation ended."""
    ended = ["the running turn"] if left.running_turn else []
    if left.dropped:
        ended.append(format_count(len(left.dropped), "message") + " in the queue")
    return f" Stopped: {' and '.join(ended)}." if ended else ""


async def retry(context: CommandContext, _args: str) -> CommandReply:
    retried = await context.store.sessions.retry(context.key)
    if retried is None:
        return CommandReply("Nothing to retry.")
    if retried.undone.running:
        await context.sessions.post(context.key, Stop("user_stop", "session_interrupt", retried.undone.turn))
    await context.sessions.wake(context.key)
    for turn in retried.steered:
        await context.sessions.post(context.key, Steer(turn))
    return CommandReply(f"Retrying: {format_excerpt(retried.undone.text)}", turns=(retried.turn, *retried.steered))


async def queue(context: CommandContext, args: str) -> CommandReply:
    """List the queued messages, send or drop them, or queue a new one."""
    words = args.lower().split()
    if words == ["send"]:
        return await _send_held(context)
    if words == ["drop"] or (len(words) == 2 and words[0] == "drop" and words[1].isdecimal()):
        return await _drop_queued(context, words[1:])
    if args or context.inbound.attachments:
        return await submit(context, args, mode="queue")
    waiting = await _list_queued(context)
    if not waiting:
        return CommandReply("No messages are queued. /queue TEXT sends a message after the current turn finishes.")
    lines = [
        f"{number}  {'kept  ' if each.held else ''}{format_excerpt(each.text, 60)}"
        for number, each in enumerate(waiting, 1)
    ]
    how = "/queue send sends the kept messages, " if any(each.held for each in waiting) else ""
    return CommandReply("\n".join([*lines, f"{how}/queue drop discards all, /queue drop N one of them."]))


async def _list_queued(context: CommandContext) -> list[PendingTurn]:
    """The messages that have not started."""
    return [each for each in await context.store.sessions.unfinished(context.key) if each.started_at is None]


async def _send_held(context: CommandContext) -> CommandReply:
    sent = await context.sessions.release(context.key)
    if not sent:
        return CommandReply("There are no kept messages.")
    return CommandReply(f"Sent {format_count(len(sent), 'message')}.", turns=tuple(each.id for each in sent))


async def _drop_queued(context: CommandContext, number: list[str]) -> CommandReply:
    waiting, turn = await _list_queued(context), ""
    if number:
        place = parse_count(number[0], len(waiting))
        if place is None:
            return CommandReply(f"There is no queued message {number[0]}. /queue lists them.", failed=True)
        turn = waiting[place - 1].id
    dropped = await context.sessions.drop(context.key, turn)
    if not dropped:
        return CommandReply("No messages are queued.")
    if turn:
        return CommandReply(f"Discarded {format_excerpt(dropped[0].text, 60)}.")
    return CommandReply(f"Discarded {format_count(len(dropped), 'message')}.")


async def submit(context: CommandContext, text: str, *, mode: BusyMode) -> CommandReply:
    """`/queue TEXT` and `/steer TEXT`."""
    if not text and not context.inbound.attachments:
        return CommandReply(f"Usage: /{mode} TEXT", failed=True)
    at_work = bool(await context.sessions.unfinished(context.key))
    turn = await context.sessions.submit(structs.replace(context.inbound, text=text), mode)
    if turn is None:
        return CommandReply()  # a second copy: the first was handled
    text_shown = {"queue": "Queued.", "steer": "Sent to the running turn."}[mode] if at_work else ""
    return CommandReply(text_shown, turns=(turn,))


async def busy(context: CommandContext, args: str) -> CommandReply:
    standing = await context.store.sessions.active(context.key)
    if not args:
        mode = (standing.busy if standing else "") or context.default_busy or context.sessions.defaults.busy
        others = ", ".join(f"/busy {each}" for each in MODES if each != mode)
        return CommandReply(f"{mode}: {MODES[mode]}. Others: {others}.")
    chosen: BusyMode | None = next((each for each in MODES if each == args.lower()), None)
    if chosen is None:
        meant = did_you_mean(args.lower(), MODES)
        return CommandReply(
            f"Unknown mode {format_excerpt(args, 20)}. Use interrupt, queue or steer.{meant}", failed=True
        )
    standing = standing or await context.store.sessions.open(context.inbound.address)
    await context.store.sessions.configure(standing.session, busy=chosen)
    return CommandReply(f"{chosen}: {MODES[chosen]}.")
