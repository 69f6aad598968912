"""The keys of providers that have several: which rest until when, which one a conversation uses, and their bills."""

from collections.abc import Mapping

from alipes.kernel.api_keys import KeyRest
from alipes.kernel.turns import Usage
from alipes.store.sql.rows import SqlRows, clean_text

QUARTER_S = 900
_LAST = "SELECT variable FROM key_usage WHERE provider = ? AND session_id = ? ORDER BY updated DESC LIMIT 1"


class ProviderKeyStore(SqlRows):
    """Shared by all processes of a home. Keys are named by their variables."""

    async def look(self, provider: str, session: str) -> tuple[Mapping[str, KeyRest], str]:
        """The rests of the provider's keys by variable, also past ones, and the key that the conversation used last."""
        sql = "SELECT variable, reason, until FROM key_rests WHERE provider = ?"
        rests = {row[0]: KeyRest(*row) for row in await self._database.fetch_all(sql, provider)}
        (last,) = (await self._database.fetch_one(_LAST, provider, session) if session else None) or ("",)
        return rests, last

    async def rest(self, provider: str, rest: KeyRest) -> None:
        sql = """INSERT INTO key_rests (provider, variable, reason, until) VALUES (?, ?, ?, ?)
            ON CONFLICT (provider, variable) DO UPDATE SET reason = excluded.reason, until = excluded.until"""
        await self._database.execute(sql, provider, rest.variable, rest.reason, rest.until, sync=False)

    async def count(self, provider: str, variable: str, session: str, model: str, usage: Usage) -> None:
        now, tokens = self._clock(), (usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning)
        key = (provider, variable, session, clean_text(model), int(now // QUARTER_S))
        row = (*key, 1, *tokens, usage.cost or 0.0, int(usage.cost is not None), now)
        sums = ("calls", "input", "output", "cached", "cache_write", "reasoning", "cost", "priced")
        added = ", ".join(f"{each} = key_usage.{each} + excluded.{each}" for each in sums)
        sql = f"""INSERT INTO key_usage (provider, variable, session_id, model, quarter, {", ".join(sums)}, updated)
            VALUES ({", ".join("?" * len(row))}) ON CONFLICT (provider, session_id, variable, model, quarter)
            DO UPDATE SET {added}, updated = excluded.updated"""
        await self._database.execute(sql, *row, sync=False)
