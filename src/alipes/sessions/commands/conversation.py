"""Commands that change the course of a conversation: what runs, what waits, what counts as said."""

from msgspec import structs

from alipes.agent.compaction import plan
from alipes.agent.compaction.compaction import Compaction, Job
from alipes.agent.compaction.plan import Room, letters
from alipes.kernel.conversations import Left
from alipes.kernel.errors import AlipesError
from alipes.kernel.formatting import aligned, brief, count, did_you_mean
from alipes.kernel.turns import Busy, Steer, Stop, Turn
from alipes.sessions.commands.context import Context, Reply, Show
from alipes.sessions.commands.usage_report import ID

PREVIEW = "--preview"
PATIENCE = 5.0
"""Seconds that a chat waits for it: nothing else of that chat is heard meanwhile."""


async def compress(context: Context, args: str) -> Reply:
    preview = PREVIEW in args.split()
    focus = " ".join(word for word in args.split() if word != PREVIEW)
    compaction = context.compaction
    standing = await context.store.sessions.standing(context.key)
    if compaction is None or standing is None:
        return Reply("Nothing was said here yet.")
    running = await context.store.sessions.unfinished(context.key)
    if running and running[0].begun is not None and not preview:
        return _while_running(context, compaction, standing.session, focus)
    turn = await compaction.digests.latest(standing.session)
    room = None if turn is None else await compaction.room_of(turn)
    if turn is None or room is None:
        return Reply("Nothing was counted here yet, so it is not known how long this conversation is.")
    if preview:
        return Reply(await _preview(compaction, turn, room))
    job = Job(turn, turn.history, turn.digest, room, focus, living=False, wanted=True)
    done = await compaction.beside(job, None if context.files else PATIENCE)
    if done is None:
        return Reply("It is being summed up; what you say meanwhile is answered as before.")
    if isinstance(done, AlipesError):
        raise done
    return Reply(_sentence(done.note), trouble=done.how == "failed")


def _while_running(context: Context, compaction: Compaction, session: str, focus: str) -> Reply:
    if not context.lobby.at_work(context.key):
        return Reply(
            "Another alipes is at work on this conversation; try again when it is done.", trouble=True
        )
    compaction.wishes[session] = focus
    return Reply("It will be summed up before the next step of what is running.")


async def _preview(compaction: Compaction, turn: Turn, room: Room) -> str:
    messages, digest, window = turn.history, turn.digest, room.window
    room = plan.snug(messages, digest, room)
    start = plan.tail(messages, room)
    trim = plan.trimmed(messages, digest, room)
    summed = count(max(start - digest.upto, 0), "message") if start > digest.upto else "nothing"
    so_far = f", beside a summary of {count(digest.upto, 'message')}" if digest.upto else ""
    beside = await compaction.keeps(turn.session)
    rows = [
        ("now", f"about {room.tokens(messages, digest):,} of {window:,} tokens{so_far}"),
        ("old results cut", f"about {room.tokens(messages, trim):,} tokens, without a model"),
        ("summed up", f"{summed}, {letters(messages[digest.upto : start]):,} letters"),
        ("as it was said", f"the first request, and the last {count(len(messages) - start, 'message')}"),
        ("kept beside", "; ".join(beside)),
    ]
    return f"{aligned(rows)}\nNothing was done. /compress does it; what was said is kept in any case."


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


MODES: dict[Busy, str] = {
    "interrupt": "ends it, and is answered next",
    "queue": "waits until it is over",
    "steer": "is taken in by it, at its next step",
}


async def stop(context: Context, _args: str) -> Reply:
    waiting = await context.store.sessions.unfinished(context.key)
    going = await _goes_on(context)
    if not waiting:
        return Reply(f"Nothing is running.{going}")
    first, *others = waiting
    found = "stop_command" if context.lobby.at_work(context.key) else "stop_command_handler"
    await context.lobby.post(context.key, Stop("user_stop", found, first.id))
    more = f" {count(len(others), 'message')} still waiting, and answered next." if others else ""
    return Reply(f"Stopping.{more}{going}")


async def _goes_on(context: Context) -> str:
    """What was detached on purpose, and is not ended by a stop."""
    standing = await context.store.sessions.standing(context.key)
    going = context.lobby.delegated.going(standing.session) if standing is not None else ""
    return f" Still at work {going}." if going else ""


