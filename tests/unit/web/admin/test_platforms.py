"""Messengers and the outbox over HTTP."""

import pytest

from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address
from tests.world.admin_harness import open_admin

CHAT = Address("telegram", "7")
TELEGRAM = '[telegram]\nbase_url = "http://127.0.0.1:1"\nallow = [7]\n'
TOKEN = "TELEGRAM_BOT_TOKEN=123456:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"


async def test_messengers_are_listed_with_what_is_missing(tmp_path):
    async with open_admin(tmp_path / "home", TELEGRAM, env=TOKEN) as api:
        await api.app.store.people.set_default_chat(CHAT)
        listed = await api.ask("GET", "/platforms", by="page")
    found = {each["name"]: each for each in listed.json()["platforms"]}
    assert found["telegram"]["home_chat"] == "7" and found["telegram"]["label"] == "Telegram"
    assert found["telegram"]["why"] == "it has not been connected yet"
    assert found["slack"]["configured"] is False and "SLACK_BOT_TOKEN" in found["slack"]["why"]
    assert "AAAA" not in listed.text


async def test_a_failed_message_is_sent_again(tmp_path):
    async with open_admin(tmp_path / "home", TELEGRAM, env=TOKEN) as api:
        outbox = api.app.store.outbox
        await outbox.enqueue(Outbound("m1", CHAT, "<b>hello</b>"))
        delivery = await outbox.find("m1")
        await outbox.give_up(delivery, "failed", "the chat is gone")
        (listed,) = (await api.get("/outbox"))["messages"]
        assert (listed["text"], listed["state"], listed["reason"]) == ("<b>hello</b>", "failed", "the chat is gone")
        again = await api.call("POST", f"/outbox/{listed['number']}/retry")
        assert again["state"] == "queued" and again["attempts"] == 0
        refused = await api.call("POST", f"/outbox/{listed['number']}/retry", status=409)
        assert "is queued" in refused["detail"]


async def test_a_queued_message_is_dropped_and_then_deleted(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await api.app.store.outbox.enqueue(Outbound("m1", CHAT, "hello"))
        (listed,) = (await api.get("/outbox?state=queued"))["messages"]
        path = f"/outbox/{listed['number']}/drop"
        assert (await api.call("POST", path))["state"] == "failed"
        await api.call("POST", path)
        assert (await api.get("/outbox?state=all"))["messages"] == []
        await api.call("POST", path, status=404)


@pytest.mark.parametrize("number", ["0", "99", "x", "9" * 40, "-1"])
async def test_an_unknown_message_is_not_found(tmp_path, number):
    async with open_admin(tmp_path / "home") as api:
        for act in ("retry", "drop"):
            assert (await api.call("POST", f"/outbox/{number}/{act}", status=404))["code"] == "no_message"


async def test_a_reading_browser_may_only_look(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        assert (await api.get("/outbox", by="page"))["messages"] == []
        await api.call("POST", "/outbox/1/drop", by="page", status=403)
        await api.get("/outbox", by="ann", status=403)
        await api.get("/outbox?state=lost", status=422)
