"""A home written by the previous release opens, and nothing is lost.

`home_of_previous_release.tgz` is a backup that the previous release made with `alipes backup`: conversations held
with the scripted model, one of them killed during a tool call, and rows in every table.
"""

import asyncio
import hashlib
import json
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from alipes.features.webhooks.store import Webhook, WebhookStore
from alipes.kernel.errors import StoreError
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address, Inbound, Op, Usage
from alipes.store.sql.api_history import IMPORTED, ApiHistoryStore, Continuation
from alipes.store.sql.api_keys import ApiKeyStore
from alipes.store.sql.api_runs import ResponseStore
from alipes.store.sql.history import CompactionStore
from alipes.store.sql.people import PeopleStore
from alipes.store.sqlite.database import open_database
from alipes.store.sqlite.migrations.migrations import SCHEMA, migrate, schema_version
from alipes.store.sqlite.store import open_store

BACKUP = Path(__file__).with_name("home_of_previous_release.tgz")
ANN = Address("telegram", "4711")
GROUP = Address("telegram", "-100:7", "group", "thread 9", "ann")
CUT = Address("terminal", "cut")
NEW_NAMES = {
    "acts": "tool_calls",
    "answers": "history_hashes",
    "arrivals": "inbox",
    "billed": "auxiliary_calls",
    "callers": "api_keys",
    "chats": "chat_settings",
    "compactions": "failed_compactions",
    "controls": "pending_ops",
    "debts": "outbox",
    "digests": "summaries",
    "drafts": "drafts",
    "grants": "grants",
    "hidden": "undone_turns",
    "homes": "default_chats",
    "lineage": "session_ancestors",
    "missed_codes": "wrong_pairing_codes",
    "pairings": "pairing_requests",
    "passing": "temporary_sessions",
    "people": "people",
    "responses": "responses",
    "said": "messages",
    "seats": "leases",
    "sessions": "sessions",
    "todos": "todos",
    "turns": "turns",
    "webhooks": "webhooks",
    "words": "search_index",
}
PREVIOUS = 9
"""The schema of the previous release."""
NEW_TABLES = {
    *("approvals", "untrusted_sources", "usage_sums", "search_trigrams", "search_progress", "message_vectors"),
    *("schedules", "schedule_runs", "schedule_posts", "prompt_sections", "skill_uses"),
    *("memory_snapshots", "memory_changes", "proposals", "browsers", "login_codes", "questions", "session_usage_sums"),
    *("background_processes", "untrusted_writes", "shared_conversations", "key_rests", "key_usage"),
    *("imports", "imported_items"),
}
NEW_VALUES = {"debts": {"owed": "queued", "trying": "sending", "dead": "failed"}}
PAYLOADS = {
    ("turns", "inbound"): Inbound,
    ("messages", "message"): Message,
    ("tool_calls", "result"): ToolResult,
    ("pending_ops", "op"): Op,
    ("outbox", "outbound"): Outbound,
    ("inbox", "message"): IncomingMessage,
    ("sessions", "address"): Address,
    ("pairing_requests", "address"): Address,
    ("default_chats", "address"): Address,
    ("webhooks", "settings"): Webhook,
}


@pytest.fixture
def home(tmp_path):
    with tarfile.open(BACKUP) as archive:
        archive.extract("alipes.db", tmp_path / "home", filter="data")
    return tmp_path / "home"


def connect(home):
    return closing(sqlite3.connect(home / "alipes.db", isolation_level=None))


def tables(db):
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return {name for (name,) in db.execute(sql) if not name.startswith(("words_", "search_index_", "search_trigrams_"))}


def rows(db, table):
    return sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)


def is_old_marker(value):
    """True for the detail of imported turns in the previous release."""
    return isinstance(value, str) and value.startswith("as the caller ")


def test_the_home_has_rows_in_every_table_and_messages_in_every_state(home):
    with connect(home) as db:
        assert schema_version(db) == PREVIOUS
        assert tables(db) == NEW_NAMES.keys()
        assert [table for table in NEW_NAMES if not rows(db, table)] == []
        states = {state for (state,) in db.execute("SELECT state FROM debts")}
        assert states == {"owed", "trying", "sent", "dead", "expired"}


