"""What was imported from where: imports, and a row for each thing that one of them made, replaced or continued."""

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.features.importer.records import Kind
from alipes.kernel.messages import Json
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import SqlRows, clean_text, to_json

Action: TypeAlias = Literal["made", "replaced", "continued"]
_COLUMNS = "import_id, scope, kind, source_id, source_file, source_hash, action, target, target_hash, details"
_details_decoder = msgspec.json.Decoder(dict[str, Json])


class ImportRow(Struct, frozen=True):
    """One import. An unfinished one is continued by the next import of the same home."""

    id: str
    scope: str
    """The program and its home, such as `hermes:/home/ada/.hermes`; a profile is a home of its own."""
    started: float
    finished: float | None = None


class LedgerEntry(Struct, frozen=True):
    """One thing here that came from there."""

    import_id: str
    scope: str
    kind: Kind
    source_id: str
    source_file: str
    source_hash: str
    action: Action
    target: str
    """Ours: the id of a conversation, the path of a file in the home, the name of a setting or schedule."""
    target_hash: str
    """Of ours after the import; another hash: it was changed here."""
    details: dict[str, Json] = {}
    """What undo needs, by kind."""


class LedgerStore(SqlRows):
    async def begin(self, scope: str, program: str, taken: Iterable[str] = ()) -> ImportRow:
        """The unfinished import of this scope, or a new one. `taken`: further ids that are in use."""
        now = self._clock()

        def work(db: Connection) -> ImportRow:
            sql = "SELECT id, scope, started, finished FROM imports WHERE scope = ? AND finished IS NULL"
            if row := db.execute(sql, (scope,)).fetchone():
                return ImportRow(*row)
            used = {*taken, *(id for (id,) in db.execute("SELECT id FROM imports"))}
            numbers = [int(found[1]) for id in used if (found := re.fullmatch(rf"{program}-(\d+)", id))]
            new = ImportRow(f"{program}-{max(numbers, default=0) + 1}", scope, now)
            db.execute("INSERT INTO imports (id, scope, started) VALUES (?, ?, ?)", (new.id, scope, now))
            return new

        return await self._database.run(work)

    async def finish(self, id: str) -> None:
        await self._database.execute("UPDATE imports SET finished = ? WHERE id = ?", self._clock(), id)

    async def drop_empty(self, id: str) -> bool:
        """Forget an import that made nothing. False if it made something."""
        sql = """DELETE FROM imports WHERE id = ?
            AND NOT EXISTS (SELECT 1 FROM imported_items WHERE import_id = imports.id)"""
        return bool(await self._database.execute(sql, id))

    async def list(self) -> tuple[ImportRow, ...]:
        """All imports that were not undone, the oldest first."""
        sql = "SELECT id, scope, started, finished FROM imports ORDER BY started, id"
        return tuple(ImportRow(*row) for row in await self._database.fetch_all(sql))

    async def known(self, scope: str, kind: Kind) -> dict[str, LedgerEntry]:
        """The latest entry of everything of a kind, by the id there."""
        sql = f"SELECT {_COLUMNS} FROM imported_items WHERE scope = ? AND kind = ? ORDER BY number"
        rows = await self._database.fetch_all(sql, scope, kind)
        return {entry.source_id: entry for entry in map(_entry, rows)}

    async def of_import(self, id: str) -> tuple[LedgerEntry, ...]:
        """What an import did, in order."""
        sql = f"SELECT {_COLUMNS} FROM imported_items WHERE import_id = ? ORDER BY number"
        return tuple(map(_entry, await self._database.fetch_all(sql, id)))

    async def later(self, id: str) -> tuple[str, ...]:
        """Imports that changed something which this one had made."""
        sql = """SELECT DISTINCT later.import_id FROM imported_items AS mine JOIN imported_items AS later
            ON later.scope = mine.scope AND later.kind = mine.kind AND later.source_id = mine.source_id
                AND later.number > mine.number AND later.import_id <> mine.import_id
            WHERE mine.import_id = ? ORDER BY 1"""
        return tuple(row[0] for row in await self._database.fetch_all(sql, id))

    async def add(self, entry: LedgerEntry) -> None:
        """Instead of an earlier entry of the same import."""
        await self._database.run(lambda db: insert_entry(db, entry), sync=False)

    async def drop_pending(self, entry: LedgerEntry) -> None:
        """Remove an entry that was not replaced by its final one."""
        sql = """DELETE FROM imported_items
            WHERE import_id = ? AND scope = ? AND kind = ? AND source_id = ? AND target_hash = ?"""
        values = (entry.import_id, entry.scope, entry.kind, clean_text(entry.source_id), entry.target_hash)
        await self._database.execute(sql, *values, sync=False)

    async def remove(self, entry: LedgerEntry) -> None:
        await self._database.run(lambda db: remove_entry(db, entry), sync=False)

    async def remove_import(self, id: str) -> None:
        def work(db: Connection) -> None:
            db.execute("DELETE FROM imported_items WHERE import_id = ?", (id,))
            db.execute("DELETE FROM imports WHERE id = ?", (id,))

        await self._database.run(work)

    async def settle(self) -> None:
        """Return once everything is on disk."""
        await self._database.wait_synced()


def insert_entry(db: Connection, entry: LedgerEntry) -> None:
    remove_entry(db, entry)
    names = (entry.scope, entry.kind, clean_text(entry.source_id), clean_text(entry.source_file), entry.source_hash)
    ours = (entry.action, clean_text(entry.target), entry.target_hash, to_json(entry.details))
    sql = f"INSERT INTO imported_items ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    db.execute(sql, (entry.import_id, *names, *ours))


def remove_entry(db: Connection, entry: LedgerEntry) -> None:
    sql = "DELETE FROM imported_items WHERE import_id = ? AND scope = ? AND kind = ? AND source_id = ?"
    db.execute(sql, (entry.import_id, entry.scope, entry.kind, clean_text(entry.source_id)))


def _entry(row: tuple[str, ...]) -> LedgerEntry:
    *columns, details = row
    return structs.replace(LedgerEntry(*columns), details=_details_decoder.decode(details))  # type: ignore[arg-type]
