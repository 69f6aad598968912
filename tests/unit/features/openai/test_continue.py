"""Conversations that their clients bring along: gone on with here, branched, or written down as they were reported."""

import asyncio

import pytest

from alipes.features.openai.requests import conversation_hash
from alipes.kernel.messages import Image, Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.turns import Address, ClientTool, Inbound, Said, Stop
from alipes.store.sql.api_history import IMPORTED, ApiHistoryStore, Continuation, HistoryMismatch
from alipes.store.sqlite.store import open_store
from tests.unit.features.openai.openai_harness import open_desk, result, said, tool

CALL = ToolCall("c1", "weather", {"city": "Rome"})


async def test_a_client_that_continues_stays_in_one_conversation(tmp_path):
    async with open_desk(tmp_path, ["one", "two", "three"]) as desk:
        await desk.chat("a", key="anns-key")
        await desk.chat("a", said("one"), "b", key="anns-key")
        await desk.chat("a", said("one "), "b", said("two\n"), "c", key="anns-key")  # clients trim and pad
        (session,) = await desk.list_sessions()
        assert (session.turns, session.messages) == (3, 6)
        assert session.address.platform == "api" and session.address.user == "ann"
    assert [text for _, text in desk.asked()] == ["a", "one", "b", "two", "c"]


async def test_another_system_prompt_is_still_the_same_conversation(tmp_path):
    async with open_desk(tmp_path, ["one", "two"]) as desk:
        await desk.chat({"role": "system", "content": "x"}, "a")
        await desk.chat({"role": "system", "content": "y"}, "a", said("one"), "b")
        assert len(await desk.list_sessions()) == 1


async def test_an_answer_asked_for_again_branches_off_without_copying_what_was_said(tmp_path):
    async with open_desk(tmp_path, ["one", "two", "otherwise", "on"]) as desk:
        await desk.chat("a")
        await desk.chat("a", said("one"), "b")
        await desk.chat("a", said("one"), "b")
        branch, trunk = await desk.list_sessions()
        assert (trunk.turns, branch.turns) == (2, 1) and branch.parent == trunk.id
        assert desk.asked() == [("user", "a"), ("assistant", "one"), ("user", "b")]
        await desk.chat("a", said("one"), "b", said("otherwise"), "c")
        assert len(await desk.list_sessions()) == 2
        assert [text for _, text in desk.asked()] == ["a", "one", "b", "otherwise", "c"]


async def test_two_who_go_on_at_once_do_not_hear_each_other(tmp_path):
    async with open_desk(tmp_path, ["one", "x", "x"]) as desk:
        await desk.chat("a")
        async with asyncio.TaskGroup() as group:
            for word in ("b", "c"):
                group.create_task(desk.chat("a", said("one"), word))
        assert [[text for _, text in desk.asked(place)] for place in (1, 2)] in (
            [["a", "one", "b"], ["a", "one", "c"]],
            [["a", "one", "c"], ["a", "one", "b"]],
        )
        assert len(await desk.list_sessions()) == 2


async def test_a_history_from_elsewhere_begins_a_conversation_that_has_it(tmp_path):
    called = {
        **said("I ask."),
        "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}],
    }
    history = ("weather?", called, result("c1", "sunny"), said("Sunny."), "and tomorrow?")
    async with open_desk(tmp_path, ["Rain.", "Snow."]) as desk:
        await desk.chat(*history)
        assert desk.provider.asked[0].messages == (
            user("weather?"),
            assistant(Text("I ask."), CALL),
            Message("tool", (ToolResult("c1", "sunny"),)),
            assistant(Text("Sunny.")),
            user("and tomorrow?"),
        )
        (session,) = await desk.list_sessions()
        assert session.title == "weather?" and session.turns == 2
        exported = await desk.store.archive.export(session.id)
        assert [turn["detail"] for turn in exported["turns"]] == [IMPORTED, ""]
        await desk.chat(*history, said("Rain."), "then?")
        assert len(await desk.list_sessions()) == 1
        assert [hit.session for hit in await desk.store.archive.search("tomorrow")] == [session.id]


