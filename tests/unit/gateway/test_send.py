"""Resolving targets of `alipes send`."""

import pytest

from alipes.gateway.outbound.target import address_message
from alipes.kernel.errors import MessageRejected
from alipes.kernel.turns import Address

HOME = Address("telegram", "7")


class People:
    def __init__(self, **homes):
        self._homes = homes

    async def default_chats(self):
        return self._homes


async def place(to, **homes):
    return (await address_message(People(**homes), to, "hello", ("telegram", "matrix", "irc"))).address


@pytest.mark.parametrize(
    ("to", "chat", "thread"),
    [
        ("telegram:123", "123", ""),
        ("telegram:-100:7", "-100", "7"),
        ("matrix:!abc:host.org", "!abc:host.org", ""),
        ("matrix:!abc:host.org:8448", "!abc:host.org:8448", ""),
        ("matrix:!abc:host.org:$event", "!abc:host.org", "$event"),
        ("irc:#house", "#house", ""),
    ],
)
async def test_a_target_names_chat_and_thread_with_colons(to, chat, thread):
    found = await place(to)
    assert (found.platform, found.chat, found.thread) == (to.partition(":")[0], chat, thread)


async def test_a_platform_means_its_default_chat_and_home_the_only_one():
    assert await place("telegram", telegram=HOME) == HOME == await place("home", telegram=HOME)


@pytest.mark.parametrize(
    ("to", "why"),
    [("telegramm:1", "Did you mean telegram"), ("telegram", "/sethome"), ("home", "there is no default chat")],
)
async def test_an_unknown_target_is_rejected(to, why):
    with pytest.raises(MessageRejected, match=why):
        await place(to)


async def test_several_default_chats_must_be_named():
    with pytest.raises(MessageRejected, match="several platforms have a default chat"):
        await place("home", telegram=HOME, irc=Address("irc", "#house"))
