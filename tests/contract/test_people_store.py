"""Contract of every store of people: access by code, default chats, progress."""

import pytest

from alipes.kernel.errors import MessageRejected
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address
from alipes.store.sql.people import PairingRequest

HERE = Address("telegram", "1")
REQUEST = PairingRequest("telegram", "42", "Ann", HERE)


async def request_code(store) -> str:
    codes = []

    def message(code):
        codes.append(code)
        return Outbound("code", HERE, code)

    assert await store.people.request_pairing(REQUEST, message)
    return codes[0]


def welcome(request):
    return Outbound(f"welcome:{request.person}", request.address, "Welcome")


async def test_the_right_code_gives_access_and_queues_a_welcome(opened):
    async with opened() as store:
        code = await request_code(store)
        person = await store.people.approve(code, "user", welcome)
        assert (person.person, await store.people.role("telegram", "42")) == ("42", "user")
        assert await store.outbox.find("welcome:42") is not None


async def test_a_code_can_be_used_once(opened):
    async with opened() as store:
        code = await request_code(store)
        await store.people.approve(code, "user", welcome)
        with pytest.raises(MessageRejected):
            await store.people.approve(code, "user", welcome)


async def test_a_recent_request_is_not_answered_again(opened):
    async with opened() as store:
        await request_code(store)
        assert not await store.people.request_pairing(REQUEST, lambda code: Outbound("again", HERE, code))
        assert await store.outbox.find("again") is None


async def test_too_many_wrong_codes_block_the_right_one(opened):
    async with opened() as store:
        code = await request_code(store)
        for _ in range(5):
            with pytest.raises(MessageRejected):
                await store.people.approve("AAAA-AAAA", "user", welcome)
        with pytest.raises(MessageRejected, match="too many"):
            await store.people.approve(code, "user", welcome)


async def test_revoked_access_is_gone_in_another_process(opened):
    async with opened() as store, opened() as other:
        await store.people.approve(await request_code(store), "owner", welcome)
        assert await other.people.revoke_access("telegram", "42")
        assert await store.people.role("telegram", "42") is None


async def test_a_platform_has_one_default_chat(opened):
    async with opened() as store:
        await store.people.set_default_chat(HERE)
        await store.people.set_default_chat(Address("telegram", "2"))
        assert await store.people.default_chats() == {"telegram": Address("telegram", "2")}


async def test_the_progress_of_a_chat_is_remembered(opened):
    async with opened() as store:
        await store.people.set_progress("lane", "short")
        assert await store.people.progress("lane") == "short"
        assert await store.people.progress("other") is None
