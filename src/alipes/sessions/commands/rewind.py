"""Commands that go back in a conversation and forward again: undo, redo, rewind, continue."""

from msgspec import structs

from alipes.kernel.attachments import without_attachments
from alipes.kernel.conversations import UndoneTurn
from alipes.kernel.formatting import format_count, format_excerpt
from alipes.kernel.turns import Stop
from alipes.sessions.commands import conversation
from alipes.sessions.commands.context import CommandContext, CommandReply, PutText, parse_count

CONTINUE = "Continue where you stopped."
"""The message that `/continue` sends."""
_WAYS_BACK = "/redo brings it back, /rollback reverts files."


async def undo(context: CommandContext, args: str) -> CommandReply:
    undone = await _undo(context, "undo", args)
    if isinstance(undone, CommandReply):
        return undone
    said = ", ".join(format_excerpt(each.text, 40) for each in undone)
    return CommandReply(f"Undone: {said}. {_WAYS_BACK}")


async def rewind(context: CommandContext, args: str) -> CommandReply:
    """Undo, and put the message back into the input."""
    undone = await _undo(context, "rewind", args)
    if isinstance(undone, CommandReply):
        return undone
    count = f"{format_count(len(undone), 'turn')} undone" if len(undone) > 1 else "Turn undone"
    text = f"{count}. Edit the message and send it again; {_WAYS_BACK}"
    return CommandReply(text, action=PutText(without_attachments(undone[-1].text)))


async def _undo(context: CommandContext, name: str, args: str) -> tuple[UndoneTurn, ...] | CommandReply:
    number = parse_count(args or "1", 999_999)
    if number is None:
        wrong = f"/{name} takes a number of turns, such as /{name} 2; got {format_excerpt(args, 20)}."
        return CommandReply(wrong, failed=True)
    undone = await context.store.sessions.undo(context.key, number, all_or_none=True)
    for each in undone:
        if each.running:
            await context.sessions.stop(context.key, Stop("user_stop", "session_interrupt", each.turn))
    return undone or CommandReply("Nothing to undo.")


async def redo(context: CommandContext, _args: str) -> CommandReply:
    restored = await context.store.sessions.redo(context.key)
    if not restored:
        return CommandReply("Nothing to redo.")
    return CommandReply(f"Restored: {', '.join(format_excerpt(each, 40) for each in restored)}.")


async def continue_turn(context: CommandContext, args: str) -> CommandReply:
    """Go on with a turn that was cut off: what was done so far stays. With a name, the same as `/resume`."""
    if args:
        return await conversation.resume(context, args)
    if await context.sessions.unfinished(context.key):
        return CommandReply("A turn is running or queued already. /status shows it.")
    ending = await context.store.sessions.last_ending(context.key)
    if ending not in ("stopped", "failed", "out_of_steps", "gave_up"):
        return CommandReply("Nothing to continue: no turn was stopped or failed. /resume NAME opens a conversation.")
    turn = await context.sessions.submit(structs.replace(context.inbound, text=CONTINUE), usual=context.default_busy)
    return CommandReply(turns=() if turn is None else (turn,))
