"""Search by meaning, and the indexes that are filled in the background."""

import sqlite3
from contextlib import closing

import pytest

from alipes.agent.auxiliary import BackgroundTasks
from alipes.agent.search import conversations
from alipes.agent.search.conversations import ConversationSearch
from alipes.runtime.embeddings import embed_texts, find_package
from alipes.store.search import index
from alipes.store.search.indexer import SqlSearchIndexer
from alipes.store.sqlite.files import DATABASE_FILE
from alipes.store.sqlite.store import open_store
from alipes.testing.agent import open_agent
from tests.unit.store.sqlite.test_archive import run_turn
from tests.world.wait import until

ANIMALS = ("cat", "kitten", "purring")


async def embed(texts):
    """Texts about cats have the same vector; all others have the opposite one."""
    return [[1.0 if any(word in text for word in ANIMALS) else -1.0] * 64 for text in texts]


async def test_a_text_without_the_words_is_found_by_its_meaning_and_common_words_count_more(tmp_path):
    async with open_store(tmp_path) as store, BackgroundTasks() as tasks:
        search = ConversationSearch(store.archive, SqlSearchIndexer(store.database), tasks, embed)
        await run_turn(store, "a", "the kitten sleeps", "fine")
        await run_turn(store, "b", "taxes are due", "a cat, and taxes")
        while await search.embed_some():
            pass
        assert [hit.snippet for hit in await search.search("cat")] == ["a [cat], and taxes", "the kitten sleeps"]
        assert [hit.snippet for hit in await search.search("purring")][-1] == "the kitten sleeps"
        assert [hit.snippet for hit in await store.archive.search("cat")] == ["a [cat], and taxes"]


async def test_vectors_are_deleted_with_their_messages(tmp_path):
    async with open_store(tmp_path) as store, BackgroundTasks() as tasks:
        search = ConversationSearch(store.archive, SqlSearchIndexer(store.database), tasks, embed)
        turn = await run_turn(store, "a", "the kitten sleeps", "fine")
        await search.embed_some()
        await store.archive.delete(turn.session)
        assert await store.database.fetch_all("SELECT * FROM message_vectors") == []
        assert await search.search("cat") == []


async def test_without_embeddings_nothing_is_stored_and_words_are_found(tmp_path):
    async def nothing(_texts):
        return None

    async with open_store(tmp_path) as store, BackgroundTasks() as tasks:
        search = ConversationSearch(store.archive, SqlSearchIndexer(store.database), tasks, nothing)
        await run_turn(store, "a", "the kitten sleeps", "fine")
        assert not await search.embed_some()
        assert len(await search.search("kitten")) == 1


async def test_a_search_starts_to_index_parts_of_words_if_many_messages_lack(tmp_path, monkeypatch):
    monkeypatch.setattr(conversations, "MIN_MISSING", 3)
    async with open_store(tmp_path) as store, BackgroundTasks() as tasks:
        search = ConversationSearch(store.archive, SqlSearchIndexer(store.database), tasks)
        await run_turn(store, "a", "one", "two")
        await run_turn(store, "a", "three", "four")
        await search.search("one")
        with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as db:
            await until(lambda: index.indexed_span(db) == (1, 4))


PLUGIN = """
class Meaning:
    def embed(self, texts):
        return [[1.0 if "cat" in text or "kitten" in text else -1.0] * 64 for text in texts]

async def setup(ctx):
    ctx.provide("embeddings", "cats", Meaning())
"""


async def test_embeddings_of_a_plugin_are_used(tmp_path):
    folder = tmp_path / "cats"
    folder.mkdir()
    (folder / "__init__.py").write_text(PLUGIN)
    async with open_agent(model=["It sleeps."], plugins=[folder]) as agent:
        await agent.say("Where is the kitten?")
        while await agent.app.search.embed_some():
            pass
        assert "Where is the kitten?" in [hit.snippet for hit in await agent.app.search.search("cat")]


@pytest.mark.skipif(find_package() is None, reason="wordllama is not installed")
async def test_the_installed_embeddings_find_a_similar_text(tmp_path):
    async with open_store(tmp_path) as store, BackgroundTasks() as tasks:
        search = ConversationSearch(store.archive, SqlSearchIndexer(store.database), tasks, embed_texts)
        await run_turn(store, "a", "The cat gets her food twice a day.", "Invoice of the tax office")
        await search.embed_some()
        assert [hit.snippet for hit in await search.search("how do I feed my pet")] == [
            "The cat gets her food twice a day."
        ]
