"""Contract of every store of sessions."""

import pytest

from alipes.kernel.errors import Fenced, SessionError
from alipes.kernel.messages import Image, Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Reset, Said, Stop, ToolStarted, Usage
from alipes.store.export import to_markdown
from alipes.store.sql.transcript import PageQuery

HERE, THERE = Address("cli", "here"), Address("cli", "there")


def make_inbound(id: str, text: str = "hello", address: Address = HERE, **more) -> Inbound:
    return Inbound(id=id, address=address, sender="me", text=text, **more)


async def run_turn(store, id: str, question: str, answer: str, address: Address = HERE):
    """Run one whole turn."""
    await store.turns.accept(make_inbound(id, question, address))
    turn = await store.turns.claim_next(address.key)
    await store.turns.record(turn, Said(user(question)))
    await store.turns.record(turn, Said(assistant(Text(answer)), "p/m", Usage(1, 2)))
    await store.turns.finish(turn, "answered", "")
    return turn


async def start_turn(store, id: str, question: str, address: Address = HERE):
    """Start a turn and leave it running."""
    await store.turns.accept(make_inbound(id, question, address))
    turn = await store.turns.claim_next(address.key)
    await store.turns.record(turn, Said(user(question)))
    return turn


async def seen(store, address: Address = HERE) -> list[str]:
    """What the next turn under the address would be shown, as texts."""
    standing = await store.sessions.active(address.key)
    return [message.text for message in await store.archive.messages(standing.session)]


async def test_an_unknown_address_has_no_session(opened):
    async with opened() as store:
        assert await store.sessions.active(HERE.key) is None
        assert await store.sessions.unfinished(HERE.key) == ()
        assert await store.sessions.reset(HERE.key) is None
        assert await store.sessions.undo(HERE.key) == ()
        assert await store.sessions.retry(HERE.key) is None
        with pytest.raises(SessionError, match="nothing to branch from"):
            await store.sessions.branch(HERE.key)


async def test_a_conversation_can_be_opened_before_its_first_message(opened):
    async with opened() as store:
        standing = await store.sessions.open(HERE)
        assert await store.sessions.open(HERE) == standing == await store.sessions.active(HERE.key)
        assert standing.address == HERE and (standing.model, standing.busy) == ("", "")
        assert (await run_turn(store, "1", "hi", "hello")).session == standing.session


async def test_settings_of_a_session_stay_until_they_are_reset(opened):
    async with opened() as store:
        session = (await store.sessions.open(HERE)).session
        await store.sessions.configure(session, model="p/big")
        await store.sessions.configure(session, busy="steer")
    async with opened() as store:
        standing = await store.sessions.active(HERE.key)
        assert (standing.model, standing.busy) == ("p/big", "steer")
        assert (await run_turn(store, "1", "hi", "hello")).model == "p/big"
        await store.sessions.configure(session, model="", busy="")
        assert (await run_turn(store, "2", "hi", "hello")).model == ""
        with pytest.raises(SessionError):
            await store.sessions.configure("nobody", model="x")


async def test_the_busy_mode_is_that_of_the_message_else_the_session_else_the_default(opened):
    async with opened() as store:
        first = await store.turns.admit(make_inbound("1", "a"), usual="interrupt")
        assert (first.busy, first.ahead) == ("interrupt", ())
        session = (await store.sessions.active(HERE.key)).session
        await store.sessions.configure(session, busy="steer")
        second = await store.turns.admit(make_inbound("2", "b"), usual="interrupt")
        third = await store.turns.admit(make_inbound("3", "c"), busy="queue", usual="interrupt")
        assert (second.busy, third.busy) == ("steer", "queue")
        assert [(w.id, w.text, w.busy, w.started_at) for w in third.ahead] == [
            (first.turn, "a", "interrupt", None),
            (second.turn, "b", "steer", None),
        ]
        assert await store.turns.admit(make_inbound("3", "c")) is None, "a second copy is a second copy in every mode"


async def test_queued_turns_are_listed_in_order_with_their_times(opened):
    async with opened() as store:
        turn = await start_turn(store, "1", "first")
        await store.turns.accept(make_inbound("2", "second"))
        living, waiting = await store.sessions.unfinished(HERE.key)
        assert (living.id, living.session, living.text) == (turn.id, turn.session, "first")
        assert living.started_at >= living.accepted_at > 0 and waiting.started_at is None
        again = await store.turns.claim_next(HERE.key)
        assert (await store.sessions.unfinished(HERE.key))[0].started_at == living.started_at, "the first claim counts"
        await store.turns.finish(again, "answered", "")
        assert [w.text for w in await store.sessions.unfinished(HERE.key)] == ["second"]


