"""Where the name of a target leads."""

import pytest

from alipes.gateway.outbound.send import addressed
from alipes.kernel.errors import NotTaken
from alipes.kernel.turns import Address

HOME = Address("telegram", "7")


class People:
    def __init__(self, **homes):
        self._homes = homes

    async def homes(self):
        return self._homes


async def place(to, **homes):
    return (await addressed(People(**homes), to, "hello", ("telegram", "matrix", "irc"))).address


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
async def test_a_chat_and_its_thread_are_named_with_colons_between_them(to, chat, thread):
    found = await place(to)
    assert (found.platform, found.chat, found.thread) == (to.partition(":")[0], chat, thread)


async def test_a_platform_alone_means_its_home_and_home_the_only_one():
    assert await place("telegram", telegram=HOME) == HOME == await place("home", telegram=HOME)


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("telegramm:1", "Did you mean telegram"),
        ("telegram", "/sethome"),
        ("home", "no chat was made the home"),
    ],
)
async def test_what_names_nothing_is_told(to, why):
    with pytest.raises(NotTaken, match=why):
        await place(to)


async def test_several_homes_have_to_be_named():
    with pytest.raises(NotTaken, match="several homes"):
        await place("home", telegram=HOME, irc=Address("irc", "#house"))
