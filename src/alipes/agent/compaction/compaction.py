"""Compacts a conversation: first by trimming results, then with a model's summary, last by leaving messages out.

Messages do not change; only what the model sees of them, by a stored `CompactionState`. After two failed summaries no
more are tried until one helps or a person asks. Tokens are estimated from characters, with the ratio measured at the
last call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from alipes.agent.auxiliary import AuxiliaryModels, BackgroundTasks
from alipes.agent.compaction import summary
from alipes.agent.tool_calls import shorten
from alipes.config.settings import CompactionConfig
from alipes.kernel.errors import AlipesError, ConfigError, ContextTooLong, ProviderError, SessionError
from alipes.kernel.messages import Message, Part, Text, ToolResult, count_chars, notice
from alipes.kernel.ports import Emit, Request
from alipes.kernel.turns import CompactionState, ModelReply, Notice, Turn, Usage
from alipes.providers.registry import Backend
from alipes.store.sql.history import CompactionStore

TRIMMED_CHARS = 800
"""Characters kept of an old result."""
REQUEST_CHARS = 12_000
"""Characters kept of a person's first and latest message beside a summary."""


def visible_messages(messages: tuple[Message, ...], digest: CompactionState) -> tuple[Message, ...]:
    """The messages as the model sees them. A call is never shown without its result."""
    if digest == CompactionState():
        return messages
    head = _summary_messages(messages, digest) if digest.covered else ()
    return (*head, *visible_since(messages, digest, digest.covered))


def visible_since(messages: tuple[Message, ...], digest: CompactionState, start: int) -> tuple[Message, ...]:
    """The same for the messages from index `start` on."""
    places = enumerate(messages[start:], start)
    return tuple(_shorten_message(message, digest, place < digest.trimmed_until) for place, message in places)


def _summary_messages(messages: tuple[Message, ...], digest: CompactionState) -> tuple[Message, ...]:
    """The person's first request verbatim, the summary, and the last request it covers.

    Independent of later messages.
    """
    asked = [message for message in messages[: digest.covered] if message.role == "user"]
    first, latest = asked[:1], asked[1:][-1:]
    return (*map(_shorten_request, first), notice(digest.text), *map(_shorten_request, latest))


def _shorten_request(message: Message) -> Message:
    words = tuple(Text(shorten(part.text, REQUEST_CHARS)) for part in message.parts if isinstance(part, Text))
    return Message("user", words or (Text("(an image)"),))


def _shorten_message(message: Message, digest: CompactionState, old: bool) -> Message:
    limit = min(TRIMMED_CHARS, digest.max_chars or TRIMMED_CHARS) if old else digest.max_chars
    if not limit:
        return message
    parts = tuple(_shorten_part(part, limit, digest.max_chars) for part in message.parts)
    return message if parts == message.parts else Message(message.role, parts)


def _shorten_part(part: Part, limit: int, widest: int) -> Part:
    """The same object if it is short enough."""
    match part:
        case ToolResult(text=text, images=images) if len(text) > limit or (images and limit == TRIMMED_CHARS):
            return structs.replace(part, text=shorten(text, limit), images=() if limit == TRIMMED_CHARS else images)
        case Text(text) if widest and len(text) > widest:
            return Text(shorten(text, widest))
    return part


GOAL_RATIO = 0.6
"""Fraction of the limit that compaction aims for."""
TAIL_RATIO = 0.4
"""Fraction of the free space for messages that stay verbatim."""
MESSAGE_RATIO = 0.35
"""Fraction of the free space for a single message, except the latest."""
MIN_CHARS = 1_500
"""Characters below which nothing is cut and no model is called."""
DEFAULT_RATIO = 0.25
"""Tokens per character before anything was measured."""


