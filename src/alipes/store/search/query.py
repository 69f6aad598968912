"""Search over messages: by words, by parts of words, and by meaning. A query is plain text, never FTS5's language."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.turns import Address
from alipes.store import export
from alipes.store.ports.search import EVERYTHING, SearchHit, SearchScope
from alipes.store.search import index
from alipes.store.search.scope import ScopedMessages
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, clean_text

MAX_RANKED = 2_000
"""Ranking looks at this many of the newest matches."""
MAX_WORDS = 32
"""Of a query; the rest is ignored."""
MAX_SCANNED = 1_000
"""So many messages of a scope are searched for parts of words without the index."""
MAX_UNINDEXED = 500_000
"""Parts that are too short for the index are searched in the newest messages only, in a fifth of a second."""
_WIDE_SPAN = 20_000
_MIN_PREFIX = 3
"""A shorter last word must be complete: too many words begin with two letters."""
_CONTEXT_CHARS = 60
_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75
_FUSION = 60
"""Of reciprocal rank fusion: how little the first places count more than the next ones."""
_UNSPACED = lazy_pattern(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of languages that are written without spaces between words."""


class MessageQuery(Struct, frozen=True):
    text: str
    limit: int = 20
    scope: SearchScope = EVERYTHING
    marks: tuple[str, str] = ("[", "]")
    """Put around what was found."""


class Ranked(NamedTuple):
    number: int
    snippet: str


def search_messages(db: Connection, query: MessageQuery, similar: Sequence[int] = ()) -> list[SearchHit]:
    """The best messages first. `similar`: numbers of messages with a similar meaning, best first; they count as well.

    By words, of which the last may be incomplete; if that finds nothing, or the language has no spaces, by parts.
    """
    text = clean_text(query.text).replace("\0", " ").strip()
    messages = ScopedMessages(db, query.scope)
    found = [] if _UNSPACED.search(text) else _find_words(db, text, query, messages)
    found = found or _find_parts(db, text, query, messages)
    if close := [number for number in similar if messages.has(number)]:
        found = fuse(db, found, close)
    return load_hits(db, found[: query.limit])


def _find_words(db: Connection, text: str, query: MessageQuery, messages: ScopedMessages) -> list[Ranked]:
    terms = [word for word in text.split() if any(map(str.isalnum, word))][:MAX_WORDS]
    if not terms:
        return []
    whole = " ".join('"' + term.replace('"', '""') + '"' for term in terms)
    numbers = rank(_match(db, whole, messages))[: query.limit]
    sql = "SELECT snippet(search_index, 0, ?, ?, '…', 16) FROM search_index WHERE search_index MATCH ? AND rowid = ?"
    found = [Ranked(number, *db.execute(sql, (*query.marks, whole, number)).fetchone()) for number in numbers]
    if len(numbers) < query.limit and len(terms[-1]) >= _MIN_PREFIX:
        longer = [number for number in rank(_match(db, f"{whole}*", messages)) if number not in numbers]
        for number in longer[: query.limit - len(numbers)]:
            # not by FTS5: each query for an incomplete word reads all words that begin like this
            (content,) = db.execute("SELECT c0 FROM search_index_content WHERE id = ?", (number,)).fetchone()
            found.append(Ranked(number, make_snippet(content, terms[-1].lower(), query.marks)))
    return found


def _match(db: Connection, match: str, messages: ScopedMessages) -> list[tuple[int, int, int]]:
    """Number, length and count of hits of the newest messages that match."""
    columns = "rowid, length(text), length(highlight(search_index, 0, char(1), '')) - length(text)"
    where = "FROM search_index WHERE search_index MATCH ? AND rowid BETWEEN ? AND ?"
    if not messages.is_scoped:
        sql = f"SELECT {columns} {where} ORDER BY rowid DESC LIMIT ?"
        return db.execute(sql, (match, *messages.spans[0], MAX_RANKED)).fetchall()
    sql = f"SELECT {columns} {where} AND in_scope(rowid) ORDER BY rowid"
    found: list[tuple[int, int, int]] = []
    for first, last in messages.spans:
        if (left := MAX_RANKED - len(found)) <= 0:
            break
        if last - first > _WIDE_SPAN:  # has much more than is ranked
            found += db.execute(f"{sql} DESC LIMIT ?", (match, first, last, left)).fetchall()
        else:  # ascending, because FTS5 finds the start of a span ten times faster like this
            found += db.execute(sql, (match, first, last)).fetchall()[::-1]
    return found[:MAX_RANKED]


def rank(found: list[tuple[int, int, int]]) -> list[int]:
    """Numbers, best first. As BM25 does: many hits in a short text first; of equal ones the newest. All texts contain
    all words, so how rare a word is makes no difference."""
    average = sum(length for _, length, _ in found) / max(len(found), 1) or 1.0
    scored = [
        (number, hits / (hits + _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length / average)))
        for number, length, hits in found
    ]
    return [number for number, _ in sorted(scored, key=lambda row: (-row[1], -row[0]))]


