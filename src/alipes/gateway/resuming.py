"""The word to a chat that what was cut off there goes on. It goes on with nothing itself."""

import asyncio
import time
from collections.abc import Collection, Iterable

from alipes.kernel.delivery import Outbound
from alipes.kernel.turns import Address
from alipes.kernel.wording import brief
from alipes.store.opening import Store


class Resuming:
    """Owes the chats of `platforms` a word for turns that an earlier process began."""

    def __init__(self, store: Store, platforms: Collection[str]) -> None:
        self._store, self._platforms, self._born = store, platforms, time.time()
        self._cleared = False
        self._one = asyncio.Lock()

    async def tell(self, keys: Iterable[str]) -> None:
        """Each is told once, however often this is called. To stand before whatever is said next, it must be
        owed before the turns are taken up."""
        async with self._one:
            await self._clear()
            owed = [word for key in keys if (word := await self._word(key)) is not None]
            if owed:
                await self._store.outbox.owe(*owed)

    async def _clear(self) -> None:
        """First: what an earlier process owed only as long as it lived is given up."""
        if not self._cleared:
            self._cleared = True
            for name in self._platforms:
                await self._store.outbox.withdraw(name)

    async def _word(self, key: str) -> Outbound | None:
        if (address := await self.address(key)) is None:
            return None
        for turn in (await self._store.sessions.unfinished(key))[:1]:
            before = turn.begun is not None and turn.begun < self._born
            if before and not await self._answered_already(turn.id):
                id = f"resumed:{turn.id}:{self._store.host}"
                text = f"I was started anew, and go on with {brief(turn.text)}."
                return Outbound(id, address, text, notice=True, fleeting=True)
        return None

    async def address(self, key: str) -> Address | None:
        """Where the session under `key` is, if that is one of our chats."""
        standing = await self._store.sessions.standing(key)
        if standing is None or standing.address.platform not in self._platforms:
            return None
        return standing.address

    async def _answered_already(self, turn: str) -> bool:
        """Was all said, and only its end not written any more?"""
        facts = await self._store.archive.turn(turn)
        last = facts.said[-1] if facts is not None and facts.said else None
        return last is not None and last.role == "assistant" and not last.calls
