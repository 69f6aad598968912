"""Shows a whole conversation of the store: messages, calls, decisions and failures, in the order they happened."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from alipes.cli.terminal.transcript.transcript_view import TranscriptView
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.kernel.turns import Said, TurnEnded, TurnStarted
from alipes.sessions.commands.approvals import to_events
from alipes.store.sql.approvals import Approval
from alipes.store.sql.store import Store
from alipes.store.sql.transcript import PageQuery, TranscriptMessage, TranscriptTurn

PAGE_MESSAGES = 100
SLICE_MESSAGES = 10
"""Messages that are drawn before keys are read again."""


async def replay(
    store: Store, session: str, view: TranscriptView, paint: Callable[[], None], *, following: Collection[str]
) -> None:
    """Add the turns of the conversation that have ended, except those in `following`, whose events are shown.

    `paint` is called after a few messages each.
    """
    painter = _Replay(view, await store.approvals.list_decided(session))
    after, more = -1, True
    while more:
        page = await store.transcripts.page(session, PageQuery(PAGE_MESSAGES, after=after))
        for count, each in enumerate(page.messages, 1):
            turn = page.turns[each.turn]
            if turn.ending is not None and turn.id not in following:
                painter.show(each, turn)
            if count % SLICE_MESSAGES == 0:
                paint()
                await asyncio.sleep(0)
        after, more = page.messages[-1].number if page.messages else after, page.more_after
    painter.end_turn()
    paint()


class _Replay:
    """Turns stored messages into the events that they were."""

    def __init__(self, view: TranscriptView, approvals: Collection[Approval]) -> None:
        self._view = view
        self._turn: TranscriptTurn | None = None
        self._calls: dict[str, ToolCall] = {}
        self._decisions: dict[str, list[Approval]] = {}
        """By turn, those that were not shown yet."""
        for each in approvals:
            self._decisions.setdefault(each.turn, []).append(each)

    def show(self, stored: TranscriptMessage, turn: TranscriptTurn) -> None:
        if self._turn is None or self._turn.id != turn.id:
            self.end_turn()
            self._begin_turn(turn)
        message = stored.message
        if message.role != "tool":
            self._show_decisions(lambda each: each.asked_at < stored.created)
        self._calls.update((call.id, call) for call in message.calls)
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in self._calls:
                    self._show_decisions(partial(_is_about, self._calls[part.call_id]))
                self._view.handle_event(Said(Message("tool", (part,))))
        elif message.role == "user" and stored.message != turn.inbound.message:
            self._view.add_user_message(message.text)
        elif message.role == "assistant":
            self._view.handle_event(Said(message))

    def end_turn(self) -> None:
        if (turn := self._turn) is not None:
            self._show_decisions(lambda _each: True)
            self._view.handle_event(TurnEnded(turn.id, turn.ending or "answered", turn.detail))
        self._turn = None

    def _begin_turn(self, turn: TranscriptTurn) -> None:
        self._turn = turn
        self._calls.clear()
        text = "" if turn.inbound.notice else turn.inbound.text
        self._view.handle_event(TurnStarted(turn.id, "", text=text))
        if turn.inbound.notice:
            self._view.add_note(format_excerpt(turn.inbound.text.partition("\n")[0], 200)[1:-1])

    def _show_decisions(self, fits: Callable[[Approval], bool]) -> None:
        """Show what was decided in this turn, each once."""
        left = self._decisions.get(self._turn.id, []) if self._turn else []
        for approval in [each for each in left if fits(each)]:
            left.remove(approval)
            self._view.add_decision(*to_events(approval))


def _is_about(call: ToolCall, approval: Approval) -> bool:
    """False also if a secret was masked in its arguments, and for a connection that a call opened."""
    return approval.tool == call.name and bool(msgspec.json.decode(approval.arguments) == call.args)
