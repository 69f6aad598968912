"""Where sessions live: brings what is accepted, asked or left behind to the session it belongs to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from msgspec import Struct, structs

from alipes.kernel.conversations import Admitted, Left
from alipes.kernel.errors import NotTaken
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import (
    Answer,
    Busy,
    Envelope,
    Event,
    Inbound,
    Op,
    Reset,
    SessionChanged,
    Steer,
    Stop,
    Take,
    Turn,
    TurnEnded,
)
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks, Relay
from alipes.plugins.specs import Admission
from alipes.sessions.event_stream import Following
from alipes.sessions.questions import Approvals, Questions
from alipes.sessions.services import OpenAgent, Surroundings
from alipes.sessions.session import MAX_ATTEMPTS, SUPERSEDED, Session
from alipes.sessions.subagents.running import Delegated
from alipes.store.store import Store

SHAKEN = MAX_ATTEMPTS - 1
"""Begun so often, and each time the process ended: it may be the cause, or only have stood beside it."""
ALONE = 5.0
"""Seconds that each of them has for itself; what kills a process does so soon."""


async def one_by_one(
    keys: Iterable[str], take: Callable[[str], None], busy: Collection[str], rested: asyncio.Event
) -> None:
    """Take them up one after the other. Whoever kills us takes nobody along who would be given up with it."""
    for key in keys:
        take(key)
        with suppress(TimeoutError):
            async with asyncio.timeout(ALONE):
                while key in busy:
                    rested.clear()
                    await rested.wait()


class Habits(Struct, frozen=True):
    """How a lobby goes about its work, where nobody said otherwise."""

    busy: Busy = "queue"
    """What a message does that finds a turn at work."""
    interactive: bool = False
    """People watch who can answer a question."""
    linger: float = 300.0
    """Seconds an idle session stays in memory."""
    keeps: Callable[[str], str] = lambda _session: ""
    """What a session has running between its turns, in a few words; unless empty, it stays."""
    silence: float = 0.0
    """Seconds after which a turn that tells nothing is stopped; zero: never."""
    owes: Callable[[Turn, Event], tuple[Outbound, ...]] = lambda _turn, _event: ()
    """What a chat is owed for something that a turn told."""
    longest: float = 0.0
    """Seconds that a turn may take which works for another; zero: as long as it likes."""


class Lobby:
    """The living sessions of this process. All work comes in by `submit` and `post`, recovery too."""

    def __init__(self, store: Store, *, hooks: Hooks, agent: OpenAgent, habits: Habits | None = None) -> None:
        self.habits = habits or Habits()
        self._store, self._hooks = store, hooks
        self.reaches: Callable[[str], bool] = lambda _key: False
        """Can a person be asked under `key`, though nobody watches it yet? Who does later, asks then."""
        self.resuming: Callable[[tuple[str, ...]], Awaitable[None]] = _in_silence
        """Awaited with the keys whose turns are about to be taken up, for who has a word to say first."""

        def heard(key: str) -> bool:
            return store.bus.heard(key) or self.reaches(key)

        self.approvals = Approvals(
            store.grants, hooks, store.bus.publish, heard, interactive=self.habits.interactive
        )
        self.questions = Questions(store.bus.publish, heard, interactive=self.habits.interactive)
        self.delegated = Delegated(
            store, self.submit, self.post, keeps=self.habits.keeps, longest=self.habits.longest
        )
        self._around = Surroundings(
            turns=store.turns,
            sessions=store.sessions,
            hooks=hooks,
            agent=agent,
            delegated=self.delegated,
            publish=store.bus.publish,
            answer=self.approvals.answer,
            reply=self.questions.answer,
            unanswered=self.approvals.unanswered,
            waits=lambda turn: self.approvals.waits(turn) or self.questions.waits(turn),
            rested=self._rested,
            pass_on=store.dispatcher.wake,
            keeps=self.delegated.going,
            owes=self.habits.owes,
            leaves=lambda key, turn: bool(turn) and self.last.get(key) == turn,
            linger=self.habits.linger,
            silence=self.habits.silence,
        )
        self._sessions: dict[str, Session] = {}
        self._group: asyncio.TaskGroup | None = None
        self.last: dict[str, str] = {}
        """By session, the turn after which this process leaves: none is begun here to be cut off again."""
        self._busy: set[str] = set()
        self._settled = asyncio.Event()
        self._open = asyncio.Event()
        self.recovered: tuple[str, ...] = ()
        """Keys of the sessions whose interrupted turns were taken up at the start."""

    async def run(self) -> None:
        """Serve until cancelled; sessions are children of this task."""
        async with asyncio.TaskGroup() as self._group:
            self.recovered = await self._store.turns.orphans()
            shaken = await self._store.turns.orphans(SHAKEN)
            await self.resuming(self.recovered)
            for key in self.recovered:
                if key not in shaken:
                    self._on_op(key, Take())
            self._busy.update(shaken)
            taking = one_by_one(shaken, lambda key: self._on_op(key, Take()), self._busy, self._settled)
            self._group.create_task(taking, name="recovery")
            self._group.create_task(self._store.dispatcher.run(self._on_op), name="dispatcher")
            self._open.set()

    async def submit(
        self,
        inbound: Inbound,
        busy: Busy | None = None,
        *,
        usual: Busy | None = None,
        ruled: bool = False,
        unhurried: float = 0.0,
    ) -> str | None:
        """Accept a message; its turn's id, or None if it was accepted before. It is safe once we return, and
        its turn is at work by then. `unhurried`: see `Database.kept`.

        `busy`: what it does if a turn is at work; by default what was chosen for the session, else the
        `usual`. `ruled`: plugins let it pass already. Raises `NotTaken` where a plugin will not have it.
        """
        await self._open.wait()
        if not ruled:
            inbound = await admissible(inbound, self._hooks.relay)
        admitting = self._store.turns.admit(inbound, busy=busy, usual=usual or self.habits.busy)
        key = inbound.address.key
        woken = self._store.dispatcher.wake_here(key)  # who looks for it now, looks after it is there
        admitted = await admitting
        if admitted is None:
            if await self._store.turns.waits(key):  # its first bringer may have been cut off here
                await self._store.dispatcher.wake(key)
            await self._store.database.kept()
            return None
        if not woken:
            await self._store.dispatcher.wake(key)
        for op in consequences(admitted):
            await self.post(key, op)
        await self._store.database.kept(unhurried)
        return admitted.turn

    async def wake(self, key: str) -> None:
        """Something was accepted for the session without `submit`."""
        await self._open.wait()
        await self._store.dispatcher.wake(key)

    async def post(self, key: str, op: Op) -> None:
        """Ask something of the session, wherever it lives."""
        await self._open.wait()
        session = self._sessions.get(key)
        if session is not None and key in self._busy:
            session.post(op)
        else:
            await self._store.dispatcher.signal(key, op)
            if isinstance(op, Answer):
                await self.delegated.answer(key, op)

    async def unfinished(self, key: str) -> tuple[str, ...]:
        """The turns under `key` that live or wait, by id, in order."""
        return tuple(each.id for each in await self._store.sessions.unfinished(key))

    async def left(self, key: str, left: Left, why: str) -> None:
        """The conversation under `key` was left for another: tell who watches, and end what lives of it."""
        if left.old == left.new:
            return
        publish = self._store.bus.publish
        for turn in left.dropped:
            publish(Envelope(key, turn, TurnEnded(turn, "stopped", "reset")))
        publish(Envelope(key, "", SessionChanged(left.old, left.new, why)))
        if left.elsewhere:
            publish(Envelope(left.elsewhere, "", SessionChanged(left.new, "", why)))
        if left.old:
            await self.post(key, Reset("reset", f"{why}_command", left.old, left.new))

    @asynccontextmanager
    async def ask(self, inbound: Inbound, busy: Busy | None = None) -> AsyncIterator[Following]:
        """Submit, and follow the turn to its end, also if another process lives it."""
        await self._open.wait()
        async with Following(inbound.address.key, self._store) as following:
            following.turn = await self.submit(inbound, busy)
            yield following

    @asynccontextmanager
    async def follow(self, key: str, turn: str) -> AsyncIterator[Following]:
        """A turn that was accepted already: what it has said so far, then what it says, to its end."""
        async with Following(key, self._store) as following:
            await following.join(turn)
            yield following

    def watch(self, key: str) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """Everything that happens under `key` from now on, whoever asked for it; lossy, as the bus is."""
        return self._store.bus.subscribe(key)

    def at_work(self, key: str) -> bool:
        """Is something lived under `key` in this process?"""
        return key in self._busy

    async def settled(self) -> None:
        """Return once no session of this process has anything left to do."""
        await self._open.wait()
        while self._busy:
            self._settled.clear()
            await self._settled.wait()

    def _on_op(self, key: str, op: Op) -> None:
        session = self._sessions.get(key)
        if session is None or session.closed:
            if isinstance(op, Answer):  # what works for it in the background may have asked
                self.approvals.answer(op)
            if not _worth_a_session(op, self._hooks.relay):
                return  # nothing lives there, so there is nothing to interrupt or to steer
            session = self._open_session(key)
        if isinstance(op, Take):
            self._busy.add(key)
        session.post(op)

    def _open_session(self, key: str) -> Session:
        assert self._group is not None
        session = self._sessions[key] = Session(key, self._around)

        async def serve() -> None:
            await session.run()
            if self._sessions.get(key) is session:
                del self._sessions[key]

        self._group.create_task(serve(), name=f"session {key}")
        return session

    def _rested(self, key: str) -> None:
        self._busy.discard(key)
        self._settled.set()


async def _in_silence(_keys: tuple[str, ...]) -> None:
    pass


def _worth_a_session(op: Op, relay: Relay) -> bool:
    match op:
        case Take():
            return True
        case Stop(turn=named):
            return bool(named)
        case Reset():  # plugins are told of it, also if nobody spoke here lately
            return relay.listens(specs.session_left, specs.session_reset)
    return False


async def admissible(inbound: Inbound, relay: Relay) -> Inbound:
    """The message as plugins let it pass. Raises `NotTaken`."""
    ruling = await relay.decide(specs.before_message, _not_taken, inbound=inbound)
    if ruling is None or ruling.action == "take":
        return inbound
    if ruling.action == "rewrite":
        return structs.replace(inbound, text=ruling.text)
    by_choice = not isinstance(ruling, _Broken)
    raise NotTaken(ruling.text or "a plugin dropped the message", by_choice=by_choice)


class _Broken(Admission, frozen=True):
    """Not a plugin's ruling: one failed to rule."""


def _not_taken(why: str) -> Admission:
    return _Broken("drop", f"the message was not taken: {why}")


def consequences(admitted: Admitted) -> list[Op]:
    """What a message does to the turns ahead of it, by its mode.

    An interrupting one ends the first, which lives or is about to, and those that wait,
    except messages that were queued on purpose: they keep their place.
    """
    if not admitted.ahead or admitted.busy == "queue":
        return []
    if admitted.busy == "steer":
        return [Steer(admitted.turn)]
    first, *others = admitted.ahead
    ended = [first, *(each for each in others if each.busy != "queue")]
    return [Stop(SUPERSEDED, SUPERSEDED, each.id) for each in ended]
