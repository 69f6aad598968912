"""The fence: what a worker may still write after it was declared dead."""

import asyncio

import msgspec
import pytest

from alipes.kernel.errors import Fenced, LeaseLost
from alipes.kernel.messages import assistant
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store.postgres.direct import ConnectionLost
from alipes.store.postgres.store import open_postgres_store
from tests.unit.store.postgres.cluster import add_sessions, fetch

DEAD = "AL001"
ADDRESS = Address("cli", "a")


def message(id, text="hello"):
    return Inbound(id, ADDRESS, "me", text)


@pytest.mark.parametrize(
    "call",
    [
        ("record", "k1", "t1", 0, 1.0, [], [], []),
        ("call", "k1", "t1", 0, "c", None),
        ("finish", "k1", "t1", 0, 1.0, [], [], "answered", ""),
        ("claim", "k1", 1.0, []),
        ("take", "", 1, None, ""),
        ("sent", "", 1, "[]", 0, 1.0, "", ""),
        ("release", "k1"),
    ],
    ids=lambda call: call[0],
)
async def test_a_worker_that_was_declared_dead_writes_nothing(url, call):
    await fetch(url, "INSERT INTO workers (id) VALUES ('w')")
    await add_sessions(url, 1, "w")
    await fetch(url, "SELECT declare_dead('w', 'death', 'x')")
    with pytest.raises(ConnectionLost) as refused:
        await fetch(url, "SELECT apply('w', 1, %s::jsonb, true)", msgspec.json.encode([call]).decode())
    assert refused.value.sqlstate == DEAD


async def test_a_store_whose_worker_was_declared_dead_raises_lease_lost(url):
    with pytest.raises(LeaseLost):
        async with open_postgres_store(url) as store:
            await fetch(url, "UPDATE workers SET state = 'dead'")
            await store.people.default_chats()
            await store.inbox.add_answer("cli", "1")


async def test_a_turn_is_fenced_once_its_session_has_no_holder(url):
    async with open_postgres_store(url) as store:
        await store.turns.admit(message("1"))
        turn = await store.turns.claim_next(ADDRESS.key)
        await fetch(url, "UPDATE leases SET holder = NULL")
        with pytest.raises(Fenced):
            await store.turns.record(turn, Said(assistant("late")))
        with pytest.raises(Fenced):
            await store.turns.finish(turn, "answered", "")


async def test_a_session_is_held_until_its_holder_was_declared_dead(url):
    await fetch(url, "INSERT INTO workers (id, lease_until) VALUES ('w', now())")
    await add_sessions(url, 1, "w")
    assert await fetch(url, "SELECT find_holder('x', 'k1', '[]')") == [("w",)]
    await fetch(url, "SELECT declare_dead('w', 'lease', 'x')")
    assert await fetch(url, "SELECT find_holder('x', 'k1', '[]')") == [(None,)]


async def test_a_message_becomes_a_turn_or_an_answer_not_both(url):
    async with open_postgres_store(url) as one, open_postgres_store(url) as two:
        for n in map(str, range(40)):
            async with asyncio.TaskGroup() as group:
                admitted = group.create_task(_admit(one, message(n)))
                answered = group.create_task(two.inbox.add_answer("cli", n))
            assert (admitted.result() is not None) != answered.result()


async def _admit(store, inbound):
    return await store.turns.admit(inbound)


async def test_a_declaration_and_the_writes_of_others_do_not_deadlock(url):
    async with open_postgres_store(url) as store:
        for n in range(10):
            worker = f"w{n}"
            await fetch(url, "INSERT INTO workers (id) VALUES (%s)", worker)
            async with asyncio.TaskGroup() as group:
                for m in range(20):
                    address = Address("cli", f"{19 - m}")
                    group.create_task(_admit(store, Inbound(f"{n}:{m}", address, "me", "x")))
            await fetch(url, "UPDATE leases SET holder = %s", worker)
            async with asyncio.TaskGroup() as group:
                declared = group.create_task(fetch(url, "SELECT declare_dead(%s, 'death', 'x')", worker))
                for m in range(20):
                    address = Address("cli", f"{m}")
                    group.create_task(_admit(store, Inbound(f"{n}:{m}:b", address, "me", "x")))
            assert declared.result() == [(20,)]
