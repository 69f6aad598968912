"""Fills the search indexes that are made in the background, a few messages per transaction."""

from collections.abc import Sequence

from alipes.store.search import cleanup, index, vectors
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import SqlRows


class SqlSearchIndexer(SqlRows):
    async def count_missing(self, limit: int, name: str = index.TRIGRAMS) -> int:
        return await self._database.read_long(lambda db: index.count_missing(db, limit, name))

    async def index_some(self) -> bool:
        return await self._database.run(index.index_parts, sync=False)  # repeated after a power cut

    async def clean_some(self) -> bool:
        return await self._database.run(cleanup.clean_some, sync=False)  # repeated after a power cut

    async def next_texts(self, count: int) -> list[tuple[int, str]]:
        return await self._database.read_long(lambda db: index.next_batch(db, vectors.VECTORS, count))

    async def save_vectors(self, rows: Sequence[tuple[int, Sequence[float]]]) -> None:
        made = [(number, vectors.to_bits(vector)) for number, vector in rows]

        def work(db: Connection) -> None:
            vectors.save_vectors(db, made)

        await self._database.run(work, sync=False)

    async def find_similar(self, vector: Sequence[float]) -> list[int]:
        wanted = vectors.to_bits(vector)
        return await self._database.read_long(lambda db: vectors.find_similar(db, wanted)) if wanted else []
