"""Connects the memory to turns: the tool, the question before a change, what people are shown, and proposals.

A conversation that has read untrusted text changes no note by itself: a person confirms it, or it waits as a
proposal. Where everything was approved in advance, the note says what had been read.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import structs

from alipes.features.memory.change import MemoryChange, MemoryEdit, MemoryOrigin, MemoryTarget, memory_scope, parse_edit
from alipes.features.memory.files import FILE_NAMES
from alipes.features.memory.memory import Memory, describe_change
from alipes.features.memory.recall import MemoryRecall
from alipes.kernel.approvals import MEMORY, is_message_source
from alipes.kernel.conversations import ApprovalDecision, denial_reason
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import join_names
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import ToolContext
from alipes.kernel.turns import PermissionMode, Turn
from alipes.kernel.untrusted import to_label
from alipes.plugins.dispatch import Hook
from alipes.plugins.specs import Verdict
from alipes.store.sql.proposals import Proposal, ProposalStore

NOBODY_HERE = "memory is not available here"
_SHOWN_SOURCES = 2
_edit_decoder = msgspec.json.Decoder(MemoryEdit)


class ConcernedPeople(Protocol):
    """The people for whom turns change notes."""

    async def mode(self, turn: Turn) -> PermissionMode:
        """What the turn may do without asking."""

    async def ask(self, call: ToolCall, reason: str, turn: Turn, diff: str) -> ApprovalDecision:
        """Their decision on a change; None if nobody can be asked."""

    async def announce(self, turn: Turn, change: MemoryChange) -> None:
        """Show them a change."""

    async def nudge(self, turn: Turn, text: str, id: str) -> None:
        """Show them a quiet line; `id` makes a second copy harmless."""


class KnowsSources(Protocol):
    """The part of `UntrustedSourceStore` that is needed here."""

    async def list_read(self, turn: Turn) -> Mapping[str, str]: ...


class MemoryService:
    """What turns and commands use of the memory."""

    def __init__(
        self,
        memory: Memory,
        recall: MemoryRecall,
        people: ConcernedPeople,
        *,
        proposals: ProposalStore,
        sources: KnowsSources,
    ) -> None:
        self.memory, self.recall, self.proposals = memory, recall, proposals
        self.people, self._sources = people, sources
        self._unconfirmed: dict[tuple[str, str], tuple[str, ...]] = {}
        """By turn and call: the untrusted text that was read, if no person confirmed the change."""

    def why_unavailable(self) -> str:
        return "" if self.memory.config.enabled else "The memory is off: set memory.enabled = true."

    async def snapshot(self, turn: Turn) -> str:
        """The section of the system prompt."""
        return await self.memory.snapshot(turn, self.recall.prompt_block)

    async def describe(self, act: ToolContext, target: MemoryTarget) -> str:
        return await self.memory.describe(_scope(act.turn), target)

    async def change(self, act: ToolContext, edit: MemoryEdit) -> str:
        """Called by the tool."""
        turn, scope = act.turn, _scope(act.turn)
        sources = self._unconfirmed.pop((turn.id, act.call_id), ())
        if sources and edit.action != "remove":
            edit = structs.replace(edit, content=f"{edit.content} [noted after reading {_join(sources)}]")
        origin = MemoryOrigin("agent", turn.session, turn.id, sources)
        change = await self.memory.change(scope, edit, origin)
        await self.people.announce(turn, change)
        await self.recall.note_changed(turn, edit, change)
        size = f"{len(change.after):,} of {self.memory.limit(edit.target):,} characters"
        return f"Saved in {FILE_NAMES[edit.target]} ({size}). Later conversations see it."

    async def before_tool(self, call: ToolCall, turn: Turn) -> Verdict | None:
        """The hook that asks before a change, if that is needed."""
        scope, edit = memory_scope(turn.inbound), parse_edit(call.args) if call.name == MEMORY else None
        if edit is None:
            return None
        if scope is None:
            return Verdict("deny", NOBODY_HERE)
        sources = await self.untrusted_sources(turn)
        if not sources and not self.memory.config.ask:
            return None
        if await self.people.mode(turn) == "all":
            if sources:
                self._unconfirmed[turn.id, call.id] = sources
            return None
        try:
            diff = await self.memory.preview(scope, edit)
        except ToolError:
            return None  # the tool reports it
        why = f"this conversation has read {_join(sources)}" if sources else "it changes what later conversations see"
        decision = await self.people.ask(call, why, turn, diff)
        if decision is None:
            return Verdict("deny", await self._propose(scope, edit, turn, sources))
        reason = denial_reason(decision)
        return Verdict("deny", f"Not saved: {reason}. Do not save it in another way.") if reason else None

    def hooks(self) -> tuple[Hook, ...]:
        """All hooks to register."""
        return self.before_tool, self.turn_ended, self.recall.turn_context, self.recall.turn_ended

    async def turn_ended(self, turn: Turn) -> None:
        """A hook: forget what was never carried out."""
        for key in [each for each in self._unconfirmed if each[0] == turn.id]:
            del self._unconfirmed[key]

    async def untrusted_sources(self, turn: Turn) -> tuple[str, ...]:
        """The untrusted text that the conversation has read. A person's own messages are no reason to distrust notes
        that only this person sees, nor those of a group's members in the group."""
        return tuple(
            label for source, label in (await self._sources.list_read(turn)).items() if not is_message_source(source)
        )

    async def accept(
        self, proposal: Proposal, edit: MemoryEdit, origin: MemoryOrigin, *, by: str = "person"
    ) -> MemoryChange | None:
        """Carry out a proposal that was accepted; None if it was decided before. Raises `ToolError`; then it is still
        pending."""
        origin = structs.replace(origin, session=proposal.session, turn=proposal.turn)
        await self.memory.preview(proposal.scope, edit)
        if not await self.proposals.decide(proposal.id, "accepted", by):
            return None
        return await self.memory.change(proposal.scope, edit, origin)

    async def _propose(self, scope: str, edit: MemoryEdit, turn: Turn, sources: tuple[str, ...]) -> str:
        reason = f"the conversation had read {_join(sources)}" if sources else "nobody could be asked"
        change = msgspec.json.encode(edit).decode()
        proposal = Proposal("", "memory", scope, change, reason, turn.session, turn.id, sources)
        stored = await self.proposals.add(proposal)
        return (
            f"Not saved yet: nobody can confirm it now ({reason}). It waits as proposal {stored.id}; "
            "tell the user that `/memory pending` shows it. Do not save it in another way."
        )


def decode_edit(proposal: Proposal) -> MemoryEdit:
    return _edit_decoder.decode(proposal.change)


def format_announcement(change: MemoryChange) -> str:
    """What the person is shown."""
    return f"Memory: {describe_change(change)}. /memory undo takes it back."


def _scope(turn: Turn) -> str:
    scope = memory_scope(turn.inbound)
    if scope is None:
        raise ToolError(NOBODY_HERE)
    return scope


def _join(sources: tuple[str, ...]) -> str:
    labels = [to_label(each) for each in dict.fromkeys(sources)]
    shown = labels if len(labels) <= _SHOWN_SOURCES else [*labels[: _SHOWN_SOURCES - 1], "other untrusted text"]
    return join_names(shown)
