"""Runs while they live: each is followed from its beginning, so that whoever asks later misses nothing.

It lives none itself: that is the lobby's, and goes on whether anybody listens or not.
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from alipes.kernel.errors import AlipesError
from alipes.kernel.turns import Address, ApprovalAsked, Asked, Busy, Inbound, Stop
from alipes.sessions.following import Following
from alipes.store.runs import SqliteRuns
from alipes.web.endpoints import PLATFORM, House
from alipes.web.events import Chronicle, Mark
from alipes.web.sse import Tell

T = TypeVar("T")
DISCONNECTED = "disconnected"


class Living:
    """A run that is followed."""

    def __init__(self, turn: str, inbound: Inbound) -> None:
        self.turn, self.inbound = turn, inbound
        self.chronicle = Chronicle()

    @property
    def address(self) -> Address:
        return self.inbound.address


class Runs:
    """Those that live. `run` has to serve for them to be followed."""

    def __init__(self, house: House, *, workdir: str = "") -> None:
        """`workdir`: where tools work for them."""
        self._house, self.workdir = house, workdir
        self._living: dict[str, Living] = {}
        self._joining: dict[str, asyncio.Future[Living]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._open = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled. Runs that were taken up again at the start are followed from there on."""
        async with asyncio.TaskGroup() as self._group:
            self._open.set()
            for turn, inbound in await SqliteRuns(self._house.store.database).unfinished(PLATFORM):
                await self.follow(turn, inbound)
            await asyncio.Event().wait()

    def hang_up(self) -> None:
        """Let every listener go: we leave, and they may ask whoever comes after us."""
        for living in self._living.values():
            living.chronicle.close()

    def find(self, turn: str) -> Living | None:
        return self._living.get(turn)

    async def begin(self, inbound: Inbound, busy: Busy | None = None) -> str | None:
        """Submit it, and follow it; its id, or None if it was accepted before. Raises as `submit` does."""
        await self._open.wait()
        begun: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._spawn(self._live(inbound, busy, begun))
        return await begun

    async def follow(self, turn: str, inbound: Inbound) -> Living:
        """One that lives and was begun by somebody else, or before a restart."""
        await self._open.wait()
        if (living := self._living.get(turn)) is not None:
            return living
        if (joining := self._joining.get(turn)) is None:
            joining = self._joining[turn] = asyncio.get_running_loop().create_future()
            self._spawn(self._join(turn, inbound, joining))
        return await asyncio.shield(joining)

    async def tell(self, living: Living, since: Mark, tell: Tell) -> None:
        """Everything from there on, until the run ends or we hang up."""
        chronicle = living.chronicle
        first, since = chronicle.resumed(since)
        chronicle.listeners += 1
        try:
            if first:
                await tell(first)
            all_told = False
            while not all_told:
                frames, since, all_told = chronicle.after(since)
                if frames:
                    await tell(frames)
                elif not all_told:
                    await chronicle.news()
        finally:
            chronicle.listeners -= 1

    async def left(self, living: Living) -> None:
        """A listener went away; what was asked for by the last one alone goes with it."""
        if living.inbound.attended and not living.chronicle.listeners and not living.chronicle.closed:
            stop = Stop(DISCONNECTED, DISCONNECTED, living.turn)
            await self._house.lobby.post(living.address.key, stop)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        self._group.create_task(work)

    async def _live(self, inbound: Inbound, busy: Busy | None, begun: "asyncio.Future[str | None]") -> None:
        try:
            async with self._house.lobby.ask(inbound, busy) as following:
                turn = following.turn
                living = self._keep(turn, inbound) if turn else None
                _settle(begun, turn)
                if living is not None:
                    await self._listen(following, living)
        except AlipesError as error:
            if begun.done():
                raise
            begun.set_exception(error)

    async def _join(self, turn: str, inbound: Inbound, joining: "asyncio.Future[Living]") -> None:
        async with self._house.lobby.follow(inbound.address.key, turn) as following:
            living = self._keep(turn, inbound)
            living.chronicle.join_late()
            for _ in range(following.behind):
                living.chronicle.add(await anext(following), old=True)
            for question in self.questions(living.address.key, turn):
                living.chronicle.add(question)
            del self._joining[turn]
            _settle(joining, living)
            await self._listen(following, living)

    def _keep(self, turn: str, inbound: Inbound) -> Living:
        living = self._living[turn] = Living(turn, inbound)
        return living

    async def _listen(self, following: Following, living: Living) -> None:
        try:
            async for event in following:
                living.chronicle.add(event)
        finally:
            del self._living[living.turn]
            living.chronicle.close()

    def questions(self, key: str, turn: str) -> tuple[ApprovalAsked | Asked, ...]:
        """What the run waits to be told; empty also where another process lives it."""
        approvals, questions = self._house.lobby.approvals, self._house.lobby.questions
        calls = approvals.open(key) if approvals.waits(turn) else ()
        asked = questions.open(key) if questions.waits(turn) else None
        return (*calls, *(() if asked is None else (asked,)))


def _settle(future: "asyncio.Future[T]", outcome: T) -> None:
    if not future.done():  # whoever asked may have gone
        future.set_result(outcome)