def test_every_row_is_carried_over(home):
    with connect(home) as db:
        before = {table: rows(db, table) for table in NEW_NAMES}
        counters = dict(db.execute("SELECT name, seq FROM sqlite_sequence"))
        migrate(db)
        assert tables(db) == {*NEW_NAMES.values(), *NEW_TABLES} - {"grants"}
        always = db.execute("SELECT rule, answered_at FROM approvals WHERE choice = 'always'").fetchall()
        assert sorted(always, key=repr) == before.pop("grants")
        for old, new in ((old, NEW_NAMES[old]) for old in before):
            changed = NEW_VALUES.get(old, {})
            expected = sorted((tuple(changed.get(v, v) for v in row) for row in before[old]), key=repr)
            expected = [tuple(IMPORTED if is_old_marker(v) else v for v in row) for row in expected]
            expected.sort(key=repr)
            width = len(expected[0])  # later columns were added since
            if new == "turns":  # the last column is no longer computed, and is now behind one that was added
                width -= 1
                expected = sorted((row[:width] for row in expected), key=repr)
            carried = sorted((row[:width] for row in rows(db, new)), key=repr)
            assert carried == expected, new
        workdirs = {workdir for (workdir,) in db.execute("SELECT workdir FROM sessions")}
        assert "/home/ann/project" in workdirs  # taken from the last turn
        after = dict(db.execute("SELECT name, seq FROM sqlite_sequence"))
        assert after == {NEW_NAMES[table]: seq for table, seq in counters.items()}
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_every_payload_is_read_as_it_was_written(home):
    with connect(home) as db:
        migrate(db)
        for (table, column), kind in PAYLOADS.items():
            decoder = msgspec.json.Decoder(kind)
            sql = f"SELECT {column} FROM {table} WHERE coalesce({column}, '') <> ''"
            texts = [text for (text,) in db.execute(sql)]
            assert texts or table == "tool_calls", table
            for text in texts:
                assert json.loads(msgspec.json.encode(decoder.decode(text))) == json.loads(text)


def test_a_migrated_home_has_the_same_schema_as_a_new_one(home):
    with connect(home) as old, closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrate(old)
        migrate(new)
        assert describe(old) == describe(new)


def describe(db):
    """Every object of the schema, without the wording of its statement."""
    found = {}
    for kind, name, table, sql in db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall():
        text = " ".join((sql or "").replace('"', "").split())
        if kind == "table":
            facts = [db.execute(f"PRAGMA {what}({name})").fetchall() for what in ("table_xinfo", "foreign_key_list")]
            found[kind, name] = (*facts, "WITHOUT ROWID" in text, "AUTOINCREMENT" in text)
        else:
            found[kind, name] = (table, text)
    return found


def test_a_migration_that_is_cut_off_leaves_the_home_as_it_was(home):
    with connect(home) as db:
        before = {table: rows(db, table) for table in NEW_NAMES}

        def deny(action, *_):
            return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_CREATE_VIEW else sqlite3.SQLITE_OK

        db.set_authorizer(deny)
        with pytest.raises(sqlite3.DatabaseError):
            migrate(db)
        db.set_authorizer(None)
        assert schema_version(db) == PREVIOUS and not db.in_transaction
        assert {table: rows(db, table) for table in NEW_NAMES} == before
        migrate(db)
        assert schema_version(db) == SCHEMA


@pytest.mark.deadline(60)
async def test_several_processes_may_open_it_at_once(home):
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from alipes.store.sqlite.store import open_store\n"
        "async def main():\n"
        "    async with open_store(Path(sys.argv[1])) as store:\n"
        "        print(len(await store.archive.sessions()), len(await store.archive.search('Tycho')))\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(home)]
    running = [
        await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)
    ]
    results = [await process.communicate() for process in running]
    assert [out.split() for out, _ in results] == [[b"10", b"2"]] * 4, [err for _, err in results]
    with connect(home) as db:
        assert schema_version(db) == SCHEMA and db.execute("SELECT count(*) FROM messages").fetchone() == (50,)


