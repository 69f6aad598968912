"""What API clients look up: runs by their request id, their own sessions, stored responses."""

import math
import time
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.attachments import first_words
from alipes.kernel.errors import SessionError
from alipes.kernel.turns import ASKED, SCHEDULED, Address, Inbound
from alipes.store import export
from alipes.store.ports.archive import Archive
from alipes.store.ports.search import SearchScope, SessionOwner
from alipes.store.search.query import escape_like
from alipes.store.search.scope import scope_conditions
from alipes.store.sql import conversations, history
from alipes.store.sql.api_history import IMPORTED
from alipes.store.sql.archive import MATCHES_WORD, SESSION_DETAILS
from alipes.store.sql.connection import Connection, Database
from alipes.store.sql.rows import Decoders, SqlRows, clean_text
from alipes.store.sql.turns import new_session_id, set_current_session

API_PLATFORM = "api"
PAGE_USER = "page"
"""The user of conversations that were begun on the page."""


class StoredResponse(Struct, frozen=True):
    """A stored response of the API."""

    id: str
    turn: str
    session: str
    caller: str
    request: str
    """JSON of the parts of the request that the response repeats."""


SessionStatus: TypeAlias = Literal["idle", "running", "waiting", "queued", "held"]


class RunQuery(Struct, frozen=True):
    """Which runs to list; empty values select all."""

    limit: int
    session: str = ""
    """The id of a conversation."""
    state: str = ""
    """`queued`, `held`, `running` or an ending."""
    before: str = ""
    """Only those before this run."""


Maker: TypeAlias = Literal["person", "ask", "key"]
"""Who began a conversation: a person (or a job), `alipes ask`, or the program of an API key."""


class ApiSession(Struct, frozen=True):
    id: str
    address: Address
    is_current: bool
    """It is the active conversation of its address."""
    title: str
    """The title that was set; else the first words of the first message."""
    model: str
    busy: str
    permission_mode: str
    effort: str
    workdir: str
    status: SessionStatus
    created: float
    updated: float
    parent: str
    turns: int
    unfinished: int
    messages: int
    preview: str
    """The start of its last message."""
    person: str
    """The name of the person or job that it is with, if that is known."""
    pinned: bool = False
    archived: bool = False
    folder: str = ""
    made_by: Maker = "person"
    unlisted: bool = False
    """It belongs to an API key whose conversations the page does not show."""

    @property
    def cursor(self) -> str:
        """Its place in the list of sessions."""
        return f"{self.updated!r}:{self.id}"


class SessionQuery(Struct, frozen=True):
    """Which sessions to list; empty values select all."""

    limit: int
    words: str = ""
    before: float = 0.0
    cursor: str = ""
    """`cursor` of the last one of the page before."""
    platform: str = ""
    pinned: bool = False
    """Only pinned ones."""
    archived: bool | None = None
    folder: str = ""
    made_by: Maker | Literal[""] = ""
    parent: str = ""
    """Only the branches of this one."""
    listed: bool = False
    """Without those of unlisted keys."""


_REMAINING = """
    SELECT 1 FROM turns LEFT JOIN responses ON responses.turn_number = turns.number
    WHERE session_id = ? AND detail <> ? AND coalesce(deleted, 0) = 0 LIMIT 1"""


