"""Approvals: questions about tool calls, the answers and the rights they give; and untrusted text that was read."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.kernel.errors import SessionError
from alipes.kernel.turns import ApprovalChoice, Turn
from alipes.store.sql.connection import Connection
from alipes.store.sql.conversations import session_title
from alipes.store.sql.rows import SqlRows, clean_text, to_json

StandingChoice: TypeAlias = Literal["session", "always"]


class Approval(Struct, frozen=True):
    """A question about a call, and its answer."""

    id: str
    session: str
    """The conversation that was asked; empty for an approval of an older release."""
    key: str
    turn: str
    """The turn that asked."""
    tool: str
    arguments: str
    """JSON, without secrets."""
    workdir: str
    reason: str
    rule: str
    """Exactly what `session` and `always` allow."""
    asked_at: float
    choice: ApprovalChoice | None = None
    """None: nobody has answered yet."""
    answered_by: str = ""
    answered_at: float | None = None
    revoked_at: float | None = None
    pattern: str = ""
    """The pattern of commands that `always` allows in `workdir`; empty: exactly the rule."""
    note: str = ""
    """Why not, in the person's words."""

    @property
    def state(self) -> str:
        return "open" if self.choice is None else "revoked" if self.revoked_at else self.choice


class StandingRight(Struct, frozen=True):
    """An earlier answer that allows a call."""

    choice: StandingChoice
    confirmed: bool
    """False: untrusted text was read since the person gave it, so the person must be asked again."""


APPROVAL_COLUMNS = """approvals.id, session_id, approvals.key, turn_id, tool, arguments, approvals.workdir, reason,
    rule, asked_at, choice, answered_by, answered_at, revoked_at, pattern, note"""
_IN_FORCE = "choice IN ('session', 'always') AND revoked_at IS NULL"
_ASKED_NOW = "choice IS NULL AND EXISTS (SELECT 1 FROM turns WHERE turns.id = turn_id AND ending IS NULL)"
_CHAIN = """WITH RECURSIVE chain (id) AS (
    SELECT :turn UNION SELECT parent_id FROM turns JOIN chain USING (id) WHERE parent_id IS NOT NULL)"""
"""The turn and those it works for."""
_sources_decoder = msgspec.json.Decoder(frozenset[str])


