import asyncio
import json
import sqlite3
import time
from contextlib import asynccontextmanager, closing

import pytest

from alipes.kernel.errors import SessionError, StoreError
from alipes.kernel.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Said, Usage
from alipes.store import export
from alipes.store.ports.search import SearchScope
from alipes.store.sql import archive
from alipes.store.sqlite.migrations.migrations import SCHEMA
from alipes.store.sqlite.store import open_store

CALL = ToolCall("c1", "terminal", {"command": "echo secretword"})


@asynccontextmanager
async def open_home(tmp_path):
    async with open_store(tmp_path / "home") as store:
        yield store


async def run_turn(store, chat, question, answer, *, usage=None, model="p/m", platform="cli", end=True):
    """Run one turn with this question and answer."""
    address = Address(platform, chat)
    id = f"{chat} {time.monotonic_ns()}"
    await store.turns.accept(Inbound(id=id, address=address, sender="me", text=question))
    turn = await store.turns.claim_next(address.key)
    await store.turns.record(turn, Said(user(question)))
    await store.turns.record(turn, Said(assistant(Thinking("hm"), Text(answer)), model, usage or Usage()))
    if end:
        await store.turns.finish(turn, "answered", "")
    return turn


async def test_sessions_are_listed_latest_first_with_their_counts(tmp_path):
    async with open_home(tmp_path) as store:
        await run_turn(store, "a", "What   is\nthe sun?", "A star.", usage=Usage(10, 5, cost=0.25))
        await run_turn(store, "a", "And the moon?", "A rock.", usage=Usage(20, 5))
        await run_turn(store, "b", "long " * 50, "ok", end=False)
        b, a = await store.archive.sessions()
        assert [f.id for f in await store.archive.sessions(limit=1)] == [b.id]
    assert (a.title, a.turns, a.unfinished, a.messages, a.address) == ("What is the sun?", 2, 0, 4, Address("cli", "a"))
    assert (a.spent.usage, a.spent.calls, a.spent.unpriced) == (Usage(30, 10, cost=0.25), 2, 1)
    assert len(b.title) <= 60 and b.title.endswith("…")
    assert (b.turns, b.unfinished) == (1, 1)
    assert a.key == Address("cli", "a").key and a.created <= a.updated <= b.updated


async def test_a_title_can_be_set_and_removed(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "hello", "hi")
        await store.sessions.configure(turn.session, title="  Greetings ")
        assert (await store.archive.resolve("greetings")).title == "Greetings"
        await store.sessions.configure(turn.session, title="")
        assert (await store.archive.sessions())[0].title == "hello"


async def test_a_session_is_found_by_what_a_person_types(tmp_path):
    async with open_home(tmp_path) as store:
        work = (await run_turn(store, "work", "plan", "ok")).session
        home = (await run_turn(store, "home", "cook", "ok")).session
        for name in (work, work[:6], "work", Address("cli", "work").key):
            assert (await store.archive.resolve(name)).id == work
        assert (await store.archive.resolve("home")).id == home
        for name in ("nothing", "", "%", "_" * 12, "\udcff", "x' OR '1'='1"):
            with pytest.raises(SessionError, match=r"No conversation matches.*sessions list"):
                await store.archive.resolve(name)
        await store.sessions.configure(work, title="same")
        await store.sessions.configure(home, title="same")
        with pytest.raises(SessionError, match="matches several conversations"):
            await store.archive.resolve("same")


async def test_the_latest_session_of_a_platform_is_an_active_one(tmp_path):
    async with open_home(tmp_path) as store:
        assert await store.archive.latest("cli") is None
        await run_turn(store, "a", "one", "ok")
        b = await run_turn(store, "b", "two", "ok")
        await run_turn(store, "c", "three", "ok", platform="telegram")
        assert (await store.archive.latest("cli")).id == b.session
        await store.archive.delete(b.session)
        assert (await store.archive.latest("cli")).address == Address("cli", "a")