async def test_steered_messages_move_into_the_running_turn_in_order_and_their_own_turns_end(opened):
    picture = Image("image/png", b"\0\xff")
    async with opened() as store:
        turn = await start_turn(store, "1", "first")
        waits = await store.turns.admit(make_inbound("2", "later"))
        one = await store.turns.admit(make_inbound("3", "look here", attachments=(picture,)), busy="steer")
        two = await store.turns.admit(make_inbound("4", "and there"), busy="steer")
        taken = await store.sessions.take_steered(turn)
        assert [(each.turn, each.message) for each in taken] == [
            (one.turn, user("look here", picture)),
            (two.turn, user("and there")),
        ]
        assert await store.sessions.take_steered(turn) == (), "each is taken in once"
        facts = await store.archive.turn(one.turn)
        assert (facts.ending, facts.detail, facts.said) == ("steered", turn.id, ())
        resumed = await store.turns.claim_next(HERE.key)
        assert resumed.id == turn.id and [m.text for m in resumed.said] == ["first", "look here", "and there"]
        await store.turns.finish(resumed, "answered", "")
        assert (await store.turns.claim_next(HERE.key)).id == waits.turn
        assert [hit.turn for hit in await store.archive.search("there")] == [turn.id]


async def test_a_fenced_turn_takes_no_steered_messages(opened):
    async with opened() as store:
        old = await start_turn(store, "1", "first")
        waiting = await store.turns.admit(make_inbound("2", "more"), busy="steer")
        await store.turns.claim_next(HERE.key)
        with pytest.raises(Fenced):
            await store.sessions.take_steered(old)
        assert (await store.archive.turn(waiting.turn)).ending is None


async def test_messages_of_the_next_conversation_are_not_steered_into_the_old_turn(opened):
    async with opened() as store:
        turn = await start_turn(store, "1", "first")
        await store.sessions.reset(HERE.key)
        await store.turns.admit(make_inbound("2", "something else"), busy="steer")
        assert await store.sessions.take_steered(turn) == ()


async def test_a_stopped_message_is_not_steered(opened):
    async with opened() as store:
        turn = await start_turn(store, "1", "first")
        gone = await store.turns.admit(make_inbound("2", "never mind"), busy="steer")
        kept = await store.turns.admit(make_inbound("3", "this"), busy="steer")
        await store.turns.put_op(HERE.key, Stop(turn=gone.turn))
        await store.turns.put_op(HERE.key, Stop())
        await store.turns.put_op(HERE.key, Stop("superseded", "superseded", kept.turn))
        assert [each.turn for each in await store.sessions.take_steered(turn)] == [kept.turn]


async def test_a_new_conversation_starts_empty_and_the_old_one_can_be_found(opened):
    async with opened() as store:
        old = await run_turn(store, "1", "remember the milk", "sure")
        await store.sessions.configure(old.session, model="p/big", busy="queue")
        left = await store.sessions.reset(HERE.key)
        assert (left.old, left.dropped, left.running_turn, left.moved_from) == (old.session, (), "", "")
        standing = await store.sessions.active(HERE.key)
        assert (standing.session, standing.model, standing.busy) == (left.new, "", "")
        new = await run_turn(store, "2", "hello", "hi")
        assert new.session == left.new and new.history == ()
        assert [hit.session for hit in await store.archive.search("milk")] == [old.session]


async def test_leaving_ends_queued_turns_and_returns_the_running_one(opened):
    async with opened() as store, opened() as other:
        living = await start_turn(store, "1", "long work")
        waiting = [await store.turns.accept(make_inbound(str(n))) for n in (2, 3)]
        left = await other.sessions.reset(HERE.key)
        assert (left.running_turn, list(left.dropped)) == (living.id, waiting)
        facts = await store.archive.turn(waiting[0])
        assert (facts.ending, facts.detail) == ("stopped", "reset")
        await store.turns.record(living, Said(assistant(Text("so far"))))
        await store.turns.finish(living, "stopped", "reset")
        assert await store.turns.claim_next(HERE.key) is None
        await store.turns.accept(make_inbound("4", "hello"))
        assert (await store.turns.claim_next(HERE.key)).session == left.new


