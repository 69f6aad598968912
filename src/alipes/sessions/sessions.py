"""All sessions of a process: routes messages, ops and recovered turns to the session they belong to."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from msgspec import structs

from alipes.kernel.attachments import collapse_attachments
from alipes.kernel.conversations import AdmittedTurn, PendingTurn, SessionSwitch, StoppedQueue
from alipes.kernel.errors import AlipesError, MessageRejected
from alipes.kernel.formatting import format_count
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import (
    AnswerApproval,
    AnswerQuestion,
    BusyMode,
    Envelope,
    Inbound,
    Op,
    QueueChanged,
    QueuedMessage,
    Reset,
    SessionChanged,
    Steer,
    Stop,
    TurnEnded,
    Wake,
)
from alipes.plugins import specs
from alipes.plugins.dispatch import HookDispatcher, Hooks
from alipes.plugins.specs import Admission
from alipes.runtime.tasks import first_error
from alipes.sessions.event_stream import TurnFollower
from alipes.sessions.permissions import PermissionModes
from alipes.sessions.questions import FrontEnd, Questions
from alipes.sessions.services import OpenAgent, SessionActivity, SessionDefaults, SessionServices
from alipes.sessions.session import MAX_ATTEMPTS, SUPERSEDED, Session
from alipes.sessions.subagents.registry import SubagentRegistry
from alipes.store.sql.store import Store

SUSPECT_ATTEMPTS = MAX_ATTEMPTS - 1
"""A turn with this many attempts may be what kills the process: it is resumed alone."""
MAX_QUEUED_TEXT = 2000
"""Characters of a queued message in `QueueChanged`."""
ALONE_SECONDS = 5.0
"""How long each suspect turn runs alone."""


class Sessions:
    """The running sessions of this process. All work arrives by `submit` and `post`, recovery too."""

    def __init__(
        self, store: Store, *, hooks: Hooks, agent: OpenAgent, defaults: SessionDefaults | None = None
    ) -> None:
        self.defaults = defaults = defaults or SessionDefaults()
        self._store, self._hooks = store, hooks
        self.permissions = PermissionModes(store, defaults.permission_mode)
        self.questions = Questions(
            store, hooks, interactive=defaults.interactive, mask=defaults.mask, permissions=self.permissions
        )
        self.subagents = SubagentRegistry(
            store, self, background=defaults.background, max_seconds=defaults.max_subagent_seconds
        )
        self.activity = SessionActivity(store.dispatcher.on_idle)
        self._services = SessionServices(
            store=store,
            hooks=hooks,
            agent=agent,
            questions=self.questions,
            subagents=self.subagents,
            activity=self.activity,
            defaults=defaults,
        )
        self._sessions: dict[str, Session] = {}
        self._group: asyncio.TaskGroup | None = None
        self._serving: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        self.recovered: tuple[str, ...] = ()
        """Keys of the sessions whose interrupted turns were resumed at the start."""

    def attach(self, front_end: FrontEnd) -> None:
        """Use `front_end` to reach people who are not connected. Call it before `run` starts."""
        self.questions.attach(front_end)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Run beside the body; an error ends both and is raised as one error, not a group."""
        try:
            async with asyncio.TaskGroup() as group:
                self._serving = group.create_task(self.run(), name="sessions")
                yield
                self._serving.cancel()
        except* AlipesError as errors:
            raise first_error(errors) from errors

    async def suspend(self) -> None:
        """Suspend the running turns while people and remote clients are still connected; they resume at the next
        start. Messages that arrive from now on are stored for it."""
        assert self._serving is not None
        self._serving.cancel()
        await asyncio.wait({self._serving})
        self._sessions.clear()  # an op that still arrives is stored for the next process
        self.activity.busy.clear()
        self.activity.changed.set()

    async def run(self) -> None:
        """Serve until cancelled; sessions are children of this task."""
        async with asyncio.TaskGroup() as self._group:
            suspects: tuple[str, ...] = ()
            if not self._store.clustered:  # there the dispatcher takes waiting sessions, as far as there is room
                self.recovered = await self._store.turns.list_orphans(0, self.defaults.workdir)
                suspects = await self._store.turns.list_orphans(SUSPECT_ATTEMPTS, self.defaults.workdir)
            if self.questions.front_end is not None:
                await self.questions.front_end.before_resume(self.recovered)
            for key in self.recovered:
                if key not in suspects:
                    self._on_op(key, Wake())
            self.activity.busy.update(suspects)
            self._group.create_task(self._resume_one_by_one(suspects), name="recovery")
            self._group.create_task(self._store.dispatcher.run(self._on_op, self.activity.busy), name="dispatcher")
            await self._resume_parked(self._group)
            self._open.set()

    async def _resume_parked(self, group: asyncio.TaskGroup) -> None:
        turns, workdir = self._store.turns, self.defaults.workdir
        if not self._store.clustered and (self.defaults.waits_for_limits or await turns.list_parked(workdir)):
            from alipes.sessions.parked_turns import resume_parked  # noqa: PLC0415

            resuming = resume_parked(turns, self._store.dispatcher.wake, self.activity.parked, workdir=workdir)
            group.create_task(resuming, name="parked turns")

    async def _resume_one_by_one(self, keys: Iterable[str]) -> None:
        """Resume suspect turns one after the other, so that one that kills the process is the only one
        that loses an attempt."""
        for key in keys:
            self._on_op(key, Wake())
            with suppress(TimeoutError):
                async with asyncio.timeout(ALONE_SECONDS):
                    await self.activity.wait_idle(key)

    async def submit(
        self,
        inbound: Inbound,
        busy: BusyMode | None = None,
        *,
        usual: BusyMode | None = None,
        ruled: bool = False,
        unhurried: float = 0.0,
    ) -> str | None:
        """Accept a message and return its turn's id, or None if it was accepted before. When this returns,
        the message is stored and its turn may already run. `unhurried`: see `Database.wait_synced`.

        `busy`: what it does while a turn runs; by default the session's mode, else `usual`. `ruled`: plugins
        have already admitted it. Raises `MessageRejected` if a plugin drops it.
        """
        await self._open.wait()
        if not ruled:
            inbound = await admit_message(inbound, self._hooks.dispatcher)
        key = inbound.address.key
        shown = self._show_in_chat(inbound)
        admitting = self._store.turns.admit(inbound, busy=busy, usual=usual or self.defaults.busy, owed=shown)
        woken = self._store.dispatcher.wake_if_alone(key)  # reads from now on see the new turn
        admitted = await admitting
        if admitted is None:
            if await self._store.turns.has_pending(key):  # the first copy may have been interrupted here
                await self._store.dispatcher.wake(key)
            await self._store.health.wait_synced()
            return None
        if shown and self.questions.front_end is not None:
            self.questions.front_end.send_soon(shown[0])
        if not woken:
            await self._store.dispatcher.wake(key, admitted)
        for op in ops_for(admitted):
            await self.post(key, op)
        await self._store.health.wait_synced(unhurried)
        return admitted.turn

    def _show_in_chat(self, inbound: Inbound) -> tuple[Outbound, ...]:
        """What an owner writes into a chat from elsewhere is shown there before it is answered."""
        front_end = self.questions.front_end
        if not inbound.via or front_end is None or not front_end.can_reach(inbound.address.key):
            return ()
        pictures = format_count(len(inbound.attachments), "picture") if inbound.attachments else ""
        words = "\n".join(filter(None, (collapse_attachments(inbound.text), pictures and f"[{pictures}]")))
        text = f"**Owner ({'API' if inbound.via == 'api' else inbound.via}):** {words}"
        return (Outbound(f"via:{inbound.address.platform}:{inbound.id}", inbound.address, text),)

    async def wake(self, key: str) -> None:
        """A turn was queued for the session without `submit`."""
        await self._open.wait()
        await self._store.dispatcher.wake(key)

    async def post(self, key: str, op: Op) -> None:
        """Send `op` to the session, in whichever process it runs. An answer that comes too late is ignored."""
        if isinstance(op, AnswerApproval | AnswerQuestion):
            await self.answer(key, op)
        else:
            await self._open.wait()
            await self.deliver(key, op)

    async def answer(self, key: str, answer: AnswerApproval | AnswerQuestion) -> bool:
        """Answer a question of the session, in whichever process it runs; False if it was answered before."""
        await self._open.wait()
        if isinstance(answer, AnswerQuestion):
            if not await self.questions.record_reply(answer):
                return False
        elif (first := await self.questions.record(answer)) is None:
            return False
        else:
            answer = first
        await self.deliver(key, answer)
        return True

    async def deliver(self, key: str, op: Op) -> None:
        """Like `post`, for an answer that is recorded already."""
        session = self._sessions.get(key)
        if session is not None and self.is_busy(key):
            session.post(op)
        else:
            await self._store.dispatcher.signal(key, op)
            if isinstance(op, AnswerApproval):
                await self.subagents.answer(key, op)

    async def unfinished(self, key: str) -> tuple[str, ...]:
        """Ids of the running and queued turns of `key`, in order, without held ones."""
        return tuple(each.id for each in await self._store.sessions.unfinished(key) if not each.held)

    async def stop(self, key: str, stop: Stop) -> StoppedQueue:
        """A person stops the running turn, or the turn that `stop` names: the messages queued behind it are held.

        A message that has not started is dropped if it is stopped by name.
        """
        await self._open.wait()
        stopped = await self.hold(key, stop.turn)
        if stopped.turn:
            await self.post(key, structs.replace(stop, turn=stopped.turn))
        elif stop.turn and not await self.drop(key, stop.turn):
            await self.post(key, stop)  # it started meanwhile, or has ended
        return stopped

    async def hold(self, key: str, turn: str = "") -> StoppedQueue:
        """Hold the messages queued behind the running turn, without stopping it; see `store.sessions.hold`."""
        stopped = await self._store.sessions.hold(key, turn)
        if stopped.held:
            await self._announce_queue(key)
        return stopped

    async def release(self, key: str) -> tuple[PendingTurn, ...]:
        """Send the held messages: they run in order, or reach the running turn if they were meant to."""
        released = await self._store.sessions.release_held(key)
        if released:
            await self._announce_queue(key)
            await self.wake(key)
            for each in released:
                if each.busy == "steer":
                    await self.post(key, Steer(each.id))
        return released

    async def drop(self, key: str, turn: str = "") -> tuple[PendingTurn, ...]:
        """Drop the queued and held messages, or only `turn`."""
        dropped = await self._store.sessions.drop_queued(key, turn)
        await self._announce_removed(key, dropped, "dropped")
        return dropped

    async def take_back(self, key: str) -> PendingTurn | None:
        """Remove the newest message that has not started, so that its text can be edited; None if there is none."""
        taken = await self._store.sessions.take_back(key)
        if taken is not None:
            await self._announce_removed(key, (taken,), "taken_back")
        return taken

    async def _announce_removed(self, key: str, removed: tuple[PendingTurn, ...], why: str) -> None:
        for each in removed:
            self._store.bus.publish(Envelope(key, each.id, TurnEnded(each.id, "stopped", why)))
        if removed:
            await self._announce_queue(key)

    async def _announce_queue(self, key: str) -> None:
        waiting = (each for each in await self._store.sessions.unfinished(key) if each.started_at is None)
        messages = tuple(QueuedMessage(each.id, each.text[:MAX_QUEUED_TEXT], each.held) for each in waiting)
        self._store.bus.publish(Envelope(key, "", QueueChanged(messages)))

    async def announce_switch(self, key: str, switch: SessionSwitch, why: str) -> None:
        """Another conversation is active under `key`: tell watchers, and stop the turn of the old one."""
        if switch.old == switch.new:
            return
        publish = self._store.bus.publish
        for turn in switch.dropped:
            publish(Envelope(key, turn, TurnEnded(turn, "stopped", "reset")))
        publish(Envelope(key, "", SessionChanged(switch.old, switch.new, why)))
        if switch.moved_from:
            publish(Envelope(switch.moved_from, "", SessionChanged(switch.new, "", why)))
        if switch.old:
            await self.post(key, Reset("reset", f"{why}_command", switch.old, switch.new))

    @asynccontextmanager
    async def ask(
        self, inbound: Inbound, busy: BusyMode | None = None, *, usual: BusyMode | None = None
    ) -> AsyncIterator[TurnFollower]:
        """Submit, and follow the turn to its end, also if another process runs it."""
        await self._open.wait()
        async with TurnFollower(inbound.address.key, self._store) as follower:
            follower.expect(await self.submit(inbound, busy, usual=usual))
            yield follower

    @asynccontextmanager
    async def follow(self, key: str, turn: str, *, wake: bool = False) -> AsyncIterator[TurnFollower]:
        """Follow an accepted turn: its messages so far, then its events to the end. `wake`: start it."""
        async with TurnFollower(key, self._store) as follower:
            if wake:
                await self.wake(key)
            await follower.join(turn)
            yield follower

    def watch(self, key: str) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """All events under `key` from now on; lossy, like the bus."""
        return self._store.bus.subscribe(key)

    def is_busy(self, key: str) -> bool:
        """True if a turn of `key` runs in this process."""
        return key in self.activity.busy

    async def wait_idle(self) -> None:
        """Return once no session of this process has work."""
        await self._open.wait()
        await self.activity.wait_idle()

    async def stop_platform(self, platform: str) -> None:
        """Stop the running turns of a platform that is about to be disconnected; returns when they have ended."""
        for key in [each for each in self._sessions if each.startswith(f"agent:main:{platform}:")]:
            for turn in await self.unfinished(key):
                await self.post(key, Stop("shutdown", "shutdown", turn))
            await self.activity.wait_idle(key)

    def _on_op(self, key: str, op: Op) -> None:
        session = self._sessions.get(key)
        if session is None or session.closed:
            if isinstance(op, AnswerApproval):  # a background turn of the session may have asked
                self.questions.answer(op)
            if not _needs_session(op, self._hooks.dispatcher):
                return  # nothing runs there to interrupt or steer
            session = self._open_session(key)
        if isinstance(op, Wake):
            self.activity.busy.add(key)
        session.post(op)

    def _open_session(self, key: str) -> Session:
        assert self._group is not None
        session = self._sessions[key] = Session(key, self._services)

        async def serve() -> None:
            await session.run()
            if self._sessions.get(key) is session:
                del self._sessions[key]

        self._group.create_task(serve(), name=f"session {key}")
        return session


