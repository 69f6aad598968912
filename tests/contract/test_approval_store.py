"""Contract of every store of approvals."""

import asyncio
from functools import partial

import pytest
from msgspec import structs

from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.store.sql.approvals import Approval, StandingRight

HERE, THERE = Address("cli", "here"), Address("cli", "there")


async def start_turn(store, id: str = "1", address: Address = HERE, **more) -> Turn:
    await store.turns.accept(Inbound(id, address, "me", "go", **more))
    turn = await store.turns.claim_next(address.key)
    assert turn is not None
    return turn


def question(turn: Turn, rule: str = "terminal ls", id: str = "a1", reason: str = "why", at: float = 1.0) -> Approval:
    return Approval(id, turn.session, turn.key, turn.id, "terminal", '{"command":"ls"}', "/w", reason, rule, at)


async def allow(store, turn: Turn, rule: str, choice: str, *, id: str = "a1", sources: tuple[str, ...] = ()) -> None:
    await store.approvals.ask(question(turn, rule, id), sources)
    assert await store.approvals.answer(id, choice, "me")
    await store.approvals.take(id)


@pytest.mark.parametrize("rule", ["rm -rf build", "rm  -rf build", "rm -rf build ", "", "é", "a\0b", "\udcff"])
async def test_an_always_rule_allows_exactly_that_call(opened, rule):
    others = {"rm -rf build", "rm  -rf build", "rm -rf build ", "RM -rf build", "?", "\\udcff", "a", "e"}
    async with opened() as store:
        turn = await start_turn(store)
        await allow(store, turn, rule, "always")
        await allow(store, turn, rule, "always", id="a2")
    async with opened() as store:
        assert await store.approvals.find_right(rule, "another", "t") == StandingRight("always", confirmed=True)
        assert [other for other in others - {rule} if await store.approvals.find_right(other, "another", "t")] == []
        (listed,) = await store.approvals.list_current()
        assert (listed.id, listed.rule, listed.state) == ("a2", rule, "always")
        assert await store.approvals.revoke(listed) and not await store.approvals.revoke(listed)
        assert await store.approvals.find_right(rule, "another", "t") is None


async def test_a_session_right_holds_only_in_its_conversation(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await allow(store, turn, "ls", "session")
        assert await store.approvals.find_right("ls", turn.session, "t") == StandingRight("session", confirmed=True)
        assert await store.approvals.find_right("ls", "another", "t") is None


@pytest.mark.parametrize("choice", ["once", "no"])
async def test_once_and_no_give_no_right(opened, choice):
    async with opened() as store:
        turn = await start_turn(store)
        await allow(store, turn, "ls", choice)
        assert await store.approvals.find_right("ls", turn.session, turn.id) is None
        assert await store.approvals.list_current() == ()


async def test_only_one_of_many_answers_from_two_processes_counts(opened):
    async with opened() as one, opened() as other:
        turn = await start_turn(one)
        await one.approvals.ask(question(turn))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(store.approvals.answer("a1", choice, f"{number}"))
                for number, (store, choice) in enumerate([(one, "no"), (other, "always")] * 10)
            ]
        assert [task.result() for task in tasks].count(True) == 1
        winner = next(number for number, task in enumerate(tasks) if task.result())
        assert (await other.approvals.find("a1")).answered_by == str(winner)