class ApprovalStore(SqlRows):
    """Every method is one transaction, and nothing is remembered: a right that is revoked ends at once in every
    process. A question can be answered once."""

    async def ask(self, approval: Approval, sources: Collection[str] = ()) -> None:
        """Store an open question; `sources`: what the conversation has read of untrusted text."""
        sql = """INSERT INTO approvals
            (id, session_id, key, turn_id, tool, arguments, workdir, reason, rule, sources, asked_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
        row = approval
        names = (row.id, row.session, row.key, row.turn, row.tool, row.arguments, clean_text(row.workdir))
        listed = to_json(sorted(sources))
        why = clean_text(row.reason)
        await self._database.execute(sql, *names, why, _rule_bytes(row.rule), listed, row.asked_at)

    async def find_waiting(self, turn: str, rule: str, reason: str) -> Approval | None:
        """The same question of this turn from before a restart, if the turn has not acted on an answer yet."""
        sql = f"""SELECT {APPROVAL_COLUMNS} FROM approvals
            WHERE turn_id = ? AND taken_at IS NULL AND rule = ? AND reason = ? ORDER BY number DESC LIMIT 1"""
        row = await self._database.fetch_one(sql, turn, _rule_bytes(rule), clean_text(reason))
        return None if row is None else make_approval(row)

    async def answer(self, id: str, choice: ApprovalChoice, by: str, *, pattern: str = "", note: str = "") -> bool:
        """False if it is not open: only the first answer counts, from whichever process."""
        sql = """UPDATE approvals SET choice = ?, answered_by = ?, answered_at = ?, pattern = ?, note = ?
            WHERE id = ? AND choice IS NULL"""
        said = clean_text(by), self._clock(), clean_text(pattern), clean_text(note)
        return bool(await self._database.execute(sql, choice, *said, id))

    async def allow_pattern(self, approval: Approval) -> None:
        """Store a right that a person gave without being asked."""
        await self.ask(approval)
        await self.answer(approval.id, "always", approval.answered_by, pattern=approval.pattern)

    async def list_patterns(self, workdir: str) -> tuple[Approval, ...]:
        """The patterns of commands that are allowed in the folder, oldest first."""
        sql = f"""SELECT {APPROVAL_COLUMNS} FROM approvals WHERE pattern <> '' AND {_IN_FORCE} AND workdir = ?
            ORDER BY number"""
        return tuple(map(make_approval, await self._database.fetch_all(sql, clean_text(workdir))))

    async def list_decided(self, session: str) -> tuple[Approval, ...]:
        """The answered questions of a conversation, oldest first."""
        sql = f"""SELECT {APPROVAL_COLUMNS} FROM approvals WHERE session_id = ? AND choice IS NOT NULL AND turn_id <> ''
            ORDER BY number"""
        return tuple(map(make_approval, await self._database.fetch_all(sql, session)))

    async def take(self, id: str) -> None:
        """The turn is about to act on the answer, which counts once."""
        await self._database.execute("UPDATE approvals SET taken_at = ? WHERE id = ?", self._clock(), id)

    async def find_right(
        self, rule: str, session: str, turn: str, sources: Collection[str] = (), *, patterns: Collection[str] = ()
    ) -> StandingRight | None:
        """The right to do exactly this in the conversation, or what `patterns` cover. After untrusted text was read,
        it counts as confirmed if a person who was asked with these `sources`, or since then in this turn, said yes.

        `patterns`: ids of the approvals whose patterns cover the call."""
        sql = """SELECT choice, session_id, turn_id, sources FROM approvals WHERE rule = ? AND pattern = ''
            AND revoked_at IS NULL AND choice <> 'no' AND (choice = 'always' OR session_id = ?)"""
        rows = await self._database.fetch_all(sql, _rule_bytes(rule), session)
        sql = "SELECT choice, session_id, turn_id, sources FROM approvals WHERE id = ? AND revoked_at IS NULL"
        covering = [row for id in patterns for row in await self._database.fetch_all(sql, id)]

        def confirms(choice: ApprovalChoice, place: str, asker: str, known: str) -> bool:
            if asker == turn and known != "[]":
                return True
            return choice != "once" and place == session and _sources_decoder.decode(known) >= {*sources}

        complete = len(covering) == len(patterns) > 0
        choices = {choice for choice, *_ in rows} | ({"always"} if complete else set())
        confirmed = not sources or any(confirms(*row) for row in rows)
        confirmed = confirmed or (complete and all(confirms(*row) for row in covering))
        if "session" in choices:
            return StandingRight("session", confirmed)
        return StandingRight("always", confirmed) if "always" in choices else None

    async def list_current(self) -> tuple[Approval, ...]:
        """Open questions of unfinished turns, then rights in force, oldest first; of equal rights the newest."""
        asked = f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE {_ASKED_NOW} ORDER BY number"
        standing = f"""SELECT {APPROVAL_COLUMNS} FROM approvals WHERE number IN (SELECT max(number) FROM approvals
            WHERE {_IN_FORCE} GROUP BY rule, pattern, choice, CASE WHEN choice = 'session' THEN session_id ELSE '' END)
            ORDER BY number"""

        def work(db: Connection) -> tuple[Approval, ...]:
            return tuple(make_approval(row) for sql in (asked, standing) for row in db.execute(sql).fetchall())

        return await self._database.read(work)

    async def titles(self, approvals: Collection[Approval]) -> Mapping[str, str]:
        """By session, the titles of the conversations that were asked, if they have one."""
        sessions = {each.session for each in approvals}

        def work(db: Connection) -> dict[str, str]:
            known = [each for each in sessions if db.execute("SELECT 1 FROM sessions WHERE id = ?", (each,)).fetchone()]
            return {each: title for each in known if (title := session_title(db, each))}

        return await self._database.read(work)

    async def find(self, id: str) -> Approval:
        """The approval with this id or the start of it. Raises `SessionError`."""
        sql = f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE substr(approvals.id, 1, length(?1)) = ?1 LIMIT 2"
        rows = await self._database.fetch_all(sql, clean_text(id)) if id else []
        if len(rows) == 1:
            return make_approval(rows[0])
        problem = "matches several approvals; give more of the id" if rows else "is not the id of an approval"
        raise SessionError(f'"{id}" {problem}.')

    async def revoke(self, approval: Approval) -> bool:
        """End the right, however often it was given. False if it gives none."""
        sql = f"""UPDATE approvals SET revoked_at = ? WHERE {_IN_FORCE} AND choice = ? AND pattern = ?
            AND (CASE WHEN pattern = '' THEN rule = ? ELSE workdir = ? END) AND (choice = 'always' OR session_id = ?)"""
        what = approval.pattern, _rule_bytes(approval.rule), clean_text(approval.workdir)
        return bool(await self._database.execute(sql, self._clock(), approval.choice, *what, approval.session))

    async def revoke_all(self) -> int:
        """End every right in force; returns how many there were."""
        count = sum(each.choice is not None for each in await self.list_current())
        await self._database.execute(f"UPDATE approvals SET revoked_at = ? WHERE {_IN_FORCE}", self._clock())
        return count


KEEP_WRITES_S = 366 * 86400.0


class UntrustedSourceStore(SqlRows):
    """Which text of strangers, and which secrets, conversations have read."""

    async def add(self, turn: Turn, source: str, label: str) -> None:
        """The turn has read it; so have the conversations it works for, which get its result."""
        sql = f"""INSERT OR IGNORE INTO untrusted_sources {_CHAIN} SELECT session_id, :source, :label, :now FROM
            (SELECT :session AS session_id UNION SELECT :origin
                UNION SELECT session_id FROM turns JOIN chain USING (id)) AS reading
            WHERE session_id <> ''"""
        names = {**_place_names(turn), "source": clean_text(source), "label": clean_text(label), "now": self._clock()}
        # without a sync: the row is on disk before the result that follows it
        await self._database.run(lambda db: db.execute(sql, names).rowcount, sync=False)

    async def inherit(self, turn: Turn, sessions: Sequence[str]) -> None:
        """The turn has read text of these conversations, and so what they had read."""
        others = [session for session in sessions if session != turn.session]
        sql = f"""SELECT DISTINCT source, label FROM untrusted_sources WHERE session_id IN
            ({", ".join("?" * len(others))})"""
        for source, label in await self._database.fetch_all(sql, *others) if others else ():
            await self.add(turn, source, label)

    async def list_read(self, turn: Turn) -> Mapping[str, str]:
        """By source, what the turn's conversation has read, with the one it was branched from or works for."""
        sql = f"""{_CHAIN} SELECT source, label FROM untrusted_sources WHERE session_id IN (
            SELECT :session UNION SELECT :origin UNION SELECT session_id FROM turns JOIN chain USING (id)
            UNION SELECT ancestor_id FROM session_ancestors WHERE session_id = :session) ORDER BY created"""
        names = _place_names(turn)
        return dict(await self._database.read_statement(lambda db: db.execute(sql, names).fetchall()))

    async def record_write(self, path: str, began: float, ended: float) -> None:
        """A conversation that had read text of strangers wrote the file, or ran a command in the folder."""
        sql = """INSERT INTO untrusted_writes (path, began, ended) VALUES (?, ?, ?)
            ON CONFLICT (path, began) DO UPDATE SET ended = excluded.ended"""

        def work(db: Connection) -> None:
            db.execute("DELETE FROM untrusted_writes WHERE ended < ?", (self._clock() - KEEP_WRITES_S,))
            db.execute(sql, (clean_text(path), began, ended))

        await self._database.run(work, sync=False)

    async def was_written(self, path: str, changed: Sequence[float]) -> bool:
        """True if such a conversation may have written the file, which was changed at one of these times."""
        places = [clean_text(path)]
        while (above := os.path.dirname(places[-1])) != places[-1]:
            places.append(above)
        within = " OR ".join(["began <= ? AND ended >= ?"] * len(changed))
        sql = f"""SELECT 1 FROM untrusted_writes WHERE path IN ({", ".join("?" * len(places))})
            AND ({within}) LIMIT 1"""
        return bool(await self._database.fetch_all(sql, *places, *(each for time in changed for each in (time, time))))


def _place_names(turn: Turn) -> dict[str, str]:
    origin = turn.inbound.origin
    return {"turn": turn.id, "session": turn.session, "origin": origin.session if origin is not None else ""}


def _rule_bytes(rule: str) -> bytes:
    """Different for different rules, even if they contain lone surrogates, as file names may."""
    return rule.encode("utf-8", "surrogatepass")


def make_approval(row: tuple[Any, ...]) -> Approval:
    approval = Approval(*row)
    return structs.replace(approval, rule=row[8].decode("utf-8", "surrogatepass"))
