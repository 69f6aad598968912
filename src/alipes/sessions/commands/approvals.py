"""`/approvals`, `/permissions` and `/mode`: what is allowed without asking; lists, adds and revokes it."""

import os
import time
from collections.abc import Mapping

import msgspec

from alipes.agent.approval.patterns import find_problem
from alipes.kernel.approvals import FILE_ACCESS, NETWORK, OUTSIDE, describe_call, reveal
from alipes.kernel.formatting import did_you_mean, format_ago, format_columns, format_count, format_excerpt
from alipes.kernel.messages import ToolCall
from alipes.kernel.tool_labels import describe_tool
from alipes.kernel.turns import ApprovalAnswered, ApprovalAsked, PermissionMode
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.permissions import MODES, parse_mode
from alipes.store.sql.approvals import Approval, ApprovalStore

NONE = "No approvals: nothing is waiting, and nothing is allowed beyond a single yes."
STILL_OPEN = "That question is still open: answer it in its conversation."
NOT_IN_FORCE = "That approval is not in force."
_PERMISSIONS_USAGE = "Usage: /permissions [add PATTERN | revoke ID | mode NAME]"
_USAGE = "Usage: /approvals [show ID | revoke ID | revoke all]"


async def approvals(context: CommandContext, args: str) -> CommandReply:
    store = context.store.approvals
    match args.split():
        case [] | ["list"]:
            shown = [each for each in await store.list_current() if _is_visible(context, each)]
            titles = await store.titles(shown)
            lines = await _list_by_place(context, shown, titles, origin=True)
            return CommandReply("\n".join([*lines, "/approvals revoke ID ends one."] if lines else [NONE]))
        case ["show", id]:
            found = await _find(context, id)
            return CommandReply(describe(found, await store.titles((found,))))
        case ["revoke", "all" | "--all"] if _sees_all(context):
            return CommandReply(f"Revoked {format_count(await store.revoke_all(), 'approval')}.")
        case ["revoke", "all" | "--all"]:
            return CommandReply("All approvals can only be revoked in a direct chat.", failed=True)
        case ["revoke", id]:
            problem = await revoke(store, approval := await _find(context, id))
            return CommandReply(problem or f"Revoked: {summarize(approval)}", failed=bool(problem))
    return CommandReply(_USAGE, failed=True)


async def mode(context: CommandContext, args: str) -> CommandReply:
    permissions = context.sessions.permissions
    if not args:
        now = await permissions.of_key(context.key)
        return CommandReply(_describe_modes(now))
    if (chosen := parse_mode(args)) is None:
        meant = did_you_mean(args.lower(), MODES)
        problem = f"{format_excerpt(args, 20)} is not a mode. Use {', '.join(MODES)}.{meant}"
        return CommandReply(problem, failed=True)
    if chosen == "all" and context.inbound.untrusted:
        return CommandReply("Only an owner can choose this mode.", failed=True)
    await permissions.choose(context.inbound.address, chosen)
    return CommandReply(f"Permission mode {chosen}: {MODES[chosen]}.")


def _describe_modes(now: PermissionMode) -> str:
    rows = [("* " if each == now else "  ") + f"{each:5}  {meaning}" for each, meaning in MODES.items()]
    return "\n".join([f"Permission mode: {now}", *rows, "/mode NAME switches."])


async def permissions(context: CommandContext, args: str) -> CommandReply:
    action, _, rest = args.partition(" ")
    rest = rest.strip()
    match action:
        case "" | "list":
            return await _list_permissions(context)
        case "add" if rest:
            return await _add_pattern(context, rest)
        case "revoke" if rest:
            return await approvals(context, f"revoke {rest}")
        case "mode":
            return await mode(context, rest)
    return CommandReply(_PERMISSIONS_USAGE, failed=True)


async def _list_permissions(context: CommandContext) -> CommandReply:
    now, store = await context.sessions.permissions.of_key(context.key), context.store.approvals
    current = [each for each in await store.list_current() if _is_visible(context, each) and each.choice is not None]
    lines = await _list_by_place(context, current, await store.titles(current))
    if not lines or lines[0].endswith(":"):  # all that is listed holds elsewhere
        lines.insert(0, "  nothing beyond the mode")
    return CommandReply("\n".join([_describe_modes(now), "", "Allowed without asking:", *lines, _PERMISSIONS_USAGE]))


async def _list_by_place(
    context: CommandContext, approvals: list[Approval], titles: Mapping[str, str], *, origin: bool = False
) -> list[str]:
    """What is open or holds here, then what holds in another conversation or folder, under its name."""
    active = await context.store.sessions.active(context.key)
    places: dict[str, list[str]] = {"": []}
    for each in approvals:
        place = _place_of(each, titles, "" if active is None else active.session, context.inbound.workdir)
        row = f"  {each.id[:6]}  {each.state:7} {summarize(each)}"
        places.setdefault(place, []).append(f"{row}\n      {describe_origin(each, titles)}" if origin else row)
    return [line for place, rows in places.items() for line in ([f"{place}:", *rows] if place else rows)]