async def test_a_process_of_the_previous_release_must_be_stopped_first(home):
    async with open_store(home.with_name("empty")) as store:
        (lock,) = home.with_name("empty").glob("run/*.lock")
        written = json.loads(lock.read_bytes())
        written.pop("schema")
        lock.write_text(json.dumps(written))
        (home / "run").symlink_to(lock.parent)
        with pytest.raises(StoreError, match=rf"process {written['pid']}.*previous release.*[Ss]top it"):
            async with open_store(home):
                pass
        assert store.host
    with connect(home) as db:
        assert schema_version(db) == PREVIOUS
    (home / "run").unlink()
    async with open_store(home) as store:
        assert len(await store.archive.sessions()) == 10


async def test_conversations_are_listed_read_and_found(home):
    async with open_store(home) as store:
        found = {facts.title: facts for facts in await store.archive.sessions()}
        dot = found["The dot"]
        assert (dot.turns, dot.unfinished, dot.messages, dot.spent.calls) == (6, 0, 11, 5)
        assert found["the branch"].parent == found["first in the group"].id
        texts = [message.text for message in await store.archive.messages(found["the branch"].id)]
        assert texts == ["first in the group", "hello group", "second in the group", "again"]
        first, answer, results, *_ = await store.archive.messages(dot.id)
        assert first.parts[1].media_type == "image/png" and answer.calls[0].args["deep"] == {"x": [1, None, True]}
        assert results.parts[0].images and results.parts[1].outcome == "failed"
        hits = [hit.snippet for hit in await store.archive.search("Tycho")]
        assert hits == ["And the moon above the crater [Tycho]?", "The moon is a rock; [Tycho] is 85 km wide."]
        assert await store.archive.check() == []
        standing = await store.sessions.active(ANN.key)
        assert (standing.title, standing.model, standing.busy) == ("The dot", "anthropic/sonnet", "steer")
        assert await store.todos.read(found["the branch"].id) == '[{"text": "buy milk", "state": "open"}]'


async def test_new_messages_are_indexed_and_deleted_ones_are_not_found(home):
    async with open_store(home) as store:
        (weather,) = {hit.session for hit in await store.archive.search("tomorrow")}
        for name in (found.id for found in await store.archive.sessions() if found.parent == weather):
            while turn := await store.turns.claim_next((await store.archive.resolve(name)).key):
                await store.turns.finish(
                    turn,
                    "stopped",
                    "",
                    Message(
                        "assistant",
                        (
                            msgspec.convert(
                                {"type": "text", "text": "zebra"}, Message.__annotations__["parts"].__args__[0]
                            ),
                        ),
                    ),
                )
            assert len(await store.archive.search("zebra")) == 1
            await store.archive.delete(name)
        await store.archive.delete(weather)
        assert await store.archive.search("tomorrow") == await store.archive.search("zebra") == []
        assert await store.archive.check() == []


async def test_usage_adds_up(home):
    async with open_store(home) as store:
        total = await store.archive.usage()
        assert (total.calls, total.unpriced) == (22, 7)
        assert total.usage == Usage(6928, 353, 2210, 45, 33, pytest.approx(0.0163))
        tasks = {spent.name: (spent.calls, spent.usage.input) for spent in await store.archive.usage_by("task")}
        assert tasks == {"answer": (20, 6328), "title": (1, 200), "vision": (1, 400)}
        tools = {spent.name: spent.calls for spent in await store.archive.usage_by("tool")}
        assert tools == {"": 19, "delegate_task": 2, "look_at": 1}


async def test_the_outbox_is_in_the_same_order_and_states(home):
    async with open_store(home) as store:
        found = {item.outbound.id: item for item in await store.outbox.list_deliveries()}
        assert list(reversed(found)) == [
            *("out:1", "out:fail", *(f"o:{n}" for n in range(8)), "o:late"),
            *("ask:t5:ask9", "ask:t5:ask10", "code:1", "welcome:1", "code:2", "settled:4"),
        ]
        states = {id: item.state for id, item in found.items() if item.state != "queued"}
        assert states == {
            **{"o:1": "sent", "ask:t5:ask9": "sent", "ask:t5:ask10": "sent"},
            **{"o:2": "failed", "o:3": "expired", "o:5": "sending", "o:6": "sending"},
        }
        late = found["o:4"]
        assert (late.due, late.attempts, late.uncertain, late.doubtful) == (4e9, 1, True, True)
        assert [item.outbound.id for item in await store.outbox.list_interrupted("telegram")] == ["o:5", "o:6"]
        assert await store.outbox.expire_fleeting("telegram") == 1
        assert len(await store.outbox.lanes("telegram")) == 6
        assert await store.outbox.find_unanswered("t5") == ""
        await store.outbox.enqueue(Outbound("next", ANN, "new"))
        assert (await store.outbox.find("next")).number == 18