async def test_a_question_is_found_again_word_for_word_until_its_answer_is_used(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await store.approvals.ask(question(turn))
    async with opened() as store:
        assert await store.approvals.find_waiting(turn.id, "terminal ls", "another reason") is None
        assert await store.approvals.find_waiting(turn.id, "terminal ls ", "why") is None
        assert await store.approvals.find_waiting("another turn", "terminal ls", "why") is None
        assert await store.approvals.find_waiting(turn.id, "terminal ls", "why") == question(turn)
        await store.approvals.answer("a1", "once", "me")
    async with opened() as store:
        found = await store.approvals.find_waiting(turn.id, "terminal ls", "why")
        assert found is not None and (found.choice, found.answered_by) == ("once", "me")
        await store.approvals.take("a1")
        assert await store.approvals.find_waiting(turn.id, "terminal ls", "why") is None


async def test_the_end_of_a_turn_answers_its_open_questions_with_no(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await store.approvals.ask(question(turn))
        (listed,) = await store.approvals.list_current()
        assert listed.state == "open"
        await store.turns.finish(turn, "stopped", "user_stop")
        assert await store.approvals.list_current() == ()
        closed = await store.approvals.find("a1")
        assert (closed.choice, closed.answered_by) == ("no", "stop")
        assert not await store.approvals.answer("a1", "always", "late")


async def test_a_right_revoked_in_one_process_ends_in_the_other(opened):
    async with opened() as one, opened() as other:
        turn = await start_turn(one)
        await allow(one, turn, "ls", "always", id="a1")
        await allow(one, turn, "make", "session", id="a2")
        assert await other.approvals.revoke_all() == 2
        assert await one.approvals.find_right("ls", turn.session, "t") is None
        assert await one.approvals.find_right("make", turn.session, "t") is None
        assert (await one.approvals.find("a1")).state == "revoked"


async def test_an_approval_is_found_by_the_start_of_its_id(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await store.approvals.ask(question(turn, id="ab1"))
        await store.approvals.ask(question(turn, id="ac1"))
        assert (await store.approvals.find("ab")).id == "ab1"
        for unclear in ("a", "", "x", "%"):
            with pytest.raises(SessionError):
                await store.approvals.find(unclear)


async def test_deleting_a_conversation_deletes_its_approvals_except_always(opened):
    async with opened() as store:
        turn = await start_turn(store)
        for number, choice in enumerate(("once", "session", "no", "always")):
            await allow(store, turn, "ls", choice, id=f"a{number}")
        await store.sources.add(turn, "c1", "a page")
        await store.turns.finish(turn, "answered", "")
        await store.archive.delete(turn.session)
        (left,) = await store.approvals.list_current()
        assert left.choice == "always" and await store.sources.list_read(turn) == {}


# --- untrusted text


async def test_a_right_from_before_untrusted_text_is_not_confirmed(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await allow(store, turn, "ls", "always")
        await store.sources.add(turn, "c1", "a page")
        read = await store.sources.list_read(turn)
        assert read == {"c1": "a page"}
        assert await store.approvals.find_right("ls", turn.session, turn.id, read) == StandingRight("always", False)


async def test_a_yes_after_untrusted_text_holds_in_this_turn(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await allow(store, turn, "ls", "always", id="a1")
        await allow(store, turn, "ls", "once", id="a2", sources=("c1",))
        right = partial(store.approvals.find_right, "ls", turn.session)
        assert (await right(turn.id, {"c1", "c2"})).confirmed
        assert not (await right("the next turn", {"c1"})).confirmed


@pytest.mark.parametrize("choice", ["session", "always"])
async def test_a_lasting_yes_after_untrusted_text_holds_until_more_is_read(opened, choice):
    async with opened() as store:
        turn = await start_turn(store)
        await allow(store, turn, "ls", choice, sources=("c1", "c2"))
        right = partial(store.approvals.find_right, "ls", turn.session, "the next turn")
        assert (await right({"c1"})).confirmed and (await right({"c1", "c2"})).confirmed
        assert not (await right({"c1", "c3"})).confirmed
        elsewhere = await store.approvals.find_right("ls", "another", "t", {"c1"})
        assert elsewhere == (StandingRight("always", False) if choice == "always" else None)


async def test_what_a_subagent_reads_its_parents_and_their_branches_have_read(opened):
    async with opened() as store:
        parent = await start_turn(store)
        child = await start_turn(store, "2", Address("subagent", "c"), parent=parent.id)
        grandchild = await start_turn(store, "3", Address("subagent", "d"), parent=child.id)
        other = await start_turn(store, "4", THERE)
        await store.sources.add(grandchild, "c1", "a page")
        for turn in (parent, child, grandchild):
            assert await store.sources.list_read(turn) == {"c1": "a page"}
        assert await store.sources.list_read(other) == {}
        await store.turns.finish(parent, "answered", "")
        switch = await store.sessions.branch(HERE.key)
        branch = structs.replace(parent, session=switch.new, id="later")
        assert await store.sources.list_read(branch) == {"c1": "a page"}


async def test_the_text_of_a_stranger_counts_for_the_rest_of_the_conversation(opened):
    async with opened() as store:
        turn = await start_turn(store, untrusted="mail from x@y")
        await store.turns.finish(turn, "answered", "")
        later = await start_turn(store, "2")
        assert await store.sources.list_read(later) == {"mail from x@y": "mail from x@y"}
        await store.turns.finish(later, "answered", "")
        await store.sessions.reset(HERE.key)
        assert await store.sources.list_read(await start_turn(store, "3")) == {}


async def test_a_write_covers_its_file_or_folder_for_its_time_also_after_a_restart(opened):
    async with opened() as store:
        now = store.sources._clock()
        for path in ("/w/notes.md", "/w/deep", "/w/\udcff\0"):
            await store.sources.record_write(path, now - 2.0, now - 1.0)
            await store.sources.record_write(path, now - 2.0, now - 1.0)
        await store.sources.record_write("/old", now - 1e9, now - 1e9 + 1)
    async with opened() as store:
        written = store.sources.was_written
        for path in ("/w/notes.md", "/w/deep/er/page.txt", "/w/deep", "/w/\udcff\0"):
            assert await written(path, (now - 1.5,)), path
            assert not await written(path, (now - 2.5,)) and not await written(path, (now,)), path
        assert not await written("/w/other.md", (now - 1.5,)) and not await written("/", (now - 1.5,))
        await store.sources.record_write("/new", now, now)
        assert not await written("/old", (now - 1e9,)), "rows of long ago are deleted"