def _place_of(approval: Approval, titles: Mapping[str, str], session: str, workdir: str) -> str:
    """Where the right holds, if not here; a question is open in its conversation."""
    if approval.choice != "always" and approval.session != session:
        return f"Only in {_describe_conversation(approval, titles)}"
    if approval.choice == "always" and approval.workdir not in ("", workdir):
        return f"Only in {_short_path(approval.workdir)}"
    return ""


async def _add_pattern(context: CommandContext, pattern: str) -> CommandReply:
    workdir = context.inbound.workdir
    if problem := find_problem(pattern):
        return CommandReply(problem, failed=True)
    now = time.time()
    standing = await context.store.sessions.open(context.inbound.address)
    approval = Approval(
        id=os.urandom(6).hex(),
        session=standing.session,
        key=context.key,
        turn="",
        tool="terminal",
        arguments=msgspec.json.encode({"command": pattern}).decode(),
        workdir=workdir,
        reason="added by hand",
        rule=f"pattern {pattern} in {workdir}",
        asked_at=now,
        answered_by=context.inbound.sender,
        pattern=pattern,
    )
    await context.store.approvals.allow_pattern(approval)
    where = f" in {workdir}" if workdir else ""
    return CommandReply(f"Allowed without asking{where}: {pattern}")


def to_events(approval: Approval) -> tuple[ApprovalAsked, ApprovalAnswered]:
    """The question and its answer, as they were when it was decided."""
    call = ToolCall("", approval.tool, msgspec.json.decode(approval.arguments))
    asked = ApprovalAsked(approval.id, call, approval.reason, approval.rule, approval.workdir)
    choice = approval.choice or "no"
    return asked, ApprovalAnswered(approval.id, choice, approval.answered_by, approval.pattern, approval.note)


async def _find(context: CommandContext, id: str) -> Approval:
    """Raises `SessionError`, also for one that must not be shown here."""
    found = await context.store.approvals.find(id)
    return found if _is_visible(context, found) else await context.store.approvals.find("")


def _is_visible(context: CommandContext, approval: Approval) -> bool:
    return _sees_all(context) or approval.key == context.key


def _sees_all(context: CommandContext) -> bool:
    """Only on this machine or in a direct chat: others must not read commands of other conversations."""
    return context.local_files or context.inbound.address.chat_type == "dm"


async def revoke(store: ApprovalStore, approval: Approval) -> str:
    """End the right; returns why that is not possible, if it is not."""
    if approval.choice is None:
        return STILL_OPEN
    return "" if await store.revoke(approval) else NOT_IN_FORCE


def summarize(approval: Approval) -> str:
    """What it is about, on one line."""
    where = f"  (in {_short_path(approval.workdir)})" if approval.workdir else ""
    if approval.pattern:
        return f"{reveal(approval.pattern)}{where}"
    if not approval.tool or approval.tool in (FILE_ACCESS, NETWORK):
        return format_excerpt(reveal(approval.rule), 100)[1:-1]
    call = ToolCall("", approval.tool, msgspec.json.decode(approval.arguments))
    command = call.args.get("command") if approval.tool == "terminal" else None
    text = describe_tool(call).text if command is None else str(command)
    outside = f", {OUTSIDE}" if call.args.get("outside") is True and command is not None else ""
    return f"{format_excerpt(reveal(text), 100)[1:-1]}{outside}{where}"


def describe_origin(approval: Approval, titles: Mapping[str, str]) -> str:
    """When it was answered, by whom, and in which conversation."""
    where = f"in {_describe_conversation(approval, titles)}"
    if approval.answered_at is None:
        return f"asked {format_ago(approval.asked_at)}, {where}"
    who = f" by {approval.answered_by}" if approval.answered_by not in ("", "terminal") else ""
    revoked = f", revoked {format_ago(approval.revoked_at)}" if approval.revoked_at else ""
    return f"{format_ago(approval.answered_at)}{who}, {where}{revoked}"


def _describe_conversation(approval: Approval, titles: Mapping[str, str]) -> str:
    title = titles.get(approval.session, "")
    return f'"{reveal(title)}"' if title else approval.key.removeprefix("agent:main:") or "an older release"


def _short_path(path: str) -> str:
    home = os.path.expanduser("~")
    short = f"~{path[len(home) :]}" if home != "/" and (path == home or path.startswith(f"{home}/")) else path
    return reveal(short)


def describe(approval: Approval, titles: Mapping[str, str]) -> str:
    """All of it: what was asked, and exactly what it allows."""
    rows = [
        ("id", approval.id),
        ("state", approval.state),
        ("origin", describe_origin(approval, titles)),
        ("session", approval.session),
        ("why", reveal(approval.reason)),
        ("allows", _describe_right(approval)),
        ("answer", reveal(approval.note)),
    ]
    call = _call_text(approval) if approval.tool else ""
    return format_columns(rows) + (f"\n\n{approval.tool}: {call}" if call else "")


def _describe_right(approval: Approval) -> str:
    if approval.state not in ("session", "always"):
        return ""
    return f"commands like {summarize(approval)}" if approval.pattern else reveal(approval.rule)


def _call_text(approval: Approval) -> str:
    call = ToolCall("", approval.tool, msgspec.json.decode(approval.arguments))
    shown = describe_call(call, approval.workdir)
    return "\n".join(filter(None, (shown.text, shown.more)))
