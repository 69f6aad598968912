"""Whether what a living turn is about to ask fits, and what is done where it does not. It asks nothing."""

from msgspec import structs

from alipes.agent.compaction import plan
from alipes.agent.compaction.compaction import Compaction, Job, Shortened
from alipes.agent.compaction.plan import Room, fixed, letters, since, told
from alipes.kernel.errors import ContextTooLong
from alipes.kernel.messages import Message
from alipes.kernel.ports import Emit, Request
from alipes.kernel.turns import Digest, Noted, Replied, Turn
from alipes.providers.registry import Backend

NARROWER = 0.7
"""What is left of the room that we thought there was, each time a model says that it is not there."""
MOST = 3
"""Times in a row that a model may say so."""


class Fitting:
    """What of a turn's messages a model is told. Its digest is the journal's, from the first step on."""

    def __init__(self, compaction: Compaction | None, turn: Turn, emit: Emit) -> None:
        self.digest: Digest = turn.digest
        self.why = ""
        """Why it could not be shortened, if it could not."""
        self._compaction, self._turn, self._emit = compaction, turn, emit
        self._ratio, self._fixed, self._measured = 0.0, 0, False
        self._sized: tuple[Digest, int, int] = Digest(), 0, 0
        """Of so many messages, told with this digest: their letters. What follows is added to it."""
        self._overflows = 0
        self._told: set[str] = set()

    async def fit(self, backend: Backend, request: Request, messages: tuple[Message, ...]) -> Request:
        """The request with what the model is told of `messages`, shortened before if it must be."""
        if self._compaction is None:
            return structs.replace(request, messages=told(messages, self.digest))
        self._measure(request, messages)
        self._take_up(messages)
        session = self._turn.session
        wanted, focus = session in self._compaction.wishes, self._compaction.wishes.pop(session, "")
        room = self._room(backend, request.max_tokens)
        full = room is not None and self._size(messages) * self._ratio > room.limit
        if wanted or (full and self._compaction.settings.at):
            room = room or self._narrow(backend, messages, 1)
            job = Job(self._turn, messages, self.digest, room, focus, wanted=wanted)
            await self._shortened(await self._compaction.shorten(job))
        self._size(messages)
        return structs.replace(request, messages=told(messages, self.digest))

    def counted(self, reply: Replied) -> None:
        """What the provider says that it was: the measure of all that follows."""
        self._overflows = 0
        tokens = reply.usage.input + reply.usage.output
        if reply.usage.input and self._measured:
            count = self._fixed + self._sized[2] + letters((reply.message,))
            self._ratio = plan.measured(tokens, count)

    async def overflowed(self, backend: Backend | None, messages: tuple[Message, ...]) -> bool:
        """The model does not take it: make room, more each time. False where that is in vain."""
        self._overflows += 1
        if self._compaction is None or backend is None or self._overflows > MOST:
            return False
        room = self._narrow(backend, messages, self._overflows)
        job = Job(self._turn, messages, self.digest, room, overflow=True)
        done = await self._compaction.shorten(job)
        await self._shortened(done)
        return done.how not in ("failed", "nothing")

    def sentence(self, backend: Backend | None, error: ContextTooLong) -> str:
        """For a conversation that no longer fits, whatever was done about it."""
        window = f" of {backend.facts.window:,} tokens" if backend and backend.facts.window else ""
        name = backend.name if backend else "the model"
        tried = f", and could not be shortened: {self.why}" if self.why else ""
        return (
            f"the conversation no longer fits into the window{window} of {name}{tried}; start a new one, or "
            f"choose a model with a larger window ({error})"
        )

    async def _shortened(self, done: Shortened) -> None:
        self.digest, self.why = done.digest, done.why
        if done.how != "nothing" and (done.how != "failed" or done.why not in self._told):
            self._told.add(done.why)
            await self._emit(Noted(done.note))

    def _measure(self, request: Request, messages: tuple[Message, ...]) -> None:
        """At the first question: by the last call that was counted, in the turn before or in this one."""
        if self._measured:
            return
        assert self._compaction is not None
        self._measured = True
        self._fixed = self._compaction.fixed[self._turn.session] = fixed(request)
        tokens, about = self._turn.counted
        if tokens:
            self._ratio = plan.measured(tokens, self._size(messages[:about]))

    def _size(self, messages: tuple[Message, ...]) -> int:
        """Letters of all that is sent. Messages are only ever added: those before are not counted again."""
        digest, seen, size = self._sized
        if digest != self.digest or not digest.upto <= seen <= len(messages):
            size = letters(told(messages, self.digest))
        elif seen < len(messages):
            size += letters(since(messages, digest, seen))
        self._sized = self.digest, len(messages), size
        return self._fixed + size

    def _take_up(self, messages: tuple[Message, ...]) -> None:
        """What was made beside us meanwhile stands for us, too, if it was made of what we know."""
        assert self._compaction is not None
        digest, covered = self._compaction.made.pop(self._turn.session, (Digest(), ()))
        if digest.upto > self.digest.upto and messages[: digest.upto] == covered:
            self.digest = digest

    def _room(self, backend: Backend, answer: int) -> Room | None:
        assert self._compaction is not None
        window = backend.facts.window
        at = self._compaction.settings.at or 0.8
        ratio = self._ratio or plan.GUESS
        return Room(window, ratio, self._fixed, at, answer) if window else None

    def _narrow(self, backend: Backend, messages: tuple[Message, ...], times: int) -> Room:
        """The room there seems to be: less than what was refused."""
        ratio = self._ratio or plan.GUESS
        refused = round(self._size(messages) * ratio)
        window = min(backend.facts.window or refused, refused)
        return Room(max(int(window * NARROWER**times), 1), ratio, self._fixed)
