"""Maps a history sent by an API client onto a stored conversation, and queues the client's message.

The message continues that conversation, or a branch of it, or starts a new one.
"""

import os

from msgspec import Struct, structs

from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store.sql import conversations, history, turns
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, to_json


class HistoryMismatch(AlipesError):
    """The message does not fit the turn that it is to continue; `code` is for programs."""

    def __init__(self, why: str, code: str) -> None:
        super().__init__(why)
        self.code = code


class Continuation(Struct, frozen=True):
    """A message of an API client, and what it continues."""

    inbound: Inbound
    """Its address is used if a new conversation is created."""
    history: tuple[Message, ...] = ()
    """The messages before it, as the client has them; every call in them is answered."""
    history_hash: bytes = b""
    """Of `history`; empty if it cannot end with an answer of ours."""
    after: str = ""
    """The turn that it continues, if the client names one instead of sending the history."""
    conversation: str = ""
    """The id of the conversation that it continues, instead of a turn."""
    results: tuple[ToolResult, ...] = ()
    """Results of the client's own tools that the previous turn called."""
    response: tuple[str, str] | None = None
    """The id under which the response is stored, and the JSON of its request."""
    temporary: bool = False
    """Delete the conversation once it is answered."""


class AdmittedContinuation(Struct, frozen=True):
    turn: str
    session: str
    address: Address


IMPORTED = "imported"
"""The detail of turns that were sent by a client and never ran here."""
_TURN = """
    SELECT turns.number, turns.id, turns.session_id, turns.ending, sessions.address, turns.inbound,
        NOT EXISTS (SELECT 1 FROM turns AS later WHERE later.session_id = turns.session_id
                    AND later.number > turns.number AND later.notice = '')
            AND EXISTS (SELECT 1 FROM leases
                        WHERE leases.key = sessions.key AND leases.session_id = sessions.id)
    FROM turns JOIN sessions ON sessions.id = turns.session_id
    WHERE NOT EXISTS (SELECT 1 FROM undone_turns
                      WHERE undone_turns.session_id = sessions.id AND turn_number = turns.number)"""
_LAST_TURN = f"""{_TURN}
    AND turns.session_id = ? AND turns.notice = '' ORDER BY 1 DESC LIMIT 1"""
_HASHED_TURN = f"""{_TURN}
    AND turns.number IN (SELECT turn_number FROM history_hashes WHERE hash = ?) ORDER BY 1 DESC LIMIT 1"""


_COPY = """
    SELECT turns.id, turns.session_id, sessions.address FROM turns JOIN sessions ON sessions.id = turns.session_id
    WHERE turns.platform = ? AND turns.inbound_id >= ? AND turns.inbound_id < ?
        AND (turns.ending IS NULL
             OR (turns.ended >= ? AND NOT (turns.ending = 'stopped' AND turns.detail = 'disconnected')))
    ORDER BY turns.number DESC LIMIT 1"""


class _PreviousTurn(Struct, frozen=True):
    """The turn that a message continues."""

    number: int
    turn: str
    session: str
    unfinished: bool
    address: Address
    client_tools: frozenset[str]
    """The names of the client's own tools, if the turn was answered."""
    is_last: bool
    """There is no later message, and its conversation is the active one of its key."""


class ApiHistoryStore(SqlRows):
    async def admit_continuation(self, request: Continuation) -> AdmittedContinuation:
        """Queue the message; wake its session afterwards. Raises `HistoryMismatch`.

        Before the client hears of it, something later must be on disk: the answer, or see `StoreHealth.wait_synced`.
        """
        session, turn, now = turns.new_session_id(), os.urandom(8).hex(), self._clock()
        return await self._database.run(
            lambda db: _admit(db, request, session, turn, now), key=request.inbound.address.key, sync=False
        )

    async def find_copy(self, platform: str, prefix: str, *, within: float) -> AdmittedContinuation | None:
        """A turn whose message id starts with `prefix`: it runs, or ended `within` seconds ago, but not because
        its client left."""
        prefix = clean_text(prefix)
        values = (platform, prefix, prefix + "\U0010ffff", self._clock() - within)
        row = await self._database.fetch_one(_COPY, *values)
        return None if row is None else AdmittedContinuation(row[0], row[1], Decoders.address.decode(row[2]))


def _admit(db: Connection, request: Continuation, new_session: str, turn: str, now: float) -> AdmittedContinuation:
    session, address = new_session, request.inbound.address
    previous = _find_previous(db, request)
    if previous is None and request.conversation and not request.temporary:
        session = request.conversation  # it is empty
        address = _find_address(db, session)
        db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (now, session))
    elif previous is None:
        turns.insert_session(db, session, address, now)
        _insert_imported(db, session, request, _split_turns(request.history, request.results), now)
    elif (
        previous.is_last
        and not request.temporary
        and ((previous.address.platform, previous.address.user) == (address.platform, address.user))
    ):
        session, address = previous.session, previous.address
        if messages := _complete_messages(db, previous, request):  # the last one has the results of the calls
            sql = """UPDATE messages SET message = ?
                WHERE number = (SELECT max(number) FROM messages WHERE turn_number = ?)"""
            db.execute(sql, (to_json(messages[-1]), previous.number))
        db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (now, session))
    else:
        _branch_after(db, previous, session, address, now)
        if messages := _complete_messages(db, previous, request):
            db.execute("INSERT INTO undone_turns (session_id, turn_number) VALUES (?, ?)", (session, previous.number))
            _insert_imported(db, session, request, [messages], now)
    row = turns.make_turn_row(structs.replace(request.inbound, address=address), now, turn)
    if not turns.list_unfinished(db, row.key):
        turns.discard_stops(db, row.key)
    turns.insert_turn(db, row, session, "queue")
    _insert_response(db, request, turn, session)
    return AdmittedContinuation(turn, session, address)


