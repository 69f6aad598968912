"""`/approvals`: lists open questions and rights in force, shows one, and revokes rights."""

import msgspec

from alipes.kernel.approvals import NETWORK, describe_call, reveal
from alipes.kernel.formatting import format_ago, format_columns, format_count, format_excerpt
from alipes.kernel.messages import ToolCall
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.store.approvals import Approval, SqliteApprovals

NONE = "No approvals: nothing is waiting, and nothing is allowed beyond a single yes."
STILL_OPEN = "That question is still open: answer it in its conversation."
NOT_IN_FORCE = "That approval is not in force."
_USAGE = "Usage: /approvals [show ID | revoke ID | revoke all]"


async def approvals(context: CommandContext, args: str) -> CommandReply:
    store = context.store.approvals
    match args.split():
        case [] | ["list"]:
            shown = [each for each in await store.list_current() if _is_visible(context, each)]
            lines = [f"{each.id[:6]}  {each.state:7}  {summarize(each)}\n    {describe_origin(each)}" for each in shown]
            return CommandReply("\n".join([*lines, "/approvals revoke ID ends one."] if lines else [NONE]))
        case ["show", id]:
            return CommandReply(describe(await _find(context, id)))
        case ["revoke", "all" | "--all"] if _sees_all(context):
            return CommandReply(f"Revoked {format_count(await store.revoke_all(), 'approval')}.")
        case ["revoke", "all" | "--all"]:
            return CommandReply("All approvals can only be revoked in a direct chat.", failed=True)
        case ["revoke", id]:
            problem = await revoke(store, approval := await _find(context, id))
            return CommandReply(problem or f"Revoked: {summarize(approval)}", failed=bool(problem))
    return CommandReply(_USAGE, failed=True)


async def _find(context: CommandContext, id: str) -> Approval:
    """Raises `SessionError`, also for one that must not be shown here."""
    found = await context.store.approvals.find(id)
    return found if _is_visible(context, found) else await context.store.approvals.find("")


def _is_visible(context: CommandContext, approval: Approval) -> bool:
    return _sees_all(context) or approval.key == context.key


def _sees_all(context: CommandContext) -> bool:
    """Only on this machine or in a direct chat: others must not read commands of other conversations."""
    return context.local_files or context.inbound.address.chat_type == "dm"


async def revoke(store: SqliteApprovals, approval: Approval) -> str:
    """End the right; returns why that is not possible, if it is not."""
    if approval.choice is None:
        return STILL_OPEN
    return "" if await store.revoke(approval) else NOT_IN_FORCE


def summarize(approval: Approval) -> str:
    """What it is about, on one line."""
    if not approval.tool or approval.tool == NETWORK:
        return format_excerpt(reveal(approval.rule), 100)[1:-1]
    return format_excerpt(f"{approval.tool}: {_call_text(approval)}", 100)[1:-1]


def describe_origin(approval: Approval) -> str:
    """Who answered, when, and where it was asked."""
    where = approval.key.removeprefix("agent:main:") or "an older release"
    if approval.answered_at is None:
        return f"asked {format_ago(approval.asked_at)} in {where}"
    who = f" by {approval.answered_by}" if approval.answered_by else ""
    revoked = f", revoked {format_ago(approval.revoked_at)}" if approval.revoked_at else ""
    return f"answered {format_ago(approval.answered_at)}{who} in {where}{revoked}"


def describe(approval: Approval) -> str:
    """All of it: what was asked, and exactly what it allows."""
    rows = [
        ("id", approval.id),
        ("state", approval.state),
        ("origin", describe_origin(approval)),
        ("session", approval.session),
        ("why", reveal(approval.reason)),
        ("allows", reveal(approval.rule) if approval.state in ("session", "always") else ""),
    ]
    call = _call_text(approval) if approval.tool else ""
    return format_columns(rows) + (f"\n\n{approval.tool}: {call}" if call else "")


def _call_text(approval: Approval) -> str:
    call = ToolCall("", approval.tool, msgspec.json.decode(approval.arguments))
    return describe_call(call, approval.workdir).text
