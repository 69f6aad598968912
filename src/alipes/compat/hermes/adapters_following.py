"""Who tells which chat of which turn: those submitted here, those left from before, those others began."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from alipes.compat.hermes.adapters_attending import Attending
from alipes.compat.hermes.adapters_speaking import Speaker
from alipes.compat.hermes.adapters_values import HEARD, MessageEvent
from alipes.compat.hermes.session_keys import SessionSource
from alipes.kernel.errors import NotTaken
from alipes.kernel.turns import Answer, Busy, Inbound, TurnStarted
from alipes.sessions.lobby import Lobby

GRACE = 2.0
"""Seconds to wait for what was ended."""


class Follower:
    """The tasks of one platform. They end with the group that was given."""

    def __init__(
        self,
        lobby: Lobby,
        speaker: Speaker,
        active: dict[str, asyncio.Event],
        *,
        group: asyncio.TaskGroup,
        soon: Callable[[Callable[[], object]], None],
    ) -> None:
        """`active`: where the adapter looks for what is at work. `soon`: do it on the loop's thread."""
        self._lobby, self._speaker, self._active = lobby, speaker, active
        self._group, self._soon = group, soon
        self._attended: dict[str, asyncio.Task[None]] = {}
        """By turn, who tells its chat."""
        self._watched: dict[str, SessionSource] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lane(self, key: str) -> asyncio.Lock:
        """Messages of one conversation are taken in one after the other."""
        return self._lanes.setdefault(key, asyncio.Lock())

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def submit(self, event: MessageEvent, inbound: Inbound, busy: Busy) -> str | None:
        """Have it accepted, and its turn told of to the end; None when it did not become a turn."""
        accepted: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        task = self.begin(self._ask(event, inbound, busy, accepted), f"chat {inbound.id}")
        turn = await accepted
        if turn is not None:
            self._attended[turn] = task
            task.add_done_callback(lambda _task: self._attended.pop(turn, None))
        return turn

    async def _ask(
        self, event: MessageEvent, inbound: Inbound, busy: Busy, accepted: "asyncio.Future[str | None]"
    ) -> None:
        try:
            async with self._lobby.ask(inbound, busy) as following:
                _settle(accepted, following.turn)
                await self._attending(event, inbound.address.key).run(following, self._group)
        except NotTaken as error:
            _settle(accepted, None)
            if not error.by_choice and event.source is not None:
                await self._speaker.say(event.source, str(error), event.message_id)
        finally:
            _settle(accepted, None)

    def join(self, key: str, turn: str, *, begun: bool, event: MessageEvent | None = None) -> None:
        """Tell the chat of a turn that was accepted otherwise; once."""
        if turn in self._attended:
            return
        known = event or MessageEvent(source=self._watched[key], internal=True)
        task = self.begin(self._follow(known, key, turn, begun), f"chat {turn}")
        self._attended[turn] = task
        task.add_done_callback(lambda _task: self._attended.pop(turn, None))

    async def _follow(self, event: MessageEvent, key: str, turn: str, begun: bool) -> None:
        async with self._lobby.follow(key, turn) as following:
            await self._attending(event, key).run(following, self._group, begun=begun)

    def _attending(self, event: MessageEvent, key: str) -> Attending:
        answer = partial(self._answer, key)
        return Attending(self._speaker, event, key, active=self._active, answer=answer)

    def _answer(self, key: str, answer: Answer) -> None:
        """Pass a person's word on; from any thread."""
        self._soon(lambda: self.begin(self._lobby.post(key, answer), f"answer {answer.ask}"))

    def watch(self, key: str, source: SessionSource) -> None:
        """Tell this chat also of turns that others begin in it, from now on."""
        new = key not in self._watched
        self._watched[key] = source
        if new:
            self.begin(self._overhear(key), f"watch {key}")

    async def _overhear(self, key: str) -> None:
        HEARD.set(None)  # what others begin is not in the course of the message that came first
        while True:
            async with self._lobby.watch(key) as envelopes:
                async for envelope in envelopes:
                    if isinstance(envelope.event, TurnStarted):
                        async with self.lane(key):  # one of ours is known as such once it was taken in
                            self.join(key, envelope.turn, begun=True)

    async def over(self, turns: list[str]) -> None:
        """Return when nobody tells of them any more, or soon after."""
        tasks = {self._attended[turn] for turn in turns if turn in self._attended}
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE)


def _settle(accepted: "asyncio.Future[str | None]", turn: str | None) -> None:
    if not accepted.done():
        accepted.set_result(turn)
