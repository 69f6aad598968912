"""Fits the requests of a running turn into the context window, compacting if needed."""

from msgspec import structs

from alipes.agent.compaction import plan
from alipes.agent.compaction.compaction import CompactionJob, CompactionResult, Compactor
from alipes.agent.compaction.plan import (
    ContextBudget,
    count_chars,
    fixed_chars,
    visible_messages,
    visible_since,
)
from alipes.kernel.errors import ContextTooLong
from alipes.kernel.messages import Message
from alipes.kernel.ports import Emit, Request
from alipes.kernel.turns import CompactionState, ModelReply, Notice, Turn
from alipes.providers.registry import Backend

SHRINK_FACTOR = 0.7
"""Factor for the assumed window each time a model rejects a request as too long."""
MAX_OVERFLOWS = 3
"""Rejections in a row before giving up."""


class ContextFitter:
    """Decides which of a turn's messages a model sees."""

    def __init__(self, compaction: Compactor | None, turn: Turn, emit: Emit) -> None:
        self.digest: CompactionState = turn.compaction
        self.why = ""
        """Why it could not be compacted."""
        self._compaction, self._turn, self._emit = compaction, turn, emit
        self._ratio, self._fixed, self._measured = 0.0, 0, False
        self._sized: tuple[CompactionState, int, int] = CompactionState(), 0, 0
        """The compaction state and message count last measured, and their characters."""
        self._overflows = 0
        self._announced: set[str] = set()

    async def fit(self, backend: Backend, request: Request, messages: tuple[Message, ...]) -> Request:
        """The request with the visible messages, compacted first if needed."""
        if self._compaction is None:
            return structs.replace(request, messages=visible_messages(messages, self.digest))
        self._measure(request, messages)
        self._use_background_result(messages)
        session = self._turn.session
        wanted, focus = (
            session in self._compaction.focus_requests,
            self._compaction.focus_requests.pop(session, ""),
        )
        room = self._room(backend, request.max_tokens)
        full = room is not None and self._size(messages) * self._ratio > room.limit
        if wanted or (full and self._compaction.settings.at):
            room = room or self._narrow(backend, messages, 1)
            job = CompactionJob(self._turn, messages, self.digest, room, focus, requested=wanted)
            await self._shortened(await self._compaction.compact(job))
        self._size(messages)
        return structs.replace(request, messages=visible_messages(messages, self.digest))

    def record_usage(self, reply: ModelReply) -> None:
        """Calibrate by the usage the provider reported."""
        self._overflows = 0
        tokens = reply.usage.input + reply.usage.output
        if reply.usage.input and self._measured:
            count = self._fixed + self._sized[2] + count_chars((reply.message,))
            self._ratio = plan.tokens_per_char(tokens, count)

    async def handle_overflow(self, backend: Backend | None, messages: tuple[Message, ...]) -> bool:
        """The model rejected the request as too long: compact more each time. False if that fails."""
        self._overflows += 1
        if self._compaction is None or backend is None or self._overflows > MAX_OVERFLOWS:
            return False
        room = self._narrow(backend, messages, self._overflows)
        job = CompactionJob(self._turn, messages, self.digest, room, overflow=True)
        done = await self._compaction.compact(job)
        await self._shortened(done)
        return done.outcome not in ("failed", "nothing")

    def too_long_message(self, backend: Backend | None, error: ContextTooLong) -> str:
        """The error for a conversation that does not fit in spite of compaction."""
        window = f" of {backend.facts.window:,} tokens" if backend and backend.facts.window else ""
        name = backend.name if backend else "the model"
        tried = f", and compaction failed: {self.why}" if self.why else ""
        return (
            f"the conversation does not fit into the context window{window} of {name}{tried}; start "
            f"a new one or choose a model with a larger window ({error})"
        )

    async def _shortened(self, done: CompactionResult) -> None:
        self.digest, self.why = done.digest, done.reason
        if done.outcome != "nothing" and (done.outcome != "failed" or done.reason not in self._announced):
            self._announced.add(done.reason)
            await self._emit(Notice(done.message))

    def _measure(self, request: Request, messages: tuple[Message, ...]) -> None:
        """At the first request: calibrate by the last measured call."""
        if self._measured:
            return
        assert self._compaction is not None
        self._measured = True
        self._fixed = self._compaction.fixed_sizes[self._turn.session] = fixed_chars(request)
        tokens, about = self._turn.measured_tokens
        if tokens:
            self._ratio = plan.tokens_per_char(tokens, self._size(messages[:about]))

    def _size(self, messages: tuple[Message, ...]) -> int:
        """Characters of the whole request. Counted incrementally: messages are only added."""
        digest, seen, size = self._sized
        if digest != self.digest or not digest.covered <= seen <= len(messages):
            size = count_chars(visible_messages(messages, self.digest))
        elif seen < len(messages):
            size += count_chars(visible_since(messages, digest, seen))
        self._sized = self.digest, len(messages), size
        return self._fixed + size

    def _use_background_result(self, messages: tuple[Message, ...]) -> None:
        """Use the result of background compaction if it covers the same messages."""
        assert self._compaction is not None
        digest, covered = self._compaction.background_results.pop(self._turn.session, (CompactionState(), ()))
        if digest.covered > self.digest.covered and messages[: digest.covered] == covered:
            self.digest = digest

    def _room(self, backend: Backend, answer: int) -> ContextBudget | None:
        assert self._compaction is not None
        window = backend.facts.window
        at = self._compaction.settings.at or 0.8
        ratio = self._ratio or plan.DEFAULT_RATIO
        return ContextBudget(window, ratio, self._fixed, at, answer) if window else None

    def _narrow(self, backend: Backend, messages: tuple[Message, ...], times: int) -> ContextBudget:
        """A budget smaller than what was rejected."""
        ratio = self._ratio or plan.DEFAULT_RATIO
        refused = round(self._size(messages) * ratio)
        window = min(backend.facts.window or refused, refused)
        return ContextBudget(max(int(window * SHRINK_FACTOR**times), 1), ratio, self._fixed)
