"""The search indexes: checks and rebuilds that of words, and fills that of parts of words in the background.

The index of parts has groups of three letters. It holds no text, so what it finds must be compared with the text.
Messages that it does not have yet are searched without it.
"""

import sqlite3
from collections.abc import Iterator, Sequence

from alipes.kernel.lazy import lazy_pattern
from alipes.store.search.scope import Span
from alipes.store.sql import history
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import searchable_text

MAX_CHECKED_MESSAGES = 50_000
"""With more messages the index itself is not checked: the check blocks writers, here for a second at most."""
BATCH = 100
"""Messages that are indexed in one transaction, in about ten milliseconds."""
MAX_TRIGRAMS = 64
"""Of a query."""
TRIGRAMS = "trigrams"
_DENSE_LETTERS = r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
_DENSE = lazy_pattern(f"(?<={_DENSE_LETTERS})(?={_DENSE_LETTERS})")
_SEPARATOR = "\x01"
"""Between Chinese, Japanese and Korean characters, of which two are a word already: so they make a group of three."""


def indexed_span(db: Connection, name: str = TRIGRAMS) -> Span:
    """The messages that an index has; the first is larger than the last if it has none."""
    row = db.execute("SELECT first, last FROM search_progress WHERE name = ?", (name,)).fetchone()
    return (row[0], row[1]) if row and row[0] <= row[1] else (1, 0)


def match_parts(parts: Sequence[str]) -> str:
    """A query for the index of parts; empty if all parts are too short for it."""
    groups = dict.fromkeys(text[start : start + 3] for text in map(_spread, parts) for start in range(len(text) - 2))
    return " ".join('"' + group.replace('"', '""') + '"' for group in list(groups)[:MAX_TRIGRAMS])


def _spread(text: str) -> str:
    return _DENSE.sub(_SEPARATOR, text)


def index_parts(db: Connection, count: int = BATCH) -> bool:
    """Index some more messages; False if there are no more."""
    rows = next_batch(db, TRIGRAMS, count)
    sql = "INSERT INTO search_trigrams (rowid, text) VALUES (?, ?)"
    db.executemany(sql, [(number, _spread(text)) for number, text in rows])
    save_progress(db, TRIGRAMS, [number for number, _ in rows])
    return bool(rows)


def next_batch(db: Connection, name: str, count: int) -> list[tuple[int, str]]:
    """Messages that an index lacks, and their texts, in order; new ones first, then older and older ones."""
    first, last = indexed_span(db, name)
    newer = "SELECT id, c0 FROM search_index_content WHERE id > ? ORDER BY id LIMIT ?"
    older = "SELECT id, c0 FROM search_index_content WHERE id < ? ORDER BY id DESC LIMIT ?"
    rows = db.execute(newer, (last, count)).fetchall() if first <= last else []
    return rows or db.execute(older, (first if first <= last else _next_number(db), count)).fetchall()[::-1]


def save_progress(db: Connection, name: str, numbers: Sequence[int]) -> None:
    """An index has these messages of `next_batch` now."""
    if numbers:
        first, last = indexed_span(db, name)
        reached = (min(first, *numbers), max(last, *numbers)) if first <= last else (min(numbers), max(numbers))
        db.execute("INSERT OR REPLACE INTO search_progress VALUES (?, ?, ?)", (name, *reached))


def _next_number(db: Connection) -> int:
    (number,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM messages").fetchone()
    return int(number)


def count_missing(db: Connection, limit: int, name: str = TRIGRAMS) -> int:
    """How many messages an index lacks, at most `limit`."""
    first, last = indexed_span(db, name)
    sql = "SELECT count(*) FROM (SELECT 1 FROM search_index_content WHERE id > ? OR id < ? LIMIT ?) AS missing"
    (count,) = db.execute(sql, (last, first if first <= last else 0, limit)).fetchone()
    return int(count)


def remove_parts(db: Connection, numbers: Sequence[int]) -> None:
    """Remove messages that are about to be deleted from the index of parts."""
    first, last = indexed_span(db)
    if first > last:
        return
    sql = """INSERT INTO search_trigrams (search_trigrams, rowid, text) VALUES ('delete', ?, ?)"""
    for number in numbers:
        row = db.execute("SELECT c0 FROM search_index_content WHERE id = ?", (number,)).fetchone()
        if row is not None and first <= number <= last:
            db.execute(sql, (number, _spread(row[0])))


def expected_entries(db: Connection) -> Iterator[tuple[int, str]]:
    sql = "SELECT number, message FROM messages WHERE role IN ('user', 'assistant')"
    for number, message in db.execute(sql):
        if text := searchable_text(history.decode_message(number, message)):
            yield number, text


def check_index(db: Connection) -> list[str]:
    """Compare the index with the messages; a sentence if they differ."""
    right = wrong = 0
    try:
        for number, text in expected_entries(db):
            kept = db.execute("SELECT text FROM search_index WHERE rowid = ?", (number,)).fetchone()
            right, wrong = right + (kept == (text,)), wrong + (kept != (text,))
        (indexed,) = db.execute("SELECT count(*) FROM search_index").fetchone()
        if not wrong and indexed == right and indexed <= MAX_CHECKED_MESSAGES:
            db.execute("INSERT INTO search_index (search_index) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        wrong += 1
    else:
        wrong += max(indexed - right, 0)
    return ["the search index is wrong; no message is lost, `alipes doctor` can repair it"] if wrong else []


def rebuild_index(db: Connection) -> None:
    """Rebuild the index from the messages."""
    (definition,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'search_index'").fetchone()
    db.execute("DROP TABLE search_index")
    db.execute(definition)
    db.executemany("INSERT INTO search_index (rowid, text) VALUES (?, ?)", expected_entries(db))
    db.execute("INSERT INTO search_trigrams (search_trigrams) VALUES ('delete-all')")
    db.execute("DELETE FROM search_progress")
