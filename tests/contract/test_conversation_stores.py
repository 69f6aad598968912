"""Contract of what is stored for a conversation: todos, choices, prompt sections, drafts, the inbox, subagents."""

from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address, Inbound, Origin
from alipes.store.sql.subagents import PLATFORM

HERE = Address("telegram", "1")


async def start_turn(store, id="1", address=HERE, **more):
    await store.turns.accept(Inbound(id, address, "me", "go", **more))
    return await store.turns.claim_next(address.key)


async def test_todos_are_replaced_as_a_whole(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await store.todos.write(turn.session, "[1]")
        await store.todos.write(turn.session, "[2]")
        assert await store.todos.read(turn.session) == "[2]"


async def test_choices_of_tools_and_skills_are_kept_apart(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await store.tool_choices.write(turn.session, ["web"])
        await store.skill_choices.write(turn.session, ["mail"])
        assert await store.tool_choices.read(turn.session) == ("web",)
        assert await store.skill_choices.read(turn.session) == ("mail",)


async def test_the_first_text_of_a_prompt_section_is_kept(opened):
    async with opened() as store:
        turn = await start_turn(store)
        assert await store.prompt_sections.keep(turn.session, "skills", "one") == "one"
        assert await store.prompt_sections.keep(turn.session, "skills", "two") == "one"
        await store.prompt_sections.forget(turn.session, "skills")
        assert await store.prompt_sections.read(turn.session, "skills") is None


async def test_drafts_are_listed_in_order_until_they_are_removed(opened):
    async with opened() as store:
        await store.drafts.add("lane", "t1", "m1")
        await store.drafts.add("lane", "t1", "m2")
        await store.drafts.remove("lane", "t1", "m1")
        assert await store.drafts.list_ids("lane", "t1") == ("m2",)


async def test_a_second_copy_of_an_incoming_message_is_refused(opened):
    message = IncomingMessage("7", HERE, "me", text="hello")
    async with opened() as store:
        assert await store.inbox.add(message)
        assert not await store.inbox.add(message)


async def test_a_handled_message_waits_no_longer_and_its_reply_is_queued(opened):
    message = IncomingMessage("7", HERE, "me", text="hello")
    async with opened() as store:
        await store.inbox.add(message)
        await store.inbox.mark_handled("telegram", "7", owed=(Outbound("o1", HERE, "yes"),))
        assert await store.inbox.list_waiting("telegram") == ()
        assert await store.inbox.contains("telegram", "7")
        assert await store.outbox.find("o1") is not None


async def test_an_edit_changes_a_message_until_its_turn_starts(opened):
    async with opened() as store:
        await store.turns.accept(Inbound("7", HERE, "me", "hello"))
        edited = Inbound("8", HERE, "me", "bye")
        assert await store.inbox.apply_edit("8", "7", edited) == "replaced"
        turn = await store.turns.claim_next(HERE.key)
        assert turn.inbound.text == "bye"
        assert await store.inbox.apply_edit("9", "7", Inbound("9", HERE, "me", "late")) == "late"


async def test_the_unfinished_subagents_of_a_turn_are_listed(opened):
    async with opened() as store:
        turn = await start_turn(store)
        origin = Origin(HERE, turn.session)
        child = Inbound("c1", Address(PLATFORM, "c1"), "me", "work", parent=turn.id, origin=origin)
        id = await store.turns.accept(child)
        assert [each.id for each in await store.subagents.unfinished(parent=turn.id)] == [id]
        assert await store.subagents.find("c1") == id
        assert not await store.subagents.is_over(id)