async def new(context: Context, _args: str) -> Reply:
    left = await context.store.sessions.reset(context.key)
    if left is None:
        return Reply("This is a new conversation already.")
    await context.lobby.left(context.key, left, "new")
    return Reply(f"A new conversation.{_ended(left)}")


async def branch(context: Context, args: str) -> Reply:
    left = await context.store.sessions.branch(context.key, args)
    await context.lobby.left(context.key, left, "branch")
    return Reply(
        f"A branch: what you say from here on leaves the original as it is.{_ended(left)} "
        f"/resume {left.old[:ID]} goes back to it."
    )


async def resume(context: Context, args: str) -> Reply:
    if not args:
        return Reply("Which one? /resume NAME, with an id or a title; /sessions shows them.", trouble=True)
    wanted = await context.store.archive.resolve(args)
    standing = await context.store.sessions.standing(context.key)
    if standing is not None and standing.session == wanted.id:
        return Reply(f"{brief(wanted.title or wanted.id)} is this conversation.")
    left = await context.store.sessions.switch(context.inbound.address, wanted.id)
    await context.lobby.left(context.key, left, "resume")
    said = len(await context.store.archive.messages(wanted.id))
    what = f"{brief(wanted.title or wanted.id)}, {count(said, 'message')}"
    return Reply(f"Back in {what}.{_ended(left)}", action=Show(wanted.id))


def _ended(left: Left) -> str:
    """What leaving a conversation put an end to."""
    ended = ["what was running"] if left.living else []
    if left.dropped:
        ended.append(count(len(left.dropped), "message") + " that waited")
    return f" Ended: {' and '.join(ended)}." if ended else ""


async def undo(context: Context, args: str) -> Reply:
    number = _number(args)
    if number is None:
        return Reply(f"/undo takes a number of turns, such as /undo 2, not {brief(args, 20)}.", trouble=True)
    undone = await context.store.sessions.undo(context.key, number)
    for each in undone:
        if each.living:
            await context.lobby.post(context.key, Stop("user_stop", "session_interrupt", each.turn))
    if not undone:
        return Reply("There is nothing to undo.")
    said = ", ".join(brief(each.text, 40) for each in undone)
    return Reply(f"Undone: {said}. What was done outside of this conversation stays done.")


async def retry(context: Context, _args: str) -> Reply:
    retried = await context.store.sessions.retry(context.key)
    if retried is None:
        return Reply("There is nothing to ask again.")
    if retried.undone.living:
        await context.lobby.post(context.key, Stop("user_stop", "session_interrupt", retried.undone.turn))
    await context.lobby.wake(context.key)
    for turn in retried.steered:
        await context.lobby.post(context.key, Steer(turn))
    return Reply(f"Asking again: {brief(retried.undone.text)}", turns=(retried.turn, *retried.steered))


async def queue(context: Context, args: str) -> Reply:
    return await _submit(context, args, "queue")


async def steer(context: Context, args: str) -> Reply:
    return await _submit(context, args, "steer")


async def _submit(context: Context, text: str, mode: Busy) -> Reply:
    if not text and not context.inbound.attachments:
        return Reply(f"What shall be said? /{mode} TEXT.", trouble=True)
    at_work = bool(await context.store.sessions.unfinished(context.key))
    turn = await context.lobby.submit(structs.replace(context.inbound, text=text), mode)
    if turn is None:
        return Reply()  # a second copy: the first was answered for
    told = {"queue": "Queued.", "steer": "Passed on to what is running."}[mode] if at_work else ""
    return Reply(told, turns=(turn,))


async def busy(context: Context, args: str) -> Reply:
    standing = await context.store.sessions.standing(context.key)
    if not args:
        mode = (standing.busy if standing else "") or context.usual or context.lobby.habits.busy
        others = ", ".join(f"/busy {each}" for each in MODES if each != mode)
        return Reply(f"{mode}: what is said while something runs {MODES[mode]}. Others: {others}.")
    chosen: Busy | None = next((each for each in MODES if each == args.lower()), None)
    if chosen is None:
        meant = did_you_mean(args.lower(), MODES)
        return Reply(f"{brief(args, 20)} is none of {', '.join(MODES)}.{meant}", trouble=True)
    standing = standing or await context.store.sessions.open(context.inbound.address)
    await context.store.sessions.configure(standing.session, busy=chosen)
    return Reply(f"{chosen}: what is said while something runs {MODES[chosen]}.")


def _number(args: str) -> int | None:
    if not args:
        return 1
    return int(args) if args.isascii() and args.isdecimal() and 0 < len(args) < 7 and int(args) else None
