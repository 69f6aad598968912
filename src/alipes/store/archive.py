"""What was said, for people: listed, shown, searched, counted, exported, deleted. It runs no turn."""

import sqlite3
import time
from functools import partial
from pathlib import Path

from alipes.kernel.messages import Json, Message
from alipes.store import backup, export, history, search
from alipes.store.database import codec
from alipes.store.database.database import Database
from alipes.store.export import Grouping, Hit, SessionError, SessionFacts, Spent, StoreFacts, TurnFacts

_SESSION = """
    SELECT id, key, address, title, created, updated, coalesce(parent, ''),
        (SELECT count(*) FROM turns WHERE session = sessions.id),
        (SELECT count(*) FROM turns WHERE session = sessions.id AND ending IS NULL),
        (SELECT count(*) FROM said WHERE session = sessions.id),
        (SELECT substr(json_extract(inbound, '$.text'), 1, 200) FROM turns
         WHERE session = sessions.id ORDER BY number LIMIT 1)
    FROM sessions"""
_SPENT = """
    count(input), sum(input), sum(output), sum(cached), sum(cache_write), sum(reasoning), sum(cost),
    count(input) - count(cost) FROM bill"""
_USED = (
    "platform <> 'subagent' AND "
    "(title <> '' OR parent IS NOT NULL OR EXISTS (SELECT 1 FROM turns WHERE session = sessions.id))"
)
_NAMED = (
    "(title LIKE ? ESCAPE '\\' OR (SELECT json_extract(inbound, '$.text') FROM turns "
    "WHERE session = sessions.id ORDER BY number LIMIT 1) LIKE ? ESCAPE '\\')"
)
PART = 1000
"""Messages forgotten in one transaction."""
_GROUPS: dict[Grouping, str] = {
    "turn": "turn",
    "session": "session",
    "day": "strftime('%Y-%m-%d', created, 'unixepoch', 'localtime')",
    "model": "model",
    "task": "task",
    "tool": "tool",
}


class Archive:
    """Every session is named by its id; `resolve` finds the id for what a person typed.

    Raises `SessionError` for a session that is not there.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sessions(self, limit: int = 50, words: str = "") -> list[SessionFacts]:
        """The latest first, without empty ones; of `words`, all occur in its title or first message."""
        wanted = [f"%{search.literally(word)}%" for word in codec.whole(words).split()]
        where = f"WHERE {' AND '.join([_USED, *(_NAMED for _ in wanted)])} ORDER BY updated DESC LIMIT ?"
        values = [pattern for pattern in wanted for _ in range(2)]
        return await self._database.read(lambda db: _sessions(db, where, *values, limit))

    async def latest(self, platform: str) -> SessionFacts | None:
        """The conversation that was last at work there and would go on if something were said to it."""
        where = "WHERE platform = ? AND id IN (SELECT session FROM seats) ORDER BY updated DESC LIMIT 1"
        found = await self._database.read(lambda db: _sessions(db, where, platform))
        return found[0] if found else None

    async def resolve(self, name: str) -> SessionFacts:
        """The session meant by `name`: an id or the beginning of one, a key, a chat's name, a title."""
        return await self._database.read(lambda db: _resolve(db, name))

    async def messages(self, session: str) -> tuple[Message, ...]:
        """The transcript as the model is told it: with what a branch shares, without what was undone."""

        def work(db: sqlite3.Connection) -> tuple[Message, ...]:
            _session(db, session)
            return tuple(codec.messages.decode(text) for _, _, text, _ in history.told(db, session))

        return await self._database.read(work)

    async def context(self, session: str) -> int | None:
        """The tokens that the last model call took, in and out; None where none was made since it was
        last shortened."""
        return await self._database.read(lambda db: history.context(db, session))

    async def turn(self, id: str) -> TurnFacts | None:
        """What became of a turn."""
        return await self._database.read(lambda db: _turn(db, id))

    async def search(self, text: str, limit: int = 20, *, marks: tuple[str, str] = ("[", "]")) -> list[Hit]:
        """Messages in which all words of `text` occur, the best first; any text is a valid query."""
        return await self._database.read(lambda db: search.find(db, text, limit, marks))

    async def export(self, session: str) -> dict[str, Json]:
        """The whole of it as JSON would have it; `exporting.markdown` makes it a text to read."""

        def work(db: sqlite3.Connection) -> dict[str, Json]:
            return export.export(db, _session(db, session))

        return await self._database.read(work)

    async def delete(self, session: str) -> None:
        """Forget it, with its turns and what can be found by search. Refuses while a turn is unfinished."""
        for each in await self._database.read(lambda db: _with_subagents(db, session)):
            while await self._database.run(partial(_forget, id=each)):
                pass

    async def usage(self, *, session: str = "", turn: str = "", days: int = 0) -> Spent:
        """The sum over a session, a turn, the last `days` days with today, or everything; with what was
        asked beside the answers."""
        (total,) = await self._database.read(lambda db: _spent(db, "''", session, turn, days))
        return total

    async def usage_by(self, group: Grouping, *, session: str = "", days: int = 0) -> list[Spent]:
        """The same, apart by one of its `Grouping`, in the order of their names; days are local ones."""

        def work(db: sqlite3.Connection) -> list[Spent]:
            return [spent for spent in _spent(db, _GROUPS[group], session, "", days) if spent.calls]

        return await self._database.read(work)

    async def facts(self) -> StoreFacts:
        return await self._database.read(lambda db: backup.facts(db, self._database.path))

    async def check(self, *, mend: bool = False) -> list[str]:
        """What is wrong with the file, a sentence each; with `mend`, a broken search index is made anew."""
        file, index = await backup.check(self._database.path)
        if index and mend and not file:
            await self._database.run(search.rebuild)
            file, index = await backup.check(self._database.path)
        return file + index

    async def backup(self, target: Path) -> None:
        """A copy of the store as it is now, whole and checked or not at all; work goes on meanwhile."""
        await backup.backup(self._database.path, target)