async def test_a_conversation_of_another_caller_is_not_gone_on_with(tmp_path):
    async with open_desk(tmp_path, ["one", "two"]) as desk:
        await desk.chat("a", key="anns-key")
        await desk.chat("a", said("one"), "b", key="bobs-key")
        bobs, anns = await desk.list_sessions()
        assert (bobs.address.user, anns.address.user) == ("bob", "ann")
        assert bobs.parent == "" and bobs.turns == 2


async def test_what_was_undone_here_is_not_gone_on_with(tmp_path):
    async with open_desk(tmp_path, ["one", "two"]) as desk:
        await desk.chat("a")
        (session,) = await desk.list_sessions()
        await desk.store.sessions.undo(session.key)
        await desk.chat("a", said("one"), "b")
        assert len(await desk.list_sessions()) == 2
    assert [text for _, text in desk.asked()] == ["a", "one", "b"]


async def test_a_conversation_that_somebody_took_elsewhere_is_branched(tmp_path):
    async with open_desk(tmp_path, ["one", "two"]) as desk:
        await desk.chat("a")
        (session,) = await desk.list_sessions()
        await desk.store.sessions.switch(Address("terminal", "main"), session.id)
        await desk.chat("a", said("one"), "b")
        branch, _ = await desk.list_sessions()
        assert branch.parent == session.id and branch.address.platform == "api"


async def test_what_alipes_itself_reported_meanwhile_is_heard_and_nothing_is_branched(tmp_path):
    async with open_desk(tmp_path, ["one", "I see.", "two"]) as desk:
        await desk.chat("a")
        (session,) = await desk.list_sessions()
        report = Inbound("report:1", session.address, "house", "the task is done", notice="answered")
        async with desk.sessions.ask(report) as events:
            assert [event async for event in events]
        await desk.chat("a", said("one"), "b")
        assert len(await desk.list_sessions()) == 1
    assert [text for _, text in desk.asked()] == ["a", "one", "the task is done", "I see.", "b"]


async def test_results_that_come_a_second_time_are_answered_in_a_branch(tmp_path):
    async with open_desk(tmp_path, [CALL, "Sunny.", "Rainy."]) as desk:
        first = await desk.chat("weather?", tools=[tool()])
        message = first["choices"][0]["message"]
        await desk.chat("weather?", message, result("c1", "sun"), tools=[tool()])
        await desk.chat("weather?", message, result("c1", "rain"), tools=[tool()])
        assert desk.asked(1)[:3] == [("user", "weather?"), ("assistant", "weather"), ("tool", "sun")]
        assert desk.asked(2)[:3] == [("user", "weather?"), ("assistant", "weather"), ("tool", "rain")]
        branch, trunk = await desk.list_sessions()
        assert branch.parent == trunk.id
        assert [m.role for m in await desk.store.archive.messages(branch.id)] == [
            *("user", "assistant", "tool", "user", "assistant")
        ]


async def test_calls_that_are_numbered_again_in_every_answer_are_distinguished(tmp_path):
    def called(text):
        return {**said(text), "tool_calls": [{"id": "0", "function": {"name": "f", "arguments": "{}"}}]}

    async with open_desk(tmp_path, ["fine"]) as desk:
        await desk.chat("a", called("x"), result("0", "r1"), called("y"), result("0", "r2"), "b")
        seen = desk.provider.asked[0].messages
    calls = [call.id for message in seen for call in message.calls]
    results = [part.call_id for message in seen for part in message.parts if isinstance(part, ToolResult)]
    assert calls == results == ["0", "0_2"]


async def test_a_turn_that_began_with_a_restart_is_gone_on_with_all_the_same(tmp_path):
    async with open_desk(tmp_path, ["one"]) as desk:
        await desk.chat("a")
    async with open_desk(tmp_path, ["two"]) as desk:
        await desk.chat("a", said("one"), "b")
        assert len(await desk.list_sessions()) == 1


def test_a_mark_is_the_same_for_the_same_talk_and_for_no_other():
    talk = (user("a", Image("image/png", b"1")), assistant(Text("b"), CALL))
    assert conversation_hash("ann", talk) == conversation_hash("ann", (user(" a", Image("image/png", b"1")), *talk[1:]))
    others = [
        ("bob", talk),
        ("ann", talk[:1]),
        ("ann", (user("a", Image("image/png", b"2")), *talk[1:])),
        ("ann", (user("a"), user("b"))),
        ("ann", (*talk[:1], assistant(Text("b"), ToolCall("c1", "weather", {"city": "Bonn"})))),
    ]
    assert len({conversation_hash("ann", talk), *(conversation_hash(*other) for other in others)}) == len(others) + 1


