"""Full-text search over messages. A query is plain text, never FTS5's query language."""

import sqlite3
from collections.abc import Iterator

from alipes.kernel.messages import Role
from alipes.store import export, history
from alipes.store.database.database import clean_text, searchable_text
from alipes.store.export import SearchHit

_FROM = """
    FROM search_index
    JOIN messages ON messages.number = search_index.rowid
    JOIN turns ON turns.number = messages.turn_number
    JOIN sessions ON sessions.id = messages.session_id"""
_COLUMNS = """
    messages.session_id, sessions.title, turns.id, messages.role, messages.created,
    (SELECT substr(json_extract(first.inbound, '$.text'), 1, 200) FROM turns AS first
     WHERE first.session_id = messages.session_id ORDER BY first.number LIMIT 1)"""
_CONTEXT_CHARS = 60
MAX_CHECKED_MESSAGES = 50_000
"""With more messages the index itself is not checked: the check blocks writers, here for a second at most."""


def search_messages(db: sqlite3.Connection, text: str, limit: int, marks: tuple[str, str]) -> list[SearchHit]:
    """Search by words (the last may be incomplete); if that finds nothing, by substring."""
    text = clean_text(text).replace("\0", " ").strip()
    return _find_words(db, text, limit, marks) or _find_substring(db, text, limit, marks)


def _find_words(db: sqlite3.Connection, text: str, limit: int, marks: tuple[str, str]) -> list[SearchHit]:
    terms = [word for word in text.split() if any(map(str.isalnum, word))]
    if not terms:
        return []
    query = " ".join('"' + term.replace('"', '""') + '"' for term in terms) + "*"
    columns = f"{_COLUMNS}, snippet(search_index, 0, ?, ?, '…', 16)"
    sql = f"SELECT {columns} {_FROM} WHERE search_index MATCH ? ORDER BY rank LIMIT ?"
    return [_hit_from_row(row) for row in db.execute(sql, (*marks, query, limit))]


def _find_substring(db: sqlite3.Connection, text: str, limit: int, marks: tuple[str, str]) -> list[SearchHit]:
    """For text without word boundaries (Chinese, Japanese, `c++`, part of a name): slower, latest first."""
    if not text:
        return []
    sql = f"""SELECT {_COLUMNS}, search_index.text {_FROM}
        WHERE search_index.text LIKE ? ESCAPE '\\' ORDER BY search_index.rowid DESC LIMIT ?"""
    found = db.execute(sql, (f"%{escape_like(text)}%", limit)).fetchall()
    return [_hit_from_row((*row[:-1], _make_snippet(row[-1], text, marks))) for row in found]


def escape_like(text: str) -> str:
    """`text` for a LIKE pattern with the escape character `\\`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _make_snippet(text: str, part: str, marks: tuple[str, str]) -> str:
    start = max(text.lower().find(part.lower()), 0)
    end = start + len(part)
    before, after = text[max(start - _CONTEXT_CHARS, 0) : start], text[end : end + _CONTEXT_CHARS]
    head, tail = "…" if start > _CONTEXT_CHARS else "", "…" if end + _CONTEXT_CHARS < len(text) else ""
    return f"{head}{before}{marks[0]}{text[start:end]}{marks[1]}{after}{tail}"


def _hit_from_row(row: tuple[str, str, str, Role, float, str, str]) -> SearchHit:
    session, title, turn, role, when, text, snippet = row
    return SearchHit(session, title or export.title_from_text(text), turn, role, when, " ".join(snippet.split()))


def _expected_entries(db: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    sql = "SELECT number, message FROM messages WHERE role IN ('user', 'assistant')"
    for number, message in db.execute(sql):
        if text := searchable_text(history.decode_message(number, message)):
            yield number, text


def check_index(db: sqlite3.Connection) -> list[str]:
    """Compare the index with the messages; a sentence if they differ."""
    right = wrong = 0
    try:
        for number, text in _expected_entries(db):
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


def rebuild_index(db: sqlite3.Connection) -> None:
    """Rebuild the index from the messages."""
    (definition,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'search_index'").fetchone()
    db.execute("DROP TABLE search_index")
    db.execute(definition)
    db.executemany("INSERT INTO search_index (rowid, text) VALUES (?, ?)", _expected_entries(db))
