"""How the store fares: written to, and what waits in it; on a real file."""

import pytest

from alipes.kernel.errors import StoreError
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address, Inbound
from alipes.store.quick_reads import Pulse, pulse, touch
from alipes.store.store import open_store

HERE = Address("telegram", "7")


async def test_a_touch_puts_something_on_the_disk(tmp_path):
    async with open_store(tmp_path) as store:
        log = tmp_path / "alipes.db-wal"
        before = log.stat().st_size
        await touch(store.database)
        assert log.stat().st_size > before
        schema = (await store.archive.facts()).schema
        await touch(store.database)
        assert (await store.archive.facts()).schema == schema


async def test_a_store_that_cannot_be_written_is_told(tmp_path):
    async with open_store(tmp_path) as store:
        await store.database.read(lambda db: db.execute("PRAGMA query_only = ON").fetchall())
        with pytest.raises(StoreError):
            await touch(store.database)
        await store.database.read(lambda db: db.execute("PRAGMA query_only = OFF").fetchall())


async def test_what_waits_is_counted(tmp_path):
    async with open_store(tmp_path) as store:
        assert await pulse(store.database) == Pulse(0, 0, 0, 0.0)
        await store.turns.accept(Inbound("1", HERE, "7", "hello"))
        for number in range(3):
            await store.outbox.owe(Outbound(str(number), HERE, "hello"))
        debt = await store.outbox.head(Outbound("", HERE).lane)
        await store.outbox.give_up(debt, "dead", "gone")
        found = await pulse(store.database)
        assert (found.turns, found.owed, found.dead) == (1, 2, 1)
        assert 0 <= found.oldest < 60


async def test_a_debt_is_dropped_in_two_steps_and_one_that_is_being_sent_not_at_all(tmp_path):
    async with open_store(tmp_path) as store:
        outbox = store.outbox
        await outbox.owe(Outbound("a", HERE, "hello"), Outbound("b", HERE, "hello"))
        first, second = (await outbox.find("a")).number, (await outbox.find("b")).number
        assert await outbox.drop(first)
        assert (await outbox.find("a")).state == "dead"
        assert await outbox.drop(first) and await outbox.find("a") is None
        assert not await outbox.drop(first)
        await outbox.begin(await outbox.find("b"))
        assert not await outbox.drop(second)
        assert (await outbox.find("b")).state == "trying"
