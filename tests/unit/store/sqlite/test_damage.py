"""Rows that cannot be read, in a real file: each is named, and the others stay readable."""

import pytest

from alipes.kernel.errors import StoreError
from alipes.kernel.messages import Text, assistant
from alipes.kernel.turns import Address, Inbound, Said, Stop
from alipes.store.sql.api_runs import ApiRunStore
from alipes.store.sql.store import Store
from alipes.store.sqlite.store import open_store

MESSAGE = Inbound("1", Address("test", "me"), "me", "hello")
KEY = MESSAGE.address.key


async def answer(store: Store, id: str = "1") -> str:
    turn = await store.turns.accept(Inbound(id, MESSAGE.address, "me", "hello"))
    claimed = await store.turns.claim_next(KEY)
    await store.turns.record(claimed, Said(claimed.inbound.message))
    await store.turns.record(claimed, Said(assistant(Text("hi"))))
    await store.turns.finish(claimed, "answered", "")
    return turn


async def damage(store: Store, table: str, column: str) -> None:
    text = "{}" if table == "turns" else '{"torn'  # an index keeps invalid JSON out of the turns
    await store.database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = 1", text)


async def test_a_damaged_message_is_replaced_by_a_notice_and_the_others_are_read(tmp_path):
    async with open_store(tmp_path) as store:
        turn = await answer(store)
        await damage(store, "messages", "message")
        facts = await store.archive.turn(turn)
        (session,) = await store.archive.sessions()
        messages = await store.archive.messages(session.id)
        exported = await store.archive.export(session.id)
        assert [each.role for each in messages] == [each.role for each in facts.said] == ["notice", "assistant"]
        assert "message 1 cannot be read" in messages[0].text and messages[1].text == "hi"
        assert [each["role"] for each in exported["turns"][0]["messages"]] == ["notice", "assistant"]


async def test_the_next_turn_of_a_damaged_conversation_runs(tmp_path):
    async with open_store(tmp_path) as store:
        await answer(store)
        await damage(store, "messages", "message")
        await store.turns.accept(Inbound("2", MESSAGE.address, "me", "again"))
        turn = await store.turns.claim_next(KEY)
        assert [message.role for message in turn.history] == ["notice", "assistant"]


@pytest.mark.parametrize(("table", "column"), [("messages", "message"), ("sessions", "address"), ("pending_ops", "op")])
async def test_a_check_names_damaged_rows(tmp_path, table, column):
    async with open_store(tmp_path) as store:
        await answer(store)
        await store.turns.put_op(KEY, Stop())
        assert await store.archive.check() == []
        await damage(store, table, column)
        problems = await store.archive.check()
        assert any(f" of {table} cannot be read: its {column}" in problem for problem in problems), problems


@pytest.mark.parametrize(("table", "column"), [("turns", "inbound"), ("sessions", "address")])
async def test_damaged_rows_do_not_hide_the_other_conversations(tmp_path, table, column):
    async with open_store(tmp_path) as store:
        await answer(store)
        other = Inbound("2", Address("test", "other"), "me", "how are you?")
        await store.turns.accept(other)
        await damage(store, table, column)
        assert "how are you?" in [each.title for each in await store.archive.sessions()]


async def test_reads_that_decode_outside_of_the_database_raise_store_errors(tmp_path):
    async with open_store(tmp_path) as store:
        await store.turns.accept(MESSAGE)
        await store.turns.put_op(KEY, Stop())
        await damage(store, "pending_ops", "op")
        await damage(store, "turns", "inbound")
        with pytest.raises(StoreError, match="alipes doctor"):
            await ApiRunStore(store.database).unfinished("test")
        with pytest.raises(StoreError):
            await store.turns.take_ops(KEY)
