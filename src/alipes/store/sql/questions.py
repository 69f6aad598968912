"""Open questions to people of every surface and process: approvals, and questions of the model."""

from typing import Any

import msgspec
from msgspec import Struct

from alipes.kernel.turns import Address
from alipes.store import export
from alipes.store.sql.approvals import APPROVAL_COLUMNS, Approval, make_approval
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, to_json


class StoredQuestion(Struct, frozen=True):
    """A question of the model."""

    id: str
    session: str
    key: str
    turn: str
    question: str
    choices: tuple[str, ...]
    asked_at: float
    until: float
    answer: str = ""
    answered_by: str = ""
    answered_at: float | None = None


class OpenQuestion(Struct, frozen=True):
    """An open question and the conversation that is asked."""

    asked: Approval | StoredQuestion
    session: str
    title: str
    address: Address


KEEP_S = 7 * 86400.0
"""How long answered questions are kept, so that a second answer can be refused with the first."""
_choices_decoder = msgspec.json.Decoder(tuple[str, ...])


_COLUMNS = """questions.id, session_id, questions.key, turn_id, question, choices, asked_at, until, answer, answered_by,
    answered_at"""
_UNFINISHED = "EXISTS (SELECT 1 FROM turns WHERE turns.id = turn_id AND ending IS NULL)"
_PLACE = "JOIN sessions ON sessions.id = session_id"
_PLACE_COLUMNS = "sessions.id, title, first_text, address"


class QuestionStore(SqlRows):
    async def ask(self, question: StoredQuestion) -> None:
        """Store an open question. The same one of an earlier process is replaced: its turn asks again."""
        values = (question.id, question.session, question.key, question.turn, clean_text(question.question))
        row = (*values, to_json(question.choices), question.asked_at, question.until)
        now = self._clock()

        def work(db: Connection) -> None:
            db.execute("DELETE FROM questions WHERE answered_at < ?", (now - KEEP_S,))
            replaced = "DELETE FROM questions WHERE turn_id = ? AND question = ? AND answered_at IS NULL"
            db.execute(replaced, (question.turn, clean_text(question.question)))
            db.execute(
                """INSERT INTO questions (id, session_id, key, turn_id, question, choices, asked_at, until)
                SELECT ?, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?)""",
                (*row, question.session),
            )

        await self._database.run(work, sync=False)

    async def answer(self, id: str, text: str, by: str) -> bool:
        """Record an answer; False if the question was answered before. A question that is not stored is not refused."""
        now = self._clock()

        def work(db: Connection) -> bool:
            sql = (
                "UPDATE questions SET answer = ?, answered_by = ?, answered_at = ? WHERE id = ? AND answered_at IS NULL"
            )
            if db.execute(sql, (clean_text(text), clean_text(by), now, clean_text(id))).rowcount:
                return True
            return db.execute("SELECT 1 FROM questions WHERE id = ?", (clean_text(id),)).fetchone() is None

        return await self._database.run(work)

    async def close(self, id: str) -> None:
        """Nobody waits for the answer any longer."""
        sql = "UPDATE questions SET answered_by = 'nobody', answered_at = ? WHERE id = ? AND answered_at IS NULL"
        await self._database.execute(sql, self._clock(), id, sync=False)

    async def find(self, id: str) -> Approval | StoredQuestion | None:
        """The question with this id, answered or not."""

        def work(db: Connection) -> Approval | StoredQuestion | None:
            row = db.execute(f"SELECT {_COLUMNS} FROM questions WHERE id = ?", (clean_text(id),)).fetchone()
            if row is not None:
                return _to_question(row)
            row = db.execute(f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = ?", (clean_text(id),)).fetchone()
            return None if row is None else make_approval(row)

        return await self._database.read(work)

    async def list_open(self, session: str = "") -> tuple[OpenQuestion, ...]:
        """The open questions of unfinished turns, oldest first; with `session`, only of this conversation."""
        now, only = self._clock(), "AND sessions.id = :session" if session else ""
        approvals = f"""SELECT {_PLACE_COLUMNS}, {APPROVAL_COLUMNS} FROM approvals {_PLACE}
            WHERE choice IS NULL AND {_UNFINISHED} {only} ORDER BY approvals.number"""
        questions = f"""SELECT {_PLACE_COLUMNS}, {_COLUMNS} FROM questions {_PLACE}
            WHERE answered_at IS NULL AND until > :now AND {_UNFINISHED} {only} ORDER BY questions.number"""
        names = {"session": clean_text(session), "now": now}

        def work(db: Connection) -> tuple[OpenQuestion, ...]:
            found = [_to_open(row, make_approval(row[4:])) for row in db.execute(approvals, names)]
            found += [_to_open(row, _to_question(row[4:])) for row in db.execute(questions, names)]
            return tuple(sorted(found, key=lambda each: each.asked.asked_at))

        return await self._database.read(work)

    async def has_open(self, key: str) -> bool:
        """False if no question of the session `key` is open. A question whose time is over may count."""
        sql = """SELECT 1 FROM approvals WHERE choice IS NULL AND key = ?1
            UNION ALL SELECT 1 FROM questions WHERE answered_at IS NULL AND key = ?1 LIMIT 1"""
        return await self._database.fetch_one(sql, key) is not None


def _to_question(row: tuple[Any, ...]) -> StoredQuestion:
    id, session, key, turn, question, choices, asked_at, until, answer, by, answered_at = row
    known = _choices_decoder.decode(choices)
    return StoredQuestion(id, session, key, turn, question, known, asked_at, until, answer, by, answered_at)


def _to_open(row: tuple[Any, ...], asked: Approval | StoredQuestion) -> OpenQuestion:
    session, title, text, address, *_ = row
    place = Decoders.address.decode_or(address, Address("damaged", session), f"row {session} of sessions")
    return OpenQuestion(asked, session, title or export.title_from_text(text), place)
