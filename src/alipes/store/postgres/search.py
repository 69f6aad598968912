"""Search over messages in PostgreSQL: by words (tsvector) and by parts of words (pg_trgm)."""

from collections.abc import Sequence

from alipes.kernel.errors import StoreError
from alipes.store.ports.archive import StoreFacts
from alipes.store.ports.search import SearchHit
from alipes.store.search.index import TRIGRAMS, expected_entries
from alipes.store.search.indexer import SqlSearchIndexer
from alipes.store.search.query import (
    MAX_RANKED,
    MAX_WORDS,
    MessageQuery,
    Ranked,
    escape_like,
    fuse,
    load_hits,
    make_snippet,
    rank,
)
from alipes.store.search.scope import list_sessions
from alipes.store.sql.archive import SqlArchive
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import clean_text

_MIN_PREFIX = 3
_FIND = """SELECT found.number, length(found.text),
        (length(folded) - length(replace(folded, ?, ''))) / greatest(length(?), 1), found.text
    FROM search_index AS found {join} WHERE {match} {scope} ORDER BY found.number DESC LIMIT ?"""
_JOIN = "JOIN messages ON messages.number = found.number"


def search_messages(db: Connection, query: MessageQuery, similar: Sequence[int] = ()) -> list[SearchHit]:
    """The best messages first: by words, of which the last may be incomplete; if that finds nothing, by parts."""
    text = clean_text(query.text).replace("\0", " ").strip()
    sessions = None if query.scope.is_everything else list_sessions(db, query.scope)
    found = _find_words(db, text, query, sessions) or _find_parts(db, text, query, sessions)
    if similar:
        found = fuse(db, found, _in_scope(db, similar, sessions))
    return load_hits(db, found[: query.limit])


def _find_words(db: Connection, text: str, query: MessageQuery, sessions: list[str] | None) -> list[Ranked]:
    (folded,) = db.execute("SELECT fold_words(?)", (text,)).fetchone()
    words = folded.split()[:MAX_WORDS]
    if not words:
        return []
    whole = " & ".join(f"'{word}'" for word in words)
    found = _match(db, "words @@ CAST(? AS tsquery)", (whole,), words[0], sessions)
    numbers = rank([row[:3] for row in found])[: query.limit]
    texts = {number: content for number, _, _, content in found}
    if len(numbers) < query.limit and len(words[-1]) >= _MIN_PREFIX:
        longer = _match(db, "words @@ CAST(? AS tsquery)", (f"{whole}:*",), words[0], sessions)
        texts |= {number: content for number, _, _, content in longer}
        more = [number for number in rank([row[:3] for row in longer]) if number not in numbers]
        numbers += more[: query.limit - len(numbers)]
    term = text.split()[0].lower()
    return [Ranked(number, make_snippet(texts[number], term, query.marks)) for number in numbers]


def _find_parts(db: Connection, text: str, query: MessageQuery, sessions: list[str] | None) -> list[Ranked]:
    parts = tuple(dict.fromkeys(part.lower() for part in text.split()[:MAX_WORDS]))
    if not parts:
        return []
    folded = [db.execute("SELECT fold_text(?)", (part,)).fetchone()[0] for part in parts]
    match = " AND ".join(["folded LIKE ?"] * len(parts))
    values = tuple(f"%{escape_like(part)}%" for part in folded)
    found = _match(db, match, values, folded[0], sessions, limit=query.limit)
    return [Ranked(number, make_snippet(content, parts[0], query.marks)) for number, _, _, content in found]


def _match(
    db: Connection,
    match: str,
    values: tuple[str, ...],
    term: str,
    sessions: list[str] | None,
    *,
    limit: int = MAX_RANKED,
) -> list[tuple[int, int, int, str]]:
    """Number, length, count of hits and text of the newest messages that match."""
    scoped = sessions is not None
    sql = _FIND.format(match=match, join=_JOIN if scoped else "", scope="AND session_id = ANY (?)" if scoped else "")
    return db.execute(sql, (term, term, *values, *([sessions] if scoped else []), limit)).fetchall()


def _in_scope(db: Connection, numbers: Sequence[int], sessions: list[str] | None) -> list[int]:
    if sessions is None:
        return list(numbers)
    sql = "SELECT number FROM messages WHERE number = ANY (?) AND session_id = ANY (?)"
    visible = {number for (number,) in db.execute(sql, (list(numbers), sessions))}
    return [number for number in numbers if number in visible]


def forget_cleanup(db: Connection) -> bool:
    """Deleted text is not left in the indexes, so nothing remains to be done."""
    db.execute("DELETE FROM search_progress WHERE name LIKE 'cleanup of %'")
    return False


class PostgresSearchIndexer(SqlSearchIndexer):
    """PostgreSQL indexes words and parts of words itself; only vectors are made in the background."""

    async def count_missing(self, limit: int, name: str = TRIGRAMS) -> int:
        return 0 if name == TRIGRAMS else await super().count_missing(limit, name)

    async def index_some(self) -> bool:
        return False

    async def clean_some(self) -> bool:
        return await self._database.run(forget_cleanup, sync=False)


class PostgresArchive(SqlArchive):
    """`Archive` with the search of PostgreSQL."""

    _search = staticmethod(search_messages)
    _clean_some = staticmethod(forget_cleanup)

    async def facts(self) -> StoreFacts:
        """The size is that of the tables and indexes in this schema."""
        return await self._database.read(_read_facts)

    async def backup(self, target: str) -> None:
        """Not here: a server is copied by its own tools. Raises `StoreError`."""
        raise StoreError(f"{target} was not written: the store is PostgreSQL; copy it with `pg_dump`")

    async def check(self, *, repair: bool = False) -> list[str]:
        """Compare the search index with the messages; `repair`: write it again if it is wrong. The pages of the
        database are not checked: that is the work of `pg_amcheck`."""
        wrong = await self._database.read_long(_count_wrong)
        if wrong and repair:
            await self._database.run(_rebuild)
            wrong = await self._database.read_long(_count_wrong)
        return ["the search index is wrong; no message is lost, `alipes doctor` can repair it"] if wrong else []


def _read_facts(db: Connection) -> StoreFacts:
    counts = (f"(SELECT count(*) FROM {table})" for table in ("sessions", "turns", "messages"))
    sql = f"""SELECT current_database() || '.' || current_schema(),
        (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class
            WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'),
        (SELECT max(version) FROM schema_version), {", ".join(counts)}"""
    place, size, version, sessions, turns, messages = db.execute(sql).fetchone()
    return StoreFacts(f"PostgreSQL {place}", int(size), 0, version, sessions, turns, messages)


def _count_wrong(db: Connection) -> int:
    expected = dict(expected_entries(db))
    found = dict(db.execute("SELECT number, text FROM search_index").fetchall())
    return len(expected.items() ^ found.items())


def _rebuild(db: Connection) -> None:
    rows = list(expected_entries(db))
    db.execute("DELETE FROM search_index")
    db.executemany("INSERT INTO search_index (number, text) VALUES (?, ?)", rows)
