"""Questions that an earlier process asked and nobody answered: a word on one waits until it is asked anew."""

import asyncio

from alipes.store.asked import unanswered
from alipes.store.opening import Store

HELD = 5.0
"""Seconds that a word waits at most; the chat waits with it."""


class _Stood:
    def __init__(self, turn: str, text: str) -> None:
        self.turn, self.text, self.same = turn, text, False
        self.over = asyncio.Event()


class Standing:
    """By conversation, what its person read before we were there: their word is on that, and nothing else."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stood: dict[str, _Stood] = {}

    async def recall(self, key: str) -> None:
        """What stands under `key`, before its turn can ask anew."""
        for turn in (await self._store.sessions.unfinished(key))[:1]:
            if text := await unanswered(self._store.database, turn.id):
                self._stood[key] = _Stood(turn.id, text)

    def asked(self, key: str, turn: str, text: str) -> None:
        """A question is put there; an empty text where the person does not see all of it."""
        if (stood := self._stood.pop(key, None)) is not None:
            stood.same = (turn, text) == (stood.turn, stood.text)
            stood.over.set()

    def give_up(self, key: str) -> None:
        """Something came that nothing there may hold up: a word that waits is a message."""
        self.asked(key, "", "")

    async def again(self, key: str) -> bool:
        """Wait until something is asked there; is it what stood there before?"""
        if (stood := self._stood.get(key)) is None:
            return False
        if stood.turn not in [each.id for each in await self._store.sessions.unfinished(key)]:
            return False
        try:
            async with asyncio.timeout(HELD):
                await stood.over.wait()
        except TimeoutError:
            self._stood.pop(key, None)
        return stood.same
