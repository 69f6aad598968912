"""The messages of conversations: written by claimed turns, and read as the model sees them.

The model sees the messages of a session and those a branch shares, without undone turns. Summaries replace
their start; they are only ever added, and which one is valid depends on the messages that are visible now.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from alipes.kernel.errors import Fenced, StoreError
from alipes.kernel.messages import Message, Text
from alipes.kernel.turns import CompactionState, Said, Turn
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, searchable_text, to_json, usage_columns


class CompactionAttempts(Struct, frozen=True):
    """Failed compaction attempts in a row, and the last reason."""

    count: int = 0
    why: str = ""


HistoryRow: TypeAlias = tuple[int, int, str, int | None]
"""Number, turn number and JSON of a message, and the tokens of the model call that returned it."""
MessageRow: TypeAlias = tuple[tuple[object, ...], str]
"""The columns of a message, and its text for the search index."""
SummaryRow: TypeAlias = tuple[int, int, int, int, int, str]
"""Last message, count of messages, last trimmed message, characters, newest message, and the text of a summary."""
NO_LIMIT = 2**63 - 1
NOT_UNDONE = "NOT IN (SELECT turn_number FROM undone_turns WHERE session_id = ?)"
HAS_STARTED = """CASE WHEN ending IS NULL THEN attempts > 0 WHEN ending = 'steered' THEN 1 = 0
    ELSE ending <> 'stopped' OR attempts > 0 END"""
"""Of a turn: it was not only queued, and is not a part of another one."""
_SUMMARIES = """
    SELECT last_message, message_count, last_trimmed, max_chars, newest_message, text FROM summaries
    WHERE session_id = ? ORDER BY number DESC LIMIT 20"""
_INSERT_MESSAGE = """
    INSERT INTO messages (turn_number, session_id, role, message, model,
                          input, output, cached, cache_write, reasoning, cost, created)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""