class ResponseStore:
    def __init__(self, database: Database, archive: Archive) -> None:
        self._database, self._archive = database, archive

    async def find(self, id: str) -> StoredResponse | None:
        return await self._find("responses.id = ?", clean_text(id))

    async def of_turn(self, turn: str) -> StoredResponse | None:
        return await self._find("turns.id = ?", turn)

    async def _find(self, condition: str, value: str) -> StoredResponse | None:
        sql = f"""SELECT responses.id, turns.id, session_id, caller, request FROM responses
            JOIN turns ON turns.number = turn_number WHERE {condition} AND deleted = 0"""
        row = await self._database.fetch_one(sql, value)
        return None if row is None else StoredResponse(*row)

    def add_history_hash(self, turn: str, hash: bytes) -> None:
        """The history with this hash ends with this turn. Nobody waits for it: later requests are stored after it, and
        if it is lost, the client's history is imported again."""
        sql = "INSERT OR IGNORE INTO history_hashes SELECT ?, number FROM turns WHERE id = ?"
        writing = self._database.submit(lambda db: db.execute(sql, (hash, turn)).rowcount, sync=False)
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def delete(self, response: StoredResponse) -> None:
        """Delete it, and its conversation once all responses in it are deleted and no branch uses it."""

        def work(db: Connection) -> bool:
            db.execute("UPDATE responses SET deleted = 1, request = '' WHERE id = ?", (response.id,))
            return db.execute(_REMAINING, (response.session, IMPORTED)).fetchone() is None

        if await self._database.run(work):
            await self._delete_session(response.session)

    async def delete_temporary(self) -> None:
        """Delete the temporary conversations that are finished."""
        sql = """SELECT session_id FROM temporary_sessions WHERE NOT EXISTS
            (SELECT 1 FROM turns WHERE turns.session_id = temporary_sessions.session_id AND ending IS NULL)"""
        for (session,) in await self._database.fetch_all(sql):
            await self._delete_session(session)

    async def _delete_session(self, session: str) -> None:
        try:
            await self._archive.delete(session, clean_steps=0)  # frequent: cleaned up in the background
        except SessionError:
            return  # a branch uses it, or a turn is running in it


_SESSION = f"""SELECT id, address,
    EXISTS (SELECT 1 FROM leases WHERE leases.key = sessions.key AND leases.session_id = sessions.id),
    title, model, busy_mode, permission_mode, effort, workdir, pinned, archived, folder,
    (SELECT CASE WHEN max(attempts) > 0 THEN 'running' WHEN min(held) = 0 THEN 'queued'
            WHEN count(*) > 0 THEN 'held' END
        FROM turns INDEXED BY turns_unfinished
        WHERE key = sessions.key AND session_id = sessions.id AND ending IS NULL),
    {SESSION_DETAILS}"""
_ASKED = f"platform = 'terminal' AND substr(chat, 1, {len(ASKED)}) = '{ASKED}'"
_KEYS = "platform = 'api' AND user_id <> 'page'"
_UNLISTED = "(platform = 'api' AND user_id IN (SELECT name FROM api_keys WHERE unlisted = 1))"
_MADE_BY: dict[Maker, str] = {"ask": _ASKED, "key": _KEYS, "person": f"NOT ({_ASKED}) AND NOT ({_KEYS})"}
_LAST_MESSAGES = """SELECT number, message FROM messages WHERE session_id = ? AND role IN ('user', 'assistant')
    AND turn_number NOT IN (SELECT turn_number FROM undone_turns WHERE session_id = ?)
    ORDER BY number DESC LIMIT 3"""
_WAITING = """SELECT session_id FROM approvals INDEXED BY approvals_open WHERE choice IS NULL
        AND EXISTS (SELECT 1 FROM turns WHERE turns.id = turn_id AND ending IS NULL)
    UNION SELECT session_id FROM questions WHERE answered_at IS NULL AND until > ?
        AND EXISTS (SELECT 1 FROM turns WHERE turns.id = turn_id AND ending IS NULL)"""
MAX_PREVIEW_CHARS = 120
_MAX_DECODED_CHARS = 200_000
"""A longer message, such as one with a picture, is no preview."""


_STATES = {
    "": "TRUE",
    "queued": "ending IS NULL AND attempts = 0 AND held = 0",
    "held": "ending IS NULL AND held = 1",
    "running": "ending IS NULL AND attempts > 0",
}