def _find_address(db: Connection, session: str) -> Address:
    row = db.execute("SELECT address FROM sessions WHERE id = ?", (session,)).fetchone()
    if row is None:
        raise HistoryMismatch("the conversation no longer exists", "conversation_not_found")
    return Decoders.address.decode(row[0])


def _find_previous(db: Connection, request: Continuation) -> _PreviousTurn | None:
    if request.conversation:
        row = db.execute(_LAST_TURN, (request.conversation,)).fetchone()
        previous = None if row is None else _previous_from_row(row)
        if previous is not None and previous.unfinished:
            raise HistoryMismatch("the conversation is at work; wait for its answer", "conversation_locked")
        return previous
    if not request.after:
        row = db.execute(_HASHED_TURN, (request.history_hash,)).fetchone() if request.history_hash else None
        return None if row is None else _previous_from_row(row)
    row = db.execute(f"{_TURN} AND turns.id = ?", (request.after,)).fetchone()
    if row is None:
        raise HistoryMismatch("the previous response no longer exists", "previous_response_not_found")
    previous = _previous_from_row(row)
    if previous.unfinished:
        raise HistoryMismatch("the previous response is not finished yet; wait for it", "previous_response_unfinished")
    return previous


def _previous_from_row(row: tuple[int, str, str, str | None, str, str, int]) -> _PreviousTurn:
    number, turn, session, ending, address, inbound, is_last = row
    tools = Decoders.inbound.decode(inbound).offered if ending == "answered" else ()
    names = frozenset(tool.name for tool in tools)
    return _PreviousTurn(number, turn, session, ending is None, Decoders.address.decode(address), names, bool(is_last))


def _complete_messages(db: Connection, previous: _PreviousTurn, request: Continuation) -> tuple[Message, ...]:
    """The turn's messages with the client's results; empty if it made no calls for the client.

    Raises `HistoryMismatch`.
    """
    sql = "SELECT message FROM messages WHERE turn_number = ? ORDER BY number"
    said = tuple(Decoders.message.decode(text) for (text,) in db.execute(sql, (previous.number,)))
    calls = _client_calls(said, previous.client_tools)
    results = {result.call_id: result for result in request.results}
    if missing := [id for id in calls if id not in results]:
        raise HistoryMismatch(f"no tool output found for function call {', '.join(missing)}", "tool_output_missing")
    if stray := [id for id in results if id not in calls]:
        raise HistoryMismatch(f"no tool call found for function call output {', '.join(stray)}", "tool_call_missing")
    if not calls:
        return ()
    parts = (results.get(part.call_id, part) if isinstance(part, ToolResult) else part for part in said[-1].parts)
    return (*said[:-1], Message("tool", tuple(parts)))


def _client_calls(said: tuple[Message, ...], client_tools: frozenset[str]) -> list[str]:
    """The calls for the client with which the turn ended: its last message holds their results."""
    if not client_tools or not said or said[-1].role != "tool":
        return []
    calls = next((message.calls for message in reversed(said) if message.calls), ())
    return [call.id for call in calls if call.name in client_tools]


def _branch_after(db: Connection, previous: _PreviousTurn, session: str, address: Address, now: float) -> None:
    title = f"{conversations.session_title(db, previous.session)} (branch)"
    source = (previous.session, previous.number)
    conversations.insert_branch(db, source, session, title, address=address, now=now)
    turns.set_current_session(db, address.key, session)


def _split_turns(history: tuple[Message, ...], results: tuple[ToolResult, ...]) -> list[tuple[Message, ...]]:
    """The messages by turn: each user message starts one."""
    parts: list[list[Message]] = []
    for message in (*history, Message("tool", results)) if results else history:
        if message.role == "user" or not parts:
            parts.append([])
        parts[-1].append(message)
    return [tuple(part) for part in parts]


def _insert_imported(
    db: Connection, session: str, request: Continuation, imported: list[tuple[Message, ...]], now: float
) -> None:
    """Store turns that did not run here."""
    sql = f"""INSERT INTO turns (id, key, session_id, platform, inbound_id, inbound, ending, detail,
        created, started, ended, {turns.INBOUND_COLUMNS})
        VALUES (?, ?, ?, ?, ?, ?, 'answered', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""
    address = request.inbound.address
    for place, messages in enumerate(imported):
        first = messages[0].text if messages[0].role == "user" else ""
        inbound = Inbound(f"{request.inbound.id}:given:{place}", address, request.inbound.sender, first)
        ids = (os.urandom(8).hex(), address.key, session, address.platform, clean_text(inbound.id))
        row = (*ids, to_json(inbound), IMPORTED, now, now, now, *turns.inbound_columns(inbound))
        (number,) = db.execute(sql, row).fetchone()
        for message in messages:
            history.insert_message(db, number, session, history.make_message_row(Said(message)), now)


def _insert_response(db: Connection, request: Continuation, turn: str, session: str) -> None:
    if request.temporary:
        db.execute("INSERT OR IGNORE INTO temporary_sessions VALUES (?)", (session,))
    if request.response is not None:
        id, text = request.response
        sql = """INSERT INTO responses (id, turn_number, caller, request)
            VALUES (?, (SELECT number FROM turns WHERE id = ?), ?, ?)"""
        db.execute(sql, (id, turn, request.inbound.sender, text))
