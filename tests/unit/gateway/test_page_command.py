"""/page in chats: a login link for owners in their private chat, for nobody else and nowhere else."""

import re

import pytest

from alipes.gateway.policy import PlatformPolicy
from alipes.store.sql.browsers import BrowserStore
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.gateway_harness import open_gateway

BOTH = PlatformPolicy(allow=("me", "you"), owners=("me",), busy="queue", progress="off")
ADDRESS = "https://agent.example.com/agent"


@pytest.mark.parametrize(("text", "scope"), [("/page", "admin"), ("/page read", "read")])
async def test_an_owner_gets_a_link_in_the_private_chat(tmp_path, text, scope):
    async with open_gateway(tmp_path, ScriptedProvider([]), manners=BOTH, rules={"page_address": ADDRESS}) as g:
        await g.take(text)
        await g.messenger.until(lambda: g.messenger.said())
        code = re.search(rf"{ADDRESS}/#login=([\w-]+)$", g.messenger.said()[0].replace("\\", ""))[1]
        login = await BrowserStore(g.store.database).log_in(code, "phone")
        assert login.browser.scope == scope


async def test_nobody_gets_a_link_in_a_group_and_a_guest_nowhere(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider([]), manners=BOTH, rules={"page_address": ADDRESS}) as g:
        await g.take("/page", chat="team", chat_type="group", group=True, addressed=True)
        await g.take("/page", sender="you", chat="you")
        await g.messenger.until(lambda: g.messenger.said("team") and g.messenger.said("you"))
        assert g.messenger.said("team") == ["/page works only in an owner's private chat."]
        assert g.messenger.said("you") == ["/page is for owners."]
        assert await g.store.database.fetch_one("SELECT count(*) FROM login_codes") == (0,)


async def test_without_an_address_it_says_which_setting_is_missing(tmp_path):
    async with open_gateway(tmp_path, ScriptedProvider([]), manners=BOTH) as g:
        await g.take("/page")
        await g.messenger.until(lambda: g.messenger.said())
        assert "page.address" in g.messenger.said()[0]
