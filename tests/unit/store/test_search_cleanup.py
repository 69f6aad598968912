"""Deleted text leaves the search indexes in small steps, also with several deletions and after a restart."""

import random
from functools import partial

import pytest
from bench.large_home import insert_session

from alipes.kernel.turns import Address
from alipes.store.search import cleanup
from alipes.store.search.indexer import SqlSearchIndexer
from alipes.store.sql.store import Store
from alipes.store.sqlite.store import open_store

WORDS = [f"{random.Random(n).getrandbits(40):x}" for n in range(2_000)]


def read_file(folder) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("alipes.db*"))


async def add_sessions(store: Store, first: int, count: int) -> None:
    """Conversations of 40 messages, all words of one begin with its number."""
    chance = random.Random(first)

    def work(db) -> None:
        for number in range(first, first + count):
            texts = (" ".join(f"own{number}x{word}" for word in chance.sample(WORDS, 20)) for _ in range(40))
            insert_session(db, number, Address("terminal", f"t{number}"), texts, 1_000.0 + number)

    await store.database.run(work)
    while await SqlSearchIndexer(store.database).index_some():
        pass


async def delete(store: Store, number: int, **options: int) -> None:
    await store.archive.delete(f"{number:012x}", **options)


async def test_words_of_a_deleted_conversation_leave_the_file_after_the_last_step(tmp_path):
    async with open_store(tmp_path) as store:
        for first in range(0, 60, 20):  # several segments
            await add_sessions(store, first, 20)
        await delete(store, 7, clean_steps=0)
        assert await store.archive.search("own7x") == []
        steps = 0
        while await SqlSearchIndexer(store.database).clean_some():
            steps += 1
        assert steps > 2 and not await store.database.run(cleanup.clean_some)
        assert await store.archive.check() == []
    content = read_file(tmp_path)
    assert b"own7x" not in content and b"own8x" in content


async def test_the_cleanup_continues_after_a_restart_and_a_small_home_is_clean_at_once(tmp_path):
    async with open_store(tmp_path) as store:
        await add_sessions(store, 0, 30)
        await delete(store, 7, clean_steps=1)
    async with open_store(tmp_path) as store:
        assert await store.archive.clean_indexes()
    assert b"own7x" not in read_file(tmp_path)
    async with open_store(tmp_path) as store:
        await delete(store, 3)
        assert not await store.database.run(cleanup.clean_some)
    assert b"own3x" not in read_file(tmp_path)


async def test_what_is_deleted_during_a_cleanup_leaves_the_file_too(tmp_path):
    async with open_store(tmp_path) as store:
        await add_sessions(store, 0, 30)
        await add_sessions(store, 30, 30)
        await delete(store, 7, clean_steps=2)
        await delete(store, 50, clean_steps=0)
        await add_sessions(store, 60, 2)
        assert await store.archive.clean_indexes()
        assert await store.archive.check() == []
        assert len(await store.archive.search("own60x", 100)) == 40
    content = read_file(tmp_path)
    assert b"own7x" not in content and b"own50x" not in content and b"own60x" in content


@pytest.mark.parametrize("seed", range(5))
async def test_any_order_of_deletions_steps_and_new_messages_ends_clean(tmp_path, seed):
    chance, alive, deleted = random.Random(seed), list[int](), list[int]()
    async with open_store(tmp_path) as store:
        for number in range(40):
            match chance.choice(("add", "add", "delete", "clean", "clean")):
                case "add":
                    await add_sessions(store, number, 1)
                    alive.append(number)
                case "delete" if alive:
                    deleted.append(alive.pop(chance.randrange(len(alive))))
                    await delete(store, deleted[-1], clean_steps=chance.randrange(3))
                case "clean":
                    await store.archive.clean_indexes(chance.randrange(4))
        assert await store.archive.clean_indexes()
        assert await store.archive.check() == []
        for number in alive:
            assert len(await store.archive.search(f"own{number}x", 100)) == 40
        # not the file: SQLite leaves copies of moved rows in unused parts of pages
        rows = await store.database.fetch_all(
            "SELECT block FROM search_index_data UNION ALL SELECT c0 FROM search_index_content"
        )
    content = b"".join(row if isinstance(row, bytes) else row.encode() for (row,) in rows)
    assert not [number for number in deleted if f"own{number}x".encode() in content]


async def test_a_step_of_the_cleanup_writes_few_pages(tmp_path):
    async with open_store(tmp_path) as store:
        for first in range(0, 120, 20):
            await add_sessions(store, first, 20)
        await delete(store, 7, clean_steps=0)
        run = partial(store.database.run, lambda db: (cleanup.clean_some(db), db.total_changes))
        (_, before), (_, after) = await run(), await run()
        assert after - before < 4 * cleanup.PAGES