async def test_the_transcript_is_all_messages_in_order(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "one", "uno")
        await run_turn(store, "a", "two", "dos")
        messages = await store.archive.messages(turn.session)
        assert [m.text for m in messages] == ["one", "uno", "two", "dos"]
        with pytest.raises(SessionError):
            await store.archive.messages("nope")


async def test_the_facts_of_a_turn_include_its_ending_and_usage(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "one", "uno", usage=Usage(3, 4, 1, 1, 2, 0.5), end=False)
        facts = await store.archive.turn(turn.id)
        assert (facts.ending, facts.ended, facts.attempts) == (None, None, 1)
        await store.turns.finish(turn, "failed", "no luck")
        facts = await store.archive.turn(turn.id)
        assert await store.archive.turn("nope") is None
    assert (facts.ending, facts.detail, facts.session) == ("failed", "no luck", turn.session)
    assert facts.spent.usage == Usage(3, 4, 1, 1, 2, 0.5)


# Search


async def search_snippets(store, text):
    return [hit.snippet for hit in await store.archive.search(text)]


async def test_search_finds_words_and_shows_where(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "Where do cafés serve tea?", "In Paris, of course: many cafés do.")
        (hit,) = await store.archive.search("paris")
        assert (hit.session, hit.turn, hit.role, hit.title) == (
            turn.session,
            turn.id,
            "assistant",
            "Where do cafés serve tea?",
        )
        assert "[Paris]" in hit.snippet
        assert len(await store.archive.search("cafe")) == 2, "accents do not matter"
        assert await search_snippets(store, "tea serve") and await search_snippets(store, "cour"), (
            "all words, the last unfinished"
        )
        assert not await search_snippets(store, "tea paris")
        assert "<b>Paris</b>" in (await store.archive.search("paris", marks=("<b>", "</b>")))[0].snippet


async def test_search_finds_text_without_word_boundaries(tmp_path):
    async with open_home(tmp_path) as store:
        await run_turn(store, "a", "我想喝一杯咖啡", "use c++ and 100% a_b \\ here")
        assert await search_snippets(store, "咖啡") == ["我想喝一杯[咖啡]"]
        for piece in ("++", "0%", "a_b", "\\"):
            assert await search_snippets(store, piece), piece
        assert not await search_snippets(store, "%%") and not await search_snippets(store, "aXb")


@pytest.mark.parametrize(
    "text",
    ['"', "'", "a AND", "NOT", "NEAR(", "(", ")", "*", "^", "a:b", "-x", '"a" OR', "\0", "a\0b", "", "  ", "{", "\udcff", "🙂", "+", "%", "text:x", "x" * 10_000, "words MATCH 'x'"],
)  # fmt: skip
async def test_search_takes_any_text(tmp_path, text):
    async with open_home(tmp_path) as store:
        await run_turn(store, "a", "hello", "world")
        assert isinstance(await store.archive.search(text), list)


async def test_tool_results_are_not_searched_and_deleted_messages_are_not_found(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "findme", "answer", end=False)
        await store.turns.record(turn, Said(assistant(CALL)))
        await store.turns.record(turn, Said(Message("tool", (ToolResult("c1", "secretword"),))))
        await store.turns.finish(turn, "stopped", "", assistant(Text("closingword")))
        assert not await search_snippets(store, "secretword")
        assert await search_snippets(store, "findme") and await search_snippets(store, "closingword")
        await store.archive.delete(turn.session)
        assert not await search_snippets(store, "findme")
        assert await store.archive.check() == []


# Deleting


async def test_deleting_a_session_leaves_no_trace_and_no_other_is_affected(tmp_path):
    async with open_home(tmp_path) as store:
        a = await run_turn(store, "a", "unforgettable", "ok")
        b = await run_turn(store, "b", "stays", "ok")
        await store.archive.delete(a.session)
        assert [f.id for f in await store.archive.sessions()] == [b.session]
        assert await store.archive.turn(a.id) is None
        with pytest.raises(SessionError):
            await store.archive.delete(a.session)
        again = await run_turn(store, "a", "again", "ok")
        assert again.session != a.session and again.history == ()
    content = b"".join(file.read_bytes() for file in (tmp_path / "home").glob("alipes.db*"))
    assert b"stays" in content and b"unforgettable" not in content


