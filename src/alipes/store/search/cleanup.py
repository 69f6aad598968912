"""Removes deleted text from the search indexes, a few pages per transaction.

FTS5 only notes that a message is deleted: its words remain in older segments of an index until these are merged. That
rewrites the whole index, so it is done in small steps, and continues after a restart.
"""

from alipes.store.sql.connection import Connection

TABLES = ("search_index", "search_trigrams")
PAGES = 32
"""Pages that are written in one step, in about three milliseconds."""
_REQUESTED, _MERGING, _MERGING_REQUESTED = 1, 2, 3
"""States, in the column `first` of `search_progress`. The last: something was deleted while segments are merged."""


def request_cleanup(db: Connection) -> None:
    """Something was deleted."""
    sql = """INSERT INTO search_progress VALUES (?, ?, 0)
        ON CONFLICT (name) DO UPDATE SET
            first = CASE WHEN search_progress.first = ? THEN excluded.first ELSE ? END"""
    db.executemany(sql, [(_name(table), _REQUESTED, _REQUESTED, _MERGING_REQUESTED) for table in TABLES])


def clean_some(db: Connection) -> bool:
    """Do one step; False if no deleted text is left."""
    for table in TABLES:
        row = db.execute("SELECT first FROM search_progress WHERE name = ?", (_name(table),)).fetchone()
        if row is not None:
            _merge(db, table, row[0])
            return True
    return False


def _merge(db: Connection, table: str, state: int) -> None:
    if state == _REQUESTED:
        db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('usermerge', 2)")
        db.execute("UPDATE search_progress SET first = ? WHERE name = ?", (_MERGING, _name(table)))
    before = _count_changes(db)
    pages = -PAGES if state == _REQUESTED else PAGES  # negative: all segments there are now become one
    db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
    if _count_changes(db) - before >= 2:  # else nothing was left to merge
        return
    if state == _MERGING_REQUESTED:
        db.execute("UPDATE search_progress SET first = ? WHERE name = ?", (_REQUESTED, _name(table)))
    else:
        db.execute("DELETE FROM search_progress WHERE name = ?", (_name(table),))


def _count_changes(db: Connection) -> int:
    (count,) = db.execute("SELECT total_changes()").fetchone()
    return int(count)


def _name(table: str) -> str:
    return f"cleanup of {table}"
