"""Search: what it finds in which conversations, the index of parts of words, and reads beside writes."""

import asyncio
import sqlite3
import threading
import time

import pytest
from bench.large_home import insert_session

from alipes.kernel.errors import SessionError, StoreError
from alipes.kernel.messages import Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Origin, Said, Usage
from alipes.store.ports.search import SearchScope, SessionOwner
from alipes.store.search import index, query
from alipes.store.search.indexer import SqlSearchIndexer
from alipes.store.search.scope import MAX_SPANS, find_spans
from alipes.store.sql.api_runs import ApiRunStore, SessionQuery
from alipes.store.sqlite.database import open_database
from alipes.store.sqlite.store import open_store
from tests.unit.store.sqlite.test_archive import run_turn

PEOPLE = 1_000


async def add_sessions(store, addresses, word="hello"):
    def work(db):
        for number, address in enumerate(addresses):
            insert_session(db, number, address, iter((f"{word} from {number}", f"{word} too")), 1_000_000.0 + number)

    await store.database.run(work)


async def index_all(store):
    indexer = SqlSearchIndexer(store.database)
    while await indexer.index_some():
        pass


async def found(store, text, **more):
    return [hit.snippet for hit in await store.archive.search(text, marks=("", ""), **more)]


async def test_each_of_a_thousand_guests_finds_and_lists_its_own_conversation(tmp_path):
    guests = [Address("telegram", f"guest{number}") for number in range(PEOPLE)]
    async with open_store(tmp_path) as store:
        await add_sessions(store, guests)
        for number, guest in enumerate(guests):
            scope = SearchScope(key=guest.key)
            assert {hit.session for hit in await store.archive.search("hello", scope=scope)} == {f"{number:012x}"}
            assert [each.id for each in await store.archive.sessions(20, scope=scope)] == [f"{number:012x}"]


async def test_each_of_a_thousand_callers_finds_and_lists_its_own_conversation(tmp_path):
    async with open_store(tmp_path) as store:
        await add_sessions(store, [Address("api", "same", user=f"caller{number}") for number in range(PEOPLE)])
        runs = ApiRunStore(store.database)
        for number in range(PEOPLE):
            owner = SessionOwner("api", f"caller{number}")
            hits = await store.archive.search("hello", scope=SearchScope(owner=owner))
            assert {hit.session for hit in hits} == {f"{number:012x}"}
            assert [each.id for each in await runs.sessions(owner, SessionQuery(10))] == [f"{number:012x}"]


async def test_a_search_can_be_limited_to_a_conversation_and_to_a_folder(tmp_path):
    async with open_store(tmp_path) as store:
        first = await run_turn(store, "a", "apples and pears", "yes")
        await store.sessions.reset(Address("cli", "a").key)
        second = await run_turn(store, "a", "apples and plums", "yes")
        await store.database.execute("UPDATE sessions SET workdir = '/fruit' WHERE id = ?", second.session)
        assert await found(store, "apples", scope=SearchScope(session=first.session)) == ["apples and pears"]
        assert await found(store, "apples", scope=SearchScope(workdir="/fruit")) == ["apples and plums"]
        assert len(await found(store, "apples", scope=SearchScope(key=Address("cli", "a").key))) == 2


async def test_what_a_subagent_said_is_found_by_the_person_it_worked_for(tmp_path):
    here, beside = Address("telegram", "ann"), Address("subagent", "x")
    async with open_store(tmp_path) as store:
        parent = await run_turn(store, "ann", "research whales", "later", platform="telegram")
        origin = Origin(here, parent.session, parent.id)
        await store.turns.accept(Inbound("s1", beside, "ann", "count the whales", parent=parent.id, origin=origin))
        turn = await store.turns.claim_next(beside.key)
        await store.turns.record(turn, Said(user("count the narwhals")))
        await store.turns.finish(turn, "answered", "")
        (hit,) = await store.archive.search("narwhals", scope=SearchScope(key=here.key))
        assert (hit.platform, hit.parent) == ("subagent", parent.session)
        assert await found(store, "narwhals", scope=SearchScope(key=Address("telegram", "bob").key)) == []


async def test_a_hit_names_its_place(tmp_path):
    async with open_store(tmp_path) as store:
        turn = await run_turn(store, "ann", "where is Oslo?", "In Norway.", platform="telegram")
        (hit,) = await store.archive.search("oslo")
        assert (hit.platform, hit.chat, hit.title, hit.turn) == ("telegram", "ann", "where is Oslo?", turn.id)
        assert hit.message > 0 and hit.when > 0


