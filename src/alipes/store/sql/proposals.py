"""Proposals: changes of memory and skills that wait for a person's decision. It decides nothing."""

import os
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from alipes.kernel.errors import SessionError
from alipes.store.sql.rows import SqlRows, clean_text, to_json

ProposalKind: TypeAlias = Literal["memory", "skill"]


ProposalState: TypeAlias = Literal["pending", "accepted", "rejected"]


class Proposal(Struct, frozen=True):
    id: str
    kind: ProposalKind
    scope: str
    """Whose it is; see `memory_scope`."""
    change: str
    """JSON, by kind."""
    reason: str
    session: str
    turn: str
    sources: tuple[str, ...] = ()
    """The untrusted text that the conversation had read."""
    created: float = 0.0
    state: ProposalState = "pending"


_COLUMNS = "id, kind, scope, change, reason, session_id, turn_id, sources, created, state"
_sources_decoder = msgspec.json.Decoder(tuple[str, ...])


class ProposalStore(SqlRows):
    """A proposal is decided once, by whichever process is first."""

    async def add(self, proposal: Proposal) -> Proposal:
        """Store it under a new id. If the same change is pending already, that one is returned."""
        same = f"SELECT {_COLUMNS} FROM proposals WHERE state = 'pending' AND scope = ? AND kind = ? AND change = ?"
        sql = f"""INSERT INTO proposals
            (id, kind, scope, change, reason, session_id, turn_id, sources, created)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}"""
        scope, change = clean_text(proposal.scope), clean_text(proposal.change)
        names = (clean_text(proposal.reason), proposal.session, proposal.turn, to_json(proposal.sources))
        row = (os.urandom(4).hex(), proposal.kind, scope, change, *names, self._clock())
        found = await self._database.run(
            lambda db: db.execute(same, (scope, proposal.kind, change)).fetchone() or db.execute(sql, row).fetchone()
        )
        return _proposal(found)

    async def list_pending(self, scope: str, kind: ProposalKind | None = None) -> tuple[Proposal, ...]:
        """Oldest first."""
        sql = f"""SELECT {_COLUMNS} FROM proposals WHERE state = 'pending' AND scope = ? AND kind = coalesce(?, kind)
            ORDER BY number"""
        return tuple(map(_proposal, await self._database.fetch_all(sql, clean_text(scope), kind)))

    async def find_pending(self, scope: str, id: str) -> Proposal:
        """The pending proposal with this id or the start of it. Raises `SessionError`."""
        found = [each for each in await self.list_pending(scope) if id and each.id.startswith(id)]
        if len(found) == 1:
            return found[0]
        problem = "matches several proposals; give more of the id" if found else "is not the id of a pending proposal"
        raise SessionError(f'"{id}" {problem}.')

    async def find(self, id: str) -> Proposal | None:
        """The proposal with this id, decided or not."""
        row = await self._database.fetch_one(f"SELECT {_COLUMNS} FROM proposals WHERE id = ?", id)
        return None if row is None else _proposal(row)

    async def decide(self, id: str, state: ProposalState, by: str) -> bool:
        """False if it was decided before."""
        sql = "UPDATE proposals SET state = ?, decided_by = ?, decided = ? WHERE id = ? AND state = 'pending'"
        return bool(await self._database.execute(sql, state, clean_text(by), self._clock(), id))

    async def replace_change(self, id: str, change: str) -> bool:
        """Give a pending proposal another content. False if it was decided."""
        sql = "UPDATE proposals SET change = ? WHERE id = ? AND state = 'pending'"
        return bool(await self._database.execute(sql, clean_text(change), id))

    async def count_pending(self) -> int:
        """How many wait for a decision, of everybody."""
        row = await self._database.fetch_one("SELECT count(*) FROM proposals WHERE state = 'pending'")
        return int(row[0])

    async def count_calls(self, task: str, since: float) -> int:
        """How many model calls a task made since then, in all conversations."""
        sql = "SELECT count(*) FROM auxiliary_calls WHERE created >= ? AND task = ?"
        row = await self._database.fetch_one(sql, since, task)
        return int(row[0]) if row else 0


def _proposal(row: tuple[Any, ...]) -> Proposal:
    id, kind, scope, change, reason, session, turn, sources, created, state = row
    return Proposal(id, kind, scope, change, reason, session, turn, _sources_decoder.decode(sources), created, state)
