"""Fills the search indexes that are made in the background, a few messages per transaction."""

from collections.abc import Sequence

from alipes.store.search import cleanup, index, vectors
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import SqlRows


class SqlSearchIndexer(SqlRows):
    async def count_missing(self, limit: int, name: str = index.TRIGRAMS) -> int:
        """How many messages an index lacks, at most `limit`."""
        return await self._database.read_long(lambda db: index.count_missing(db, limit, name))

    async def index_some(self) -> bool:
        """Index parts of words of some more messages; False if there are no more."""
        return await self._database.run(index.index_parts, sync=False)  # repeated after a power cut

    async def clean_some(self) -> bool:
        """Remove some deleted text from the indexes; False if there is no more."""
        return await self._database.run(cleanup.clean_some, sync=False)  # repeated after a power cut

    async def next_texts(self, count: int) -> list[tuple[int, str]]:
        """Some messages without a vector, and their texts."""
        return await self._database.read_long(lambda db: index.next_batch(db, vectors.VECTORS, count))

    async def save_vectors(self, rows: Sequence[tuple[int, Sequence[float]]]) -> None:
        """Store the vectors of what `next_texts` returned."""
        made = [(number, vectors.to_bits(vector)) for number, vector in rows]

        def work(db: Connection) -> None:
            vectors.save_vectors(db, made)

        await self._database.run(work, sync=False)

    async def find_similar(self, vector: Sequence[float]) -> list[int]:
        """Numbers of messages with a similar meaning, the most similar first."""
        wanted = vectors.to_bits(vector)
        return await self._database.read_long(lambda db: vectors.find_similar(db, wanted)) if wanted else []