class ContextBudget(Struct, frozen=True):
    window: int
    """Tokens, input and output together."""
    ratio: float
    """Tokens per character."""
    fixed_chars: int = 0
    """Characters of the system prompt and tools."""
    fill_ratio: float = 0.8
    """How full the window may be."""
    answer_tokens: int = 0
    """Tokens reserved for the answer; at most half of the window."""

    @property
    def limit(self) -> int:
        return min(int(self.window * self.fill_ratio), max(self.window - self.answer_tokens, self.window // 2))

    @property
    def free_chars(self) -> int:
        return max(int(self.limit / self.ratio) - self.fixed_chars, 0)

    def tokens(self, messages: tuple[Message, ...], digest: CompactionState) -> int:
        return round((self.fixed_chars + count_chars(visible_messages(messages, digest))) * self.ratio)


def tokens_per_char(tokens: int, count: int) -> float:
    return min(max(tokens / count, 0.01), 4.0) if tokens > 0 and count > 0 else 0.0


def full_budget(messages: tuple[Message, ...], digest: CompactionState, room: ContextBudget) -> ContextBudget:
    """A budget as if the window were full, for a person who wants it compacted now."""
    return structs.replace(room, window=max(min(room.window, room.tokens(messages, digest)), 1))


def tail_start(messages: tuple[Message, ...], room: ContextBudget) -> int:
    """Where the verbatim part starts. It never starts with a result, whose call would be missing."""
    widest, budget = _max_chars(room), max(int(room.free_chars * TAIL_RATIO), MIN_CHARS)
    start = len(messages)
    while start and budget >= 0:
        budget -= min(count_chars(messages[start - 1 : start]), widest)
        start -= budget >= 0
    while start < len(messages) and messages[start].role == "tool":
        start += 1
    if start == len(messages):  # the last step stays, however long it is
        start -= 1
        while start > 0 and messages[start].role == "tool":
            start -= 1
    return max(start, 0)


def trim_results(messages: tuple[Message, ...], digest: CompactionState, room: ContextBudget) -> CompactionState:
    """Trim tool results before the tail, and any part too long to fit."""
    start, widest = max(tail_start(messages, room), digest.trimmed_until), _max_chars(room)
    parts = (part for message in messages[digest.covered :] for part in message.parts)
    if not any(isinstance(part, Text | ToolResult) and len(part.text) > widest for part in parts):
        widest = digest.max_chars
    elif digest.max_chars:
        widest = min(widest, digest.max_chars)
    return structs.replace(digest, trimmed_until=start, max_chars=widest)


def apply_summary(
    messages: tuple[Message, ...], digest: CompactionState, room: ContextBudget, text: str
) -> CompactionState:
    """The same with everything before the tail replaced by `text`."""
    start = max(tail_start(messages, room), digest.covered)
    return structs.replace(digest, covered=start, trimmed_until=max(start, digest.trimmed_until), text=text)


def summary_gain(messages: tuple[Message, ...], digest: CompactionState, room: ContextBudget) -> int:
    """Characters that a summary could replace."""
    start = tail_start(messages, room)
    if start <= digest.covered:
        return 0
    without = structs.replace(digest, covered=start)
    return count_chars(visible_messages(messages, digest)) - count_chars(visible_messages(messages, without))


def _max_chars(room: ContextBudget) -> int:
    return max(int(room.free_chars * MESSAGE_RATIO), MIN_CHARS)


TASK = "compaction"
MAX_FAILURES = 2
"""Failed attempts in a row before giving up."""
BETWEEN_TURNS_RATIO = 0.75
"""Fraction of the limit from which a conversation is compacted between two turns."""
SessionNotes: TypeAlias = Callable[[str], Awaitable[tuple[str, ...]]]
"""State of a session besides its messages: open todos, subagents and processes, a line each."""
Outcome: TypeAlias = Literal["nothing", "trimmed", "summed", "extracted", "failed"]


class CompactionJob(Struct, frozen=True):
    """A conversation to compact."""

    turn: Turn
    messages: tuple[Message, ...]
    digest: CompactionState
    budget: ContextBudget
    focus: str = ""
    turn_running: bool = True
    """It is a running turn of ours; otherwise it only identifies the conversation."""
    overflow: bool = False
    """The model rejected it as too long."""
    requested: bool = False
    """A person asked for it."""


class CompactionResult(Struct, frozen=True):
    digest: CompactionState
    outcome: Outcome
    before: int
    after: int
    reason: str = ""
    """Why no more was done."""
    model: str = ""

    @property
    def message(self) -> str:
        """For the person."""
        sizes = f"{self.before:,} to {self.after:,} tokens"
        match self.outcome:
            case "trimmed":
                return f"trimmed old tool results to save context ({sizes})"
            case "summed":
                return f"earlier messages were compacted by {self.model} ({sizes}); /search still finds them"
            case "extracted":
                return (
                    f"compaction failed ({self.reason}), so older messages are hidden from the model "
                    f"({sizes}); /search still finds them, /compact tries again"
                )
            case "failed":
                return (
                    f"context is nearly full ({self.before:,} tokens) and compaction failed: {self.reason}; "
                    "/compact tries again, /new starts a new conversation"
                )
        return f"nothing to compact: {self.reason}"


class Compactor:
    """One per process. `turn_ended` and `session_left` are hooks."""

    def __init__(
        self,
        auxiliary: AuxiliaryModels,
        store: CompactionStore,
        settings: CompactionConfig | None = None,
        *,
        session_notes: SessionNotes | None = None,
        tasks: BackgroundTasks | None = None,
    ) -> None:
        self.settings = settings or CompactionConfig()
        self.session_notes, self._tasks = session_notes or _no_notes, tasks
        self.store, self._auxiliary = store, auxiliary
        self.focus_requests: dict[str, str] = {}
        """By session, what a person asked to keep when it is compacted at the next step."""
        self.background_results: dict[str, tuple[CompactionState, tuple[Message, ...]]] = {}
        """By session, the result of background compaction and the messages it covers; used by the next request."""
        self.fixed_sizes: dict[str, int] = {}
        """By session, the characters of its system prompt and tools."""
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._compacting: set[str] = set()

    async def turn_ended(self, turn: Turn, ending: str, usage: Usage | None) -> None:
        """Compact in the background what will soon be too long, so that nobody has to wait for it."""
        if ending != "answered" or turn.inbound.origin is not None:  # not for subagents and background turns
            return
        settings, session = self.settings, turn.session
        if settings.background and settings.at and self._tasks is not None and session not in self._compacting:
            task = self._tasks.spawn(partial(self.compact_between_turns, turn, usage), f"compaction of {session}")
            self._compacting.add(session)
            task.add_done_callback(lambda _: self._compacting.discard(session))

    async def session_left(self, session: str) -> None:
        """The session is no longer in memory; everything needed later is stored."""
        self.background_results.pop(session, None)
        self.fixed_sizes.pop(session, None)

    async def compact_in_background(
        self, job: CompactionJob, wait: float | None
    ) -> CompactionResult | AlipesError | None:
        """Compact in the background. Returns the result or the error; None if it takes longer than `wait`
        seconds and continues."""
        if self._tasks is None:
            return await self.compact(job)
        task = self._tasks.spawn(partial(self.compact, job), f"compaction of {job.turn.session}")
        await asyncio.wait({task}, timeout=wait)
        return task.result() if task.done() else None

    async def compact(self, job: CompactionJob) -> CompactionResult:
        """Compact. Raises `Fenced` if the turn is no longer ours, and `BudgetExceeded`."""
        async with self._lanes.setdefault(job.turn.session, asyncio.Lock()):
            if not job.requested:
                return await self._shorten(job)
            await self.store.reset_attempts(job.turn.session)
            room = full_budget(job.messages, job.digest, job.budget)
            return await self._shorten(structs.replace(job, budget=room))

    async def _shorten(self, job: CompactionJob) -> CompactionResult:
        room, messages = job.budget, job.messages
        before = room.tokens(messages, job.digest)
        trim = trim_results(messages, job.digest, room)
        after = room.tokens(messages, trim)
        if after <= room.limit * GOAL_RATIO and after < before and not job.requested:
            await self._keep(job, trim)
            return CompactionResult(trim, "trimmed", before, after)
        done = await self._sum_up(job, trim, before)
        if done.outcome != "failed":
            return done
        if job.overflow:
            return await self._extract(job, trim, before, done.reason)
        if after < before * 0.95:
            await self._keep(job, trim, helped=False)
            return CompactionResult(trim, "trimmed", before, after, done.reason)
        return CompactionResult(job.digest, "failed", before, before, done.reason)

    async def _sum_up(self, job: CompactionJob, trim: CompactionState, before: int) -> CompactionResult:
        """Summarise with a model, unless that failed too often. The result is kept if it is shorter."""
        session, room = job.turn.session, job.budget
        least = room.tokens(job.messages, trim)
        if summary_gain(job.messages, trim, room) < MIN_CHARS:
            why = f"the system prompt, tools and latest messages alone take {least:,} tokens"
            return CompactionResult(job.digest, "nothing" if job.requested else "failed", before, least, why)
        while (tries := await self.store.attempts(session)).count < MAX_FAILURES:
            try:
                text, model = await self._summary(job, trim, tries.count)
            except (ProviderError, ConfigError) as error:
                await self.store.record_failure(session, str(error))
                continue
            digest = apply_summary(job.messages, trim, room, text)
            after = room.tokens(job.messages, digest)
            if not text or after >= least * 0.95:
                why = f"the summary of {model} is {'not shorter' if text else 'empty'}"
                await self.store.record_failure(session, why)
                continue
            helped = after <= room.limit
            await self._keep(job, digest, helped=helped)
            if not helped:
                await self.store.record_failure(session, f"still {after:,} tokens after compacting")
            return CompactionResult(digest, "summed", before, after, model=model)
        return CompactionResult(trim, "failed", before, least, tries.why)

    async def _summary(self, job: CompactionJob, trim: CompactionState, tried: int) -> tuple[str, str]:
        """The text, empty if there was none, and the model.

        The second attempt uses the conversation's model and half as much input.
        """
        turn, room = job.turn, job.budget
        model = turn.inbound.model or turn.model if tried else ""
        backend = await self._auxiliary.backend(TASK if not tried else "", turn, model)
        window = backend.facts.window or room.window
        reads = int(window * 0.6 / max(room.ratio, DEFAULT_RATIO)) // (1 + tried)
        start = tail_start(job.messages, room)
        asked = summary.request(job.messages[trim.covered : start], trim, reads, job.focus)
        limit = self._auxiliary.config_for(TASK).max_tokens or min(max(room.window // 12, 400), 4_000)
        reply = await self._auxiliary.ask(
            TASK, turn, system=summary.SYSTEM, messages=(asked,), model=backend.name, max_tokens=limit
        )
        text = reply.message.text.strip()
        return summary.notice(text, await self.session_notes(turn.session)) if text else "", backend.name

    async def _extract(self, job: CompactionJob, trim: CompactionState, before: int, why: str) -> CompactionResult:
        """The last resort, without a model."""
        room, start = job.budget, max(tail_start(job.messages, job.budget), trim.covered)
        gone, keeps = job.messages[trim.covered : start], await self.session_notes(job.turn.session)
        text = summary.extract(gone, trim, keeps, max(room.free_chars // 6, MIN_CHARS))
        digest = apply_summary(job.messages, trim, room, text) if gone else trim
        after = room.tokens(job.messages, digest)
        if after >= before * 0.95:
            return CompactionResult(job.digest, "failed", before, before, why)
        await self._keep(job, digest, helped=False)
        return CompactionResult(digest, "extracted", before, after, why)

    async def _keep(self, job: CompactionJob, digest: CompactionState, *, helped: bool = True) -> None:
        living = len(job.messages) if job.turn_running else 0
        kept = await self.store.save(job.turn, digest, living=living, helped=helped)
        if not kept:
            raise SessionError("the conversation changed meanwhile, so it was not compacted")
        if not job.turn_running:
            self.background_results[job.turn.session] = digest, job.messages[: digest.covered]

    async def budget_for(self, turn: Turn) -> ContextBudget | None:
        """The context budget of an idle conversation, from its last call; None: not known."""
        tokens, about = turn.measured_tokens
        fixed = self.fixed_sizes.get(turn.session, 0)
        ratio = tokens_per_char(tokens, fixed + count_chars(visible_messages(turn.history[:about], turn.compaction)))
        window = (await self._auxiliary.backend("", turn)).facts.window or tokens
        return ContextBudget(window, ratio or DEFAULT_RATIO, fixed, self.settings.at or 0.8) if window else None

    async def window_of(self, turn: Turn) -> int:
        """The context window of the model, in tokens; zero if it is not known."""
        return (await self._auxiliary.backend("", turn)).facts.window or 0

    async def compact_between_turns(self, turn: Turn, usage: Usage | None = None) -> None:
        """Compact it if it will soon be too long. `usage`: of the turn, which includes its last call."""
        window = (await self._auxiliary.backend("", turn)).facts.window or 0
        limit = window * self.settings.at * BETWEEN_TURNS_RATIO
        if not window or (usage is not None and usage.input + usage.output <= limit):
            return
        if await self.store.size(turn.session) <= limit:
            return
        latest = await self.store.latest(turn.session)
        tries = await self.store.attempts(turn.session)
        if latest is None or tries.count >= MAX_FAILURES or await self._auxiliary.spending.is_reached(latest):
            return
        if (room := await self.budget_for(latest)) is not None:
            await self.compact(CompactionJob(latest, latest.history, latest.compaction, room, turn_running=False))


async def _no_notes(_session: str) -> tuple[str, ...]:
    return ()


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
        if backend.keeps_history:
            return structs.replace(request, messages=messages)
        if self._compaction is None:
            return structs.replace(request, messages=visible_messages(messages, self.digest))
        self._measure(request, messages)
        self._use_background_result(messages)
        session = self._turn.session
        wanted, focus = (session in self._compaction.focus_requests, self._compaction.focus_requests.pop(session, ""))
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
            self._ratio = tokens_per_char(tokens, count)

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
        self._fixed = self._compaction.fixed_sizes[self._turn.session] = request.fixed_chars
        tokens, about = self._turn.measured_tokens
        if tokens:
            self._ratio = tokens_per_char(tokens, self._size(messages[:about]))

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
        ratio = self._ratio or DEFAULT_RATIO
        return ContextBudget(window, ratio, self._fixed, at, answer) if window else None

    def _narrow(self, backend: Backend, messages: tuple[Message, ...], times: int) -> ContextBudget:
        """A budget smaller than what was rejected."""
        ratio = self._ratio or DEFAULT_RATIO
        refused = round(self._size(messages) * ratio)
        window = min(backend.facts.window or refused, refused)
        return ContextBudget(max(int(window * SHRINK_FACTOR**times), 1), ratio, self._fixed)
