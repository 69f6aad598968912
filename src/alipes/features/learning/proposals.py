"""`/skills pending`: proposals for skills that wait for a person: shows, accepts, edits and rejects them.

`alipes skills pending` does the same in a shell.
"""

from alipes.features.learning.feature import PENDING_HINT, LearningFeature
from alipes.features.learning.learning import Learning, decode_skill
from alipes.features.memory.change import OWNER, memory_scope
from alipes.kernel.approvals import reveal
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_ago, format_count, join_names
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.store.sql.proposals import Proposal

USAGE = f"Usage: /skills pending {PENDING_HINT}"
NONE = "No proposals are waiting."
OWNERS_ONLY = "Skills are proposed to owners only."
DECIDED = "That proposal was decided already."


async def pending(context: CommandContext, args: str) -> CommandReply:
    learning, words = context.features.get(LearningFeature).learning, args.split(maxsplit=2)
    if memory_scope(context.inbound) != OWNER:
        return CommandReply(OWNERS_ONLY, failed=True)
    match words:
        case []:
            return await list_proposals(learning, USAGE)
        case [id] | ["show", id]:
            return await show_proposal(learning, id)
        case ["accept", id]:
            return await accept_proposal(learning, id)
        case ["edit", id, text]:
            return await edit_proposal(learning, id, text)
        case ["reject", id]:
            return await reject_proposal(learning, id)
    return CommandReply(USAGE, failed=True)


async def list_proposals(learning: Learning, usage: str) -> CommandReply:
    waiting = await learning.memory.proposals.list_pending(OWNER)
    skills = [each for each in waiting if each.kind == "skill"]
    notes = len(waiting) - len(skills)
    lines = [f"{each.id}  {_title(each)}\n    {_origin(each)}" for each in skills]
    lines += [f"{format_count(notes, 'note')} waiting: /memory pending"] if notes else []
    return CommandReply("\n".join([*lines, usage] if lines else [NONE]))


async def show_proposal(learning: Learning, id: str) -> CommandReply:
    """Its reason, its origin and its diff. Raises `SessionError` and `ToolError`, as do all of these."""
    proposal = await find_skill_proposal(learning, id)
    head = f"{proposal.id}  {_title(proposal)}\n{_origin(proposal)}\n"
    try:
        diff = await learning.diff(proposal)
    except ToolError as error:
        return CommandReply(f"{head}{error}", failed=True)
    return CommandReply(f"{head}\n{reveal(diff)}", diff=True)


async def accept_proposal(learning: Learning, id: str) -> CommandReply:
    done = await learning.accept(await find_skill_proposal(learning, id))
    return CommandReply(f"Accepted: {done}. /skills history shows its versions.")


async def edit_proposal(learning: Learning, id: str, text: str) -> CommandReply:
    proposal = await find_skill_proposal(learning, id)
    await learning.replace_text(proposal, text)
    return await show_proposal(learning, proposal.id)


async def reject_proposal(learning: Learning, id: str) -> CommandReply:
    proposal = await find_skill_proposal(learning, id)
    decided = await learning.memory.proposals.decide(proposal.id, "rejected", "person")
    return CommandReply("Rejected; nothing was changed." if decided else DECIDED, failed=not decided)


async def find_skill_proposal(learning: Learning, id: str) -> Proposal:
    """The pending proposal for a skill. Raises `SessionError`, and `ToolError` if it is one for a note."""
    found = await learning.memory.proposals.find_pending(OWNER, id)
    if found.kind != "skill":
        raise ToolError("That is a proposal for a note: see /memory pending, or `alipes memory pending`.")
    return found


def _title(proposal: Proposal) -> str:
    skill = decode_skill(proposal)
    return f"{'change' if skill.base else 'new'} skill {skill.name}"


def _origin(proposal: Proposal) -> str:
    """Why, and from where; what untrusted text may have caused says so."""
    read = f"; the conversation had read {join_names(proposal.sources[:3])}" if proposal.sources else ""
    where = f"conversation {proposal.session[:6]}, turn {proposal.turn[:6]}, {format_ago(proposal.created)}"
    return reveal(f"{proposal.reason or 'no reason given'}; {where}{read}")
