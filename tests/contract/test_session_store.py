"""What every `SessionStore` and every `Grants` promises. Another implementation joins with one line in `STORES`."""

from functools import partial

import pytest

from alipes.kernel.errors import Fenced, SessionError
from alipes.kernel.messages import Image, Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, Inbound, Reset, Said, Stop, ToolStarted, Usage
from alipes.store.export import markdown
from alipes.store.store import open_store

STORES = {"sqlite": open_store}
HERE, THERE = Address("cli", "here"), Address("cli", "there")


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Calling it opens the store of one home; twice is two processes."""
    return partial(STORES[request.param], tmp_path / "home")


def said(id: str, text: str = "hello", address: Address = HERE, **more) -> Inbound:
    return Inbound(id=id, address=address, sender="me", text=text, **more)


async def live(store, id: str, question: str, answer: str, address: Address = HERE):
    """One whole turn; the history it was shown."""
    await store.turns.accept(said(id, question, address))
    turn = await store.turns.next_turn(address.key)
    await store.turns.record(turn, Said(user(question)))
    await store.turns.record(turn, Said(assistant(Text(answer)), "p/m", Usage(1, 2)))
    await store.turns.finish(turn, "answered", "")
    return turn


async def begin(store, id: str, question: str, address: Address = HERE):
    """A turn that lives on."""
    await store.turns.accept(said(id, question, address))
    turn = await store.turns.next_turn(address.key)
    await store.turns.record(turn, Said(user(question)))
    return turn


async def told(store, address: Address = HERE) -> list[str]:
    """What the next turn under the address would be shown, as texts."""
    standing = await store.sessions.standing(address.key)
    return [message.text for message in await store.archive.messages(standing.session)]


async def test_where_nothing_was_said_nothing_stands(opened):
    async with opened() as store:
        assert await store.sessions.standing(HERE.key) is None
        assert await store.sessions.unfinished(HERE.key) == ()
        assert await store.sessions.reset(HERE.key) is None
        assert await store.sessions.undo(HERE.key) == ()
        assert await store.sessions.retry(HERE.key) is None
        with pytest.raises(SessionError, match="nothing to branch from"):
            await store.sessions.branch(HERE.key)


async def test_a_conversation_can_be_begun_before_anything_is_said_in_it(opened):
    async with opened() as store:
        standing = await store.sessions.open(HERE)
        assert await store.sessions.open(HERE) == standing == await store.sessions.standing(HERE.key)
        assert standing.address == HERE and (standing.model, standing.busy) == ("", "")
        assert (await live(store, "1", "hi", "hello")).session == standing.session


async def test_what_was_chosen_for_a_session_stays_until_it_is_taken_back(opened):
    async with opened() as store:
        session = (await store.sessions.open(HERE)).session
        await store.sessions.configure(session, model="p/big")
        await store.sessions.configure(session, busy="steer")
    async with opened() as store:
        standing = await store.sessions.standing(HERE.key)
        assert (standing.model, standing.busy) == ("p/big", "steer")
        assert (await live(store, "1", "hi", "hello")).model == "p/big"
        await store.sessions.configure(session, model="", busy="")
        assert (await live(store, "2", "hi", "hello")).model == ""
        with pytest.raises(SessionError):
            await store.sessions.configure("nobody", model="x")


async def test_a_message_is_accepted_in_the_mode_that_was_asked_for_else_the_sessions_else_the_usual(opened):
    async with opened() as store:
        first = await store.turns.admit(said("1", "a"), usual="interrupt")
        assert (first.busy, first.ahead) == ("interrupt", ())
        session = (await store.sessions.standing(HERE.key)).session
        await store.sessions.configure(session, busy="steer")
        second = await store.turns.admit(said("2", "b"), usual="interrupt")
        third = await store.turns.admit(said("3", "c"), busy="queue", usual="interrupt")
        assert (second.busy, third.busy) == ("steer", "queue")
        assert [(w.id, w.text, w.busy, w.begun) for w in third.ahead] == [
            (first.turn, "a", "interrupt", None),
            (second.turn, "b", "steer", None),
        ]
        assert await store.turns.admit(said("3", "c")) is None, "a second copy is a second copy in every mode"


async def test_what_waits_is_told_in_order_and_with_its_times(opened):
    async with opened() as store:
        turn = await begin(store, "1", "first")
        await store.turns.accept(said("2", "second"))
        living, waiting = await store.sessions.unfinished(HERE.key)
        assert (living.id, living.session, living.text) == (turn.id, turn.session, "first")
        assert living.begun >= living.accepted > 0 and waiting.begun is None
        again = await store.turns.next_turn(HERE.key)
        assert (await store.sessions.unfinished(HERE.key))[0].begun == living.begun, "the first claim counts"
        await store.turns.finish(again, "answered", "")
        assert [w.text for w in await store.sessions.unfinished(HERE.key)] == ["second"]


async def test_steered_messages_are_said_in_the_living_turn_in_order_and_their_own_turns_are_over(opened):
    picture = Image("image/png", b"\0\xff")
    async with opened() as store:
        turn = await begin(store, "1", "first")
        waits = await store.turns.admit(said("2", "later"))
        one = await store.turns.admit(said("3", "look here", attachments=(picture,)), busy="steer")
        two = await store.turns.admit(said("4", "and there"), busy="steer")
        taken = await store.sessions.absorb(turn)
        assert [(each.turn, each.message) for each in taken] == [
            (one.turn, user("look here", picture)),
            (two.turn, user("and there")),
        ]
        assert await store.sessions.absorb(turn) == (), "each is taken in once"
        facts = await store.archive.turn(one.turn)
        assert (facts.ending, facts.detail, facts.said) == ("steered", turn.id, ())
        resumed = await store.turns.next_turn(HERE.key)
        assert resumed.id == turn.id and [m.text for m in resumed.said] == ["first", "look here", "and there"]
        await store.turns.finish(resumed, "answered", "")
        assert (await store.turns.next_turn(HERE.key)).id == waits.turn
        assert [hit.turn for hit in await store.archive.search("there")] == [turn.id]


async def test_nothing_is_absorbed_by_who_no_longer_lives_the_turn(opened):
    async with opened() as store:
        old = await begin(store, "1", "first")
        waiting = await store.turns.admit(said("2", "more"), busy="steer")
        await store.turns.next_turn(HERE.key)
        with pytest.raises(Fenced):
            await store.sessions.absorb(old)
        assert (await store.archive.turn(waiting.turn)).ending is None


async def test_what_is_said_in_the_next_conversation_is_not_absorbed_by_the_last(opened):
    async with opened() as store:
        turn = await begin(store, "1", "first")
        await store.sessions.reset(HERE.key)
        await store.turns.admit(said("2", "something else"), busy="steer")
        assert await store.sessions.absorb(turn) == ()


async def test_a_message_that_someone_stopped_meanwhile_is_not_absorbed(opened):
    async with opened() as store:
        turn = await begin(store, "1", "first")
        gone = await store.turns.admit(said("2", "never mind"), busy="steer")
        kept = await store.turns.admit(said("3", "this"), busy="steer")
        await store.turns.put_control(HERE.key, Stop(turn=gone.turn))
        await store.turns.put_control(HERE.key, Stop())
        await store.turns.put_control(HERE.key, Stop("superseded", "superseded", kept.turn))
        assert [each.turn for each in await store.sessions.absorb(turn)] == [kept.turn]


async def test_a_new_conversation_knows_nothing_of_the_old_which_stays_to_be_found(opened):
    async with opened() as store:
        old = await live(store, "1", "remember the milk", "sure")
        await store.sessions.configure(old.session, model="p/big", busy="queue")
        left = await store.sessions.reset(HERE.key)
        assert (left.old, left.dropped, left.living, left.elsewhere) == (old.session, (), "", "")
        standing = await store.sessions.standing(HERE.key)
        assert (standing.session, standing.model, standing.busy) == (left.new, "", "")
        new = await live(store, "2", "hello", "hi")
        assert new.session == left.new and new.history == ()
        assert [hit.session for hit in await store.archive.search("milk")] == [old.session]


async def test_leaving_ends_what_waits_and_tells_what_lives(opened):
    async with opened() as store, opened() as other:
        living = await begin(store, "1", "long work")
        waiting = [await store.turns.accept(said(str(n))) for n in (2, 3)]
        left = await other.sessions.reset(HERE.key)
        assert (left.living, list(left.dropped)) == (living.id, waiting)
        facts = await store.archive.turn(waiting[0])
        assert (facts.ending, facts.detail) == ("stopped", "reset")
        await store.turns.record(living, Said(assistant(Text("so far"))))
        await store.turns.finish(living, "stopped", "reset")
        assert await store.turns.next_turn(HERE.key) is None
        await store.turns.accept(said("4", "hello"))
        assert (await store.turns.next_turn(HERE.key)).session == left.new


async def test_what_the_holder_has_not_claimed_yet_only_waits(opened):
    async with opened() as store, opened() as other:
        await live(store, "1", "one", "uno")
        assert await other.turns.holder(HERE.key) == store.host
        waiting = await store.turns.accept(said("2"))
        left = await other.sessions.reset(HERE.key)
        assert (left.living, left.dropped) == ("", (waiting,))


async def test_a_word_not_heard_in_time_does_not_end_a_conversation_that_was_taken_up_again(opened):
    async with opened() as store:
        turn = await live(store, "1", "one", "uno")
        left = await store.sessions.reset(HERE.key)
        for session in (turn.session, left.new):
            await store.turns.put_control(HERE.key, Reset(session=session))
        await store.sessions.switch(HERE, turn.session)
        assert await store.turns.drain_control(HERE.key) == (Reset(session=left.new),)


async def test_leaving_ends_also_a_turn_whose_process_died(opened):
    async with opened() as store:
        dead = await begin(store, "1", "long work")
        await store.turns.record(dead, Said(assistant(ToolCall("c", "t", {}))))
        await store.turns.record(dead, ToolStarted(ToolCall("c", "t", {})))
    async with opened() as store:
        left = await store.sessions.reset(HERE.key)
        assert (left.living, left.dropped) == ("", (dead.id,))
        assert await store.turns.orphans() == ()


async def test_an_older_conversation_goes_on_where_it_ended(opened):
    async with opened() as store:
        first = await live(store, "1", "one", "uno")
        await store.sessions.reset(HERE.key)
        second = await live(store, "2", "two", "dos")
        left = await store.sessions.switch(HERE, first.session)
        assert (left.old, left.new, left.elsewhere) == (second.session, first.session, "")
        third = await live(store, "3", "three", "tres")
    assert [message.text for message in third.history] == ["one", "uno"]


async def test_going_to_where_one_is_changes_nothing(opened):
    async with opened() as store:
        turn = await begin(store, "1", "long work")
        waiting = await store.turns.accept(said("2"))
        left = await store.sessions.switch(HERE, turn.session)
        assert (left.old, left.new, left.dropped, left.living) == (turn.session, turn.session, (), "")
        assert (await store.archive.turn(waiting)).ending is None


async def test_a_conversation_goes_on_in_one_place_at_a_time(opened):
    async with opened() as store:
        there = await live(store, "1", "one", "uno", THERE)
        left = await store.sessions.switch(HERE, there.session)
        assert (left.old, left.elsewhere) == ("", THERE.key)
        assert await store.sessions.standing(THERE.key) is None
        assert (await store.archive.latest("cli")).address == HERE
        here = await live(store, "2", "two", "dos")
        anew = await live(store, "3", "three", "tres", THERE)
    assert here.session == there.session != anew.session
    assert len(here.history) == 2 and anew.history == ()


async def test_a_conversation_that_is_at_work_elsewhere_is_not_taken_away(opened):
    async with opened() as store:
        there = await begin(store, "1", "long work", THERE)
        with pytest.raises(SessionError, match="at work elsewhere"):
            await store.sessions.switch(HERE, there.session)
        with pytest.raises(SessionError, match="no session nobody"):
            await store.sessions.switch(HERE, "nobody")
        assert await store.sessions.standing(HERE.key) is None
        assert (await store.sessions.standing(THERE.key)).session == there.session


async def test_what_is_undone_is_hidden_from_the_model_and_nothing_else(opened):
    async with opened() as store:
        for n, word in enumerate(("one", "two", "three")):
            await live(store, str(n), word, word.upper())
        undone = await store.sessions.undo(HERE.key, 2)
        assert [(each.text, each.living) for each in undone] == [("three", False), ("two", False)]
        assert await told(store) == ["one", "ONE"]
        assert len(await store.archive.search("three")) == 2
        facts = await store.archive.turn(undone[0].turn)
        assert [message.text for message in facts.said] == ["three", "THREE"]
        last = await live(store, "9", "four", "FOUR")
        assert [message.text for message in last.history] == ["one", "ONE"]
        assert len(await store.sessions.undo(HERE.key, 99)) == 2
        assert await store.sessions.undo(HERE.key) == ()


async def test_a_living_turn_can_be_undone_before_it_has_ended(opened):
    async with opened() as store:
        turn = await begin(store, "1", "oh no")
        (undone,) = await store.sessions.undo(HERE.key)
        assert (undone.turn, undone.living) == (turn.id, True)
        resumed = await store.turns.next_turn(HERE.key)
        assert [message.text for message in resumed.said] == ["oh no"], "who lives it still sees itself"
        await store.turns.finish(resumed, "stopped", "", assistant(Text("half")))
        assert (await live(store, "2", "hi", "hello")).history == ()


async def test_what_only_waits_and_what_said_nothing_is_not_undone(opened):
    async with opened() as store:
        done = await live(store, "1", "one", "uno")
        await store.turns.accept(said("2", "stopped before it began"))
        await store.turns.finish(await store.turns.next_turn(HERE.key), "stopped", "")
        waiting = await store.turns.accept(said("3", "waits"))
        assert [each.turn for each in await store.sessions.undo(HERE.key, 5)] == [done.id]
        assert (await store.archive.turn(waiting)).ending is None


async def test_a_branch_shares_what_was_finished_and_each_goes_its_own_way(opened):
    async with opened() as store:
        trunk = await live(store, "1", "one", "uno")
        await store.sessions.configure(trunk.session, model="p/big", busy="steer")
        left = await store.sessions.branch(HERE.key, "another way")
        standing = await store.sessions.standing(HERE.key)
        assert (standing.title, standing.parent) == ("another way", trunk.session)
        assert (standing.model, standing.busy) == ("p/big", "steer")
        twig = await live(store, "2", "two", "dos")
        assert [message.text for message in twig.history] == ["one", "uno"]
        await store.sessions.switch(HERE, trunk.session)
        assert [m.text for m in (await live(store, "3", "three", "tres")).history] == ["one", "uno"]
        await store.sessions.switch(HERE, left.new)
        assert await told(store) == ["one", "uno", "two", "dos"]
        assert (await store.archive.usage()).calls == 3, "no message was copied"


async def test_branches_of_branches_see_the_whole_line(opened):
    async with opened() as store:
        await live(store, "1", "one", "1")
        await store.sessions.branch(HERE.key)
        await store.sessions.branch(HERE.key)
        await live(store, "2", "two", "2")
        left = await store.sessions.branch(HERE.key)
        await live(store, "3", "three", "3")
        assert await told(store) == ["one", "1", "two", "2", "three", "3"]
        titles = {facts.id: facts.title for facts in await store.archive.sessions()}
        assert titles[left.new] == "one (branch 1) (branch 1) (branch 1)"


async def test_undoing_in_one_branch_changes_no_other(opened):
    async with opened() as store:
        trunk = await live(store, "1", "one", "1")
        await live(store, "2", "two", "2")
        first = await store.sessions.branch(HERE.key)
        await live(store, "3", "three", "3")
        assert [each.text for each in await store.sessions.undo(HERE.key, 2)] == ["three", "two"]
        assert await told(store) == ["one", "1"]
        second = await store.sessions.branch(HERE.key)
        assert await told(store) == ["one", "1"], "a branch sees what its parent saw"
        await store.sessions.switch(HERE, trunk.session)
        assert await told(store) == ["one", "1", "two", "2"]
        await store.sessions.undo(HERE.key, 2)
        assert await told(store) == []
        for session in (first.new, second.new):
            await store.sessions.switch(HERE, session)
            assert await told(store) == ["one", "1"]


async def test_a_turn_that_lives_is_not_shared_even_if_it_took_in_a_message(opened):
    async with opened() as store:
        await live(store, "1", "one", "uno")
        turn = await begin(store, "2", "two")
        await store.turns.admit(said("3", "and more"), busy="steer")
        await store.sessions.absorb(turn)
        left = await store.sessions.branch(HERE.key)
        assert left.living == turn.id
        await store.turns.finish(turn, "stopped", "reset")
        assert await told(store) == ["one", "uno"]


async def test_a_session_is_not_deleted_while_branches_share_it(opened):
    async with opened() as store:
        trunk = await live(store, "1", "one", "uno")
        left = await store.sessions.branch(HERE.key)
        with pytest.raises(SessionError, match=f"shared by its branches .{left.new}."):
            await store.archive.delete(trunk.session)
        await store.archive.delete(left.new)
        await store.archive.delete(trunk.session)
        assert await store.archive.search("uno") == [] and await store.archive.check() == []


async def test_an_export_of_a_branch_is_whole_and_marks_what_was_undone(opened):
    async with opened() as store:
        await live(store, "1", "one", "uno")
        await live(store, "2", "two", "dos")
        left = await store.sessions.branch(HERE.key)
        await live(store, "3", "three", "tres")
        await store.sessions.undo(HERE.key, 1)
        exported = await store.archive.export(left.new)
        assert [turn["undone"] for turn in exported["turns"]] == [False, False, True]
        text = markdown(exported)
        assert "uno" in text and "dos" in text and "tres" not in text


async def test_retrying_accepts_the_same_message_anew_and_hides_the_old_turn(opened):
    asked = said("1", "hello", attachments=(Image("image/png", b"\0"),), workdir="/tmp", trusted=True)
    async with opened() as store:
        await store.turns.accept(asked)
        turn = await store.turns.next_turn(HERE.key)
        await store.turns.record(turn, Said(asked.message))
        await store.turns.finish(turn, "failed", "the network was down")
        retried = await store.sessions.retry(HERE.key)
        assert (retried.undone.turn, retried.undone.living, retried.steered) == (turn.id, False, ())
        again = await store.turns.next_turn(HERE.key)
        assert again.id == retried.turn and again.history == ()
        assert again.inbound.id != "1"
        assert (again.inbound.message, again.inbound.workdir, again.inbound.trusted) == (
            asked.message,
            "/tmp",
            True,
        )
        await store.turns.finish(again, "answered", "")
        assert await store.sessions.retry(HERE.key), "and again"


async def test_retrying_brings_back_what_was_steered_into_the_turn(opened):
    async with opened() as store:
        turn = await begin(store, "1", "first")
        await store.turns.admit(said("2", "second"), busy="steer")
        await store.turns.admit(said("3", "third"), busy="steer")
        await store.sessions.absorb(turn)
        await store.turns.finish(turn, "answered", "")
        retried = await store.sessions.retry(HERE.key)
        waiting = await store.sessions.unfinished(HERE.key)
        assert [(w.id, w.text, w.busy) for w in waiting] == [
            (retried.turn, "first", "queue"),
            (retried.steered[0], "second", "steer"),
            (retried.steered[1], "third", "steer"),
        ]


async def test_a_message_that_said_nothing_can_be_retried_too(opened):
    async with opened() as store:
        await live(store, "1", "one", "uno")
        await store.turns.accept(said("2", "two"))
        await store.turns.finish(await store.turns.next_turn(HERE.key), "failed", "no model")
        await store.sessions.retry(HERE.key)
        assert [w.text for w in await store.sessions.unfinished(HERE.key)] == ["two"]


async def test_in_a_branch_the_shared_turn_is_retried_there_and_stays_in_the_trunk(opened):
    async with opened() as store:
        trunk = await live(store, "1", "one", "uno")
        left = await store.sessions.branch(HERE.key)
        await store.sessions.retry(HERE.key)
        again = await store.turns.next_turn(HERE.key)
        assert (again.session, again.history, again.inbound.text) == (left.new, (), "one")
        await store.turns.finish(again, "stopped", "")
        await store.sessions.switch(HERE, trunk.session)
        assert await told(store) == ["one", "uno"]


async def test_sessions_are_found_by_words_of_their_title_or_first_message(opened):
    async with opened() as store:
        one = await live(store, "1", "Bake 100% rye bread", "ok")
        two = await live(store, "2", "fix the roof", "ok", THERE)
        await store.sessions.configure(two.session, title="House_work")
        ids = lambda found: [facts.id for facts in found]  # noqa: E731
        assert ids(await store.archive.sessions(words="BREAD rye")) == [one.session]
        assert ids(await store.archive.sessions(words="100%")) == [one.session]
        assert ids(await store.archive.sessions(words="e_w")) == [two.session]
        assert ids(await store.archive.sessions(words="roof bread")) == []
        assert len(await store.archive.sessions(limit=1)) == 1


async def test_a_history_with_open_calls_stays_as_it_was_said(opened):
    async with opened() as store:
        turn = await begin(store, "1", "one")
        await store.turns.record(turn, Said(assistant(ToolCall("c", "t", {}))))
        await store.turns.finish(turn, "stopped", "", Message("tool", (ToolResult("c", "", "cancelled"),)))
        await store.sessions.branch(HERE.key)
        standing = await store.sessions.standing(HERE.key)
        roles = [message.role for message in await store.archive.messages(standing.session)]
    assert roles == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    "rule", ["rm -rf build", "rm  -rf build", "rm -rf build ", "", "é", "a\0b", "\udcff"]
)
async def test_what_is_allowed_for_good_is_that_and_no_more(opened, rule):
    others = {"rm -rf build", "rm  -rf build", "rm -rf build ", "RM -rf build", "?", "\\udcff", "a", "e"}
    async with opened() as store:
        assert not await store.grants.allowed(rule)
        await store.grants.allow(rule)
        await store.grants.allow(rule)
    async with opened() as store:
        assert await store.grants.allowed(rule) and await store.grants.rules() == (rule,)
        assert [other for other in others - {rule} if await store.grants.allowed(other)] == []
        assert await store.grants.withdraw(rule) and not await store.grants.withdraw(rule)
        assert not await store.grants.allowed(rule)


@pytest.mark.parametrize("verb", ["undo", "retry"])
async def test_who_takes_up_a_turn_that_was_taken_back_while_it_lived_finds_its_stop(opened, verb):
    async with opened() as store:
        turn = await begin(store, "1", "first")
        await getattr(store.sessions, verb)(HERE.key)
    async with opened() as store:
        taken = await store.turns.next_turn(HERE.key)
        (stop,) = await store.turns.drain_control(HERE.key)
        assert taken.id == turn.id and stop == Stop("user_stop", "session_interrupt", turn.id)