async def test_people_keys_webhooks_and_grants_are_there(home):
    async with open_store(home) as store:
        (ann,) = await store.people.all()
        assert (ann.person, ann.name, ann.role) == ("4711", "Ann", "owner")
        then = PeopleStore(store.database, clock=lambda: ann.since)
        assert [who.name for who in await then.list_requests()] == ["Bob"]
        assert await store.people.default_chats() == {"telegram": ANN}
        assert await store.people.progress("telegram:4711:") == "full"
        keys = ApiKeyStore(store.database)
        assert (await keys.find(hashlib.sha256(b"phone-key").digest())).scope == "admin"
        assert [(key.name, key.rate) for key in await keys.all()] == [("ci", 5), ("phone", None)]
        deploy, ping = await WebhookStore(store.database).all()
        assert (deploy.webhook.rate, deploy.deliveries, deploy.webhook.together) == (9, 1, True)
        assert (ping.webhook.name, ping.deliveries, ping.last_delivery) == ("ping", 0, None)
        allowed = {each.rule: each.choice for each in await store.approvals.list_current()}
        assert allowed["terminal: git push --force origin main"] == "always"


async def test_api_conversations_continue_where_they_were(home):
    async with open_store(home) as store:
        responses = ResponseStore(store.database, store.archive)
        named = await responses.find("resp_1")
        inbound = Inbound("api:9", Address("api", "c9", user="ci"), "ci", "and then?")
        placed = await ApiHistoryStore(store.database).admit_continuation(
            Continuation(inbound, history_hash=b"mark-of-rome")
        )
        turn = await store.turns.claim_next(placed.address.key)
        assert [message.text for message in turn.history][-2:] == ["and tomorrow?", "Rain tomorrow."]
        export = await store.archive.export(named.session)
        assert [turn["detail"] for turn in export["turns"]] == ["imported", "", ""]


async def test_the_inbox_still_holds_what_was_not_handled(home):
    async with open_store(home) as store:
        waiting = await store.inbox.list_waiting("telegram")
        assert [(item.message.id, item.batch) for item in waiting] == [
            *(("up:1", "up:1+up:2"), ("up:2", "up:1+up:2"), ("up:3", ""))
        ]
        assert await store.inbox.contains("telegram", "up:5")
        assert await store.turns.accept(Inbound("up:5", ANN, "4711", "again")) is None


async def test_an_interrupted_turn_resumes_and_unfinished_ones_wait(home):
    async with open_store(home) as store:
        waiting = await store.turns.list_orphans()
        assert waiting[0] == CUT.key and GROUP.key in waiting and len(waiting) == 6
        turn = await store.turns.claim_next(CUT.key)
        assert (turn.attempt, turn.epoch, turn.tool_results) == (2, 2, {"call-1-1": None})
        assert turn.said[-1].calls[0].args == {"command": "sleep 600"}
        ops = await store.turns.take_ops(GROUP.key)
        assert [type(op).__name__ for op in ops] == ["Stop", "AnswerApproval", "AnswerQuestion", "Reset", "Steer"]
        (sub,) = await store.subagents.unfinished()
        assert sub.inbound.origin.goal == "read the docs"


async def test_summaries_of_long_conversations_still_count(home):
    async with open_store(home) as store:
        session = (await store.sessions.active(ANN.key)).session
        digests = CompactionStore(store.database)
        latest = await digests.latest(session)
        assert (latest.compaction.covered, latest.compaction.text) == (4, "Ann showed a picture of a dot.")
        assert (await digests.attempts(session)).count == 2


async def test_opening_it_twice_migrates_once(home):
    for _ in range(2):
        async with open_database(home / "alipes.db") as database:
            assert await database.read(schema_version) == SCHEMA