_INSERT_SUMMARY = """
    INSERT INTO summaries (
        session_id, last_message, message_count, last_trimmed, max_chars, newest_message, text, created)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


def make_message_row(said: Said) -> MessageRow:
    message = said.message
    columns = (message.role, to_json(message), clean_text(said.model), *usage_columns(said.usage))
    return columns, searchable_text(message)


def find_claimed_turn(db: Connection, turn: Turn) -> tuple[int, str]:
    """Number and session of a turn that we may write to. Raises `Fenced`."""
    sql = "SELECT number, session_id FROM turns WHERE id = ? AND epoch = ? AND ending IS NULL"
    row = db.execute(sql, (turn.id, turn.epoch)).fetchone()
    if row is None:
        raise Fenced(f"turn {turn.id} of session {turn.key} has ended or was claimed by another process")
    return row[0], row[1]


def insert_message(db: Connection, turn: int, session: str, row: MessageRow, now: float) -> None:
    columns, text = row
    (number,) = db.execute(_INSERT_MESSAGE, (turn, session, *columns, now)).fetchone()
    if text:
        db.execute("INSERT INTO search_index (rowid, text) VALUES (?, ?)", (number, text))


def list_ancestors(db: Connection, session: str) -> list[tuple[str, int]]:
    """The sessions that its history consists of and the last turn of each that counts: oldest first, itself
    last."""
    sql = "SELECT ancestor_id, last_turn FROM session_ancestors WHERE session_id = ? ORDER BY last_turn"
    return [*db.execute(sql, (session,)).fetchall(), (session, NO_LIMIT)]


def visible_messages(db: Connection, session: str) -> Iterator[HistoryRow]:
    sql = f"""SELECT number, turn_number, message, input + output FROM messages
        WHERE session_id = ? AND turn_number <= ? AND turn_number {NOT_UNDONE} ORDER BY number"""
    for ancestor, last_turn in list_ancestors(db, session):
        yield from db.execute(sql, (ancestor, last_turn, session))


def find_summary(db: Connection, session: str, numbers: list[int]) -> tuple[CompactionState, int]:
    """The newest summary that is valid for the messages with these numbers, and the newest message then.

    A summary of other messages is not valid: some were undone since, or belong to another branch.
    """
    ancestors = reversed(list_ancestors(db, session))
    return choose_summary((row for name, _ in ancestors for row in db.execute(_SUMMARIES, (name,))), numbers)


def choose_summary(summaries: Iterable[SummaryRow], numbers: list[int]) -> tuple[CompactionState, int]:
    """The first of `summaries` that is valid for the messages with these numbers, and the newest message then."""
    for last, count, last_trimmed, max_chars, newest, text in summaries:
        covered = bisect_right(numbers, last)
        if covered == count and (not covered or numbers[covered - 1] == last):
            return CompactionState(covered, text, bisect_right(numbers, last_trimmed), max_chars), newest
    return CompactionState(), 0


def started_turns(db: Connection, session: str, *, silent: bool = False) -> Iterator[tuple[int, str, str, bool]]:
    """Number, id, inbound and whether it is unfinished, of the visible turns that were started, latest first.

    A steered message is part of the turn that it was steered into. `silent`: include turns without messages.
    """
    has_messages = "1 = 1" if silent else "EXISTS (SELECT 1 FROM messages WHERE turn_number = turns.number)"
    sql = f"""SELECT number, id, inbound, ending IS NULL FROM turns WHERE session_id = ? AND number <= ?
        AND number {NOT_UNDONE} AND {HAS_STARTED} AND (ending IS NULL OR {has_messages}) ORDER BY number DESC"""
    for ancestor, last_turn in reversed(list_ancestors(db, session)):
        for number, id, inbound, unfinished in db.execute(sql, (ancestor, last_turn, session)):
            yield number, id, inbound, bool(unfinished)


def last_counted_tokens(rows: list[HistoryRow], since: int) -> tuple[int, int]:
    """The tokens of the last model call after message `since`, and the number of messages it covered."""
    for place in range(len(rows) - 1, -1, -1):
        number, _, _, tokens = rows[place]
        if number <= since:
            break
        if tokens is not None:
            return tokens, place + 1
    return 0, 0


def context_tokens(db: Connection, session: str) -> int | None:
    """Tokens (in and out) of the last visible model call; None if there is none since the last compaction."""
    last_call = f"""SELECT number, input + output FROM messages WHERE session_id = ? AND turn_number <= ?
        AND turn_number {NOT_UNDONE} AND input IS NOT NULL ORDER BY number DESC LIMIT 1"""
    compacted = "SELECT 1 FROM summaries WHERE session_id = ? AND newest_message >= ? LIMIT 1"
    for ancestor, last_turn in reversed(list_ancestors(db, session)):
        if row := db.execute(last_call, (ancestor, last_turn, session)).fetchone():
            return None if db.execute(compacted, (session, row[0])).fetchone() else int(row[1])
    return None


def load_transcript(db: Connection, session: str, turn: int) -> tuple[list[HistoryRow], list[HistoryRow]]:
    """The messages before a turn, and its own, even if it was undone meanwhile."""
    before = [row for row in visible_messages(db, session) if row[1] != turn]
    own = "SELECT number, turn_number, message, input + output FROM messages WHERE turn_number = ? ORDER BY number"
    return before, db.execute(own, (turn,)).fetchall()


class CompactionStore(SqlRows):
    """Stored compaction states. Each is added, none is changed; messages never change."""

    async def save(self, turn: Turn, digest: CompactionState, *, living: int = 0, helped: bool = True) -> bool:
        """Use it from now on; `helped`: reset the count of failed attempts.

        `living`: on behalf of a running turn of ours that knows this many messages; raises `Fenced` like
        `record`. Otherwise it is saved for the conversation as it was when `turn` was read. Returns False,
        and saves nothing, if some of those messages were undone since.
        """
        now, text = self._clock(), clean_text(digest.text)
        used = max(digest.covered, digest.trimmed_until)

        def work(db: Connection) -> bool:
            if living:
                number, session = find_claimed_turn(db, turn)
                before, own = load_transcript(db, session, number)
                rows = [*before, *own]
                if len(rows) != living:
                    return False
            else:
                session, rows = turn.session, list(visible_messages(db, turn.session))
                if decode_messages(rows[:used]) != turn.history[:used]:
                    return False
            numbers = [row[0] for row in rows]
            last = numbers[digest.covered - 1] if digest.covered else 0
            last_trimmed = numbers[digest.trimmed_until - 1] if digest.trimmed_until else 0
            count, newest = bisect_right(numbers, last), max(numbers, default=0)
            db.execute(_INSERT_SUMMARY, (session, last, count, last_trimmed, digest.max_chars, newest, text, now))
            if helped:
                db.execute("DELETE FROM failed_compactions WHERE session_id = ?", (session,))
            return True

        return await self._database.run(work, key=turn.key)

    async def latest(self, session: str) -> Turn | None:
        """The conversation as the history of its last turn; None if it is empty."""
        return await self._database.read(lambda db: _load_latest(db, session))

    async def size(self, session: str) -> int:
        """The tokens of its last call, input and output; zero if there was none since it was compacted."""
        return await self._database.read(lambda db: context_tokens(db, session)) or 0

    async def attempts(self, session: str) -> CompactionAttempts:
        sql = "SELECT attempts, error FROM failed_compactions WHERE session_id = ?"
        row = await self._database.fetch_one(sql, session)
        return CompactionAttempts() if row is None else CompactionAttempts(*row)

    async def record_failure(self, session: str, why: str) -> None:
        """One more failed attempt."""
        sql = """INSERT INTO failed_compactions VALUES (?, 1, ?)
            ON CONFLICT (session_id) DO UPDATE SET attempts = failed_compactions.attempts + 1, error = excluded.error"""
        await self._database.execute(sql, session, clean_text(why))

    async def reset_attempts(self, session: str) -> None:
        """Allow new attempts, because a person asked for it."""
        await self._database.execute("DELETE FROM failed_compactions WHERE session_id = ?", session)


def decode_message(number: int, text: str) -> Message:
    """The message of a row; a notice in its place if it cannot be read, so that the others can."""
    return Decoders.message.decode_or(text, unreadable_message(number), f"row {number} of messages")


def unreadable_message(number: int) -> Message:
    return Message("notice", (Text(f"[message {number} cannot be read: its row is damaged]"),))


def decode_messages(rows: Sequence[HistoryRow]) -> tuple[Message, ...]:
    try:
        return tuple([Decoders.message.decode(text) for _, _, text, _ in rows])
    except StoreError:  # a row is damaged: the others can be read
        return tuple(decode_message(number, text) for number, _, text, _ in rows)


def _load_latest(db: Connection, session: str) -> Turn | None:
    last = next(started_turns(db, session), None)
    row = db.execute("SELECT created, model FROM sessions WHERE id = ?", (session,)).fetchone()
    if last is None or row is None:
        return None
    _, id, inbound, _ = last
    rows = list(visible_messages(db, session))
    compaction, newest = find_summary(db, session, [row[0] for row in rows])
    return Turn(
        id,
        session,
        Decoders.inbound.decode(inbound),
        session_started=row[0],
        model=row[1],
        history=decode_messages(rows),
        compaction=compaction,
        measured_tokens=last_counted_tokens(rows, newest),
    )