async def test_a_long_session_is_deleted_in_parts(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "q", "a", end=False)
        rows = "INSERT INTO messages (turn_number, session_id, role, message, created) VALUES (1, ?, '', '', 0)"
        many = [(turn.session,)] * (2 * archive.MESSAGES_PER_DELETE + 3)
        await store.database.run(lambda db: db.executemany(rows, many).rowcount)
        await store.turns.finish(turn, "answered", "")
        await store.archive.delete(turn.session)
        facts = await store.archive.facts()
    assert (facts.sessions, facts.turns, facts.messages) == (0, 0, 0)


async def test_a_session_with_an_unfinished_turn_is_not_deleted(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "one", "ok", end=False)
        with pytest.raises(SessionError, match="unfinished turn; stop it first"):
            await store.archive.delete(turn.session)
        await store.turns.finish(turn, "stopped", "")
        await store.archive.delete(turn.session)
        await store.turns.release(turn.key)
        assert await store.turns.holder(turn.key) is None


# Usage


async def test_usage_is_summed_by_turn_session_day_and_model(tmp_path):
    async with open_home(tmp_path) as store:
        one = await run_turn(store, "a", "q", "a", usage=Usage(10, 1, 5, 2, 1, 0.5), model="p/x")
        two = await run_turn(store, "a", "q", "a", usage=Usage(20, 2, cost=0.25), model="p/y")
        await run_turn(store, "b", "q", "a", usage=Usage(40, 4), model="p/x")
        usage, by = store.archive.usage, store.archive.usage_by
        assert (await usage()).usage == Usage(70, 7, 5, 2, 1, 0.75)
        assert ((await usage()).calls, (await usage()).unpriced) == (3, 1)
        assert (await usage(session=one.session)).usage.input == 30
        assert (await usage(turn=two.id)).usage == Usage(20, 2, cost=0.25)
        assert (await usage(session="nope")).usage == Usage(), "of nothing: no tokens, and no price"
        assert (await usage(days=1)).calls == 3
        assert {(s.name, s.usage.input) for s in await by("model")} == {("p/x", 50), ("p/y", 20)}
        assert {(s.name, s.calls) for s in await by("turn", session=one.session)} == {(one.id, 1), (two.id, 1)}
        assert len(await by("session")) == 2
        (today,) = await by("day", days=7)
        assert (today.name, today.calls) == (time.strftime("%Y-%m-%d"), 3)


def _make_a_day_older(db):
    db.execute("UPDATE messages SET created = created - 86400")
    db.execute("UPDATE usage_sums SET quarter = quarter - 96")


async def test_usage_by_day_separates_yesterday(tmp_path):
    async with open_home(tmp_path) as store:
        await run_turn(store, "a", "q", "a", usage=Usage(10))
        await store.database.run(lambda db: _make_a_day_older(db))
        await run_turn(store, "a", "q", "a", usage=Usage(1))
        assert (await store.archive.usage(days=1)).usage.input == 1
        assert (await store.archive.usage(days=2)).usage.input == 11
        assert [s.usage.input for s in await store.archive.usage_by("day")] == [10, 1]


# Export and backup


async def test_an_export_is_json_and_can_be_read_as_a_text(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "Show me ```code```", "Here.", end=False)
        await store.turns.record(turn, Said(assistant(CALL)))
        result = ToolResult("c1", "```\nfenced\n```", images=(Image("image/png", b"\0\1"),))
        await store.turns.record(turn, Said(Message("tool", (result,))))
        await store.turns.finish(turn, "failed", "out of luck", Message("notice", (Image("image/png", b"\0"),)))
        exported = json.loads(json.dumps(await store.archive.export(turn.session)))
        with pytest.raises(SessionError):
            await store.archive.export("nope")
    assert exported["format"] == "alipes.session/1"
    assert exported["session"]["address"] == {"platform": "cli", "chat": "a"}
    (seen,) = exported["turns"]
    assert [m["role"] for m in seen["messages"]] == ["user", "assistant", "assistant", "tool", "notice"]
    text = export.to_markdown(exported)
    for piece in (
        "# Show me",
        "> hm",
        "**terminal**",
        "echo secretword",
        "````\n```\nfenced",
        "[image/png]",
        "*failed: out of luck*",
    ):
        assert piece in text, piece