async def test_a_turn_not_claimed_yet_counts_as_queued(opened):
    async with opened() as store, opened() as other:
        await run_turn(store, "1", "one", "uno")
        assert await other.turns.holder(HERE.key) == store.host
        waiting = await store.turns.accept(make_inbound("2"))
        left = await other.sessions.reset(HERE.key)
        assert (left.running_turn, left.dropped) == ("", (waiting,))


async def test_a_late_reset_does_not_end_a_conversation_that_was_resumed(opened):
    async with opened() as store:
        turn = await run_turn(store, "1", "one", "uno")
        left = await store.sessions.reset(HERE.key)
        for session in (turn.session, left.new):
            await store.turns.put_op(HERE.key, Reset(session=session))
        await store.sessions.switch(HERE, turn.session)
        assert await store.turns.take_ops(HERE.key) == (Reset(session=left.new),)


async def test_leaving_ends_a_turn_whose_process_died(opened):
    async with opened() as store:
        dead = await start_turn(store, "1", "long work")
        await store.turns.record(dead, Said(assistant(ToolCall("c", "t", {}))))
        await store.turns.record(dead, ToolStarted(ToolCall("c", "t", {})))
    async with opened() as store:
        left = await store.sessions.reset(HERE.key)
        assert (left.running_turn, left.dropped) == ("", (dead.id,))
        assert await store.turns.list_orphans() == ()


async def test_an_older_conversation_continues_where_it_ended(opened):
    async with opened() as store:
        first = await run_turn(store, "1", "one", "uno")
        await store.sessions.reset(HERE.key)
        second = await run_turn(store, "2", "two", "dos")
        left = await store.sessions.switch(HERE, first.session)
        assert (left.old, left.new, left.moved_from) == (second.session, first.session, "")
        third = await run_turn(store, "3", "three", "tres")
    assert [message.text for message in third.history] == ["one", "uno"]


async def test_switching_to_the_active_conversation_changes_nothing(opened):
    async with opened() as store:
        turn = await start_turn(store, "1", "long work")
        waiting = await store.turns.accept(make_inbound("2"))
        left = await store.sessions.switch(HERE, turn.session)
        assert (left.old, left.new, left.dropped, left.running_turn) == (turn.session, turn.session, (), "")
        assert (await store.archive.turn(waiting)).ending is None


async def test_a_conversation_is_active_in_one_place_at_a_time(opened):
    async with opened() as store:
        there = await run_turn(store, "1", "one", "uno", THERE)
        left = await store.sessions.switch(HERE, there.session)
        assert (left.old, left.moved_from) == ("", THERE.key)
        assert await store.sessions.active(THERE.key) is None
        assert (await store.archive.latest("cli")).address == HERE
        here = await run_turn(store, "2", "two", "dos")
        again = await run_turn(store, "3", "three", "tres", THERE)
    assert here.session == there.session != again.session
    assert len(here.history) == 2 and again.history == ()


async def test_a_conversation_with_a_running_turn_elsewhere_cannot_be_taken_over(opened):
    async with opened() as store:
        there = await start_turn(store, "1", "long work", THERE)
        with pytest.raises(SessionError, match="running turn in another place"):
            await store.sessions.switch(HERE, there.session)
        with pytest.raises(SessionError, match='No conversation matches "nobody"'):
            await store.sessions.switch(HERE, "nobody")
        assert await store.sessions.active(HERE.key) is None
        assert (await store.sessions.active(THERE.key)).session == there.session


async def test_undone_turns_are_hidden_from_the_model_only(opened):
    async with opened() as store:
        for n, word in enumerate(("one", "two", "three")):
            await run_turn(store, str(n), word, word.upper())
        undone = await store.sessions.undo(HERE.key, 2)
        assert [(each.text, each.running) for each in undone] == [("three", False), ("two", False)]
        assert await seen(store) == ["one", "ONE"]
        assert len(await store.archive.search("three")) == 2
        facts = await store.archive.turn(undone[0].turn)
        assert [message.text for message in facts.said] == ["three", "THREE"]
        last = await run_turn(store, "9", "four", "FOUR")
        assert [message.text for message in last.history] == ["one", "ONE"]
        assert len(await store.sessions.undo(HERE.key, 99)) == 2
        assert await store.sessions.undo(HERE.key) == ()


