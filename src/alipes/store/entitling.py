"""A conversation that nobody named gets a name; one that somebody named keeps it."""

from alipes.store import rows
from alipes.store.database import Database


async def entitle(database: Database, session: str, title: str) -> bool:
    """False where it has a name already, or is not there."""
    sql = "UPDATE sessions SET title = ? WHERE id = ? AND title = ''"
    row = (rows.whole(title), session)
    return bool(await database.run(lambda db: db.execute(sql, row).rowcount))
