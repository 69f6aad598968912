"""What was owed in a store that comes from a backup: given up, so that nothing is sent that may be there."""

import sqlite3
import time

from alipes.store.database import Database

WHY = "the home was restored from a backup"


async def give_up(database: Database) -> int:
    """Give up what was owed to chats; how many. `alipes serve outbox` shows it, and sends it if told to."""
    return await database.run(_give_up)


def _give_up(db: sqlite3.Connection) -> int:
    sql = "UPDATE debts SET state = 'dead', why = ?, settled = ? WHERE state IN ('owed', 'trying')"
    db.execute("DELETE FROM controls")
    db.execute("DELETE FROM drafts")
    return db.execute(sql, (WHY, time.time())).rowcount