async def test_a_running_turn_can_be_undone(opened):
    async with opened() as store:
        turn = await start_turn(store, "1", "oh no")
        (undone,) = await store.sessions.undo(HERE.key)
        assert (undone.turn, undone.running) == (turn.id, True)
        resumed = await store.turns.claim_next(HERE.key)
        assert [message.text for message in resumed.said] == ["oh no"], "who lives it still sees itself"
        await store.turns.finish(resumed, "stopped", "", assistant(Text("half")))
        assert (await run_turn(store, "2", "hi", "hello")).history == ()


async def test_queued_turns_and_turns_without_messages_are_not_undone(opened):
    async with opened() as store:
        done = await run_turn(store, "1", "one", "uno")
        await store.turns.accept(make_inbound("2", "stopped before the first character"))
        await store.turns.finish(await store.turns.claim_next(HERE.key), "stopped", "")
        waiting = await store.turns.accept(make_inbound("3", "waits"))
        assert [each.turn for each in await store.sessions.undo(HERE.key, 5)] == [done.id]
        assert (await store.archive.turn(waiting)).ending is None


async def test_a_branch_shares_finished_turns_and_then_diverges(opened):
    async with opened() as store:
        trunk = await run_turn(store, "1", "one", "uno")
        await store.sessions.configure(trunk.session, model="p/big", busy="steer")
        left = await store.sessions.branch(HERE.key, "another way")
        standing = await store.sessions.active(HERE.key)
        assert (standing.title, standing.parent) == ("another way", trunk.session)
        assert (standing.model, standing.busy) == ("p/big", "steer")
        twig = await run_turn(store, "2", "two", "dos")
        assert [message.text for message in twig.history] == ["one", "uno"]
        await store.sessions.switch(HERE, trunk.session)
        assert [m.text for m in (await run_turn(store, "3", "three", "tres")).history] == ["one", "uno"]
        await store.sessions.switch(HERE, left.new)
        assert await seen(store) == ["one", "uno", "two", "dos"]
        assert (await store.archive.usage()).calls == 3, "no message was copied"


async def test_a_branch_of_a_branch_sees_all_ancestors(opened):
    async with opened() as store:
        await run_turn(store, "1", "one", "1")
        await store.sessions.branch(HERE.key)
        await store.sessions.branch(HERE.key)
        await run_turn(store, "2", "two", "2")
        left = await store.sessions.branch(HERE.key)
        await run_turn(store, "3", "three", "3")
        assert await seen(store) == ["one", "1", "two", "2", "three", "3"]
        titles = {facts.id: facts.title for facts in await store.archive.sessions()}
        assert titles[left.new] == "one (branch 1) (branch 1) (branch 1)"


async def test_undo_in_one_branch_does_not_change_others(opened):
    async with opened() as store:
        trunk = await run_turn(store, "1", "one", "1")
        await run_turn(store, "2", "two", "2")
        first = await store.sessions.branch(HERE.key)
        await run_turn(store, "3", "three", "3")
        assert [each.text for each in await store.sessions.undo(HERE.key, 2)] == ["three", "two"]
        assert await seen(store) == ["one", "1"]
        second = await store.sessions.branch(HERE.key)
        assert await seen(store) == ["one", "1"], "a branch sees what its parent saw"
        await store.sessions.switch(HERE, trunk.session)
        assert await seen(store) == ["one", "1", "two", "2"]
        await store.sessions.undo(HERE.key, 2)
        assert await seen(store) == []
        for session in (first.new, second.new):
            await store.sessions.switch(HERE, session)
            assert await seen(store) == ["one", "1"]


async def test_a_running_turn_is_not_shared_even_with_a_steered_message(opened):
    async with opened() as store:
        await run_turn(store, "1", "one", "uno")
        turn = await start_turn(store, "2", "two")
        await store.turns.admit(make_inbound("3", "and more"), busy="steer")
        await store.sessions.take_steered(turn)
        left = await store.sessions.branch(HERE.key)
        assert left.running_turn == turn.id
        await store.turns.finish(turn, "stopped", "reset")
        assert await seen(store) == ["one", "uno"]


