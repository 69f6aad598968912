"""`/rollback`: lists the checkpoints of the folder, shows what has changed since one, and restores it."""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from alipes.features.checkpoints.checkpoints import Checkpoints, ListedCheckpoint, RestorePlan, RestoreResult
from alipes.features.checkpoints.feature import CheckpointsFeature
from alipes.features.checkpoints.git import CheckpointError
from alipes.kernel.errors import SessionError
from alipes.kernel.formatting import format_ago, format_columns, format_count
from alipes.sessions.commands.context import CommandContext, CommandReply, parse_count
from alipes.sessions.commands.project import MAX_LINES
from alipes.sessions.commands.registry import Command

Part: TypeAlias = Literal["files", "conversation", "both"]
PARTS: tuple[Part, ...] = get_args(Part)
MAX_LISTED = 20
MAX_NAMED = 5
"""Files that are named in one line."""
MAX_CONFLICTS = 20
USAGE = "/rollback [diff N | N [files|conversation|both] [--force]]"
_HINT = "/rollback diff N shows the changes since, /rollback N [files|conversation|both] goes back."


class RollbackResult(Struct, frozen=True):
    """What was done."""

    files: RestoreResult | None = None
    undone: int = 0
    """Turns that were undone."""
    blocked: bool = False
    """Nothing was done, because of conflicts in `files.plan`."""


async def rollback(context: CommandContext, args: str) -> CommandReply:
    words = args.lower().split()
    force = "--force" in words
    words = [each for each in words if each != "--force"]
    if not words:
        return await _list(context)
    show_diff = words[0] == "diff"
    number = parse_count("".join(words[1:2]) if show_diff else words[0].removeprefix("#"), 99_999_999)
    part = next((each for each in PARTS if words[1:] == [each]), None) if words[1:] else "files"
    if number is None or (part is None and not show_diff):
        return CommandReply(f"Usage: {USAGE}", failed=True)
    if show_diff or part is None:
        return await _diff(context, number)
    result = await roll_back(context, number, part, force=force)
    return CommandReply(describe_result(result, number, part), failed=result.blocked)


def find_checkpoints(context: CommandContext) -> Checkpoints:
    """Raises `CheckpointError` if there are none of this folder, with the reason."""
    checkpoints = context.features.get(CheckpointsFeature).checkpoints
    if why := checkpoints.why_off(context.inbound.workdir):
        raise CheckpointError(f"No checkpoints: {why}.")
    return checkpoints


async def _list(context: CommandContext) -> CommandReply:
    found = await find_checkpoints(context).list_checkpoints(context.inbound.workdir)
    if not found:
        return CommandReply("No checkpoints yet: one is made before the first change of each turn.")
    session = await current_session(context)
    rows = [(f"{each.checkpoint.number:>4}", _describe(each, session)) for each in found[:MAX_LISTED]]
    more = [f"… {len(found) - MAX_LISTED} older ones"] if len(found) > MAX_LISTED else []
    return CommandReply("\n".join([format_columns(rows), *more, _HINT]))


def _describe(listed: ListedCheckpoint, session: str) -> str:
    record = listed.checkpoint.record
    other = " (another conversation)" if record.session != session and record.kind == "turn" else ""
    what = record.words if record.kind == "rollback" else f"“{record.words}”"
    return f"{format_ago(record.time)}, before {what}{other}: {name_files(listed.files)}"


async def _diff(context: CommandContext, number: int) -> CommandReply:
    text = await find_checkpoints(context).diff(context.inbound.workdir, number)
    if not text:
        return CommandReply(f"No changes since checkpoint {number}.")
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"… {len(lines) - MAX_LINES:,} more lines"]
    return CommandReply("\n".join(lines), diff=True)


async def roll_back(context: CommandContext, number: int, part: Part, *, force: bool = False) -> RollbackResult:
    """Go back to a checkpoint. Raises `CheckpointError` and `SessionError` if that is not possible now."""
    checkpoints, workdir, turns = find_checkpoints(context), context.inbound.workdir, 0
    if await context.sessions.unfinished(context.key):
        raise SessionError("A turn is running or queued. Stop it first (/stop).")
    if part != "files":
        checkpoint = await checkpoints.find(workdir, number)
        turns = await context.store.sessions.count_turns_since(context.key, checkpoint.record.turn)
        if not turns:
            raise CheckpointError(
                f"The turn of checkpoint {number} is not part of this conversation (any longer). /rollback {number} "
                "files restores its files."
            )
    restored: RestoreResult | None = None
    if part != "conversation":
        session = await current_session(context)
        restored = await checkpoints.restore(workdir, number, session=session, force=force)
        if restored.plan.conflicts and not force:
            return RollbackResult(restored, blocked=True)
    if turns:
        await context.store.sessions.undo(context.key, turns, all_or_none=True)
    return RollbackResult(restored, turns)


async def current_session(context: CommandContext) -> str:
    active = await context.store.sessions.active(context.key)
    return "" if active is None else active.session


def describe_result(result: RollbackResult, number: int, part: Part) -> str:
    """The result as sentences."""
    if result.blocked and result.files is not None:
        return _describe_conflicts(result.files.plan, number, part)
    said = _describe_files(result.files, number) if result.files is not None else []
    if result.undone:
        said.append(f"{format_count(result.undone, 'turn')} of the conversation undone. /redo brings it back.")
    return "\n".join(said)


def _describe_conflicts(plan: RestorePlan, number: int, part: Part) -> str:
    names = [f"  {_printable(each)}" for each in plan.conflicts[:MAX_CONFLICTS]]
    left = len(plan.conflicts) - len(names)
    lines = [
        "Nothing was restored. These files were changed since by hand, by a background process or by another "
        "conversation:",
        *names,
        *([f"  … {left} more"] if left else []),
        f"/rollback diff {number} shows the changes, /rollback {number} {part} --force restores anyway.",
    ]
    return "\n".join(lines)


def _describe_files(result: RestoreResult, number: int) -> list[str]:
    plan = result.plan
    if not result.undo:
        said = [f"The files are as they were at checkpoint {number}."]
    else:
        said = [f"Restored {name_files([each.path for each in plan.write])}."] if plan.write else []
        said += [f"Removed {name_files(plan.remove)}."] if plan.remove else []
        said.append(f"/rollback {result.undo} undoes this.")
    if plan.kept:
        said.append(f"Left as they are, because they are not part of the checkpoint: {name_files(plan.kept)}.")
    return [*said, *(f"Failed: {_printable(each)}" for each in result.failed)]


def name_files(paths: Sequence[str]) -> str:
    """Such as `a.py, b.py and 3 more`."""
    shown = MAX_NAMED if len(paths) > MAX_NAMED + 1 else len(paths)
    named = ", ".join(map(_printable, paths[:shown]))
    return named + (f" and {len(paths) - shown} more" if len(paths) > shown else "")


def _printable(path: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", "?", path).encode(errors="replace").decode()


COMMANDS = (
    Command(
        "rollback",
        "[diff N | N [files|conversation|both] [--force]]",
        "list checkpoints of this folder; show the changes since one, or go back to it",
        rollback,
        group="Project",
        place=3,
        run_once=True,
        changes_transcript=True,
        owners_only=True,
    ),
)
