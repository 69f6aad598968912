"""Going back to a message: a list of the conversation's messages, then what to restore."""

from collections.abc import Awaitable, Callable, Sequence

from alipes.cli.terminal.pickers.picker import Picker, PickerItem
from alipes.cli.terminal.terminal import TerminalApp
from alipes.core.app import App
from alipes.features.checkpoints.checkpoints import ListedCheckpoint
from alipes.features.checkpoints.commands import name_files
from alipes.features.checkpoints.feature import CheckpointsFeature
from alipes.features.checkpoints.git import CheckpointError
from alipes.kernel.attachments import collapse_attachments
from alipes.kernel.conversations import UndoneTurn
from alipes.kernel.formatting import format_count, format_excerpt
from alipes.kernel.turns import Inbound
from alipes.sessions.commands.context import CommandReply

RunCommand = Callable[[str, Inbound], Awaitable[CommandReply]]
BOTH, CONVERSATION, FILES = "both", "conversation", "files"


async def rewind(terminal: TerminalApp, app: App, inbound: Inbound, run: RunCommand) -> None:
    """Let the user choose a message and what to restore; `/rollback` and `/rewind` do it."""
    turns = await app.store.sessions.list_turns(inbound.address.key)
    if not turns:
        terminal.hint("There is no message to go back to")
        return
    items = [_item(number, turn) for number, turn in enumerate(turns, 1)]
    chosen = await terminal.pick(Picker("Go back to before a message", items))
    if chosen is None:
        return
    count = int(chosen.value)
    checkpoints = await _list_checkpoints(app, inbound.workdir, turns[:count])
    part = CONVERSATION
    if checkpoints:
        picked = await terminal.pick(Picker(f"Before {format_excerpt(chosen.label, 40)}", _parts(count, checkpoints)))
        if picked is None:
            return
        part = picked.value
    if part != CONVERSATION:
        reply = await run(f"/rollback {checkpoints[-1].checkpoint.number} files", inbound)
        if reply.failed:
            return
    if part != FILES:
        await run(f"/rewind {count}", inbound)


def _item(number: int, turn: UndoneTurn) -> PickerItem:
    return PickerItem(str(number), collapse_attachments(turn.text).strip() or "(no text)")


def _parts(turns: int, checkpoints: Sequence[ListedCheckpoint]) -> list[PickerItem]:
    files = name_files(list(dict.fromkeys(path for each in checkpoints for path in each.files)))
    count = format_count(turns, "turn")
    return [
        PickerItem(BOTH, "Conversation and files", f"undo {count}; restore {files}"),
        PickerItem(CONVERSATION, "Conversation only", f"undo {count}; files stay"),
        PickerItem(FILES, "Files only", f"restore {files}"),
    ]


async def _list_checkpoints(app: App, workdir: str, turns: Sequence[UndoneTurn]) -> list[ListedCheckpoint]:
    """Those that these turns made before they changed files, latest first; none if checkpoints are off."""
    made = {turn.turn for turn in turns}
    feature = app.features.find(CheckpointsFeature)
    if feature is None:
        return []
    try:
        found = await feature.checkpoints.list_checkpoints(workdir)
    except CheckpointError:
        return []
    return [each for each in found if each.checkpoint.record.turn in made]
