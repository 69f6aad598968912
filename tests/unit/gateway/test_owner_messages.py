"""Messages that an owner writes into a chat from another surface."""

from pathlib import Path

from alipes.kernel.turns import Address, Inbound
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.gateway_harness import open_gateway


async def test_the_chat_is_shown_the_owners_text_and_then_the_answer(tmp_path: Path):
    async with open_gateway(tmp_path, ScriptedProvider()) as world:
        inbound = Inbound("1", Address("test", "me"), "me", "how are you?", via="page")
        await world.sessions.submit(inbound)
        await world.quiet()
        assert world.messenger.said() == ["**Owner (page):** how are you?", "You said: how are you?"]


async def test_the_owners_text_is_shown_once_even_if_it_is_sent_twice(tmp_path: Path):
    async with open_gateway(tmp_path, ScriptedProvider()) as world:
        inbound = Inbound("1", Address("test", "me"), "me", "hello", via="page")
        assert await world.sessions.submit(inbound) is not None
        assert await world.sessions.submit(inbound) is None
        await world.quiet()
        assert [text for text in world.messenger.said() if "Owner" in text] == ["**Owner (page):** hello"]


async def test_a_conversation_without_a_chat_is_shown_nothing(tmp_path: Path):
    async with open_gateway(tmp_path, ScriptedProvider()) as world:
        await world.sessions.submit(Inbound("1", Address("terminal", "t1"), "me", "hello", via="page"))
        await world.quiet()
        assert world.messenger.said() == []
