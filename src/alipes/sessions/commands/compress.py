"""`/compress`: sum up what was said before, now; or show what that would do. What is said stays."""

from alipes.agent import compact_plan
from alipes.agent.compact_plan import Room
from alipes.agent.compact_view import letters
from alipes.agent.compaction import Compaction, Job
from alipes.kernel.errors import AlipesError
from alipes.kernel.turns import Turn
from alipes.kernel.wording import aligned, count
from alipes.sessions.commands.context import Context, Reply

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
    room = compact_plan.snug(messages, digest, room)
    start = compact_plan.tail(messages, room)
    trim = compact_plan.trimmed(messages, digest, room)
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
