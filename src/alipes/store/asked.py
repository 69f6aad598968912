"""Which question of a turn reached its chat and was not answered. It asks nothing."""

import sqlite3

import msgspec

from alipes.kernel.delivery import Outbound
from alipes.store.database import Database

_outbounds = msgspec.json.Decoder(Outbound)
ANSWERED = "answered"


def question(turn: str, ask: str) -> str:
    """The id under which it is owed."""
    return f"ask:{turn}:{ask}"


async def unanswered(database: Database, turn: str) -> str:
    """The text of the last one that surely arrived, unless somebody answered it; else empty."""
    sql = (
        "SELECT outbound, why FROM debts WHERE id > ? AND id < ? AND state = 'sent' "
        "ORDER BY number DESC LIMIT 1"
    )
    bounds = question(turn, ""), question(turn, "")[:-1] + ";"  # the letter after the colon

    def look(db: sqlite3.Connection) -> str:
        row = db.execute(sql, bounds).fetchone()
        return "" if row is None or row[1] == ANSWERED else _outbounds.decode(row[0]).text

    return await database.read(look)


async def answered(database: Database, id: str) -> None:
    """Nobody waits for a word on it any more."""
    sql, row = "UPDATE debts SET why = ? WHERE id = ? AND state IN ('trying', 'sent')", (ANSWERED, id)
    await database.run(lambda db: db.execute(sql, row).rowcount)