class ApiRunStore(SqlRows):
    """Runs and sessions of the API; `owner=None` means all owners."""

    async def find_by_prefix(self, platform: str, prefix: str) -> tuple[str, str] | None:
        """The turn whose message id starts with `prefix`, and that id."""
        # a range instead of GLOB, because a prefix may contain its wildcards
        sql = """SELECT id, inbound_id FROM turns WHERE platform = ? AND inbound_id >= ? AND inbound_id < ?
            ORDER BY inbound_id LIMIT 1"""
        prefix = clean_text(prefix)
        found: tuple[str, str] | None = await self._database.fetch_one(sql, platform, prefix, prefix + "\U0010ffff")
        return found

    async def count_unfinished(self, platform: str) -> dict[str, int]:
        """By user, the turns that are running or queued."""
        sql = """SELECT user_id, count(*) FROM turns
            WHERE ending IS NULL AND platform = ? GROUP BY 1"""
        return dict(await self._database.fetch_all(sql, platform))

    async def list_runs(self, owner: SessionOwner | None, query: "RunQuery") -> list[str]:
        """Ids of the newest turns first."""
        conditions, values = ["platform <> 'subagent'", _STATES.get(query.state, "ending = ?")], list[str | int]()
        if query.state and query.state not in _STATES:
            values.append(query.state)
        if owner is not None:
            conditions.append("platform = ? AND user_id = ?")
            values += [owner.platform, owner.user]
        if query.session:
            conditions.append("session_id = ?")
            values.append(clean_text(query.session))
        if query.before:
            conditions.append("number < (SELECT number FROM turns WHERE id = ?)")
            values.append(clean_text(query.before))
        sql = f"SELECT id FROM turns WHERE {' AND '.join(conditions)} ORDER BY number DESC LIMIT ?"
        return [id for (id,) in await self._database.fetch_all(sql, *values, query.limit)]

    async def unfinished(self, platform: str) -> list[tuple[str, Inbound]]:
        sql = "SELECT id, inbound FROM turns WHERE ending IS NULL AND platform = ? ORDER BY number"
        found = await self._database.fetch_all(sql, platform)
        return [(id, Decoders.inbound.decode(inbound)) for id, inbound in found]

    async def sessions(self, owner: SessionOwner | None, query: SessionQuery) -> list[ApiSession]:
        """Latest first; `words`: all of them in the title or the first message. Raises `SessionError` for a wrong
        cursor."""
        wanted = [f"%{escape_like(word)}%" for word in clean_text(query.words).split()]
        conditions, own = scope_conditions(SearchScope(owner=owner))
        conditions += ["platform <> 'subagent'", *(MATCHES_WORD for _ in wanted)]
        values: list[str | float] = [*own, *(pattern for pattern in wanted for _ in range(2))]
        if query.platform:
            conditions.append("platform = ?")
            values.append(clean_text(query.platform))
        conditions += ["pinned = 1"] * query.pinned + [f"NOT {_UNLISTED}"] * query.listed
        conditions += [_MADE_BY[query.made_by]] if query.made_by else []
        if query.archived is not None:
            conditions.append(f"archived = {int(query.archived)}")
        if query.folder:
            conditions.append("folder = ?")
            values.append(clean_text(query.folder))
        if query.parent:
            conditions.append("parent_id = ?")
            values.append(clean_text(query.parent))
        if query.before:
            conditions.append("updated < ?")
            values.append(query.before)
        if query.cursor:
            updated, id = _parse_cursor(query.cursor)
            conditions.append("updated <= ? AND (updated < ? OR id > ?)")
            values += [updated, updated, id]
        order = "ORDER BY updated DESC, id"
        # the rows first, so that the rest is computed for those alone
        where = f"WHERE id IN (SELECT id FROM sessions WHERE {' AND '.join(conditions)} {order} LIMIT ?) {order}"
        return await self._database.read_long(lambda db: _list_sessions(db, where, *values, query.limit))

    async def folders(self, owner: SessionOwner | None) -> list[tuple[str, int]]:
        """The folders of conversations by name, with the number of conversations in each."""
        conditions, values = scope_conditions(SearchScope(owner=owner))
        where = " AND ".join(["folder <> ''", *conditions])
        sql = f"SELECT folder, count(*) FROM sessions WHERE {where} GROUP BY folder ORDER BY folder"
        return [(name, count) for name, count in await self._database.fetch_all(sql, *values)]

    async def session(self, id: str) -> ApiSession | None:
        found = await self._database.read(lambda db: _list_sessions(db, "WHERE id = ?", clean_text(id)))
        return found[0] if found else None

    async def find_current(self, address: Address) -> ApiSession | None:
        """The active session at `address`."""
        where = "WHERE id = (SELECT session_id FROM leases WHERE key = ?)"
        found = await self._database.read(lambda db: _list_sessions(db, where, clean_text(address.key)))
        return found[0] if found else None

    async def fork(self, session: str, address: Address, title: str = "", until: int = 0) -> str:
        """Create a branch of `session` at `address` that shares its finished turns, or those up to the turn number
        `until`; returns its id.

        Raises `SessionError` if no turn has finished yet.
        """
        new, now = new_session_id(), self._clock()

        def work(db: Connection) -> str:
            if until:
                conversations.branch_at_turn(db, (session, until), new, title.strip(), address=address, now=now)
            else:
                conversations.branch_from_end(db, session, new, title.strip(), address=address, now=now)
            set_current_session(db, address.key, new)
            return new

        return await self._database.run(work)


