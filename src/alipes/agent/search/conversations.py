"""Search over all conversations: what was said, what it means, and the messages around a hit.

The indexes of parts of words and of meaning are filled in the background, once there is something to gain from it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from alipes.agent.auxiliary import BackgroundTasks
from alipes.store.ports.archive import Archive
from alipes.store.ports.search import EVERYTHING, SearchContext, SearchHit, SearchIndexer, SearchScope

Embed: TypeAlias = Callable[[Sequence[str]], Awaitable[list[list[float]] | None]]
MIN_MISSING = 500
"""Fewer messages are searched without an index as fast."""
TURNS_PER_CHECK = 20
EMBEDDED_TOGETHER = 64
MAX_EMBEDDED_CHARS = 2_000
_PAUSE_SHARE = 4.0
"""Pauses while indexing are this much longer than the work, so that turns do not wait."""
_MIN_PAUSE_S = 0.02
CLEAN_EVERY_S = 600.0
"""Deleted text leaves the indexes at most this often, because that writes all of them again."""


class ConversationSearch:
    """`turn_ended` is a hook."""

    def __init__(
        self, archive: Archive, indexer: SearchIndexer, tasks: BackgroundTasks, embed: Embed | None = None
    ) -> None:
        """`embed`: see `provider_calls.embed_by_meaning`; without it, or if it returns None, only words count."""
        self._archive, self._indexer, self._tasks, self._embed = archive, indexer, tasks, embed
        self._turns = 0
        self._indexing = False
        self._clean_at = 0.0

    async def search(
        self, text: str, limit: int = 20, *, scope: SearchScope = EVERYTHING, marks: tuple[str, str] = ("[", "]")
    ) -> list[SearchHit]:
        """Messages that contain all words of `text`, best first; any text is a valid query."""
        similar = await self._find_similar(text) if text.strip() else []
        found = await self._archive.search(text, limit, scope=scope, marks=marks, similar=similar)
        self._index_soon()
        return found

    async def _find_similar(self, text: str) -> list[int]:
        vectors = await self._embed([text[:MAX_EMBEDDED_CHARS]]) if self._embed is not None else None
        return await self._indexer.find_similar(vectors[0]) if vectors else []

    async def around(
        self, message: int, before: int = 5, after: int = 5, *, scope: SearchScope = EVERYTHING
    ) -> SearchContext:
        """The messages around a hit. Raises `SessionError` if it is not in the scope."""
        return await self._archive.around(message, before, after, scope=scope)

    async def turn_ended(self) -> None:
        self._turns += 1
        if self._turns % TURNS_PER_CHECK == 0:
            self._index_soon()

    def clean_soon(self) -> None:
        """A conversation was deleted: remove its words from the indexes in the background."""
        self._index_soon()

    def _index_soon(self) -> None:
        if not self._indexing:
            self._indexing = True
            self._tasks.spawn(self._index, "search index")

    async def _index(self) -> None:
        try:
            if time.monotonic() >= self._clean_at and await self._indexer.clean_some():
                await self._repeat(self._indexer.clean_some)
                self._clean_at = time.monotonic() + CLEAN_EVERY_S
            if await self._indexer.count_missing(MIN_MISSING) >= MIN_MISSING:
                await self._repeat(self._indexer.index_some)
            if self._embed is not None:
                await self._repeat(self.embed_some)
        finally:
            self._indexing = False

    async def _repeat(self, work: Callable[[], Awaitable[bool]]) -> None:
        more = True
        while more:
            began = time.monotonic()
            more = await work()
            await asyncio.sleep(max(_MIN_PAUSE_S, (time.monotonic() - began) * _PAUSE_SHARE))

    async def embed_some(self) -> bool:
        """Store the vectors of some more messages; False if there are no more, or no embeddings."""
        rows = await self._indexer.next_texts(EMBEDDED_TOGETHER) if self._embed is not None else []
        if self._embed is None or not rows:
            return False
        vectors = await self._embed([text[:MAX_EMBEDDED_CHARS] for _, text in rows])
        if not vectors:
            return False
        numbers = (number for number, _ in rows)
        await self._indexer.save_vectors(list(zip(numbers, vectors, strict=True)))
        return True
