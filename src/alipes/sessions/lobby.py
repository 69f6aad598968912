"""Where sessions live: brings what is accepted, asked or left behind to the session it belongs to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from alipes.hooks.relay import Hooks
from alipes.kernel.turns import Inbound, Op, Stop, Take
from alipes.sessions.actor import OpenAgent, Session, Surroundings
from alipes.sessions.following import Following
from alipes.store.opening import Store


class Lobby:
    """The living sessions of this process. All work comes in by `submit` and `post`, recovery too."""

    def __init__(self, store: Store, *, hooks: Hooks, agent: OpenAgent, linger: float = 300.0) -> None:
        self._store = store
        self._around = Surroundings(
            turns=store.turns,
            hooks=hooks,
            agent=agent,
            publish=store.bus.publish,
            rested=self._rested,
            pass_on=store.dispatcher.wake,
            linger=linger,
        )
        self._sessions: dict[str, Session] = {}
        self._group: asyncio.TaskGroup | None = None
        self._busy: set[str] = set()
        self._settled = asyncio.Event()
        self._open = asyncio.Event()
        self.recovered: tuple[str, ...] = ()
        """Keys of the sessions whose interrupted turns were taken up at the start."""

    async def run(self) -> None:
        """Serve until cancelled; sessions are children of this task."""
        async with asyncio.TaskGroup() as self._group:
            self.recovered = await self._store.turns.orphans()
            for key in self.recovered:
                self._on_op(key, Take())
            self._group.create_task(self._store.dispatcher.run(self._on_op), name="dispatcher")
            self._open.set()

    async def submit(self, inbound: Inbound) -> str | None:
        """Accept a message; its turn's id, or None if it was accepted before. It is safe once we return."""
        await self._open.wait()
        turn = await self._store.turns.accept(inbound)
        if turn is not None:
            await self._store.dispatcher.wake(inbound.address.key)
        return turn

    async def post(self, key: str, op: Op) -> None:
        """Ask something of the session, wherever it lives."""
        session = self._sessions.get(key)
        if session is not None and key in self._busy:
            session.post(op)
        else:
            await self._store.dispatcher.signal(key, op)

    @asynccontextmanager
    async def ask(self, inbound: Inbound) -> AsyncIterator[Following]:
        """Submit, and follow the turn to its end, also if another process lives it."""
        await self._open.wait()
        key = inbound.address.key
        async with Following(key, self._store) as following:
            following.turn = await self.submit(inbound)
            yield following

    async def settled(self) -> None:
        """Return once no session of this process has anything left to do."""
        await self._open.wait()
        while self._busy:
            self._settled.clear()
            await self._settled.wait()

    def _on_op(self, key: str, op: Op) -> None:
        session = self._sessions.get(key)
        if session is None or session.closed:
            if isinstance(op, Stop) and not op.turn:
                return  # nothing lives there, so nothing can be interrupted
            session = self._open_session(key)
        if isinstance(op, Take):
            self._busy.add(key)
        session.post(op)

    def _open_session(self, key: str) -> Session:
        assert self._group is not None
        session = self._sessions[key] = Session(key, self._around)
        self._group.create_task(self._serve(session), name=f"session {key}")
        return session

    async def _serve(self, session: Session) -> None:
        await session.run()
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]

    def _rested(self, key: str) -> None:
        self._busy.discard(key)
        self._settled.set()
