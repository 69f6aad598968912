"""The health of a store, on a real file."""

import pytest

from alipes.kernel.errors import StoreError
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address, Inbound
from alipes.store.sql.health import StoreStatus
from alipes.store.sqlite.store import open_store

HERE = Address("telegram", "7")


async def test_check_writable_writes_to_the_disk(tmp_path):
    async with open_store(tmp_path) as store:
        log = tmp_path / "alipes.db-wal"
        before = log.stat().st_size
        await store.database.check_writable()
        assert log.stat().st_size > before
        schema = (await store.archive.facts()).schema
        await store.database.check_writable()
        assert (await store.archive.facts()).schema == schema


async def test_a_read_only_store_is_reported(tmp_path):
    async with open_store(tmp_path) as store:
        await store.database.read(lambda db: db.execute("PRAGMA query_only = ON").fetchall())
        with pytest.raises(StoreError):
            await store.database.check_writable()
        await store.database.read(lambda db: db.execute("PRAGMA query_only = OFF").fetchall())


async def test_the_status_counts_turns_and_messages(tmp_path):
    async with open_store(tmp_path) as store:
        assert await store.health.read_status() == StoreStatus(0, 0, 0, 0.0)
        await store.turns.accept(Inbound("1", HERE, "7", "hello"))
        for number in range(3):
            await store.outbox.enqueue(Outbound(str(number), HERE, "hello"))
        delivery = await store.outbox.head(Outbound("", HERE).lane)
        await store.outbox.give_up(delivery, "failed", "gone")
        found = await store.health.read_status()
        assert (found.turns, found.queued, found.failed) == (1, 2, 1)
        assert 0 <= found.oldest_s < 60


async def test_a_message_is_discarded_in_two_steps_but_not_while_it_is_being_sent(tmp_path):
    async with open_store(tmp_path) as store:
        outbox = store.outbox
        await outbox.enqueue(Outbound("a", HERE, "hello"), Outbound("b", HERE, "hello"))
        first, second = (await outbox.find("a")).number, (await outbox.find("b")).number
        assert await outbox.discard(first)
        assert (await outbox.find("a")).state == "failed"
        assert await outbox.discard(first) and await outbox.find("a") is None
        assert not await outbox.discard(first)
        await outbox.mark_sending(await outbox.find("b"))
        assert not await outbox.discard(second)
        assert (await outbox.find("b")).state == "sending"
