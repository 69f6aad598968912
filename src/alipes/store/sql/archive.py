"""The stored conversations, for people: list, show, search, count, export, delete."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from alipes.kernel.errors import SessionError
from alipes.kernel.formatting import ID, format_excerpt
from alipes.kernel.messages import Json, Message
from alipes.kernel.turns import Address
from alipes.store import export
from alipes.store.ports.archive import CLEAN_STEPS, SessionFacts, Tables, TurnFacts, UsageGrouping, UsageSum
from alipes.store.ports.search import EVERYTHING, SearchContext, SearchHit, SearchScope
from alipes.store.search import cleanup, index
from alipes.store.search.context import read_around
from alipes.store.search.query import MessageQuery, escape_like, search_messages
from alipes.store.search.scope import scope_conditions
from alipes.store.sql import history
from alipes.store.sql.connection import Connection, Database
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, usage_from_row

SESSION_DETAILS = """
    created, updated, coalesce(parent_id, ''),
        (SELECT count(*) FROM turns WHERE session_id = sessions.id),
        (SELECT count(*) FROM turns INDEXED BY turns_unfinished
            WHERE key = sessions.key AND session_id = sessions.id AND ending IS NULL AND held = 0),
        (SELECT count(*) FROM messages WHERE session_id = sessions.id),
        first_text
    FROM sessions"""
_PLACE = """workdir, coalesce(nullif(model, ''), (SELECT model FROM messages
    WHERE session_id = sessions.id AND model <> '' ORDER BY number DESC LIMIT 1), '')"""
_SUMS = """
    count(input), sum(input), sum(output), sum(cached), sum(cache_write), sum(reasoning), sum(cost),
    count(input) - count(cost) FROM model_calls"""
_RUNNING_SUMS = """
    sum(calls), sum(input), sum(output), sum(cached), sum(cache_write), sum(reasoning),
    CASE WHEN sum(priced) > 0 THEN sum(cost) END, sum(calls) - sum(priced)
    FROM (SELECT *, quarter * 900 AS created FROM usage_sums) AS sums"""
"""The same for periods; a day begins with a quarter of an hour in every time zone."""
_NOT_EMPTY = """platform <> 'subagent' AND
    (title <> '' OR parent_id IS NOT NULL OR EXISTS (SELECT 1 FROM turns WHERE session_id = sessions.id))"""
_IN_FOLDER = "(? = '' OR workdir = ?)"
MATCHES_WORD = "(lower(title) LIKE lower(?) ESCAPE '\\' OR lower(first_text) LIKE lower(?) ESCAPE '\\')"
MAX_CHAR = "\U0010ffff"
"""After all texts with the same start."""
MESSAGES_PER_DELETE = 1000
"""Messages deleted per transaction, so that other writers do not wait long."""
_GROUPS: dict[UsageGrouping, str] = {
    "turn": "turn_id",
    "session": "session_id",
    "day": "strftime('%Y-%m-%d', created, 'unixepoch', 'localtime')",
    "model": "model",
    "task": "task",
    "tool": "tool",
    "key": "variable",
}


class SqlArchive(SqlRows):
    _search = staticmethod(search_messages)
    _clean_some = staticmethod(cleanup.clean_some)

    def tables(self, kind: Callable[[Database], Tables]) -> Tables:
        return kind(self._database)

    async def sessions(
        self, limit: int = 50, words: str = "", *, scope: SearchScope = EVERYTHING
    ) -> list[SessionFacts]:
        wanted = [f"%{escape_like(word)}%" for word in clean_text(words).split()]
        conditions, values = scope_conditions(scope)
        where = " AND ".join([_NOT_EMPTY, *conditions, *(MATCHES_WORD for _ in wanted)])
        values += [pattern for pattern in wanted for _ in range(2)]
        sql = f"WHERE {where} ORDER BY updated DESC LIMIT ?"
        return await self._database.read_long(lambda db: _list_sessions(db, sql, *values, limit))

    async def latest(self, platform: str, workdir: str = "") -> SessionFacts | None:
        active = f"platform = ? AND id IN (SELECT session_id FROM leases) AND {_IN_FOLDER}"
        where, folder = f"WHERE {active} ORDER BY updated DESC LIMIT 1", clean_text(workdir)
        found = await self._database.read(lambda db: _list_sessions(db, where, platform, folder, folder))
        return found[0] if found else None

    async def current(self, key: str) -> SessionFacts | None:
        where = "WHERE id = (SELECT session_id FROM leases WHERE key = ?)"
        found = await self._database.read(lambda db: _list_sessions(db, where, clean_text(key)))
        return found[0] if found else None

    async def resolve(self, name: str, *, title_start: bool = False) -> SessionFacts:
        return await self._database.read_long(lambda db: _resolve(db, name, title_start=title_start))

    async def find_own(self, name: str, key: str) -> list[str]:
        sql = f"SELECT id, title, first_text FROM sessions WHERE key = ? AND {_NOT_EMPTY} ORDER BY updated DESC"
        rows = await self._database.read_long(lambda db: db.execute(sql, (clean_text(key),)).fetchall())
        return [
            id for id, title, text in rows if id.startswith(name) or name == (title or export.title_from_text(text))
        ]

    async def messages(self, session: str) -> tuple[Message, ...]:
        def work(db: Connection) -> tuple[Message, ...]:
            _load_session(db, session)
            return history.decode_messages(list(history.visible_messages(db, session)))

        return await self._database.read(work)

    async def context_tokens(self, session: str) -> int | None:
        return await self._database.read(lambda db: history.context_tokens(db, session))

    async def turn(self, id: str) -> TurnFacts | None:
        return await self._database.read(lambda db: _load_turn(db, id))

    async def search(
        self,
        text: str,
        limit: int = 20,
        *,
        scope: SearchScope = EVERYTHING,
        marks: tuple[str, str] = ("[", "]"),
        similar: Sequence[int] = (),
    ) -> list[SearchHit]:
        query = MessageQuery(text, limit, scope, marks)
        return await self._database.read_long(lambda db: self._search(db, query, similar))

    async def around(
        self, message: int, before: int = 5, after: int = 5, *, scope: SearchScope = EVERYTHING
    ) -> SearchContext:
        return await self._database.read_long(lambda db: read_around(db, message, before, after, scope))

    async def export(self, session: str) -> dict[str, Json]:
        return await self._database.read_long(lambda db: export.export_session(db, _load_session(db, session)))

    async def delete(self, session: str, *, clean_steps: int = CLEAN_STEPS) -> None:
        for id in await self._database.read(lambda db: _with_subagents(db, session)):
            while await self._database.run(partial(_delete_part, id=id)):
                pass
        await self.clean_indexes(clean_steps)

    async def clean_indexes(self, steps: int = sys.maxsize) -> bool:
        for _ in range(steps):
            if not await self._database.run(self._clean_some, sync=False):
                return True
        return False

    async def usage(self, *, session: str = "", turn: str = "", days: int = 0) -> UsageSum:
        (total,) = await self._database.read_long(lambda db: sum_usage(db, "''", session, turn, days))
        return total

    async def usage_by(self, group: UsageGrouping, *, session: str = "", days: int = 0) -> list[UsageSum]:
        sums = await self._database.read_long(lambda db: sum_usage(db, _GROUPS[group], session, "", days))
        return [each for each in sums if each.calls]


def _list_sessions(db: Connection, where: str, *values: str | int) -> list[SessionFacts]:
    found = db.execute(f"SELECT id, key, address, title, {_PLACE}, {SESSION_DETAILS} {where}", values).fetchall()
    sessions = []
    for id, key, address, title, workdir, model, created, updated, parent, turns, unfinished, messages, text in found:
        place = Decoders.address.decode_or(address, Address("damaged", id), f"row {id} of sessions")
        facts = (id, key, place, title or export.title_from_text(text), created, updated)
        counts = (turns, unfinished, messages, sum_usage(db, "''", id)[0])
        sessions.append(SessionFacts(*facts, *counts, parent, workdir, model))
    return sessions


def _load_session(db: Connection, id: str) -> SessionFacts:
    found = _list_sessions(db, "WHERE id = ?", id)
    if not found:
        raise _no_session(id)
    return found[0]


def _no_session(name: str) -> SessionError:
    return SessionError(f'No conversation matches "{name}". `alipes sessions list` shows all of them.')


def _delete_part(db: Connection, id: str) -> bool:
    """Delete some of its messages, and the session with the last of them; False when all is deleted."""
    _require_deletable(db, id)
    db.execute("UPDATE leases SET session_id = NULL WHERE session_id = ?", (id,))
    part = "SELECT number FROM messages WHERE session_id = ? ORDER BY number DESC LIMIT ?"
    numbers = [number for (number,) in db.execute(part, (id, MESSAGES_PER_DELETE))]
    index.remove_parts(db, numbers)
    db.executemany("DELETE FROM messages WHERE number = ?", [(number,) for number in numbers])
    more = len(numbers) == MESSAGES_PER_DELETE
    if not more:
        db.execute("DELETE FROM auxiliary_calls WHERE session_id = ?", (id,))
        db.execute("DELETE FROM sessions WHERE id = ?", (id,))
        cleanup.request_cleanup(db)  # deleted text must not remain in old segments
    return more


def _with_subagents(db: Connection, id: str) -> list[str]:
    """The sessions of its subagents, then itself. Raises if one of them cannot be deleted."""
    sql = """SELECT DISTINCT session_id FROM turns
        WHERE platform = 'subagent' AND origin_session = ?"""
    sessions = [*(name for (name,) in db.execute(sql, (id,))), id]
    for session in reversed(sessions):
        _require_deletable(db, session)
    return sessions


def _require_deletable(db: Connection, id: str) -> None:
    if _load_session(db, id).unfinished:
        raise SessionError(f"conversation {id} has an unfinished turn; stop it first")
    sql = "SELECT session_id FROM session_ancestors WHERE ancestor_id = ? LIMIT 5"
    if branches := db.execute(sql, (id,)).fetchall():
        names = ", ".join(name for (name,) in branches)
        raise SessionError(f"conversation {id} is shared by its branches ({names}); delete those first")


def _resolve(db: Connection, name: str, *, title_start: bool = False) -> SessionFacts:
    conditions = (
        "id = :name",
        "key = :name",
        "chat = :name",
        "lower(title) = lower(:name)",
        "id >= :name AND id < :end",
    )
    for condition in conditions if name.strip() else ():
        sql = f"SELECT id, key FROM sessions WHERE {condition} ORDER BY updated DESC LIMIT 50"
        found = db.execute(sql, {"name": clean_text(name), "end": clean_text(name) + MAX_CHAR}).fetchall()
        if len({key for _, key in found}) > 1:
            ids = ", ".join(id for id, _ in found[:5])
            raise SessionError(f'"{name}" matches several conversations ({ids}); give more of the id.')
        if found:  # several under one key: the latest is meant
            return _load_session(db, found[0][0])
    if title_start and name.strip() and (matching := _list_by_title(db, clean_text(name).strip())):
        if len(matching) > 1:
            names = ", ".join(f"{facts.id[:ID]} {format_excerpt(facts.title, 30)}" for facts in matching[:5])
            raise SessionError(f'"{name}" matches several conversations: {names}. Give more of the title, or an id.')
        return matching[0]
    raise _no_session(name)


def _list_by_title(db: Connection, start: str) -> list[SessionFacts]:
    """Sessions whose title, or first message if they have none, starts with `start`."""
    begins = "lower({0}) >= lower(?1) AND lower({0}) < lower(?2)"
    where = f"""WHERE id IN (SELECT id FROM sessions WHERE {begins.format("title")}
            UNION SELECT id FROM sessions WHERE {begins.format("first_text")} AND title = '')
        AND {_NOT_EMPTY} ORDER BY updated DESC LIMIT 6"""
    return _list_sessions(db, where, start, start + MAX_CHAR)


def _load_turn(db: Connection, id: str) -> TurnFacts | None:
    sql = """SELECT number, session_id, inbound, ending, detail, attempts, created, ended, held, resume_at
        FROM turns WHERE id = ?"""
    row = db.execute(sql, (id,)).fetchone()
    if row is None:
        return None
    number, session, text, ending, detail, attempts, created, ended, held, resume_at = row
    sql = "SELECT number, message FROM messages WHERE turn_number = ? ORDER BY number"
    said = tuple(history.decode_message(*row) for row in db.execute(sql, (number,)))
    inbound, (spent,) = Decoders.inbound.decode(text), sum_usage(db, "''", turn=id)
    sql = "SELECT call_id FROM tool_calls WHERE turn_number = ? AND result IS NOT NULL"
    done = frozenset(call for (call,) in db.execute(sql, (number,)))
    times = (attempts, created, ended, said, spent, bool(held), done)
    return TurnFacts(id, session, inbound, ending, detail, *times, resume_at=0.0 if ending else resume_at)


def sum_usage(db: Connection, group: str, session: str = "", turn: str = "", days: int = 0) -> list[UsageSum]:
    year, month, day, *_ = time.localtime()
    midnight = time.mktime((year, month, day - days + 1, 0, 0, 0, 0, 0, -1)) if days else 0.0
    of_keys = group == _GROUPS["key"]
    single = not of_keys and (session or turn or group in (_GROUPS["turn"], _GROUPS["session"]))
    sums, since = (_SUMS, "created >= ?") if single else (_RUNNING_SUMS, "quarter >= ?")
    if of_keys:
        sums = sums.replace("usage_sums", "key_usage")
    given = {"session_id = ?": session, "turn_id = ?": turn, since: midnight if single else int(midnight // 900)}
    conditions = {condition: value for condition, value in given.items() if value}
    grouped = "" if group == "''" else "GROUP BY 1 ORDER BY 1"
    sql = f"SELECT {group}, {sums} WHERE {' AND '.join(conditions) or '1 = 1'} {grouped}"
    return [
        UsageSum(name=name, calls=calls or 0, usage=usage_from_row(tuple(sums)), unpriced=unpriced or 0)
        for name, calls, *sums, unpriced in db.execute(sql, tuple(conditions.values()))
    ]
