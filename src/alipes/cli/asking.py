"""A question put and its answer shown, without a prompt: what `alipes ask` and a piped conversation share."""

import asyncio

import msgspec

from alipes.app import App
from alipes.cli.interrupts import Interrupts
from alipes.cli.render import Telling, one_line
from alipes.cli.screen import Screen
from alipes.kernel.turns import Inbound, TurnEnded
from alipes.sessions.delegating_words import interrupted
from alipes.sessions.following import Following

STATUS = {"answered": 0, "steered": 0, "failed": 1, "out_of_steps": 1, "stopped": 130}
STOPPED, UNREAD = 130, 141


class Asking:
    """Asks through the lobby, so the turn may live here or in the process that holds the session."""

    def __init__(
        self,
        app: App,
        screen: Screen,
        interrupts: Interrupts,
        *,
        json: bool = False,
        verbose: bool = False,
        quiet: bool = False,
    ) -> None:
        self._app, self._screen, self._interrupts = app, screen, interrupts
        self._telling = Telling(screen.answer, screen.remark, verbose=verbose, quiet=quiet or json)
        self._encode = msgspec.json.Encoder().encode if json else None

    async def ask(self, inbound: Inbound, *, last: bool = False) -> int:
        """Ask, show everything until the turn has ended, and return what that means as an exit status.

        `last`: the process leaves then.
        """
        key = inbound.address.key
        async with self._app.lobby.ask(inbound, "queue") as following, asyncio.TaskGroup() as watching:
            if last and following.turn is not None:
                self._app.lobby.last[key] = following.turn
            self._interrupts.begin()
            watches = (
                watching.create_task(self._heed(following, key)),
                watching.create_task(self._notice_desertion()),
            )
            try:
                status = await self._follow(following)
            finally:
                self._interrupts.end()
                for watch in watches:
                    watch.cancel()
        await self._screen.drained()
        if self._screen.failure:
            self._screen.complain(f"the answer cannot be written: {self._screen.failure}")
            return 1
        return UNREAD if self._screen.deserted.is_set() else status

    def complain(self, text: str) -> None:
        self._screen.complain(text)

    async def wait_for_others(self) -> None:
        """Turns that another process left unfinished came to us; they are not left a second time."""
        if others := self._app.lobby.recovered:
            self._screen.remark(f"· finishing what was interrupted: {one_line(interrupted(others), 100)}")
            await self._app.lobby.settled()

    async def _follow(self, following: Following) -> int:
        async for event in following:
            if self._encode is not None:
                self._screen.line(self._encode(event))
            else:
                self._telling.tell(event)
            if isinstance(event, TurnEnded):
                return STATUS[event.ending]
        return 1

    async def _heed(self, following: Following, key: str) -> None:
        await self._interrupts.asked.wait()
        assert following.turn is not None
        stop = self._interrupts.stop(following.turn)
        await self._app.lobby.post(key, stop)
        await self._interrupts.insisted.wait()
        # Who takes the turn up after us must find that it was stopped.
        await self._app.store.turns.put_control(key, stop)
        self._interrupts.leave()

    async def _notice_desertion(self) -> None:
        await self._screen.deserted.wait()
        self._interrupts.ask("disconnected")