def _sessions(db: sqlite3.Connection, where: str, *values: str | int) -> list[SessionFacts]:
    found = db.execute(f"{_SESSION} {where}", values).fetchall()
    return [
        SessionFacts(
            id=id,
            key=key,
            address=codec.addresses.decode(address),
            title=title or export.first_words(text),
            created=created,
            updated=updated,
            parent=parent,
            turns=turns,
            unfinished=unfinished,
            messages=messages,
            spent=_spent(db, "''", id)[0],
        )
        for id, key, address, title, created, updated, parent, turns, unfinished, messages, text in found
    ]


def _session(db: sqlite3.Connection, id: str) -> SessionFacts:
    found = _sessions(db, "WHERE id = ?", id)
    if not found:
        raise SessionError(f"there is no session {id}; `alipes sessions list` shows those there are")
    return found[0]


def _forget(db: sqlite3.Connection, id: str) -> bool:
    """A part of it at a time, so that nobody waits long for the file; False when all is gone."""
    _refuse_if_needed(db, id)
    db.execute("UPDATE seats SET session = NULL WHERE session = ?", (id,))  # what is said now begins another
    db.execute("PRAGMA secure_delete = ON")  # what is forgotten should not stay in free pages
    part = "DELETE FROM said WHERE number IN (SELECT number FROM said WHERE session = ? LIMIT ?)"
    more = db.execute(part, (id, PART)).rowcount == PART
    if not more:
        db.execute("DELETE FROM billed WHERE session = ?", (id,))
        db.execute("DELETE FROM sessions WHERE id = ?", (id,))
        db.execute("INSERT INTO words (words) VALUES ('optimize')")  # nor in old pieces of the index
    db.execute("PRAGMA secure_delete = OFF")
    return more


def _with_subagents(db: sqlite3.Connection, id: str) -> list[str]:
    """What is forgotten with it: those that worked for it, then itself. Raises if one of them is needed."""
    sql = (
        "SELECT DISTINCT session FROM turns "
        "WHERE platform = 'subagent' AND json_extract(inbound, '$.origin.session') = ?"
    )
    sessions = [*(each for (each,) in db.execute(sql, (id,))), id]
    for each in reversed(sessions):
        _refuse_if_needed(db, each)
    return sessions


def _refuse_if_needed(db: sqlite3.Connection, id: str) -> None:
    if _session(db, id).unfinished:
        raise SessionError(f"session {id} has an unfinished turn; stop it first")
    branches = db.execute("SELECT session FROM lineage WHERE ancestor = ? LIMIT 5", (id,)).fetchall()
    if branches:
        names = ", ".join(name for (name,) in branches)
        raise SessionError(f"session {id} is shared by its branches ({names}); delete those first")


def _resolve(db: sqlite3.Connection, name: str) -> SessionFacts:
    tests = (
        "id = :name",
        "key = :name",
        "json_extract(address, '$.chat') = :name",
        "title = :name COLLATE NOCASE",
        "substr(id, 1, length(:name)) = :name",
    )
    for test in tests if name.strip() else ():
        sql = f"SELECT id, key FROM sessions WHERE {test} ORDER BY updated DESC"
        found = db.execute(sql, {"name": codec.whole(name)}).fetchall()
        if len({key for _, key in found}) > 1:
            ids = ", ".join(id for id, _ in found[:5])
            raise SessionError(f"{name!r} may mean several sessions ({ids}); give more of the id")
        if found:  # several under one key are one conversation begun anew: the latest is meant
            return _session(db, found[0][0])
    raise SessionError(f"there is no session {name!r}; `alipes sessions list` shows those there are")


def _turn(db: sqlite3.Connection, id: str) -> TurnFacts | None:
    sql = "SELECT number, session, inbound, ending, detail, attempts, created, ended FROM turns WHERE id = ?"
    row = db.execute(sql, (id,)).fetchone()
    if row is None:
        return None
    number, session, inbound, ending, detail, attempts, created, ended = row
    said = db.execute("SELECT message FROM said WHERE turn = ? ORDER BY number", (number,)).fetchall()
    return TurnFacts(
        id=id,
        session=session,
        inbound=codec.inbounds.decode(inbound),
        ending=ending,
        detail=detail,
        attempts=attempts,
        created=created,
        ended=ended,
        said=tuple(codec.messages.decode(text) for (text,) in said),
        spent=_spent(db, "''", turn=id)[0],
    )


def _spent(
    db: sqlite3.Connection, group: str, session: str = "", turn: str = "", days: int = 0
) -> list[Spent]:
    tests: list[str] = ["1"]
    values: list[str | float] = []
    if session:
        tests.append("session = ?")
        values.append(session)
    if turn:
        tests.append("turn = ?")
        values.append(turn)
    if days:
        year, month, day, *_ = time.localtime()
        midnight = time.mktime((year, month, day - days + 1, 0, 0, 0, 0, 0, -1))
        tests.append("created >= ?")
        values.append(midnight)
    grouped = "" if group == "''" else "GROUP BY 1 ORDER BY 1"
    sql = f"SELECT {group}, {_SPENT} WHERE {' AND '.join(tests)} {grouped}"
    return [
        Spent(name=name, calls=calls, usage=codec.usage_from(tuple(sums)), unpriced=unpriced)
        for name, calls, *sums, unpriced in db.execute(sql, values)
    ]