async def test_a_backup_during_work_is_complete(tmp_path):
    target = tmp_path / "copies" / "b.db"
    target.parent.mkdir()
    async with open_home(tmp_path) as store:
        for n in range(30):
            await run_turn(store, f"chat {n}", "question " * 300, "answer " * 300)
        async with asyncio.TaskGroup() as group:
            group.create_task(store.archive.backup(target))
            for n in range(30):
                group.create_task(run_turn(store, f"more {n}", "q", "a"))
        assert [file.name for file in target.parent.iterdir()] == ["b.db"]
        assert target.stat().st_mode & 0o077 == 0
        await store.archive.backup(target)
        assert (await store.archive.facts()).sessions == 60
    (tmp_path / "elsewhere").mkdir()
    target.rename(tmp_path / "elsewhere" / "alipes.db")
    async with open_store(tmp_path / "elsewhere") as restored:
        assert len(await restored.archive.sessions(limit=100)) == 60
        assert await restored.archive.check() == []
        assert await restored.turns.list_orphans() == ()


async def test_a_failed_backup_leaves_the_old_file(tmp_path):
    target = tmp_path / "b.db"
    target.write_text("the last good one")
    async with open_home(tmp_path) as store:
        with pytest.raises(StoreError, match="could not copy"):
            await store.archive.backup(tmp_path / "missing" / "b.db")
        with pytest.raises(StoreError, match="is the store itself"):
            await store.archive.backup(store.database.path)
        stopped = asyncio.create_task(store.archive.backup(target))
        await asyncio.sleep(0)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        assert sorted(file.name for file in tmp_path.iterdir()) == ["b.db", "home"]
        await run_turn(store, "a", "still", "works")


async def test_a_healthy_store_has_no_problems_and_reports_its_size(tmp_path):
    async with open_home(tmp_path) as store:
        await run_turn(store, "a", "one", "ok")
        assert await store.archive.check() == []
        facts = await store.archive.facts()
    assert facts.path == str(tmp_path / "home" / "alipes.db")
    assert facts.wal > 0 and facts.size > 0
    assert (facts.sessions, facts.turns, facts.messages, facts.schema) == (1, 1, 2, SCHEMA)


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM search_index",
        "INSERT INTO search_index (rowid, text) VALUES (999, 'never said')",
        "UPDATE search_index SET text = 'other' WHERE rowid = 1",
        "DELETE FROM search_index_data WHERE id > 10",
    ],
)
async def test_a_wrong_search_index_is_detected_and_rebuilt(tmp_path, harm):
    async with open_home(tmp_path) as store:
        await run_turn(store, "a", "needle", "ok")
    with closing(sqlite3.connect(tmp_path / "home" / "alipes.db")) as db, db:
        db.execute(harm)
    async with open_home(tmp_path) as store:
        (problem,) = await store.archive.check()
        assert "search index" in problem and "no message is lost" in problem
        assert await store.archive.check(repair=True) == []
        assert len(await store.archive.search("needle")) == 1


async def test_dangling_rows_are_detected(tmp_path):
    async with open_home(tmp_path) as store:
        await run_turn(store, "a", "one", "ok")
    with closing(sqlite3.connect(tmp_path / "home" / "alipes.db")) as db, db:
        db.execute("DELETE FROM turns")
    async with open_home(tmp_path) as store:
        assert any("refer to rows that do not exist" in problem for problem in await store.archive.check())