def _parse_cursor(cursor: str) -> tuple[float, str]:
    updated, _, id = cursor.partition(":")
    try:
        place = float(updated)
    except ValueError:
        place = math.nan
    if not math.isfinite(place) or not id:
        raise SessionError("The cursor is not valid. Use the one of the page before, as it is.")
    return place, clean_text(id)


def _list_sessions(db: Connection, where: str, *values: str | float) -> list[ApiSession]:
    rows = db.execute(f"{_SESSION} {where}", values).fetchall()
    waiting = {id for (id,) in db.execute(_WAITING, (time.time(),))} if any(row[12] for row in rows) else set()
    found = []
    unlisted = {id for (id,) in db.execute("SELECT name FROM api_keys WHERE unlisted = 1")}
    for id, address, current, title, model, busy, mode, effort, workdir, *facts, text in rows:
        place = Decoders.address.decode_or(address, Address("damaged", id), f"row {id} of sessions")
        pinned, archived, folder, status, created, updated, parent, turns, unfinished, messages = facts
        found.append(
            ApiSession(
                id=id,
                address=place,
                is_current=bool(current),
                title=title or export.title_from_text(text),
                model=model,
                busy=busy,
                permission_mode=mode,
                effort=effort,
                workdir=workdir,
                status="waiting" if id in waiting else status or "idle",
                created=created,
                updated=updated,
                parent=parent,
                turns=turns,
                unfinished=unfinished,
                messages=messages,
                preview=_preview(db, id),
                person=_person(db, place),
                pinned=bool(pinned),
                archived=bool(archived),
                folder=folder,
                made_by=_made_by(place),
                unlisted=place.platform == API_PLATFORM and place.user in unlisted,
            )
        )
    return found


def _made_by(place: Address) -> Maker:
    if place.platform == API_PLATFORM and place.user != PAGE_USER:
        return "key"
    return "ask" if place.platform == "terminal" and place.chat.startswith(ASKED) else "person"


def _preview(db: Connection, session: str) -> str:
    for number, text in db.execute(_LAST_MESSAGES, (session, session)):
        if len(text) <= _MAX_DECODED_CHARS:
            words = " ".join(first_words(history.decode_message(number, text).text)[:2000].split())
            if words:
                return words if len(words) <= MAX_PREVIEW_CHARS else f"{words[: MAX_PREVIEW_CHARS - 1]}…"
    return ""


def _person(db: Connection, place: Address) -> str:
    if place.platform == SCHEDULED:
        row = db.execute("SELECT name FROM schedules WHERE id = ?", (place.chat,)).fetchone()
    elif place.platform == API_PLATFORM:
        return place.user
    else:
        sql = "SELECT name FROM people WHERE platform = ? AND person_id IN (?, ?)"
        row = db.execute(sql, (place.platform, place.user, place.chat)).fetchone()
    return "" if row is None else str(row[0])