HANDED = "(handed over)"
THEIRS = (ClientTool("weather"),)


def wish(id, text="", **more):
    address = Address("api", f"chat-{id}", user="ann")
    return Continuation(Inbound(id, address, "ann", text, offered=THEIRS), **more)


async def placed_and_lived(store, seeding, wished, *messages):
    """Its turn, lived by hand to its end."""
    placed = await seeding.admit_continuation(wished)
    turn = await store.turns.claim_next(placed.address.key)
    for message in messages:
        await store.turns.record(turn, Said(message))
    await store.turns.finish(turn, "answered", "")
    return placed, turn


async def test_results_of_calls_that_nobody_handed_over_fit_nowhere(tmp_path):
    async with open_store(tmp_path) as store:
        seeding = ApiHistoryStore(store.database)
        placed, _ = await placed_and_lived(store, seeding, wish("1", "a"), user("a"), assistant(Text("b")))
        with pytest.raises(HistoryMismatch, match="no tool call found for function call output c9") as unfit:
            await seeding.admit_continuation(wish("2", after=placed.turn, results=(ToolResult("c9", "x"),)))
        assert unfit.value.code == "tool_call_missing"


async def test_every_call_that_was_handed_over_wants_a_result(tmp_path):
    other = ToolCall("c2", "weather", {})
    async with open_store(tmp_path) as store:
        seeding = ApiHistoryStore(store.database)
        handed = Message("tool", (ToolResult("c1", HANDED), ToolResult("c2", HANDED)))
        placed, _ = await placed_and_lived(store, seeding, wish("1", "a"), user("a"), assistant(CALL, other), handed)
        with pytest.raises(HistoryMismatch, match="no tool output found for function call c2"):
            await seeding.admit_continuation(wish("2", after=placed.turn, results=(ToolResult("c1", "x"),)))
        both = (ToolResult("c1", "x"), ToolResult("c2", "y"))
        after = await seeding.admit_continuation(wish("3", after=placed.turn, results=both))
        assert after.session == placed.session
        turn = await store.turns.claim_next(after.address.key)
        assert turn.history[-1] == Message("tool", both)


async def test_nothing_follows_on_a_turn_that_is_not_over_or_not_there(tmp_path):
    async with open_store(tmp_path) as store:
        seeding = ApiHistoryStore(store.database)
        placed = await seeding.admit_continuation(wish("1", "a"))
        with pytest.raises(HistoryMismatch, match="not finished yet"):
            await seeding.admit_continuation(wish("2", "b", after=placed.turn))
        with pytest.raises(HistoryMismatch, match="no longer exists"):
            await seeding.admit_continuation(wish("3", "b", after="nonsense"))
        assert len(await store.archive.sessions()) == 1


async def test_a_branch_of_a_branch_has_all_that_was_said_before_it(tmp_path):
    async with open_store(tmp_path) as store:
        seeding = ApiHistoryStore(store.database)
        one, _ = await placed_and_lived(store, seeding, wish("1", "a"), user("a"), assistant(Text("A")))
        await placed_and_lived(store, seeding, wish("2", "b", after=one.turn), user("b"), assistant(Text("B")))
        side, _ = await placed_and_lived(
            store, seeding, wish("3", "c", after=one.turn), user("c"), assistant(Text("C"))
        )
        await placed_and_lived(store, seeding, wish("4", "d", after=side.turn), user("d"), assistant(Text("D")))
        last, turn = await placed_and_lived(store, seeding, wish("5", "e", after=side.turn), user("e"))
        assert [message.text for message in turn.history] == ["a", "A", "c", "C"]
        assert len({one.session, side.session, last.session}) == 3


async def test_a_stop_that_found_nothing_does_not_meet_a_later_turn(tmp_path):
    async with open_store(tmp_path) as store:
        seeding = ApiHistoryStore(store.database)
        placed, _ = await placed_and_lived(store, seeding, wish("1", "a"), user("a"), assistant(Text("b")))
        await store.turns.put_op(placed.address.key, Stop())
        await seeding.admit_continuation(wish("2", "b", after=placed.turn))
        assert await store.turns.take_ops(placed.address.key) == ()