async def test_a_session_is_not_deleted_while_branches_share_it(opened):
    async with opened() as store:
        trunk = await run_turn(store, "1", "one", "uno")
        left = await store.sessions.branch(HERE.key)
        with pytest.raises(SessionError, match=f"shared by its branches .{left.new}."):
            await store.archive.delete(trunk.session)
        await store.archive.delete(left.new)
        await store.archive.delete(trunk.session)
        assert await store.archive.search("uno") == [] and await store.archive.check() == []


async def test_an_export_of_a_branch_is_complete_and_marks_undone_turns(opened):
    async with opened() as store:
        await run_turn(store, "1", "one", "uno")
        await run_turn(store, "2", "two", "dos")
        left = await store.sessions.branch(HERE.key)
        await run_turn(store, "3", "three", "tres")
        await store.sessions.undo(HERE.key, 1)
        exported = await store.archive.export(left.new)
        assert [turn["undone"] for turn in exported["turns"]] == [False, False, True]
        text = to_markdown(exported)
        assert "uno" in text and "dos" in text and "tres" not in text


async def test_retry_accepts_the_same_message_again_and_hides_the_old_turn(opened):
    asked = make_inbound("1", "hello", attachments=(Image("image/png", b"\0"),), workdir="/tmp", trusted=True)
    async with opened() as store:
        await store.turns.accept(asked)
        turn = await store.turns.claim_next(HERE.key)
        await store.turns.record(turn, Said(asked.message))
        await store.turns.finish(turn, "failed", "the network was down")
        retried = await store.sessions.retry(HERE.key)
        assert (retried.undone.turn, retried.undone.running, retried.steered) == (turn.id, False, ())
        again = await store.turns.claim_next(HERE.key)
        assert again.id == retried.turn and again.history == ()
        assert again.inbound.id != "1"
        assert (again.inbound.message, again.inbound.workdir, again.inbound.trusted) == (asked.message, "/tmp", True)
        await store.turns.finish(again, "answered", "")
        assert await store.sessions.retry(HERE.key), "and again"


async def versions_of(store, text: str) -> tuple[str, ...]:
    """The ids of the versions of the visible turn with this message."""
    session = (await store.sessions.active(HERE.key)).session
    page = await store.transcripts.page(session, PageQuery(50))
    return next(turn.versions for turn in page.turns.values() if turn.inbound.text == text)


async def test_every_version_of_a_message_can_be_shown_again_with_what_followed_it(opened):
    async with opened() as store:
        await run_turn(store, "1", "start", "a1")
        second = await run_turn(store, "2", "second", "a2")
        third = await run_turn(store, "3", "third", "a3")
        assert await versions_of(store, "second") == ()
        await store.sessions.undo(HERE.key)
        fourth = await run_turn(store, "4", "third, better", "a4")
        assert await versions_of(store, "third, better") == (third.id, fourth.id)
        await store.sessions.undo(HERE.key, 2)
        fifth = await run_turn(store, "5", "second, better", "a5")
        assert await versions_of(store, "second, better") == (second.id, fifth.id), "third was after second"
        await store.sessions.show_version(HERE.key, second.id)
        assert await seen(store) == ["start", "a1", "second", "a2", "third, better", "a4"]
        assert await versions_of(store, "second") == (second.id, fifth.id)
        await store.sessions.show_version(HERE.key, third.id)
        assert await seen(store) == ["start", "a1", "second", "a2", "third", "a3"]
        await store.sessions.show_version(HERE.key, fifth.id)
        assert await seen(store) == ["start", "a1", "second, better", "a5"]
        assert await versions_of(store, "start") == ()


async def test_a_retried_answer_is_a_version(opened):
    async with opened() as store:
        first = await run_turn(store, "1", "hi", "one")
        retried = await store.sessions.retry(HERE.key)
        turn = await store.turns.claim_next(HERE.key)
        await store.turns.record(turn, Said(user("hi")))
        await store.turns.record(turn, Said(assistant(Text("two")), "p/m", Usage(1, 2)))
        with pytest.raises(SessionError, match="running"):
            await store.sessions.show_version(HERE.key, first.id)
        await store.turns.finish(turn, "answered", "")
        assert await versions_of(store, "hi") == (first.id, retried.turn)
        await store.sessions.show_version(HERE.key, first.id)
        assert await seen(store) == ["hi", "one"]
        with pytest.raises(SessionError, match="no such version"):
            await store.sessions.show_version(HERE.key, first.id)