async def test_the_messages_around_a_hit_are_read_in_order(tmp_path):
    async with open_store(tmp_path) as store:
        for number in range(5):
            await run_turn(store, "a", f"question {number}", f"answer {number}")
            await run_turn(store, "b", "something else", "ok")
        (hit, *_) = await store.archive.search("question 2")
        around = await store.archive.around(hit.message, 1, 2)
        assert [each.text for each in around.messages] == ["answer 1", "question 2", "answer 2", "question 3"]
        assert around.earlier and around.later and around.title == "question 0"
        whole = await store.archive.around(hit.message, 50, 50)
        assert len(whole.messages) == 10 and not whole.earlier and not whole.later


async def test_tool_calls_around_a_hit_are_named_and_results_shortened(tmp_path):
    async with open_store(tmp_path) as store:
        turn = await run_turn(store, "a", "list it", "ok", end=False)
        await store.turns.record(
            turn, Said(assistant(Text("one moment"), ToolCall("c", "terminal", {"command": "ls"})))
        )
        result = ToolResult("c", "x" * 5_000)
        await store.turns.record(turn, Said(type(user("x"))("tool", (result,))))
        (hit,) = await store.archive.search("moment")
        texts = [each.text for each in (await store.archive.around(hit.message, 0, 1)).messages]
        assert texts[0] == "one moment\n[called terminal]" and len(texts[1]) < 600


async def test_messages_of_others_cannot_be_read_around(tmp_path):
    async with open_store(tmp_path) as store:
        await run_turn(store, "ann", "my secret", "ok", platform="telegram")
        (hit,) = await store.archive.search("secret")
        with pytest.raises(SessionError, match="No message"):
            await store.archive.around(hit.message, scope=SearchScope(key=Address("telegram", "bob").key))
        with pytest.raises(SessionError, match="No message"):
            await store.archive.around(999_999)


async def test_a_text_with_more_hits_is_better_and_of_equal_ones_the_newest(tmp_path):
    async with open_store(tmp_path) as store:
        await run_turn(store, "a", "cats and dogs and dogs", "one")
        await run_turn(store, "a", "cats and dogs and dogs", "two")
        await run_turn(store, "a", "cats and cats and cats", "three")
        hits = await store.archive.search("cats")
        assert [hit.snippet.count("[") for hit in hits] == [3, 1, 1]
        assert hits[1].message > hits[2].message


PARTS = ("hotograp", "京都", "東京", "a_b", "++", "ÄRÄ", "photo graphs")


async def test_parts_of_words_are_found_before_and_after_they_are_indexed(tmp_path):
    async with open_store(tmp_path) as store:
        await run_turn(store, "a", "old photographs of 東京都", "a_b and c++ in bärär")
        await run_turn(store, "b", "東京", "photographs graphs")
        before = [await found(store, part) for part in PARTS]
        assert all(before)
        assert len(before[2]) == 2, "also in the middle of a run of letters"
        await index_all(store)
        assert [await found(store, part) for part in PARTS] == before
        await run_turn(store, "a", "newer photographs of 東京都", "ok")
        assert len(await found(store, "東京")) == 3 and len(await found(store, "hotograp")) == 3
        scope = SearchScope(key=Address("cli", "b").key)
        assert await found(store, "東京", scope=scope) == ["東京"]


async def test_the_newest_messages_are_indexed_first(tmp_path):
    async with open_store(tmp_path) as store:
        await add_sessions(store, [Address("cli", f"{number}") for number in range(150)])
        await store.database.run(index.index_parts)
        assert await store.database.read(index.indexed_span) == (201, 300)
        assert await SqlSearchIndexer(store.database).count_missing(1_000) == 200
        assert len(await found(store, "ello", limit=500)) == 300
        await index_all(store)
        assert await store.database.read(index.indexed_span) == (1, 300)
        assert await SqlSearchIndexer(store.database).count_missing(1_000) == 0


async def test_deleted_messages_leave_the_index_of_parts_and_their_numbers_are_indexed_again(tmp_path):
    async with open_store(tmp_path) as store:
        await run_turn(store, "a", "keep this", "ok")
        turn = await run_turn(store, "b", "unbelievable secretword", "ok")
        await index_all(store)
        await store.archive.delete(turn.session)
        sql = "SELECT rowid FROM search_trigrams WHERE search_trigrams MATCH 'cre'"
        assert await store.database.fetch_all(sql) == []
        await run_turn(store, "c", "another creature", "ok")  # has the numbers of the deleted ones
        assert await found(store, "reatur") == ["another creature"]
        await index_all(store)
        assert await found(store, "reatur") == ["another creature"]
        assert await found(store, "ecretwor") == []
        assert await store.archive.check() == []


async def test_a_repaired_index_of_words_lets_that_of_parts_be_built_again(tmp_path):
    async with open_store(tmp_path) as store:
        await run_turn(store, "a", "some photographs", "ok")
        await index_all(store)
        await store.database.run(index.rebuild_index)
        assert await SqlSearchIndexer(store.database).count_missing(10) == 2
        assert await found(store, "hotogr") == ["some photographs"]


