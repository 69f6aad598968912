"""Full-text search over what was said. A query is whatever a person typed, never FTS5's own language."""

import sqlite3
from collections.abc import Iterator

from alipes.store import export
from alipes.store.database import codec
from alipes.store.export import Hit

_FROM = """
    FROM words
    JOIN said ON said.number = words.rowid
    JOIN turns ON turns.number = said.turn
    JOIN sessions ON sessions.id = said.session"""
_COLUMNS = """
    said.session, sessions.title, turns.id, said.role, said.created,
    (SELECT substr(json_extract(first.inbound, '$.text'), 1, 200) FROM turns AS first
     WHERE first.session = said.session ORDER BY first.number LIMIT 1)"""
_AROUND = 60
SMALL = 50_000
"""Messages up to which the index itself is checked too: that locks out writers, a second at most."""


def find(db: sqlite3.Connection, text: str, limit: int, marks: tuple[str, str]) -> list[Hit]:
    """By words, the last one possibly unfinished; where that finds nothing, as a piece of text."""
    text = codec.whole(text).replace("\0", " ").strip()
    return _by_words(db, text, limit, marks) or _by_piece(db, text, limit, marks)


def _by_words(db: sqlite3.Connection, text: str, limit: int, marks: tuple[str, str]) -> list[Hit]:
    terms = [word for word in text.split() if any(map(str.isalnum, word))]
    if not terms:
        return []
    query = " ".join('"' + term.replace('"', '""') + '"' for term in terms) + "*"
    columns = f"{_COLUMNS}, snippet(words, 0, ?, ?, '…', 16)"
    sql = f"SELECT {columns} {_FROM} WHERE words MATCH ? ORDER BY rank LIMIT ?"
    return [_hit(row) for row in db.execute(sql, (*marks, query, limit))]


def _by_piece(db: sqlite3.Connection, text: str, limit: int, marks: tuple[str, str]) -> list[Hit]:
    """For what has no word borders (Chinese, Japanese, `c++`, half a name): slower, the latest first."""
    if not text:
        return []
    pattern = f"%{literally(text)}%"
    sql = (
        f"SELECT {_COLUMNS}, words.text {_FROM} "
        "WHERE words.text LIKE ? ESCAPE '\\' ORDER BY words.rowid DESC LIMIT ?"
    )
    found = db.execute(sql, (pattern, limit)).fetchall()
    return [_hit((*row[:-1], _snippet(row[-1], text, marks))) for row in found]


def literally(text: str) -> str:
    """`text` for a LIKE pattern with `\\` as its escape."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _snippet(words: str, piece: str, marks: tuple[str, str]) -> str:
    at = max(words.lower().find(piece.lower()), 0)
    end = at + len(piece)
    before, after = words[max(at - _AROUND, 0) : at], words[end : end + _AROUND]
    head, tail = "…" if at > _AROUND else "", "…" if end + _AROUND < len(words) else ""
    return f"{head}{before}{marks[0]}{words[at:end]}{marks[1]}{after}{tail}"


def _hit(row: tuple[str, str, str, str, float, str, str]) -> Hit:
    session, title, turn, role, when, text, snippet = row
    return Hit(
        session=session,
        title=title or export.first_words(text),
        turn=turn,
        role=role,  # type: ignore[arg-type]
        when=when,
        snippet=" ".join(snippet.split()),
    )


def _expected(db: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    sql = "SELECT number, message FROM said WHERE role IN ('user', 'assistant')"
    for number, message in db.execute(sql):
        if text := codec.words(codec.messages.decode(message)):
            yield number, text


def problems(db: sqlite3.Connection) -> list[str]:
    """Does the index hold just what was said?"""
    right = wrong = 0
    try:
        for number, text in _expected(db):
            kept = db.execute("SELECT text FROM words WHERE rowid = ?", (number,)).fetchone()
            right, wrong = right + (kept == (text,)), wrong + (kept != (text,))
        (indexed,) = db.execute("SELECT count(*) FROM words").fetchone()
        if not wrong and indexed == right and indexed <= SMALL:
            db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        wrong += 1
    else:
        wrong += max(indexed - right, 0)
    return ["the search index is wrong; no message is lost, `alipes doctor` can mend it"] if wrong else []


def rebuild(db: sqlite3.Connection) -> None:
    """The index made anew from the transcripts, whatever state it is in."""
    (definition,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'words'").fetchone()
    db.execute("DROP TABLE words")
    db.execute(definition)
    db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", _expected(db))
