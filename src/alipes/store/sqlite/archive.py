"""The archive of a home in SQLite: it can be checked, repaired and copied as a file."""

from pathlib import Path

from alipes.store.backups import backup
from alipes.store.ports.archive import StoreFacts
from alipes.store.search import index
from alipes.store.sql.archive import SqlArchive
from alipes.store.sqlite.database import SqliteDatabase


class SqliteArchive(SqlArchive):
    _database: SqliteDatabase

    async def facts(self) -> StoreFacts:
        return await self._database.read(lambda db: backup.read_facts(db, self._database.path))

    async def check(self, *, repair: bool = False) -> list[str]:
        file, wrong = await backup.check_database(self._database.path)
        if wrong and repair and not file:
            await self._database.run(index.rebuild_index)
            file, wrong = await backup.check_database(self._database.path)
        return file + wrong

    async def backup(self, target: str) -> None:
        await backup.backup_database(self._database.path, Path(target))