async def test_a_damaged_file_is_reported(tmp_path):
    path = tmp_path / "home" / "alipes.db"
    async with open_home(tmp_path) as store:
        for n in range(50):
            await run_turn(store, "a", f"{n} " * 400, "ok")
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()
    content = bytearray(path.read_bytes())
    content[4096 * (page - 1) : 4096 * page] = b"\xff" * 4096
    path.write_bytes(content)
    async with open_home(tmp_path) as store:
        assert any("damaged" in problem for problem in await store.archive.check())
        with pytest.raises(StoreError):
            await store.archive.backup(tmp_path / "b.db")
        assert not (tmp_path / "b.db").exists()


async def accept(store, chat: str, text: str, workdir: str, platform: str = "cli") -> str:
    address = Address(platform, chat)
    id = f"{chat} {time.monotonic_ns()}"
    await store.turns.accept(Inbound(id=id, address=address, sender="me", text=text, workdir=workdir))
    return address.key


async def test_a_conversation_belongs_to_the_folder_of_its_last_message(tmp_path):
    async with open_home(tmp_path) as store:
        await accept(store, "a", "one", "/a")
        await accept(store, "b", "two", "/b")
        assert (await store.archive.latest("cli")).address.chat == "b"
        assert (await store.archive.latest("cli", "/a")).address.chat == "a"
        assert await store.archive.latest("cli", "/c") is None
        assert [each.title for each in await store.archive.sessions(scope=SearchScope(workdir="/b"))] == ["two"]
        await accept(store, "a", "moved", "/c")
        assert (await store.archive.latest("cli", "/c")).title == "one"
        assert await store.archive.latest("cli", "/a") is None


async def test_a_new_conversation_and_a_branch_stay_in_the_folder(tmp_path):
    async with open_home(tmp_path) as store:
        key = await accept(store, "a", "one", "/a")
        turn = await store.turns.claim_next(key)
        await store.turns.record(turn, Said(assistant(Text("ok")), "p/m", Usage()))
        await store.turns.finish(turn, "answered", "")
        await store.sessions.branch(key)
        assert (await store.archive.current(key)).workdir == "/a"
        await store.sessions.reset(key)
        assert (await store.archive.latest("cli", "/a")).turns == 0


async def test_the_model_of_a_conversation_is_the_chosen_one_else_the_last_that_answered(tmp_path):
    async with open_home(tmp_path) as store:
        turn = await run_turn(store, "a", "one", "ok", model="p/first")
        await run_turn(store, "a", "two", "ok", model="p/second")
        assert (await store.archive.resolve("a")).model == "p/second"
        await store.sessions.configure(turn.session, model="p/chosen")
        assert (await store.archive.resolve("a")).model == "p/chosen"


async def test_interrupted_turns_are_listed_by_folder(tmp_path):
    async with open_home(tmp_path) as store:
        here, there = await accept(store, "a", "one", "/a"), await accept(store, "b", "two", "/b")
        nowhere = await accept(store, "c", "three", "")
        assert await store.turns.list_orphans() == (here, there, nowhere)
        assert await store.turns.list_orphans(0, "/b") == (there, nowhere)
        assert await store.turns.list_orphans(1, "/b") == ()


async def test_a_session_is_found_by_the_start_of_its_title_only_if_asked(tmp_path):
    async with open_home(tmp_path) as store:
        docs = (await run_turn(store, "a", "hello", "ok")).session
        await store.sessions.configure(docs, title="DOCS_of the parser")
        untitled = (await run_turn(store, "b", "Plant 50 % more trees", "ok")).session
        await run_turn(store, "c", "Plan the week", "ok")
        for name, id in (("doc", docs), ("DOCS_", docs), ("plant 50 %", untitled)):
            assert (await store.archive.resolve(name, title_start=True)).id == id
            with pytest.raises(SessionError, match="No conversation matches"):
                await store.archive.resolve(name)
        with pytest.raises(SessionError, match=r"several conversations: .*Plan the week.*Plant 50"):
            await store.archive.resolve("plan", title_start=True)
        with pytest.raises(SessionError, match="No conversation matches"):
            await store.archive.resolve("docsX", title_start=True)
