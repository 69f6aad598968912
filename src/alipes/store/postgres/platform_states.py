"""State files of messengers in PostgreSQL, for the worker that receives next."""

from alipes.store.sql.rows import SqlRows


class PostgresPlatformStates(SqlRows):
    async def load(self, platform: str) -> dict[str, bytes]:
        sql = "SELECT name, data FROM platform_states WHERE platform = ?"
        return {name: bytes(data) for name, data in await self._database.fetch_all(sql, platform)}

    async def save(self, platform: str, name: str, data: bytes) -> None:
        sql = """INSERT INTO platform_states VALUES (?, ?, ?) ON CONFLICT (platform, name)
            DO UPDATE SET data = excluded.data"""
        await self._database.execute(sql, platform, name, data, sync=False)
