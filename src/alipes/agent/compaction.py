"""Makes room in a conversation: first without a model, then with one, at last by leaving out. It says which.

What was said stays as it is; only what a model is told of it changes, by a digest that is a row. Summing up
that does not help is tried twice, then no more until it helped or a person asks for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from alipes.agent import compact_plan, compact_words
from alipes.agent.auxiliary import Auxiliary
from alipes.agent.compact_plan import Room
from alipes.agent.compact_view import letters, told
from alipes.config.side import Compacting
from alipes.kernel.errors import AlipesError, ConfigError, ProviderError, SessionError
from alipes.kernel.messages import Message
from alipes.kernel.side import Digests
from alipes.kernel.turns import Digest, Turn

log = logging.getLogger(__name__)
TASK = "compaction"
MOST = 2
"""Tries in a row that may be in vain."""
SOON = 0.75
"""Of what may be full: from here on it is shortened between two turns."""
Keeps: TypeAlias = Callable[[str], Awaitable[tuple[str, ...]]]
"""What a session has beside its words: open todos, subagents and processes at work, a line each."""
Spawn: TypeAlias = Callable[
    [Callable[[], Awaitable["Shortened | AlipesError"]], str], "asyncio.Task[Shortened | AlipesError]"
]
How: TypeAlias = Literal["nothing", "trimmed", "summed", "extracted", "failed"]


class Job(Struct, frozen=True):
    """A conversation to be shortened."""

    turn: Turn
    messages: tuple[Message, ...]
    digest: Digest
    room: Room
    focus: str = ""
    living: bool = True
    """The turn is ours and lives; else it only tells whose conversation it is."""
    overflow: bool = False
    """The model does not take it as it is."""
    wanted: bool = False
    """A person asks for it."""


class Shortened(Struct, frozen=True):
    digest: Digest
    how: How
    before: int
    after: int
    why: str = ""
    """Why no more was done."""
    model: str = ""

    @property
    def note(self) -> str:
        """For the person."""
        sizes = f"{self.before:,} to {self.after:,} tokens"
        match self.how:
            case "trimmed":
                return f"old results are shown to the model shortened, to make room ({sizes})"
            case "summed":
                return f"what was said before is summed up by {self.model} ({sizes}); /search finds all of it"
            case "extracted":
                return (
                    f"this conversation is too long and could not be summed up ({self.why}), so its older "
                    f"part is left out of what the model is told ({sizes}); /search finds all of it, "
                    "/compress tries again"
                )
            case "failed":
                return (
                    f"this conversation becomes too long ({self.before:,} tokens) and could not be summed "
                    f"up: {self.why}; /compress tries again, /new begins another"
                )
        return f"nothing was shortened: {self.why}"


class Compaction:
    """One for all conversations of a process. `session_left` is a hook."""

    def __init__(
        self,
        auxiliary: Auxiliary,
        digests: Digests,
        settings: Compacting | None = None,
        keeps: Keeps | None = None,
    ) -> None:
        self.settings = settings or Compacting()
        self.keeps = keeps or _nothing
        self.digests, self._auxiliary = digests, auxiliary
        self.wishes: dict[str, str] = {}
        """By session, what a person asked to keep above all when it is shortened at the next step."""
        self.made: dict[str, tuple[Digest, tuple[Message, ...]]] = {}
        """By session, what was made beside its turns, and of which messages; a living turn takes it up."""
        self.fixed: dict[str, int] = {}
        """By session, the letters of its system prompt and tools, as they were last."""
        self.spawn: Spawn | None = None
        """Who does what nobody waits for."""
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def session_left(self, session: str) -> None:
        """Nothing lives there that could take up what was made, and what the next turn needs is kept."""
        self.made.pop(session, None)
        self.fixed.pop(session, None)

    async def beside(self, job: Job, wait: float | None) -> Shortened | AlipesError | None:
        """The same, and what went wrong if it did; None where it takes longer than `wait` seconds and goes on
        beside whoever asked."""
        if self.spawn is None:
            return await self._attempt(job)
        task = self.spawn(partial(self._attempt, job), f"room in {job.turn.session}")
        await asyncio.wait({task}, timeout=wait)
        return task.result() if task.done() else None

    async def _attempt(self, job: Job) -> Shortened | AlipesError:
        try:
            return await self.shorten(job)
        except AlipesError as error:
            log.warning("conversation %s was not shortened: %s", job.turn.session, error)
            return error

    async def shorten(self, job: Job) -> Shortened:
        """Make room. Raises `Fenced` where the turn is not ours any more, and `Spent`."""
        async with self._lanes.setdefault(job.turn.session, asyncio.Lock()):
            if not job.wanted:
                return await self._shorten(job)
            await self.digests.forgive(job.turn.session)
            room = compact_plan.snug(job.messages, job.digest, job.room)
            return await self._shorten(structs.replace(job, room=room))

    async def _shorten(self, job: Job) -> Shortened:
        room, messages = job.room, job.messages
        before = room.tokens(messages, job.digest)
        trim = compact_plan.trimmed(messages, job.digest, room)
        after = room.tokens(messages, trim)
        if after <= room.limit * compact_plan.GOAL and after < before and not job.wanted:
            await self._keep(job, trim)
            return Shortened(trim, "trimmed", before, after)
        done = await self._sum_up(job, trim, before)
        if done.how != "failed":
            return done
        if job.overflow:
            return await self._extract(job, trim, before, done.why)
        if after < before * 0.95:
            await self._keep(job, trim, helped=False)
            return Shortened(trim, "trimmed", before, after, done.why)
        return Shortened(job.digest, "failed", before, before, done.why)

    async def _sum_up(self, job: Job, trim: Digest, before: int) -> Shortened:
        """With a model, while there is hope. What comes of it is kept if it is shorter."""
        session, room = job.turn.session, job.room
        least = room.tokens(job.messages, trim)
        if compact_plan.gain(job.messages, trim, room) < compact_plan.SMALLEST:
            why = f"the instructions, the tools and the latest messages alone take {least:,} tokens"
            return Shortened(job.digest, "nothing" if job.wanted else "failed", before, least, why)
        while (tries := await self.digests.tries(session)).count < MOST:
            try:
                text, model = await self._summary(job, trim, tries.count)
            except (ProviderError, ConfigError) as error:
                await self.digests.failed(session, str(error))
                continue
            digest = compact_plan.summed(job.messages, trim, room, text)
            after = room.tokens(job.messages, digest)
            if not text or after >= least * 0.95:
                why = f"{model} gave {'a summary that is no shorter' if text else 'an empty summary'}"
                await self.digests.failed(session, why)
                continue
            helped = after <= room.limit
            await self._keep(job, digest, helped=helped)
            if not helped:
                await self.digests.failed(session, f"it still takes {after:,} tokens after summing up")
            return Shortened(digest, "summed", before, after, model=model)
        return Shortened(trim, "failed", before, least, tries.why)

    async def _summary(self, job: Job, trim: Digest, tried: int) -> tuple[str, str]:
        """The words, empty where none were given, and whose they are.

        At the second try the model that answers is asked, and given half as much to read.
        """
        turn, room = job.turn, job.room
        model = turn.inbound.model or turn.model if tried else ""
        backend = await self._auxiliary.backend(TASK if not tried else "", turn, model)
        window = backend.facts.window or room.window
        reads = int(window * 0.6 / max(room.ratio, compact_plan.GUESS)) // (1 + tried)
        start = compact_plan.tail(job.messages, room)
        asked = compact_words.question(job.messages[trim.upto : start], trim, reads, job.focus)
        limit = self._auxiliary.errand(TASK).max_tokens or min(max(room.window // 12, 400), 4_000)
        reply = await self._auxiliary.ask(
            TASK,
            turn,
            system=compact_words.SYSTEM,
            messages=(asked,),
            model=backend.name,
            max_tokens=limit,
        )
        text = reply.message.text.strip()
        return compact_words.summary(text, await self.keeps(turn.session)) if text else "", backend.name

    async def _extract(self, job: Job, trim: Digest, before: int, why: str) -> Shortened:
        """The last resort, without a model. If even that is not shorter, nothing can be done."""
        room, start = job.room, max(compact_plan.tail(job.messages, job.room), trim.upto)
        gone, keeps = job.messages[trim.upto : start], await self.keeps(job.turn.session)
        text = compact_words.extract(gone, trim, keeps, max(room.free // 6, compact_plan.SMALLEST))
        digest = compact_plan.summed(job.messages, trim, room, text) if gone else trim
        after = room.tokens(job.messages, digest)
        if after >= before * 0.95:
            return Shortened(job.digest, "failed", before, before, why)
        await self._keep(job, digest, helped=False)
        return Shortened(digest, "extracted", before, after, why)

    async def _keep(self, job: Job, digest: Digest, *, helped: bool = True) -> None:
        living = len(job.messages) if job.living else 0
        kept = await self.digests.keep(job.turn, digest, living=living, helped=helped)
        if not kept:
            raise SessionError("what was said here was changed meanwhile, so it was not shortened")
        if not job.living:
            self.made[job.turn.session] = digest, job.messages[: digest.upto]

    async def room_of(self, turn: Turn) -> Room | None:
        """The room of a conversation that rests, by what its last call was counted; None: not known."""
        tokens, about = turn.counted
        fixed = self.fixed.get(turn.session, 0)
        ratio = compact_plan.measured(tokens, fixed + letters(told(turn.history[:about], turn.digest)))
        window = (await self._auxiliary.backend("", turn)).facts.window
        if not window:
            window = tokens
        return Room(window, ratio or compact_plan.GUESS, fixed, self.settings.at or 0.8) if window else None

    async def between(self, turn: Turn) -> None:
        """After a turn: shorten what will soon be too long, so that nobody has to wait for it."""
        session = turn.session
        try:
            window = (await self._auxiliary.backend("", turn)).facts.window or 0
            if await self.digests.size(session) <= window * self.settings.at * SOON or not window:
                return
            latest = await self.digests.latest(session)
            tries = await self.digests.tries(session)
            if latest is None or tries.count >= MOST or await self._auxiliary.limit_met(latest):
                return
            if (room := await self.room_of(latest)) is not None:
                await self.shorten(Job(latest, latest.history, latest.digest, room, living=False))
        except AlipesError as error:
            log.warning("conversation %s was not shortened between its turns: %s", session, error)


async def _nothing(_session: str) -> tuple[str, ...]:
    return ()