def _needs_session(op: Op, hooks: HookDispatcher) -> bool:
    match op:
        case Wake():
            return True
        case Stop(turn=named):
            return bool(named)
        case Reset():  # plugins are notified even if the session was idle
            return hooks.has_hooks(specs.session_left, specs.session_reset)
    return False


async def admit_message(inbound: Inbound, hooks: HookDispatcher) -> Inbound:
    """The message as admitted by plugins. Raises `MessageRejected`."""
    ruling = await hooks.decide(specs.before_message, _reject_after_failure, inbound=inbound)
    if ruling is None or ruling.action == "take":
        return inbound
    if ruling.action == "rewrite":
        return structs.replace(inbound, text=ruling.text)
    by_choice = not isinstance(ruling, _FailedAdmission)
    raise MessageRejected(ruling.text or "a plugin dropped the message", by_choice=by_choice)


class _FailedAdmission(Admission, frozen=True):
    """Not a plugin's decision: one failed to decide."""


def _reject_after_failure(why: str) -> Admission:
    return _FailedAdmission("drop", f"the message was rejected: {why}")


def ops_for(admitted: AdmittedTurn) -> list[Op]:
    """What a message does to the turns ahead of it, by its mode.

    An interrupting one stops the first, which runs or is about to, and the queued ones, except messages
    that were queued on purpose: they keep their place.
    """
    if not admitted.ahead or admitted.busy == "queue":
        return []
    if admitted.busy == "steer":
        return [Steer(admitted.turn)]
    first, *others = admitted.ahead
    stopped = [first, *(each for each in others if each.busy != "queue")]
    return [Stop(SUPERSEDED, SUPERSEDED, each.id) for each in stopped]
