"""Adds imported people and default chats."""

from alipes.features.importer.store.ledger import LedgerEntry, insert_entry
from alipes.kernel.turns import Address
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import SqlRows, clean_text, to_json


class ImportedPeople(SqlRows):
    async def add(self, person: tuple[str, str, str, str, float], entry: LedgerEntry) -> None:
        """`person`: platform, id, name, role, and since when; with the entry, in one transaction."""
        platform, id, name, role, added = person
        row = (platform, clean_text(id), clean_text(name), role, added or self._clock())

        def work(db: Connection) -> None:
            db.execute(
                "INSERT OR IGNORE INTO people (platform, person_id, name, role, added) VALUES (?, ?, ?, ?, ?)", row
            )
            insert_entry(db, entry)

        await self._database.run(work, sync=False)

    async def set_default_chat(self, address: Address, entry: LedgerEntry) -> None:
        """The home of its platform, with the entry."""
        row = (address.platform, to_json(address))

        def work(db: Connection) -> None:
            db.execute("INSERT OR REPLACE INTO default_chats (platform, address) VALUES (?, ?)", row)
            insert_entry(db, entry)

        await self._database.run(work, sync=False)

    async def remove_default_chat(self, platform: str) -> None:
        await self._database.execute("DELETE FROM default_chats WHERE platform = ?", platform)