def _find_parts(db: Connection, text: str, query: MessageQuery, messages: ScopedMessages) -> list[Ranked]:
    """For text without word boundaries (Chinese, Japanese, `c++`, part of a name): latest first."""
    parts = tuple(dict.fromkeys(part.lower() for part in text.split()[:MAX_WORDS]))
    if not parts:
        return []
    found = []
    for number, content in _candidates(db, parts, messages):
        if all(part in content.lower() for part in parts):
            found.append(Ranked(number, make_snippet(content, parts[0], query.marks)))
            if len(found) == query.limit:
                break
    return found


def _candidates(db: Connection, parts: Sequence[str], messages: ScopedMessages) -> Iterator[tuple[int, str]]:
    """Messages that may contain the parts, latest first: from the index, and those it does not have yet."""
    first, last = index.indexed_span(db)
    match = index.match_parts(parts)
    spans = messages.spans
    if not match or (messages.is_scoped and messages.count <= MAX_SCANNED):
        first, last = 1, 0  # the parts are too short for the index, or reading the texts is faster
        if not messages.is_scoped:
            spans = [(max(low, high - MAX_UNINDEXED), high) for low, high in spans]
    elif messages.is_scoped:
        spans = ((spans[-1][0], spans[0][1]),)
    in_scope = "AND in_scope({})" if messages.is_scoped else ""
    scan = f"SELECT id, c0 FROM search_index_content WHERE id BETWEEN ? AND ? {in_scope.format('id')}"
    values = list[str]()
    if all(part.isascii() for part in parts):  # else the rules for upper and lower case differ
        scan += " AND c0 LIKE '%' || ? || '%' ESCAPE '\\'" * len(parts)
        values = [escape_like(part) for part in parts]
    scan += " ORDER BY id DESC"
    find = f"""SELECT rowid, (SELECT c0 FROM search_index_content WHERE id = search_trigrams.rowid)
        FROM search_trigrams WHERE search_trigrams MATCH ? AND rowid BETWEEN ? AND ?
        {in_scope.format("rowid")} ORDER BY rowid DESC"""
    for low, high in spans:
        if first > last:
            yield from db.execute(scan, (low, high, *values))
            continue
        yield from db.execute(scan, (max(low, last + 1), high, *values))
        rows = db.execute(find, (match, max(low, first), min(high, last)))
        yield from ((number, content) for number, content in rows if content is not None)
        yield from db.execute(scan, (low, min(high, first - 1), *values))


def escape_like(text: str) -> str:
    """`text` for a LIKE pattern with the escape character `\\`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def make_snippet(text: str, part: str, marks: tuple[str, str]) -> str:
    start = text.lower().find(part)
    if start < 0:  # with accents, for example
        return text[: 2 * _CONTEXT_CHARS]
    end = start + len(part)
    before, after = text[max(start - _CONTEXT_CHARS, 0) : start], text[end : end + _CONTEXT_CHARS]
    head, tail = "…" if start > _CONTEXT_CHARS else "", "…" if end + _CONTEXT_CHARS < len(text) else ""
    return f"{head}{before}{marks[0]}{text[start:end]}{marks[1]}{after}{tail}"


def fuse(db: Connection, found: list[Ranked], close: Iterable[int]) -> list[Ranked]:
    """One ranking of two: what is high in either of them is high."""
    scores: dict[int, float] = {}
    for numbers in ([row.number for row in found], close):
        for place, number in enumerate(numbers):
            scores[number] = scores.get(number, 0.0) + 1 / (_FUSION + place)
    known = {row.number: row for row in found}
    sql = "SELECT substr(c0, 1, ?) FROM search_index_content WHERE id = ?"
    ranked = []
    for number in sorted(scores, key=lambda number: -scores[number]):
        if number not in known:
            row = db.execute(sql, (2 * _CONTEXT_CHARS, number)).fetchone()
            known[number] = Ranked(number, row[0] if row else "")
        ranked.append(known[number])
    return ranked


_HIT = """SELECT messages.session_id, sessions.title, sessions.first_text, turns.id, messages.role, messages.created,
    sessions.address, sessions.workdir,
    CASE WHEN turns.platform = 'subagent' THEN turns.origin_session ELSE '' END
    FROM messages JOIN turns ON turns.number = messages.turn_number JOIN sessions ON sessions.id = messages.session_id
    WHERE messages.number = ?"""


def load_hits(db: Connection, found: Sequence[Ranked]) -> list[SearchHit]:
    hits = []
    for number, snippet in found:
        row = db.execute(_HIT, (number,)).fetchone()
        if row is None:
            continue
        session, title, text, turn, role, when, address, workdir, parent = row
        place = Decoders.address.decode_or(address, Address("damaged", session), f"row {session} of sessions")
        hits.append(
            SearchHit(
                session,
                title or export.title_from_text(text),
                turn,
                role,
                when,
                " ".join(snippet.split()),
                message=number,
                platform=place.platform,
                chat=place.chat,
                workdir=workdir,
                parent=parent,
            )
        )
    return hits