def test_numbers_that_are_close_share_a_span_and_there_are_few_spans():
    assert find_spans([5, 6, 7, 100, 101]) == [(100, 101), (5, 7)]
    assert find_spans([]) == []
    many = find_spans(list(range(0, 10_000_000, 500)))
    assert len(many) <= MAX_SPANS and many[-1][0] == 0 and many[0][1] == 9_999_500


async def test_writes_do_not_wait_for_a_long_read(tmp_path):
    started, finish = threading.Event(), threading.Event()

    def slow(db: sqlite3.Connection) -> int:
        started.set()
        finish.wait(60)
        return int(db.execute("SELECT count(*) FROM turns").fetchone()[0])

    async with open_store(tmp_path) as store, asyncio.TaskGroup() as group:
        reading = group.create_task(store.database.read_long(slow))
        await asyncio.to_thread(started.wait, 60)
        await run_turn(store, "a", "written meanwhile", "ok")
        assert not reading.done()
        finish.set()


async def test_a_cancelled_long_read_is_interrupted(tmp_path):
    started = threading.Event()

    def endless(db: sqlite3.Connection) -> None:
        db.create_function("started", 0, lambda: started.set())
        db.execute("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(started()) FROM n")

    async with open_database(tmp_path / "a.db") as database:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(database.read_long(endless))
            await asyncio.to_thread(started.wait, 60)
            reading.cancel()
        assert await database.read_long(lambda db: db.execute("SELECT 1").fetchone()) == (1,)


async def test_a_long_read_that_runs_does_not_delay_closing(tmp_path):
    started = threading.Event()

    def endless(db: sqlite3.Connection) -> None:
        db.create_function("started", 0, lambda: started.set())
        db.execute("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(started()) FROM n")

    async def read(database) -> None:
        with pytest.raises(StoreError, match="interrupted"):
            await database.read_long(endless)

    async with asyncio.TaskGroup() as group:
        async with open_database(tmp_path / "a.db") as database:
            group.create_task(read(database))
            await asyncio.to_thread(started.wait, 60)


async def test_running_sums_follow_new_and_deleted_calls(tmp_path):
    async with open_store(tmp_path) as store:
        await run_turn(store, "a", "q", "a", usage=Usage(10, 5, 2, 1, 3, 0.25))
        other = await run_turn(store, "b", "q", "a", usage=Usage(20, 5), model="p/n")
        total = await store.archive.usage(days=1)
        assert (total.calls, total.usage, total.unpriced) == (2, Usage(30, 10, 2, 1, 3, 0.25), 1)
        assert [each.name for each in await store.archive.usage_by("model")] == ["p/m", "p/n"]
        await store.archive.delete(other.session)
        total = await store.archive.usage()
        assert (total.calls, total.usage, total.unpriced) == (1, Usage(10, 5, 2, 1, 3, 0.25), 0)
        assert [each.name for each in await store.archive.usage_by("day")] == [time.strftime("%Y-%m-%d")]


async def test_a_conversation_is_found_by_the_start_of_its_first_message_whatever_the_case(tmp_path):
    async with open_store(tmp_path) as store:
        turn = await run_turn(store, "a", "Plan the Garden\nin detail", "ok")
        assert (await store.archive.resolve("plan the g", title_start=True)).id == turn.session
        assert await store.archive.find_own("Plan the Garden in detail", Address("cli", "a").key) == [turn.session]
        assert await store.archive.find_own(turn.session[:5], Address("cli", "b").key) == []


async def test_the_newest_messages_of_a_wide_scope_are_ranked(tmp_path, monkeypatch):
    monkeypatch.setattr(query, "MAX_RANKED", 10)
    monkeypatch.setattr(query, "_WIDE_SPAN", 20)
    addresses = [Address("telegram", "mine" if number % 40 == 0 else f"other{number}") for number in range(800)]
    async with open_store(tmp_path) as store:
        await add_sessions(store, addresses)
        hits = await store.archive.search("hello", 50, scope=SearchScope(key=addresses[0].key))
        assert len(hits) == 10 and {hit.chat for hit in hits} == {"mine"}
        assert min(hit.message for hit in hits) > 1_100


async def test_short_parts_are_searched_in_the_newest_messages_only(tmp_path, monkeypatch):
    monkeypatch.setattr(query, "MAX_UNINDEXED", 10)
    async with open_store(tmp_path) as store:
        await add_sessions(store, [Address("terminal", f"t{number}") for number in range(20)], word="+-")
        assert {hit.message for hit in await store.archive.search("+-", 100)} == set(range(30, 41))
        scope = SearchScope(key=Address("terminal", "t0").key)
        assert len(await store.archive.search("+-", 100, scope=scope)) == 2