async def test_retry_also_accepts_the_messages_steered_into_the_turn(opened):
    async with opened() as store:
        turn = await start_turn(store, "1", "first")
        await store.turns.admit(make_inbound("2", "second"), busy="steer")
        await store.turns.admit(make_inbound("3", "third"), busy="steer")
        await store.sessions.take_steered(turn)
        await store.turns.finish(turn, "answered", "")
        retried = await store.sessions.retry(HERE.key)
        waiting = await store.sessions.unfinished(HERE.key)
        assert [(w.id, w.text, w.busy) for w in waiting] == [
            (retried.turn, "first", "queue"),
            (retried.steered[0], "second", "steer"),
            (retried.steered[1], "third", "steer"),
        ]


async def test_a_turn_without_messages_can_be_retried(opened):
    async with opened() as store:
        await run_turn(store, "1", "one", "uno")
        await store.turns.accept(make_inbound("2", "two"))
        await store.turns.finish(await store.turns.claim_next(HERE.key), "failed", "no model")
        await store.sessions.retry(HERE.key)
        assert [w.text for w in await store.sessions.unfinished(HERE.key)] == ["two"]


async def test_retry_in_a_branch_does_not_change_the_original(opened):
    async with opened() as store:
        trunk = await run_turn(store, "1", "one", "uno")
        left = await store.sessions.branch(HERE.key)
        await store.sessions.retry(HERE.key)
        again = await store.turns.claim_next(HERE.key)
        assert (again.session, again.history, again.inbound.text) == (left.new, (), "one")
        await store.turns.finish(again, "stopped", "")
        await store.sessions.switch(HERE, trunk.session)
        assert await seen(store) == ["one", "uno"]


async def test_sessions_are_found_by_words_of_their_title_or_first_message(opened):
    async with opened() as store:
        one = await run_turn(store, "1", "Bake 100% rye bread", "ok")
        two = await run_turn(store, "2", "fix the roof", "ok", THERE)
        await store.sessions.configure(two.session, title="House_work")
        ids = lambda found: [facts.id for facts in found]  # noqa: E731
        assert ids(await store.archive.sessions(words="BREAD rye")) == [one.session]
        assert ids(await store.archive.sessions(words="100%")) == [one.session]
        assert ids(await store.archive.sessions(words="e_w")) == [two.session]
        assert ids(await store.archive.sessions(words="roof bread")) == []
        assert len(await store.archive.sessions(limit=1)) == 1


async def test_a_history_with_cancelled_calls_is_unchanged(opened):
    async with opened() as store:
        turn = await start_turn(store, "1", "one")
        await store.turns.record(turn, Said(assistant(ToolCall("c", "t", {}))))
        await store.turns.finish(turn, "stopped", "", Message("tool", (ToolResult("c", "", "cancelled"),)))
        await store.sessions.branch(HERE.key)
        standing = await store.sessions.active(HERE.key)
        roles = [message.role for message in await store.archive.messages(standing.session)]
    assert roles == ["user", "assistant", "tool"]


@pytest.mark.parametrize("verb", ["undo", "retry"])
async def test_a_process_that_resumes_an_undone_running_turn_finds_its_stop(opened, verb):
    async with opened() as store:
        turn = await start_turn(store, "1", "first")
        await getattr(store.sessions, verb)(HERE.key)
    async with opened() as store:
        taken = await store.turns.claim_next(HERE.key)
        (stop,) = await store.turns.take_ops(HERE.key)
        assert taken.id == turn.id and stop == Stop("user_stop", "session_interrupt", turn.id)


async def test_a_turn_whose_answer_is_complete_does_not_count_as_running_when_it_is_left(opened):
    async with opened() as store:
        turn = await start_turn(store, "1", "a")
        await store.turns.record(turn, Said(assistant(ToolCall("c", "look", {}))))
        assert (await store.sessions.reset(HERE.key)).running_turn == turn.id
    async with opened() as store:
        turn = await start_turn(store, "2", "b", THERE)
        await store.turns.record(turn, Said(assistant(Text("done"))))
        left = await store.sessions.reset(THERE.key)
        assert (left.running_turn, left.dropped) == ("", ())
